"""Probes between uplinks: what is signed is read again, and nothing else is."""

from __future__ import annotations

import struct
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import frames, path_probes
from controller.dataplane.path_probes import (
    ETH_PROBE,
    NO_UPLINK,
    HostAnswer,
    Probe,
    parse,
    probe_frame,
)
from controller.dataplane.pipeline import build
from controller.dataplane.tables import ETH_ARP, ETH_IPV6, OFPP_CONTROLLER
from controller.dataplane.team import Team
from policies.model import OfPort

KEY, OTHER = b"k" * 32, b"o" * 32
ONE, TWO = "02:00:00:00:00:01", "02:00:00:00:00:02"
THREE, FOUR = "02:00:00:00:00:03", "02:00:00:00:00:04"
GROUP = "03:00:00:00:00:05"
PROBE = Probe(1, 2, 20, 1500, 7)
ETHERTYPES = (0x0806, 0x86DD, 0x88B6, 0x8100)


def test_a_probe_is_read_as_it_was_written_and_fills_its_mtu() -> None:
    assert parse(probe_frame(PROBE, ONE, TWO, 20, KEY), 2, KEY) == PROBE
    assert len(probe_frame(PROBE, ONE, TWO, 0, KEY)) == 1514


@pytest.mark.parametrize(
    ("uplink", "key", "length"),
    [
        pytest.param(2, OTHER, None, id="of another service"),
        pytest.param(3, KEY, None, id="to another uplink"),
        pytest.param(2, KEY, 200, id="cut short"),
    ],
)
def test_what_is_no_probe_for_us_is_none(uplink: int, key: bytes, length: int | None) -> None:
    assert parse(probe_frame(PROBE, ONE, TWO, 20, key)[:length], uplink, KEY) is None


def test_all_uplinks_take_a_copy() -> None:
    copy = Probe(1, NO_UPLINK, 20, 0, 7)
    frame = probe_frame(copy, ONE, GROUP, 20, KEY)
    assert parse(frame, 2, KEY) == parse(frame, 3, KEY) == copy


@given(st.integers(0), st.integers(1, 255))
def test_a_probe_that_was_changed_is_none(at: int, by: int) -> None:
    """Also if its addresses were."""
    frame = bytearray(probe_frame(Probe(1, 2, 0, 0, 7), ONE, TWO, 0, KEY))
    frame[at % (14 + path_probes._BODY.size + 16)] ^= by
    assert parse(bytes(frame), 2, KEY) is None


HEADS = st.sampled_from([b"", *(bytes(12) + struct.pack("!H", e) for e in ETHERTYPES)])


@given(HEADS, st.binary(max_size=200))
def test_anything_may_come_also_behind_an_ethertype(head: bytes, body: bytes) -> None:
    assert not isinstance(parse(head + body, 2, KEY), Probe)


@pytest.mark.parametrize("vlan", [0, 20])
def test_an_arp_reply_is_the_answer_of_its_sender(vlan: int) -> None:
    own, host = frames.octets(ONE), ip_address("192.0.2.1").packed
    body = struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, 2, own, host, own, bytes(4))
    answer = frames.frame(own, frames.octets(TWO), vlan, 0x0806, body)
    assert parse(answer, 2, KEY) == HostAnswer(2, "192.0.2.1", vlan, TWO)


@pytest.mark.parametrize("host", ["192.0.2.1", "fe80::1"])
def test_a_question_is_no_answer_and_goes_to_all_unless_the_hosts_address_is_known(
    host: str,
) -> None:
    assert parse(path_probes.question_frame(ONE, host, 0, 0), 2, KEY) is None
    assert len(path_probes.question_frame(ONE, host, 0, 9000)) == 9014
    to_all, to_one = (path_probes.question_frame(ONE, host, 0, 0, mac) for mac in (None, TWO))
    assert to_all[0] & 1 and to_one[:6].hex(":") == TWO
    assert to_all[6:] == to_one[6:]


def heard(team: Team) -> dict[int, set[tuple[object, ...]]]:
    """By priority, the frames that flows take: where they come in, from and to whom, and the EtherType."""
    by_priority: dict[int, set[tuple[object, ...]]] = {}
    for flow in path_probes.flows(team):
        where = dict(flow.match)
        key = tuple(where.get(name) for name in ("in_port", "eth_dst", "eth_src", "eth_type"))
        by_priority.setdefault(flow.priority, set()).add(key)
        assert bool(flow.actions) is (flow.priority in GIVEN_TO_US)
    return by_priority


GIVEN_TO_US, ASKED = (132, 130), (ETH_ARP, ETH_IPV6)
UPLINKS = PORT_ONE, PORT_TWO = OfPort(1), OfPort(2)
PROBED = Team(
    UPLINKS,
    (),
    probe_macs={PORT_ONE: ONE, PORT_TWO: TWO},
    question_macs={PORT_ONE: THREE, PORT_TWO: FOUR},
    probe_group=GROUP,
)


def test_hosts_are_asked_from_addresses_that_no_probe_has() -> None:
    """A loop upstream makes switches learn the source of a broadcast in the wrong places."""
    taken = heard(PROBED)
    heard_at = {(1, ONE), (2, TWO), (1, GROUP), (2, GROUP)}
    answers = {(port, mac, None, kind) for port, mac in ((1, THREE), (2, FOUR)) for kind in ASKED}
    assert taken[132] == answers | {
        (OFPP_CONTROLLER, None, None, ETH_PROBE),
        *((port, mac, None, ETH_PROBE) for port, mac in heard_at),
    }
    every = (ONE, TWO, THREE, FOUR)
    assert taken[131] == {(None, mac, None, None) for mac in every}
    assert taken[130] == {(port, None, mac, None) for port in UPLINKS for mac in (ONE, TWO)}
    assert taken[129] == {(None, None, m, None) for m in every} | {(None, None, None, ETH_PROBE)}


def test_what_floods_an_uplink_is_dropped_there_and_nothing_else() -> None:
    before = heard(PROBED)
    own, others = (
        heard(replace(PROBED, unheard=frozenset({(PORT_ONE, own)}))) for own in (True, False)
    )
    given = before[132] | before[130]
    of_one = {key for key in given if key[0] == PORT_ONE}
    to_itself = {key for key in of_one if key[1] in (ONE, THREE)}
    assert own[132] | own[130] == given - to_itself
    assert others[132] | others[130] == given - (of_one - to_itself)
    assert (own[131], own[129]) == (others[131], others[129]) == (before[131], before[129])


def test_a_pipeline_that_hears_more_or_less_is_as_if_built_from_nothing() -> None:
    less = replace(PROBED, unheard=frozenset({(PORT_ONE, True), (PORT_TWO, False)}))
    one, other = build(PROBED), build(less)
    assert build(less, (PROBED, one)) == other != one
    assert build(PROBED, (less, other)) == one
