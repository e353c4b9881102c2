"""Probes between uplinks: what is signed is read again, and nothing else is."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import frames, path_probes
from controller.dataplane.path_probes import ETH_PROBE, HostAnswer, Probe, parse, probe_frame
from controller.dataplane.tables import ETH_ARP, ETH_IPV6
from controller.dataplane.team import Team
from policies.model import OfPort

KEY, OTHER = b"k" * 32, b"o" * 32
ONE, TWO = "02:00:00:00:00:01", "02:00:00:00:00:02"
THREE, FOUR = "02:00:00:00:00:03", "02:00:00:00:00:04"
PROBE = Probe(1, 2, 20, 1500, 7)


def test_a_probe_is_read_as_it_was_written() -> None:
    assert parse(probe_frame(PROBE, ONE, TWO, 20, KEY), 2, KEY) == PROBE


def test_a_probe_fills_its_mtu() -> None:
    assert len(probe_frame(PROBE, ONE, TWO, 0, KEY)) == 1514


def test_a_probe_of_another_service_is_none() -> None:
    assert parse(probe_frame(PROBE, ONE, TWO, 20, OTHER), 2, KEY) is None


def test_a_probe_to_another_uplink_is_none() -> None:
    assert parse(probe_frame(PROBE, ONE, TWO, 20, KEY), 3, KEY) is None


def test_a_probe_that_was_cut_short_is_none() -> None:
    assert parse(probe_frame(PROBE, ONE, TWO, 20, KEY)[:200], 2, KEY) is None


@given(st.integers(0, 63), st.integers(1, 255))
def test_a_probe_that_was_changed_is_none(at: int, by: int) -> None:
    frame = bytearray(probe_frame(Probe(1, 2, 0, 0, 7), ONE, TWO, 0, KEY))
    signed = slice(14, 14 + path_probes._BODY.size + 16)
    position = 14 + at % (signed.stop - 14)
    frame[position] ^= by
    assert parse(bytes(frame), 2, KEY) is None


@given(st.binary(max_size=200))
def test_anything_may_come(frame: bytes) -> None:
    assert not isinstance(parse(frame, 2, KEY), Probe)


@given(st.sampled_from([0x0806, 0x86DD, 0x88B6, 0x8100]), st.binary(max_size=120))
def test_anything_may_come_behind_an_ethertype(ethertype: int, body: bytes) -> None:
    head = bytes(12) + struct.pack("!H", ethertype)
    assert not isinstance(parse(head + body, 2, KEY), Probe)


@pytest.mark.parametrize("vlan", [0, 20])
def test_an_arp_reply_is_the_answer_of_its_sender(vlan: int) -> None:
    own, host = frames.octets(ONE), ip_address("192.0.2.1").packed
    body = struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, 2, own, host, own, bytes(4))
    answer = frames.frame(own, frames.octets(TWO), vlan, 0x0806, body)
    assert parse(answer, 2, KEY) == HostAnswer(2, "192.0.2.1", vlan, TWO)


@pytest.mark.parametrize("host", ["192.0.2.1", "fe80::1"])
def test_a_question_is_no_answer(host: str) -> None:
    assert parse(path_probes.question_frame(ONE, host, 0, 0), 2, KEY) is None
    assert len(path_probes.question_frame(ONE, host, 0, 9000)) == 9014


@pytest.mark.parametrize("host", ["192.0.2.1", "fe80::1"])
def test_a_question_goes_to_all_unless_the_hosts_address_is_known(host: str) -> None:
    to_all, to_one = (path_probes.question_frame(ONE, host, 0, 0, mac) for mac in (None, TWO))
    assert to_all[0] & 1 and to_one[:6].hex(":") == TWO
    assert to_all[6:] == to_one[6:]


def test_hosts_are_asked_from_addresses_that_no_probe_has() -> None:
    """A loop upstream makes switches learn the source of a broadcast in the wrong places."""
    one, two = OfPort(1), OfPort(2)
    probe_macs, question_macs = {one: ONE, two: TWO}, {one: THREE, two: FOUR}
    team = Team((one, two), (), probe_macs=probe_macs, question_macs=question_macs)
    by_priority: dict[int, set[tuple[object, ...]]] = {}
    for flow in path_probes.flows(team):
        where = dict(flow.match)
        key = (
            where.get("in_port"),
            where.get("eth_dst"),
            where.get("eth_src"),
            where.get("eth_type"),
        )
        by_priority.setdefault(flow.priority, set()).add(key)
    assert by_priority[131] == {
        (port, mac, None, kind)
        for port, mac, kinds in (
            (1, ONE, (ETH_PROBE,)),
            (2, TWO, (ETH_PROBE,)),
            (1, THREE, (ETH_ARP, ETH_IPV6)),
            (2, FOUR, (ETH_ARP, ETH_IPV6)),
        )
        for kind in kinds
    }
    every = (ONE, TWO, THREE, FOUR)
    dropped = {(None, mac, None, None) for mac in every} | {(None, None, m, None) for m in every}
    assert by_priority[130] == dropped
