"""A change with --rollback-after is undone unless it is confirmed, whatever is killed or hangs meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.switch.adopting import comes_to, state
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    BALANCE_TCP,
    PLAIN,
    Bed,
    BedSpec,
    Upstream,
    on_beds,
)
from tests.switch.judging import few_lost, judges_time
from tests.switch.service import Service
from tests.switch.test_adoption import FLOW_PPS, others, traffic
from tests.switch.test_rescue import check_by
from tests.switch.traffic import Traffic
from tests.switch.waiting import HANG_S, NotThere, stopped, wait_until

# How long a change waits. Where something must happen meanwhile, a machine that was too busy for that has
# the next one.
WAITS_S = (6, 20, 60)
# Where nothing has to happen in between.
SHORT_S = 5
KEY = "ovs-lbt-unconfirmed"
# Starts the service with a clock that differs from the machine's by the number in a file.
OTHER_CLOCK = """import sys, controller.service as service
from controller.cli import main
real, path = service._epoch_s, sys.argv[1]
service._epoch_s = lambda: real() + float(open(path).read())
sys.argv = sys.argv[2:]
sys.exit(main())"""
SLB, BACKUP, TCP = (BedSpec(t, 2, (None, None)) for t in (BALANCE_SLB, ACTIVE_BACKUP, BALANCE_TCP))
ON_PLAIN = BedSpec(PLAIN, 2, (None, None, 10))
on_any_bed = on_beds(SLB, BACKUP, TCP, ON_PLAIN)


@pytest.fixture
def bed(request: pytest.FixtureRequest, own: Service, tor: Upstream) -> Iterator[Bed]:
    """The bed that the test is parametrized with, or a bond."""
    yield from a_bed(own, tor, getattr(request, "param", SLB))


def a_bed(own: Service, tor: Upstream, spec: BedSpec) -> Iterator[Bed]:
    own.start()
    with without_agents(own), Bed(own.ovs, tor, spec) as made:
        yield made
        own.start()


class Terminal:
    """A shell on a terminal of its own, as a login has it, that runs one command and stays.

    `within`: what the command is started by.
    """

    def __init__(self, service: Service, *words: str, within: Sequence[str] = ()) -> None:
        self._master, slave = pty.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        typed = " ".join([*within, shlex.quote(str(service.executable)), *words])
        command = f"{typed}; echo ended $?; read nothing"
        self._shell = subprocess.Popen(
            ["bash", "-c", command],
            env=service.ovs.env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self.said = ""

    def ended(self) -> str:
        """What the command said, once it has ended."""
        deadline_s = time.monotonic() + HANG_S
        while "ended " not in self.said:
            assert time.monotonic() < deadline_s, f"the command hangs: {self.said}"
            self.said += os.read(self._master, 4096).decode()
        return self.said.replace("\r", "")

    def kill(self) -> None:
        """With everything that still belongs to it."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._master)


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A change that waits until `until_s`, after the service and the terminal were killed.

    `changed`: what the bridge was by then. `processes`: those that waited to revert it.
    """

    until_s: float
    changed: dict[str, Any]
    processes: set[int]


def change_and_kill_both(
    own: Service,
    bed: Bed,
    *words: str,
    while_changed: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    within: Sequence[str] = (),
    listen: Callable[[], object] = lambda: None,
) -> Unconfirmed:
    """A change at a terminal; then the service and the terminal are gone, and the change still waits.

    `listen`: takes up what was heard, of which there is not room for more than a minute.
    """
    for wait_s in WAITS_S:
        with while_changed():
            terminal = Terminal(own, *words, f"--rollback-after {wait_s}", within=within)
            said = terminal.ended()
        assert f"{words[0].split()[0]} will be rolled back in " in said and "ended 0" in said, said
        changed = state(bed)
        own.kill()
        terminal.kill()
        processes, change = agents(own), waiting(bed)
        if change is not None and time.time() < change["until"]:
            return Unconfirmed(change["until"], changed, processes)
        again(own, bed)
        listen()
    raise AssertionError(f"too slow to prove anything within {WAITS_S[-1]} s")


def again(own: Service, bed: Bed) -> None:
    """The machine was too slow, and the change is reverted: the service is ready for another one."""
    reverted(own, bed)
    own.start()
    if bed.bridge in own.ask("show"):
        own.wait_ready(bed)


def waiting(bed: Bed) -> dict[str, float] | None:
    """What waits to be confirmed, by the database."""
    ids = bed.ovs.vsctl("--if-exists", "get", "bridge", bed.bridge, f"external_ids:{KEY}")
    return dict(json.loads(json.loads(ids))) if ids else None


def reverted(own: Service, bed: Bed) -> str:
    """Wait until nothing waits any more; what the history says of it, which is written after that.

    Who reverts may still move a VM port after that, as the restored policy asks for.
    """
    wait_until(lambda: waiting(bed) is None, "what was not confirmed is reverted", 3 * HANG_S)

    def said() -> str:
        told = own.command("history", bed.bridge, "--last", "3").stdout
        lines = [line for line in told.splitlines(keepends=True) if " reverted: " in line]
        if not lines:
            raise NotThere(f"it says: {told}")
        return lines[-1]

    return wait_until(said, "the history says so", interval_s=0.2)


@contextlib.contextmanager
def nothing_lost(bed: Bed, what: str) -> Iterator[Callable[[], int]]:
    """On a bond; on plain uplinks, nobody promises it. Yields what waits for more frames."""
    if not bed.spec.on_bond:
        yield lambda: 0
        return
    with traffic(bed) as flows:
        flows.go_on()
        yield flows.go_on
        flows.go_on()
    few_lost(lost_of(flows), 0, FLOW_PPS, f"{what} of {bed} reverted, both killed")


def lost_of(flows: Traffic) -> dict[str, int]:
    """How many frames of each way were lost, and which: frames in a row tell of a switch that waited."""
    losses = flows.numbers_lost()
    print({way: f"{len(lost)}: {lost[:1]} to {lost[-1:]}" for way, lost in losses.items() if lost})
    return {way: len(lost) for way, lost in losses.items()}


# ---- the service and the terminal are killed ---------------------------------------------


@judges_time
@on_any_bed
def test_an_attach_is_undone_and_nothing_is_lost(bed: Bed, own: Service) -> None:
    with others(bed), nothing_lost(bed, "attach") as more:
        before = state(bed)
        words = ["attach", bed.bridge, *bed.uplink_options]
        change = change_and_kill_both(own, bed, *words, listen=more)
        assert set(before["flows"]) < set(change.changed["flows"])
        history = reverted(own, bed)
        assert time.time() >= change.until_s
        comes_to(bed, before)
        assert "reverted: attach rolled back by the timer, not confirmed by " in history, history


@judges_time
@on_any_bed
def test_a_detach_is_undone_and_nothing_is_lost(bed: Bed, own: Service) -> None:
    with nothing_lost(bed, "detach") as more:
        own.attach(bed, "--policy", "originating-port")
        bindings, before = own.bindings(bed), state(bed)
        change = change_and_kill_both(own, bed, "detach", bed.bridge, listen=more)
        assert [flow for flow in change.changed["flows"] if "cookie=0x6c62" in flow] == []
        reverted(own, bed)
        # What reverts it may end before the team is stored. The next service stores it.
        comes_to(bed, before, besides_team=True)
    own.start()
    own.wait_ready(bed)
    assert own.bindings(bed) == bindings
    comes_to(bed, before)
    own.do("detach", bed.bridge)


@on_beds(ON_PLAIN)
def test_two_links_never_become_a_loop(bed: Bed, own: Service) -> None:
    """Standalone before, with one link: restored alone if that is still so when the time has passed."""

    @contextlib.contextmanager
    def with_one_link() -> Iterator[None]:
        with bed.cable_pulled(bed.uplinks[0]):
            bed.ofctl("del-flows")
            bed.ovs.vsctl("del-fail-mode", bed.bridge)
            yield

    words = ["attach", bed.bridge, *bed.uplink_options]
    change_and_kill_both(own, bed, *words, while_changed=with_one_link)
    history = reverted(own, bed)
    assert f"only {bed.uplinks[1]} forwards" in history, history
    assert bed.ovs.vsctl("get-fail-mode", bed.bridge) == "secure"
    check_by(bed, 1)
    bed.ofctl("del-flows")


def has_socket(pid: int) -> bool:
    """Whether a process has an open socket."""
    # Files that the process closes meanwhile are left out.
    listed = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True)
    return "socket:" in listed.stdout


# ---- what hangs meanwhile ----------------------------------------------------------------


def test_a_service_that_hangs_does_not_stop_it(bed: Bed, own: Service) -> None:
    before = state(bed)
    own.do("attach", bed.bridge, "--rollback-after", str(SHORT_S))
    with stopped(own.pid):
        wait_until(lambda: waiting(bed) is None, "another one reverts", 3 * HANG_S)
        comes_to(bed, before)

    def follows() -> bool:
        # Until it has taken the connections of those who looked whether it is alive, it takes no other.
        with contextlib.suppress(BlockingIOError):
            return bool(json.loads(own.ask("show", "--json")) == {"bridges": []})
        return False

    wait_until(follows, "it follows when it goes on")


@pytest.mark.parametrize("step_s", [3600, -3600], ids=["forward", "back"])
def test_a_clock_that_is_set_during_a_request_changes_no_deadline(
    bed: Bed, own: Service, tmp_path: Path, step_s: int
) -> None:
    offset, wait_s = tmp_path / "offset", WAITS_S[-1]
    offset.write_text("0")
    own.kill()
    own.launcher = [sys.executable, "-c", OTHER_CLOCK, str(offset)]
    try:
        own.start()
        own.attach(bed)
        words = ["set", "bridge", bed.bridge, "threshold=60", "--rollback-after", str(wait_s)]
        with stopped(own.ovs.pid("ovsdb-server")):
            asked = subprocess.Popen([own.executable, *words], env=own.ovs.env)
            wait_until(lambda: has_socket(asked.pid), "the command is connected to the service")
            # Longer than the service does not look at the clock.
            time.sleep(2)
            offset.write_text(str(step_s))
            # A command waits at most 1 s for a database that does not answer, and is carried out then.
            time.sleep(3)
        assert asked.wait(HANG_S) == 0

        def deadline_s() -> float | None:
            """When the change would be rolled back, by the service's clock; None while that is not stored."""
            (change,) = json.loads(own.ask("show", "--json"))["unconfirmed"]
            until_s = change["until"] - time.time() - step_s
            return until_s if abs(until_s - change["left_s"]) < 1 else None

        left_s = wait_until(deadline_s, "the deadline is stored")
        assert left_s is not None and 0 < left_s < wait_s - 3
        assert own.command("confirm", bed.bridge).returncode == 0
        own.do("detach", bed.bridge)
    finally:
        own.kill()
        own.launcher = []


@contextlib.contextmanager
def without_agents(own: Service) -> Iterator[None]:
    """Processes that commands leave behind in this block are killed, as a boot would."""
    before = agents(own)
    yield
    for pid in agents(own) - before:
        os.kill(pid, signal.SIGKILL)


def agents(own: Service) -> set[int]:
    """The processes that wait to revert on this test's Open vSwitch."""
    return {int(p) for p in os.listdir("/proc") if p.isdigit() and is_agent(own, int(p))}


def is_agent(own: Service, pid: int) -> bool:
    """Whether this is a process that reverts on this test's Open vSwitch."""
    with contextlib.suppress(OSError):
        words, environ = (
            Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
        )
        return b"\0after\0" in words and str(own.ovs.rundir).encode() in environ
    return False
