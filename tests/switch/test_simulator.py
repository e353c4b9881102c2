"""The simulator of the unit tests forwards and learns as Open vSwitch does.

Both get the same flows and groups, and then the same random frames, one after another.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from controller.dataplane.pipeline import build
from controller.dataplane.specs import Action, Learn, Pipeline
from controller.dataplane.tables import VLAN_PRESENT, openflow_port
from controller.dataplane.team import Team
from policies.model import OFPORT_LOCAL
from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.direct import Direct
from tests.switch.trace import Tracer
from tests.unit.controller.dataplane.teams import MACS, TAGS, UPLINKS, own_mac, teams
from tests.unit.examples import examples
from tests.unit.simulator import Simulator, fields_of

FRAMES = 60
# What a VM port may teach the switch, so that few frames reach the limit.
LIMIT = 3
# Longer than the test, as only the switch's own clock says when it forgets.
TIMEOUT_S = 3600
VM_PORTS = (10, 11, 12)
OUTSIDE = ("02:ee:00:00:00:01", "02:ee:00:00:00:02")
OFF_HOME = tuple(f"0a:00:00:00:00:{uplink:02x}" for uplink in UPLINKS)
ADDRESSES = (*map(own_mac, (*VM_PORTS, OFPORT_LOCAL)), *MACS, *OUTSIDE, *OFF_HOME)
FLOODED = (
    frames.broadcast,
    frames.multicast,
    frames.arp_request,
    frames.gratuitous_arp,
    frames.rarp,
    frames.igmp_report,
    frames.neighbour_solicitation,
    frames.unsolicited_advertisement,
)
TO_ONE = (frames.plain, frames.udp, frames.arp_reply, frames.solicited_advertisement)
pytestmark = on_beds(BedSpec(PLAIN, len(UPLINKS), (None,) * len(VM_PORTS)))


@pytest.fixture
def numbered(bed: Bed) -> Mapping[int, str]:
    """The bed's interfaces, by the numbers that `teams` gives its ports."""
    names = (*(uplink.name for uplink in bed.uplinks), *(vm.port for vm in bed.vms))
    found = dict(zip((*UPLINKS, *VM_PORTS), names, strict=True))
    for number, name in found.items():
        bed.ovs.vsctl("set", "interface", name, f"ofport_request={number}")
    assert {name: bed.ofport(name) for name in names} == {n: i for i, n in found.items()}
    return {**found, openflow_port(OFPORT_LOCAL): bed.bridge}


@settings(
    max_examples=examples(500),
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(teams(), st.randoms(use_true_random=False))
def test_frames_leave_it_as_they_leave_open_vswitch(
    bed: Bed, direct: Direct, numbered: Mapping[int, str], team: Team, chosen: random.Random
) -> None:
    installed = comparable(team)
    for what in ("del-flows", "del-groups"):
        bed.ofctl(what)
    direct.install(installed)
    simulator = Simulator(installed, numbered)
    with contextlib.closing(Tracer(bed.ovs, bed.bridge)) as switch:
        for ofport, frame in some_frames(chosen, numbered):
            expected = sorted(switch.copies(ofport, frame))
            found = simulator.receive(ofport, fields_of(frame))
            assert sorted((numbered[c.port], c.frame["vlan_vid"]) for c in found) == expected, (
                f"frame {frame.hex()} from port {ofport}"
            )


def comparable(team: Team) -> Pipeline:
    """A team's pipeline, without what the two cannot do alike: hash, forget, and forward by NORMAL."""
    hashes = tuple(replace(one, buckets=one.buckets[:1] * len(one.buckets)) for one in team.hashes)
    made = build(replace(team, over_normal=False, dp_hash=False, hashes=hashes))

    def comparable_action(action: Action) -> Action:
        if isinstance(action, Learn):
            limit = min(action.limit, LIMIT)
            return replace(action, limit=limit, hard_timeout_s=TIMEOUT_S)
        return action

    flows = (
        replace(flow, actions=tuple(map(comparable_action, flow.actions)))
        for flow in made.flows.values()
    )
    return Pipeline({flow.key: flow for flow in flows}, made.groups)


def some_frames(chosen: random.Random, numbered: Mapping[int, str]) -> Iterator[tuple[int, bytes]]:
    """Frames of a few hosts, which may be anywhere, each with the port by which it comes in."""
    for _ in range(FRAMES):
        ofport, source = chosen.choice([*numbered]), chosen.choice(ADDRESSES)
        vlan = chosen.choice(TAGS) & ~VLAN_PRESENT
        if chosen.random() < 0.5:
            yield ofport, chosen.choice(FLOODED)(source, vlan, 0)
        else:
            yield (
                ofport,
                chosen.choice(TO_ONE)(source, chosen.choice(ADDRESSES), vlan=vlan, frame_id=0),
            )
