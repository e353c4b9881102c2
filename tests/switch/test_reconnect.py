"""The service ends in order: what it has installed stays. That it is killed: test_restart.py."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tests.said import says
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service

on_both_beds = on_beds(*[BedSpec(team, 2, (10, 10, 20), (10,)) for team in (PLAIN, BALANCE_SLB)])
_STATISTICS = re.compile(r"(duration|n_packets|n_bytes|idle_age|hard_age)=[\d.]+s?, ?")


@on_both_beds
def test_an_orderly_end_leaves_everything_in_place(attached: Bed, service: Service) -> None:
    before = flows_of(attached)
    files = [service.ovs.rundir / name for name in ("ovs-lbt.pid", f"ovs-lbt.{service.pid}.ctl")]
    assert all(file.exists() for file in files)
    another = service.command("run")
    assert says(another.stderr, "a service is already running as process", str(service.pid))
    code = service.terminate()
    after = flows_of(attached)
    left = [file.name for file in files if file.exists()]
    service.start()
    assert code == 0
    assert after == before
    assert left == [], "pidfile and socket are removed"


def test_these_tests_ran_on_the_framework_that_was_chosen(service: Service) -> None:
    chosen = os.environ.get("OVS_LBT_FRAMEWORK", "os-ken")
    running = re.findall(r"is running on (\S+) ", service.log_tail(10_000))
    assert set(running) == {chosen}


def flows_of(bed: Bed) -> set[str]:
    """The flows that are there to stay, without their statistics."""
    return set(without_statistics(installed(bed)))


def groups_of(bed: Bed) -> dict[int, str]:
    """The groups, by their id."""
    lines = [line.strip() for line in bed.ofctl("dump-groups").splitlines() if "type=" in line]
    return {int(re.findall(r"group_id=(\d+)", line)[0]): line for line in lines}


def installed(bed: Bed) -> list[str]:
    """The lines of `dump-flows`, those aside that end by themselves: they are learned."""
    lines = [line.strip() for line in bed.ofctl("dump-flows").splitlines() if "actions=" in line]
    return [line for line in lines if "timeout=" not in line]


def without_statistics(lines: Iterable[str]) -> list[str]:
    return [_STATISTICS.sub("", line) for line in lines]
