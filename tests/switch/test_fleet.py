"""The Ansible role, rolled out to four hosts: a canary, batches, the health gate, and the way back.

Each host has a network and a root of its own. Its service is this checkout's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.switch.adopting import state
from tests.switch.bed import Upstream
from tests.switch.fleet.host import Host
from tests.switch.fleet.rollout import Rollout, roll_out
from tests.switch.judging import few_lost, judges_time
from tests.switch.traffic import Traffic

NAMES = ("kvm1", "kvm2", "kvm3", "kvm4")
FLOW_PPS = 200


@pytest.fixture(scope="module")
def built(tor: Upstream) -> Iterator[Sequence[Host]]:
    with contextlib.ExitStack() as running:
        yield [running.enter_context(Host(name, tor)) for name in NAMES]


@pytest.fixture
def fleet(built: Sequence[Host]) -> Iterator[Sequence[Host]]:
    """Four hosts, of which none has an attached bridge, now and afterwards."""
    yield built
    for host in built:
        host.give_back()


def attached(fleet: Sequence[Host]) -> list[str]:
    return [str(host) for host in fleet if host.is_attached]


def states(fleet: Sequence[Host]) -> dict[str, dict[str, Any]]:
    """Of each host, all that an operator could compare."""
    return {str(host): state(host.bed) for host in fleet}


def roll_out_to(fleet: Sequence[Host], directory: Path) -> Rollout:
    return roll_out({str(host): (host.machine, host.bed.bridge) for host in fleet}, directory)


@contextlib.contextmanager
def losing_nothing(fleet: Sequence[Host]) -> Iterator[None]:
    """In this block, the VM of each host talks with a host upstream, in both directions."""
    ways = [
        (sender, receiver)
        for host in fleet
        for one, other in [(host.bed.vms[0], host.bed.hosts[0])]
        for sender, receiver in ((one, other), (other, one))
    ]
    with Traffic(ways, FLOW_PPS) as traffic:
        yield
    few_lost(traffic.lost(), 0, FLOW_PPS)


@judges_time
def test_a_canary_that_is_not_well_ends_the_rollout_and_is_as_it_was(
    fleet: Sequence[Host], tmp_path: Path
) -> None:
    """The bond of the canary has lost a link, which `attach` accepts and `check` does not."""
    canary = fleet[0]
    with canary.bed.cable_pulled(canary.bed.uplinks[1]):
        before = states(fleet)
        with losing_nothing(fleet):
            rollout = roll_out_to(fleet, tmp_path)
        assert rollout.status != 0
        assert rollout.batches == [{"kvm1"}], "no other host was touched"
        found = f"uplink {canary.bed.uplinks[1]}: link is down"
        assert re.search(f"kvm1 was rolled back: .*{found}", rollout.said), "the cause is named"
        assert rollout.count("kvm1", "changed") >= len(["attach", "confirm", "detach"])
        assert attached(fleet) == []
        assert states(fleet) == before


@judges_time
def test_a_rollout_goes_from_the_canary_to_all_hosts_and_goes_on_where_it_stopped(
    fleet: Sequence[Host], tmp_path: Path
) -> None:
    """What was attached stays attached when a later batch fails, and the next run is for the rest."""
    faulty = fleet[1]
    with faulty.bed.cable_pulled(faulty.bed.uplinks[0]):
        before = states(fleet[1:])
        with losing_nothing(fleet):
            rollout = roll_out_to(fleet, tmp_path)
        assert rollout.status != 0
        assert rollout.batches == [{"kvm1"}, {"kvm2"}]
        assert attached(fleet) == ["kvm1"]
        assert states(fleet[1:]) == before

    faulty.bed.introduce_to_normal()
    with losing_nothing(fleet):
        rollout = roll_out_to(fleet, tmp_path)
    assert rollout.status == 0, rollout.said
    assert rollout.batches == [{"kvm1"}, {"kvm2"}, {"kvm3", "kvm4"}]
    assert attached(fleet) == list(NAMES)
    assert rollout.count("kvm1", "changed") == 0, "it had been attached before"
    for host in fleet:
        with host.entered():
            assert all(host.machine.uplinks_in_use(host.bed.bridge).values()), host
            assert host.machine.run("ovs-lbt", "check").returncode == 0, host
