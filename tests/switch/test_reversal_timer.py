"""A change with --rollback-after under the real systemd: its timer undoes the change, whoever is killed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.switch.adopting import state
from tests.switch.bed import Bed, Upstream
from tests.switch.judging import few_lost, judges_time
from tests.switch.service import Service
from tests.switch.systemd import Machine
from tests.switch.test_adoption import FLOW_PPS, traffic
from tests.switch.test_confirm import (
    SLB,
    WAITS_S,
    a_bed,
    again,
    change_and_kill_both,
    lost_of,
    reverted,
    waiting,
)
from tests.switch.waiting import wait_until

TIMERS = ("systemctl", "list-timers", "--all", "--no-legend", "ovs-lbt-reversal-*")


@pytest.fixture
def bond(own: Service, tor: Upstream) -> Iterator[Bed]:
    yield from a_bed(own, tor, SLB)


@pytest.fixture
def machine(own: Service) -> Iterator[Machine]:
    with Machine(own.ovs) as made:
        yield made


@judges_time
def test_a_timer_of_systemd_undoes_what_is_not_confirmed(
    bond: Bed, own: Service, machine: Machine
) -> None:
    bed, before = bond, state(bond)
    with traffic(bed) as flows:
        flows.go_on()
        words = ["attach", bed.bridge]
        change = change_and_kill_both(own, bed, *words, within=machine.within, listen=flows.go_on)
        assert set(before["flows"]) < set(change.changed["flows"])
        assert change.processes == set(), "a timer waits, and no process"
        history = reverted(own, bed)
        assert time.time() >= change.until_s
        assert state(bed) == before
        told = r"attach rolled back by the timer, not confirmed by \d\d:\d\d:\d\d UTC"
        assert re.search(rf"reverted: {told}\n", history), history
        flows.go_on()
    few_lost(lost_of(flows), 0, FLOW_PPS, f"attach of {bed} reverted by a timer")
    wait_until(lambda: not machine.do(*TIMERS), "systemd forgets the timer")
    log = machine.do("journalctl", "--no-pager", "-u", "ovs-lbt-reversal-*")
    assert f"{bed.bridge}: attach rolled back by the timer, not confirmed by " in log, log


def test_a_timer_that_comes_after_the_confirmation_changes_nothing(
    bond: Bed, own: Service, machine: Machine
) -> None:
    bed = bond
    until_s = attach_and_confirm(own, bed, machine)
    attached = state(bed)
    wait_until(lambda: time.time() > until_s and not machine.do(*TIMERS), "the timer has gone off")
    assert state(bed) == attached
    failed = machine.do("systemctl", "list-units", "--failed", "--no-legend")
    assert failed == ""
    own.do("detach", bed.bridge)


def attach_and_confirm(own: Service, bed: Bed, machine: Machine) -> float:
    """Attach, see what waits, and confirm in time. Returns when it would have been reverted."""
    for wait_s in WAITS_S:
        attach = [*machine.within, str(own.executable), "attach", bed.bridge]
        own.ovs.run(*attach, "--rollback-after", str(wait_s))
        shown, change = own.do("show", bed.bridge), waiting(bed)
        confirmed = own.command("confirm", bed.bridge)
        if change is not None and time.time() < change["until"]:
            told = rf"  {bed.bridge}: attach.* \d+ s.*\d\d:\d\d:\d\d.*: ovs-lbt confirm"
            assert re.match(told, shown), shown
            assert confirmed.stdout == f"{bed.bridge}: attach confirmed\n", confirmed
            return change["until"]
        again(own, bed)
        if confirmed.returncode == 0:
            own.do("detach", bed.bridge)
    raise AssertionError(f"too slow to prove anything within {WAITS_S[-1]} s")
