"""The service as systemd runs it, with a socket in systemd's place."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import controller
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until

UNIT = (Path(controller.__file__).parent / "systemd/ovs-lbt.service").read_text()
WATCHDOG_S = 1.0


class Systemd:
    """What the service has told its supervisor."""

    def __init__(self, path: Path) -> None:
        self.messages: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def told(self) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.messages.append(self._socket.recv(4096).decode())
        return self.messages

    def fed(self) -> int:
        return self.told().count("WATCHDOG=1")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(own: Service) -> Iterator[Systemd]:
    """In the place of systemd, for a service that is not started yet."""
    own.kill()
    path = own.ovs.rundir / "notify"
    made = Systemd(path)
    own.variables = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": f"{WATCHDOG_S * 1e6:.0f}"}
    yield made
    own.kill()
    own.variables, own.launcher = {}, []
    made.close()
    path.unlink()


@pytest.fixture(scope="module")
def attached(own: Service, tor: Upstream) -> Iterator[Bed]:
    own.start()
    with Bed(own.ovs, tor, BedSpec(BALANCE_SLB, 2)) as bed:
        own.attach(bed)
        yield bed
        own.start()
        own.do("detach", bed.bridge)


def test_ready_also_while_the_switch_is_away(attached: Bed, own: Service, systemd: Systemd) -> None:
    """The host must go on booting; the bridge is dialled until it is there."""
    own.ovs.stop("ovs-vswitchd")
    own.start()
    wait_until(lambda: "READY=1" in systemd.told(), "it is ready")
    away = f"STATUS=0 of 1 bridges connected; not connected: {attached.bridge}"
    connected = [m for m in systemd.told() if m.startswith("STATUS=1")]
    attached.restart_switch()
    assert away in systemd.messages and not connected
    wait_until(lambda: "STATUS=1 of 1 bridges connected" in systemd.told(), "it is connected")
    assert systemd.messages.count("READY=1") == 1
    assert own.terminate() == 0
    # The engine may live for a moment longer than the thread that was told to end.
    assert [m for m in systemd.told() if m != "WATCHDOG=1"][-1] == "STOPPING=1"


@judges_time
def test_a_hung_engine_does_not_feed_the_watchdog(
    attached: Bed, own: Service, systemd: Systemd, tmp_path: Path
) -> None:
    """All other threads go on: the engine alone waits, for the lock that the test put there."""
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    own.variables |= {"PYTHONPATH": str(tmp_path)}
    own.start()
    wait_until(lambda: "STATUS=1 of 1 bridges connected" in systemd.told(), "it is connected")
    fed, since_s = systemd.fed(), time.monotonic()
    wait_until(lambda: systemd.fed() >= fed + 3, "the watchdog is fed while the engine lives")
    soon("the watchdog was fed three times", time.monotonic() - since_s, 3 * WATCHDOG_S)
    os.kill(own.pid, signal.SIGUSR1)
    last_s, fed = time.monotonic(), systemd.fed()

    def silent() -> bool:
        nonlocal last_s, fed
        if systemd.fed() > fed:
            last_s, fed = time.monotonic(), systemd.fed()
        return time.monotonic() - last_s > 1.5 * WATCHDOG_S

    wait_until(silent, "the watchdog is not fed any more")
    assert own.ovs.run("ovs-appctl", "--timeout=30", "-t", "ovs-lbt", "version"), "all hang"


HANGING = """
import signal, threading

hung = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: hung.set())


def hang(frame, event, argument):
    if frame.f_code.co_qualname == "Engine.handle" and hung.is_set():
        threading.Event().wait()


threading.setprofile(hang)
"""


def test_it_ends_whichever_thread_receives_the_signal(own: Service) -> None:
    """The main thread sleeps on: the signal does not interrupt its system call."""
    own.start()
    threads = {int(task.name) for task in Path(f"/proc/{own.pid}/task").iterdir()}
    # The oldest: a later one may carry out one command only, and end before the signal comes.
    other = min(threads - {own.pid})
    assert ctypes.CDLL(None, use_errno=True).tgkill(own.pid, other, signal.SIGTERM) == 0
    assert own.ended() == 0


def test_the_unit_s_rights_are_enough(attached: Bed, own: Service, systemd: Systemd) -> None:
    """Attaching, moving, shaping and detaching with the capabilities that the unit leaves it."""
    (bounding,) = re.findall(r"^CapabilityBoundingSet=(.+)$", UNIT, re.MULTILINE)
    kept = [name.removeprefix("CAP_").lower() for name in bounding.split()]
    assert "NoNewPrivileges=yes" in UNIT
    own.launcher = ["setpriv", f"--bounding-set=-all,+{',+'.join(kept)}", "--no-new-privs"]
    own.launcher += ["--inh-caps=-all", "--"]
    own.start()
    own.do("detach", attached.bridge)
    own.attach(attached)
    vm, uplink = attached.vms[0], attached.uplinks[0]
    own.move(vm, uplink)
    attached.set("interface", uplink.name, capacity_mbps=100)
    own.do("set", "interface", vm.port, "limit-mbps=10")

    def shaped() -> bool:
        show = ["tc", "qdisc", "show", "dev", uplink.name, "root"]
        return "htb" in subprocess.run(show, capture_output=True, text=True, check=True).stdout

    wait_until(shaped, "the uplink's device queues by class")
    own.do("set", "interface", vm.port, "limit-mbps=")
    wait_until(lambda: not shaped(), "it has its own queue again")
    status = Path(f"/proc/{own.pid}/status").read_text()
    (effective,) = re.findall(r"^CapEff:\s*(\w+)$", status, re.MULTILINE)
    assert int(effective, 16) == 1 << 1 | 1 << 12, "other than CAP_DAC_OVERRIDE, CAP_NET_ADMIN"
