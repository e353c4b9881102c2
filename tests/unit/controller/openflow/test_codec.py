"""Bytes to values: what is read back equals what was installed, and nothing else does."""

from __future__ import annotations

import struct
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings

from controller.api.events import ForeignFlow
from controller.dataplane import pipeline, specs, tables
from controller.dataplane.specs import (
    Bucket,
    Changes,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    Output,
    Resubmit,
    SetField,
    ToGroup,
)
from controller.dataplane.tables import Kind, Table
from controller.dataplane.team import Team
from controller.openflow import codec, framing
from controller.openflow.framework import ofproto, parser, serialized
from controller.openflow.messages import Asked
from tests.unit.controller.dataplane.teams import teams
from tests.unit.controller.openflow.switch_bytes import (
    DATAPATH,
    MAC,
    PIPELINE,
    as_stats,
    flow_stats,
    group_description,
    learned,
    read_back_flow,
    reply,
    wrapped,
)
from tests.unit.examples import examples


def installed(body: bytes) -> codec.Flows:
    return codec.installed_flows(codec.lasting(body)[0])


@settings(max_examples=examples(20))
@given(teams())
def test_flows_and_groups_read_back_equal_those_installed(team: Team) -> None:
    built = pipeline.build(team)
    groups = {n: group for n, group in built.groups.items() if group.kind != "select"}
    mods = wrapped(Changes(tuple(groups.values()), add_flows=tuple(built.flows.values())))
    of_groups, of_flows = mods[: len(groups)], mods[len(groups) :]
    read, foreign, *_ = installed(b"".join(map(flow_stats, of_flows)))
    assert ({flow.key: flow for flow in read}, foreign) == (built.flows, ())
    found = codec.installed_groups(map(group_description, of_groups))
    assert {group.group_id: group for group in found} == groups


@pytest.mark.parametrize("eth_type", [0x0800, 0x86DD])
def test_a_flow_for_whole_packets_is_sent_and_read_back(eth_type: int) -> None:
    """The switch wants the EtherType before ip_frag, which the framework would put first."""
    fields: dict[str, Any] = {"eth_type": eth_type, "ip_proto": 6, "ip_frag": 0}
    fields["eth_dst"] = tables.UNICAST
    flow = specs.flow(6, 15, fields, ToGroup(tables.SELECT_GROUP_ID))
    (mod,) = wrapped(Changes(add_flows=(flow,)))
    headers = bytes.fromhex("00000602"), bytes.fromhex("00013401")
    assert 0 < mod.find(headers[0]) < mod.find(headers[1])
    assert read_back_flow(flow) == flow


def test_the_group_that_selects_is_recognized() -> None:
    bucket = Bucket((SetField("reg12", 0), Resubmit(Table.BUCKET)))
    (mod,) = wrapped(Changes(add_groups=(GroupSpec(tables.SELECT_GROUP_ID, "all", (bucket,)),)))
    made = group_description(mod)
    select = made[:2] + bytes([ofproto.OFPGT_SELECT]) + made[3:]
    (found,) = codec.installed_groups([select])
    assert found == GroupSpec(tables.SELECT_GROUP_ID, "select", (bucket,))


def somebodys(value: int, *actions: Any, priority: int = 10, **fields: Any) -> bytes:
    """How a switch tells of a flow with this cookie that we have not made."""
    acts = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)
    mod = parser.OFPFlowMod(
        DATAPATH,
        cookie=value,
        priority=priority,
        match=parser.OFPMatch(**fields),
        instructions=[acts],
    )
    mod.set_xid(1)
    return flow_stats(serialized([mod]))


@pytest.mark.parametrize(
    ("fields", "algorithm", "arg", "ofs_nbits"),
    [(0, 1, 0, 31), (0, 0, 1, 31), (0, 0, 0, 7), (9, 0, 0, 31)],
)
def test_hashing_in_another_way_is_not_ours(
    fields: int, algorithm: int, arg: int, ofs_nbits: int
) -> None:
    strange = parser.NXActionMultipath(fields, 0, algorithm, 255, arg, ofs_nbits, "reg12")
    (found,) = installed(somebodys(specs.COOKIE_PREFIX, strange)).ours
    assert found.actions == codec.NOT_OURS


def test_what_somebody_else_put_in_our_place_equals_nothing_of_ours() -> None:
    """It is replaced, as it is under our cookie and not ours."""
    acts = parser.OFPActionSetQueue(1), parser.OFPActionPopVlan()
    (found,) = installed(somebodys(specs.COOKIE_PREFIX, *acts)).ours
    assert found not in PIPELINE.flows.values()
    assert found.key == (0, 10, ())


def test_a_flow_is_the_same_whatever_it_has_counted_and_another_one_is_not() -> None:
    first, second, *_ = PIPELINE.flows.values()
    young, old = as_stats(first, 1, 1.0), as_stats(first, 2**40, 1e6)
    found, again, other = installed(young + old + as_stats(second)).ours
    assert (found, again, other) == (first, first, second)


def test_flows_of_others_are_told_and_the_default_flow_is_not() -> None:
    entries = [
        somebodys(9, priority=0),
        somebodys(9, priority=0, in_port=1, eth_dst=MAC),
        somebodys(9, parser.OFPActionGroup(7), parser.OFPActionOutput(1), priority=5),
        learned(10, MAC, 7),
    ]
    by_match = ForeignFlow(0, 0, 9, f"eth_dst={MAC},in_port=1")
    others = (by_match, ForeignFlow(0, 5, 9, "", (7,)))
    assert installed(b"".join(entries))[:3] == ((), others, True)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"eth_type": 0x800, "ipv4_src": ("192.0.2.0", "255.255.255.0")},
            "nw_src=192.0.2.0/255.255.255.0",
        ),
        ({"eth_type": 0x800, "ip_proto": 1, "icmpv4_type": 8}, "icmp_type=8"),
        (
            {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 135, "ipv6_nd_target": "fe80::1"},
            "nd_target",
        ),
        ({"eth_dst": (MAC, MAC)}, f"eth_dst={MAC}/{MAC}"),
        ({"vlan_vid": (0x1000, 0x1000)}, "vlan_vid=4096/4096"),
    ],
)
def test_flows_of_others_are_told_in_words_of_ovs_ofctl(fields: dict[str, Any], text: str) -> None:
    (flow,) = installed(somebodys(9, **fields)).foreign
    assert text in flow.match
    parsed = ["ovs-ofctl", "parse-flow", f"{flow.match},actions=drop"]
    assert subprocess.run(parsed, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("table", "kind", "timeout_s"),
    [(20, Kind.LEARNED, 0), (0, Kind.LEARNED, 300), (0, 0x77, 0), (0, Kind.RESCUE, 0)],
)
def test_what_nobody_of_ours_has_put_in_our_place_is_found(
    table: int, kind: int, timeout_s: int
) -> None:
    """Under our cookie, but not as the switch learns: it is to go."""
    flow = FlowSpec(table, 9, (), cookie=specs.COOKIE_PREFIX | kind << 32)
    assert installed(as_stats(flow, 0, 0, timeout_s))[:3] == ((flow,), (), False)


def test_a_flow_of_ours_that_does_more_than_it_should_is_not_ours() -> None:
    flow = next(flow for flow in PIPELINE.flows.values() if flow.actions)
    (mod,) = wrapped(Changes(add_flows=(flow,)))
    clear_actions = struct.pack("!HH4x", ofproto.OFPIT_CLEAR_ACTIONS, 8)
    (found,) = installed(flow_stats(mod + clear_actions)).ours
    assert found.key == flow.key and found != flow


def test_groups_of_others_are_none_of_our_business() -> None:
    (mod,) = wrapped(Changes(add_groups=(GroupSpec(1, "all", (Bucket((Output(1),)),)),)))
    body = reply(Asked.GROUPS, ofproto.OFPMP_GROUP_DESC, [group_description(mod)]).body
    assert codec.installed_groups(framing.split(body, framing.GROUP_LEAST_BYTES)) == ()


def test_learning_with_a_limit_is_what_the_switch_calls_learn2() -> None:
    """nx_action_learn2: learn's fixed part, limit, offset and field of the result, specs."""
    learn = Learn(
        Table.LOCAL_SOURCE, 0x77, 300, (LearnLoad(1, "reg4", 1),), limit=1024, success="reg8"
    )
    (mod,) = wrapped(Changes(add_flows=(FlowSpec(1, 10, (), (learn,)),)))
    fixed = struct.pack("!HHHQHBxHH", 0, 300, 10, 0x77, 4, Table.LOCAL_SOURCE, 0, 0)
    body = fixed + bytes.fromhex("00000400 0000 0000 00011004")
    body += bytes.fromhex("2801 0001 00010804 0000")
    action = struct.pack("!HHIH", 0xFFFF, 56, 0x2320, 45) + body
    assert mod.endswith(action.ljust(56, b"\0"))
