"""Documents promise what was run, and no more; a run's output is counted as it is meant."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from controller.operations import releases
from tests.releases import kernel, result, running, table
from tests.releases.distributions import Distribution, Package
from tests.releases.root import RELEASES, Root
from tests.releases.steps import FRESH, KERNEL, SHORT, TESTS, Step, chosen, counted

CHECKOUT = Path(__file__).parents[3]
STEP = Step("a step", "what it is", "command", 60)
ON_A_KERNEL = {
    "commit": "abc",
    "distribution": "Debian GNU/Linux 12 (bookworm)",
    "openvswitch": "3.1.0",
    "built": False,
    "python": "3.11.2",
    "frameworks": {"os-ken": "4.2.2"},
    "kernel": {"version": "6.1.0-56-amd64", "runs": kernel.EMULATED, "cores": 2},
}


def test_the_table_is_what_was_run() -> None:
    text = (CHECKOUT / table.PAGE).read_text()
    assert table.with_table(text, table.read(CHECKOUT)) == text, (
        "again: python -m tests.releases publish"
    )


def test_attach_knows_the_releases_of_the_table_and_no_other() -> None:
    attached = {
        releases.release_of(one["openvswitch"])
        for one in table.read(CHECKOUT)
        if any(s["name"] == "attach" and s["verdict"] == result.PASSED for s in one["steps"])
    }
    assert attached == {*releases.RUN_ON}


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "Makefile",
        "setup.cfg",
        ".ci/setup",
        "docs/guide/install.md",
        "docs/releases.md",
    ],
)
def test_no_distribution_or_python_is_promised_that_is_not_in_the_table(document: str) -> None:
    found = table.read(CHECKOUT)
    text = (CHECKOUT / document).read_text()
    text = text.partition(table.BEGIN)[0] + text.partition(table.END)[2]
    ran = {(one["distribution"].split()[0], _release(one["distribution"])) for one in found}
    named = re.findall(r"\b(Debian|Ubuntu) (\d\d(?:\.\d\d)?)(?!\.?\d| itself)", text)
    assert {*named} <= ran
    pythons = {".".join(one["python"].split(".")[:2]) for one in found}
    classified = re.findall(r"Programming Language :: Python :: (3\.\d+)", text)
    assert {*classified} <= pythons


def _release(distribution: str) -> str:
    number = re.search(r"\d\d(?:\.\d\d)?", distribution)
    return number[0] if number else ""


@pytest.mark.parametrize(
    ("text", "passed", "failed"),
    [
        ("35 passed in 36.43s", 35, 0),
        ("=== 3 failed, 76 passed, 1 rerun, 2 warnings in 100.01s (0:01:40) ===", 76, 3),
        ("1 passed in 1.00s\nmore\n2 passed, 1 error in 2.00s\n", 3, 1),
        ("PASS  four phases: 4\nFAIL  2 moves: 3\n", 1, 1),
        ("out/seed-1.json: 300 events, 1 violations\n", 299, 1),
        ("500 of 1000 cases, 0 batches failed, 3 s\r1000 cases, 0 failed: out\n", 1000, 0),
        ("nothing passed in time", 0, 0),
        ("", 0, 0),
    ],
)
def test_a_log_is_counted_by_its_last_lines_and_verdicts(
    text: str, passed: int, failed: int
) -> None:
    counts = counted(text)
    assert (counts["passed"], counts["failed"]) == (passed, failed)


def test_steps_are_chosen_by_name_in_their_order() -> None:
    assert [one.name for one in chosen(FRESH, ["attach", "deb"])] == ["deb", "attach"]
    assert chosen(TESTS, None) == TESTS
    with pytest.raises(ValueError, match=r"--steps demo -> attach \| delivery"):
        chosen(TESTS, ["demo"])


def test_every_test_file_of_a_step_is_there() -> None:
    files = re.findall(
        r"tests/\S+\.(?:py|sh)", " ".join(step.command for step in FRESH + KERNEL + SHORT)
    )
    assert len(files) > 7
    assert [file for file in files if not (CHECKOUT / file).exists()] == []


def test_a_step_that_fails_or_is_late_is_no_success(tmp_path: Path) -> None:
    told: list[str] = []

    def run(command: str, limit_s: float = 60) -> dict[str, Any]:
        step = Step("x", "x", command, limit_s)
        return running.run(step, ["bash", "-c", command], tmp_path / "x.log", told.append)

    assert run("echo 1 passed in 1.00s")["verdict"] == result.PASSED
    assert run("echo 1 passed in 1.00s; exit 1")["verdict"] == result.FAILED
    assert run("echo 1 failed in 1.00s")["verdict"] == result.FAILED
    skipped = run("echo 'SKIPPED [2] tests/a.py:7: no b'; echo 2 skipped in 1.00s")
    assert (skipped["verdict"], skipped["skips"]) == (result.NO_TEST, {"tests/a.py: no b": 2})
    late = run("sleep 60", limit_s=0.05)
    assert late["status"] is None
    # A busy machine ends it late.
    assert re.fullmatch(r"not done in time: \d+ s -> at most 0.05 s", late["verdict"])
    assert told[-1].startswith("x: not done in time")


def test_a_step_that_waits_for_a_processor_has_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, a process alone may take a tenth of a second to start.
    step = Step("x", "x", "", 0.3, tests=False)

    def run() -> dict[str, Any]:
        return running.run(step, ["sleep", "1"], tmp_path / "x.log", lambda _: None)

    assert run()["status"] is None
    monkeypatch.setattr(running, "waits_s", lambda _: {"1": time.monotonic()})
    found = run()
    assert found["verdict"] == result.PASSED
    assert 0.3 < found["waited_s"] <= found["seconds"]


def test_the_kernel_tells_how_long_a_thread_has_waited() -> None:
    found = running.waits_s(os.getsid(0))
    assert found[str(threading.get_native_id())] >= 0


def test_what_other_steps_found_is_kept_for_the_same_commit_only(tmp_path: Path) -> None:
    path = tmp_path / result.FILE
    found = result.with_step(result.begun(path, "abc"), {"name": "attach", "verdict": "failed"})
    result.write(path, found)
    again = result.with_step(result.begun(path, "abc"), {"name": "attach", "verdict": "passed"})
    assert again["steps"] == [{"name": "attach", "verdict": "passed"}]
    assert result.begun(path, "def") == {"commit": "def", "steps": []}


def test_what_is_not_committed_is_not_published(tmp_path: Path) -> None:
    path = tmp_path / result.FILE
    path.write_text(json.dumps({"commit": "abc+changes"}))
    assert table.publish([path], tmp_path) == 1
    assert [one.name for one in tmp_path.iterdir()] == [result.FILE]


def test_the_logs_of_a_kernel_s_steps_are_published(tmp_path: Path) -> None:
    made, checkout = tmp_path / "out", tmp_path / "checkout"
    made.mkdir()
    (checkout / "docs").mkdir(parents=True)
    shutil.copyfile(CHECKOUT / table.PAGE, checkout / table.PAGE)
    step = {"name": "attach", "verdict": "passed", "passed": 3, "failed": 0, "rerun": 0}
    (made / "attach.log").write_text("3 passed in 3.00s\n")
    (made / "result.json").write_text(json.dumps({**ON_A_KERNEL, "steps": [step]}))
    assert table.publish([made / "result.json"], checkout) == 0
    published = checkout / "docs/results"
    assert (published / "releases/kernel-6.1.json").exists()
    assert (published / "kernel/attach.log").read_text() == "3 passed in 3.00s\n"
    assert "| attach | 3 of 3 |" in (checkout / table.PAGE).read_text()


def test_steps_of_an_earlier_commit_on_a_kernel_stay_with_their_commit() -> None:
    first = [{"name": "attach", "passed": 1, "failed": 0}, {"name": "lacp", "passed": 2}]
    second = [{"name": "attach", "passed": 3, "failed": 0, "rerun": 0, "verdict": "passed"}]
    found = table.with_steps_before(
        {**ON_A_KERNEL, "commit": "def", "steps": second}, {**ON_A_KERNEL, "steps": first}
    )
    assert found["steps"] == [{"name": "lacp", "passed": 2, "commit": "abc"}, *second]
    found["steps"][0] |= {"failed": 0, "rerun": 0, "verdict": "passed"}
    assert table.table([found]).endswith(" | `def`; lacp: `abc` |")
    assert "| attach; lacp | 5 of 5 |" in table.table([found])
    # And with it through a third one.
    third = table.with_steps_before({**ON_A_KERNEL, "commit": "ghi", "steps": []}, found)
    assert [step["commit"] for step in third["steps"]] == ["abc", "def"]
    # What ran with another Open vSwitch is of that one.
    later = {**ON_A_KERNEL, "openvswitch": "9.9.9", "steps": []}
    assert table.with_steps_before(later, found)["steps"] == []


@pytest.mark.system
def test_scripts_are_sound() -> None:
    scripts = (CHECKOUT / "tests/releases").glob("*.sh")
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("distribution", "name"),
    [
        ("Debian GNU/Linux 13 (trixie)", "trixie"),
        ("Ubuntu 24.04.4 LTS", "ubuntu-24.04"),
        ("Another Linux", "another-linux"),
    ],
)
def test_a_result_is_kept_by_the_name_of_its_release(distribution: str, name: str) -> None:
    found = {"distribution": distribution, "built": False, "openvswitch": "3.1.0"}
    assert table.name_of(found) == name


def test_keys_that_are_not_those_that_are_known_are_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.deb").write_bytes(b"something else")
    keys = Package((tmp_path / "keys.deb").as_uri(), "0" * 64, "usr/share/no-such-keyring.gpg")
    with pytest.raises(RuntimeError, match="SHA-256"):
        Distribution("Ubuntu", ("noble",), ("main",), keys=keys).keyring(tmp_path)
    (tmp_path / "keys.deb").unlink()
    with pytest.raises(RuntimeError, match="the keys of Ubuntu"):
        Distribution("Ubuntu", ("noble",), ("main",), keys=keys).keyring(tmp_path)


def test_a_kernel_of_this_machine_needs_no_guest() -> None:
    command = kernel.Kernel("6.1.0", kernel.NATIVE).running("true", "a step")
    assert command[:2] == ["bash", "-c"] and "vng" not in command[2]
    assert "OVS_LBT_DATAPATH=kernel" in command[2]


def test_a_row_of_a_kernel_says_how_it_ran() -> None:
    # What `make test` runs is not of the selection.
    steps = [
        {"name": "attach", "verdict": "passed", "passed": 3, "failed": 0, "rerun": 0},
        {"name": "delivery", "verdict": "failed", "passed": 1, "failed": 2, "rerun": 0},
        {"name": SHORT[0].name, "verdict": "passed", "passed": 9, "failed": 0, "rerun": 0},
    ]
    found = {**ON_A_KERNEL, "steps": steps}
    assert table.name_of(found) == "kernel-6.1"
    row = table.table([found]).splitlines()[-1]
    assert "| kernel: Linux 6.1.0-56-amd64, in QEMU without KVM |" in row
    assert "| delivery; attach | 4 of 6; failed: delivery | failover; cached-failover; lacp;" in row


def test_a_root_has_mounts_and_processes_of_its_own(tmp_path: Path) -> None:
    command = Root(RELEASES[0], tmp_path).entering("true")
    assert command[:2] == ["env", "-i"], "nothing of this machine's environment gets in"
    assert {"--mount", "--pid", "--fork", "--kill-child"} <= {*command}
