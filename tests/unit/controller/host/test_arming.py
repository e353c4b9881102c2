"""A reversal is armed outside the service and the login."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ovs.dirs
import pytest

from controller.host import arming
from controller.host.arming import Armed
from controller.text.wording import Refused


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ovs.dirs, "LOGDIR", str(tmp_path))
    monkeypatch.setattr(arming, "BOOTED", tmp_path / "not-systemd")
    return tmp_path


def stand_in(directory: Path, name: str, script: str) -> None:
    """A program that is found first."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def systemd(logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that systemd has booted, whose tools write down what they are asked for."""
    monkeypatch.setattr(arming, "BOOTED", logs)
    monkeypatch.setenv("PATH", f"{logs}:{os.environ['PATH']}")
    for name in ("systemd-run", "systemctl"):
        stand_in(logs, name, f'for word; do echo "$word"; done >> {logs}/{name}.asked')
    return logs


def test_systemd_gets_a_timer_that_is_no_part_of_the_login(
    systemd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVS_RUNDIR", "/run/there")
    monkeypatch.setenv("OTHER", "1")
    armed = arming.arm("br-ex:0", 60.0, "ovs-lbt-b")
    asked = (systemd / "systemd-run.asked").read_text().splitlines()
    options, command = asked[: asked.index("--")], asked[asked.index("--") + 1 :]
    assert armed.process is None
    assert armed.unit is not None and armed.unit.startswith("ovs-lbt-reversal-br-ex-0-")
    assert f"--unit={armed.unit}" in options
    assert {"--on-active=60s", "--setenv=OVS_RUNDIR=/run/there"} <= set(options)
    assert "--property=Restart=on-failure" in options
    assert not any("OTHER" in option for option in options)
    us = [sys.executable, "-P", "-m", "controller.reversal"]
    assert command == [*us, "after", "br-ex:0", "0", "ovs-lbt-b"]
    armed.disarm()
    assert (systemd / "systemctl.asked").read_text() == f"stop\n{armed.unit}.timer\n"


@pytest.mark.system
def test_systemd_knows_every_option() -> None:
    """The real program reads them all before it finds that there is nobody to ask."""
    words = arming.systemd_run("ovs-lbt-reversal-test", "br0", 60.0, "ovs-lbt")
    asked = [words[0], "--host=nobody@nowhere.invalid", *words[1:]]
    nowhere = {**os.environ, "SYSTEMD_SSH": "/bin/false"}
    done = subprocess.run(asked, capture_output=True, text=True, env=nowhere, timeout=60)
    assert done.returncode
    wrong = ("unrecognized", "invalid", "unknown assignment", "failed to parse")
    assert not any(word in done.stderr.lower().replace(".invalid", "") for word in wrong), done


@pytest.mark.parametrize("booted", [False, True], ids=["another init", "systemd refuses"])
def test_elsewhere_it_is_a_process_of_its_own(
    logs: Path, monkeypatch: pytest.MonkeyPatch, booted: bool, eventually: Eventually
) -> None:
    if booted:
        monkeypatch.setattr(arming, "BOOTED", logs)
        monkeypatch.setenv("PATH", f"{logs}:{os.environ['PATH']}")
        stand_in(logs, "systemd-run", "exit 1")
    waits = ["sh", "-c", "echo here >&2; exec sleep 600"]
    monkeypatch.setattr(arming, "_command", lambda *_: waits)
    armed = arming.arm("br0", 60.0, "ovs-lbt")
    assert armed.unit is None and armed.process is not None
    pid = armed.process.pid
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        _, _, _, session, terminal, *_ = fields
        assert (int(session), terminal) == (pid, "0"), "it has its own session"
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        eventually(lambda: (logs / "ovs-lbt-reversal.log").read_text() == "here\n")
    finally:
        armed.disarm()
    assert ends(armed)


Eventually = Callable[[Callable[[], bool]], None]


@pytest.fixture
def eventually() -> Eventually:
    def wait(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline_s, "it does not come true"
            os.sched_yield()

    return wait


def ends(armed: Armed) -> bool:
    assert armed.process is not None
    return armed.process.wait(60) == -signal.SIGTERM


def test_what_cannot_be_armed_is_said(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arming, "_command", lambda *_: [str(logs / "missing")])
    with pytest.raises(Refused, match=r"the rollback cannot be scheduled: no process started: "):
        arming.arm("br0", 60.0, "ovs-lbt")


def test_without_a_log_it_is_armed_all_the_same(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ovs.dirs, "LOGDIR", str(logs / "missing"))
    monkeypatch.setattr(arming, "_command", lambda *_: ["sleep", "600"])
    armed = arming.arm("br0", 60.0, "ovs-lbt")
    armed.disarm()
    assert ends(armed)
