"""A bridge in use is taken over and given back: nothing lost, nothing left, nobody harmed."""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.said import says
from tests.switch import judging
from tests.switch.adopting import one_line, state
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, LACP, PLAIN, Bed, BedSpec, on_beds
from tests.switch.judging import OUTAGE_S, at_most, judges_time, repetitions
from tests.switch.service import Service
from tests.switch.traffic import Traffic
from tests.switch.waiting import HANG_S, wait_until

BONDS = [BedSpec(team, 2, (None, None)) for team in (BALANCE_SLB, ACTIVE_BACKUP, LACP)]
ON_PLAIN = BedSpec(PLAIN, 2, (None, None))
BEDS = [*BONDS, ON_PLAIN]
on_every_bed = on_beds(*BEDS)
on_a_bond = on_beds(*BEDS[:1])

FLOW_PPS = 1000
LOST_ON_PLAIN_UPLINKS_MS = 20
# A machine that does something else at that moment loses more: the bench judges the median, other
# runs judge the best.
ROUNDS_ON_PLAIN_UPLINKS, ROUNDS_IN_BENCH = 3, 15
FOREIGN_COOKIE = 0xF0E1
NOBODY = 65534


@pytest.fixture
def in_use(bed: Bed) -> Iterator[Bed]:
    """The bed as an operator has it: NORMAL, over plain uplinks by the only one that is up."""
    if bed.spec.team != PLAIN:
        yield bed
        return
    with bed.cable_pulled(bed.uplinks[1]):
        bed.ovs.vsctl("del-fail-mode", bed.bridge)
        try:
            yield bed
        finally:
            bed.ovs.vsctl("set-fail-mode", bed.bridge, "secure")


# ---- nothing lost -----------------------------------------------------------------------


@judges_time
@on_every_bed
def test_attach_and_detach_under_load_lose_nothing(in_use: Bed, service: Service) -> None:
    """Of VMs that send and of one that only receives, from the network and from its neighbour."""
    bed = in_use
    phases: list[range] = []
    with traffic(bed) as flows:
        seen = flows.go_on()
        rounds = repetitions(ROUNDS_ON_PLAIN_UPLINKS, ROUNDS_IN_BENCH)
        for _ in range(rounds if bed.spec.team == PLAIN else 1):
            service.do("attach", bed.bridge, *bed.uplink_options)
            attached = flows.go_on()
            if bed.spec.team == ACTIVE_BACKUP:
                spread_over_idle_members(bed, service)
            service.do("detach", bed.bridge)
            detached = flows.go_on()
            phases += [range(seen, attached), range(attached, detached)]
            seen = detached
    lost = flows.numbers_lost()
    worst = [max(sum(n in phase for n in numbers) for numbers in lost.values()) for phase in phases]
    attaches, detaches = worst[::2], worst[1::2]
    print(f"lost of {bed}, in turn: {attaches} at attach, {detaches} at detach")
    limit = LOST_ON_PLAIN_UPLINKS_MS * FLOW_PPS // 1000 if bed.spec.team == PLAIN else 0
    for when, of_each in (("attach", attaches), ("detach", detaches)):
        counts = of_each if judging.benching else [min(of_each)]
        what = f"frames lost of a flow of {FLOW_PPS} pps, {when}, median"
        at_most(what, statistics.median(counts), limit, OUTAGE_S * FLOW_PPS, counts)


@on_a_bond
def test_an_address_that_was_taken_over_is_learned_anew_in_its_place(
    in_use: Bed, service: Service
) -> None:
    bed, vm = in_use, in_use.vms[0]
    bed.introduce_to_normal()
    service.do("attach", bed.bridge, *bed.uplink_options)

    def entries() -> list[str]:
        flows = bed.ofctl("dump-flows", "table=20").splitlines()
        return [flow for flow in flows if f"dl_dst={vm.mac}" in flow]

    (seeded,) = entries()
    bed.introduce()
    (learned,) = entries()
    service.do("detach", bed.bridge)
    assert fields(seeded) == fields(learned)


@on_a_bond
def test_the_address_of_a_silent_vm_is_renewed(in_use: Bed, service: Service) -> None:
    """The switch says how long ago a flow's timeout began, where that is not its whole age."""
    bed, vm = in_use, in_use.vms[0]
    bed.introduce_to_normal()
    service.do("attach", bed.bridge, *bed.uplink_options)

    def age_s() -> float:
        flows = bed.ovs.run("ovs-ofctl", "dump-flows", bed.bridge, "table=20").splitlines()
        (entry,) = (flow for flow in flows if f"dl_dst={vm.mac}" in flow)
        assert "hard_timeout=300" in entry
        ages = re.findall(r"(?:hard_age|duration)=([\d.]+)", entry)
        return min(map(float, ages))

    wait_until(lambda: age_s() >= 2, "the service has not renewed the flow for 2 s")
    service.kill()
    killed_s = time.monotonic()
    service.start()
    wait_until(
        lambda: age_s() < time.monotonic() - killed_s + 1,
        "a service that starts renews what it finds",
    )
    service.do("detach", bed.bridge)


# ---- nothing left -----------------------------------------------------------------------


@on_every_bed
@pytest.mark.parametrize("way", ["by the service", "service killed"])
def test_detach_leaves_the_bridge_as_it_was(bed: Bed, service: Service, way: str) -> None:
    with others(bed):
        before = state(bed)
        service.do("attach", bed.bridge, *bed.uplink_options)
        bed.introduce()
        during = state(bed)
        assert set(before["flows"]) < set(during["flows"]), "somebody else's flows are gone"
        assert set(before["groups"]) < set(during["groups"]), "somebody else's groups are gone"
        ours = set(during["flows"]) - set(before["flows"])
        prefixes = {cookie_of(flow) >> 40 for flow in ours}
        assert len(prefixes) == 1, f"more than one mark on our flows: {prefixes}"
        assert prefixes.isdisjoint(cookie_of(flow) >> 40 for flow in before["flows"])
        if way == "service killed":
            service.kill()
        service.do("detach", bed.bridge)
        assert state(bed) == before


# ---- who may not, and what cannot ----------------------------------------------------------


@on_a_bond
def test_a_stranger_is_told_who_may(attached: Bed, service: Service) -> None:
    before = state(attached)
    for words in (["show"], ["attach", attached.bridge], ["detach", attached.bridge], ["run"]):
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        # The checkout may lie where only root may look.
        drop += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        command = [*drop, str(service.executable), *words]
        env = service.ovs.env
        told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S)
        assert says(
            one_line(told), f"user {NOBODY} cannot write to ", "; run the command as root"
        ), told
    assert state(attached) == before


# ---- what an operator sees and does ------------------------------------------------------


def spread_over_idle_members(bed: Bed, service: Service) -> None:
    """Every VM is where NORMAL takes nothing from, and the network knows it there."""
    active, idle = bed.uplinks
    bed.ovs.run("ovs-appctl", "-t", "ovs-vswitchd", "bond/set-active-member", bed.bond, active.name)
    service.wait_ready(bed)
    service.place(bed, *(bed.uplinks.index(idle) for _ in bed.stations))


def cookie_of(flow: str) -> int:
    found = re.search(r"cookie=(0x[0-9a-f]+)", flow)
    return int(found[1], 16) if found else 0


def fields(flow: str) -> tuple[str, ...]:
    """A flow without what it has counted."""
    counted = ("duration", "n_packets", "n_bytes", "idle_age", "hard_age")
    return tuple(word.strip(",") for word in flow.split() if not word.startswith(counted))


@contextlib.contextmanager
def others(bed: Bed) -> Iterator[None]:
    """Somebody else's flows and groups, out of our way."""
    bed.ofctl("add-group", "group_id=7,type=indirect,bucket=actions=drop")
    bed.ofctl("add-flow", f"cookie={FOREIGN_COOKIE},table=200,priority=1,actions=drop")
    bed.ofctl("add-flow", f"cookie={FOREIGN_COOKIE},table=201,actions=group:7")
    try:
        yield
    finally:
        bed.ofctl("del-flows", f"cookie={FOREIGN_COOKIE}/-1")
        bed.ofctl("del-groups", "group_id=7")


def traffic(bed: Bed) -> Traffic:
    """1000 pps from a VM and to it, and to one that sends nothing from the network and its neighbour."""
    talker, silent, host = bed.vms[0], bed.vms[1], bed.hosts[0]
    bed.introduce_to_normal()
    return Traffic([(talker, host), (host, talker), (host, silent), (talker, silent)], FLOW_PPS)
