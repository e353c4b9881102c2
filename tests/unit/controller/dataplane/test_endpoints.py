"""Off-home addresses of tunnel endpoints: what leaves under them, and what comes back to them.

Flows and groups are carried out here frame by frame; tests/switch/test_ovn_overlays.py has hosts with
such endpoints.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

import pytest

from controller.config.vlans import TRUNK, PortVlans, access
from controller.dataplane import tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Learn
from controller.dataplane.tables import BROADCAST, ETH_RARP, Register, Table
from controller.dataplane.team import Endpoint, Hash, Team, VmPort
from policies.classifiers import Classifier
from policies.model import OfPort
from tests.unit.simulator import Copy, as_number, frame, through_table

UPLINKS = tuple(OfPort(n) for n in (1, 2, 3))
ENDPOINT, OTHER = OfPort(10), OfPort(11)
OWN, PEER = "02:00:00:00:00:01", "02:00:00:00:00:99"
OFF_HOME = {uplink: f"0a:00:00:00:00:{uplink:02x}" for uplink in UPLINKS}
NUMBER = 3


def rotated(first: OfPort) -> tuple[OfPort, ...]:
    at = UPLINKS.index(first)
    return UPLINKS[at:] + UPLINKS[:at]


def team(
    home: OfPort = UPLINKS[0],
    hashed: bool = True,
    vlans: PortVlans = TRUNK,
    classifier: Classifier = Classifier.TRANSPORT,
) -> Team:
    """An endpoint, and another VM port, with a bucket for each uplink."""
    number = NUMBER if hashed else None
    ports = (
        VmPort(ENDPOINT, rotated(home), vlans, hashed=number),
        VmPort(OTHER, rotated(home), vlans, hashed=number),
    )
    return Team(
        UPLINKS,
        ports,
        hashes=(Hash(NUMBER, classifier, tuple(map(rotated, UPLINKS))),) if hashed else (),
        off_home_macs={uplink: f"0a:00:00:00:01:{uplink:02x}" for uplink in UPLINKS},
        endpoints=(Endpoint(ENDPOINT, OWN, tuple(OFF_HOME.items())),),
        lanes={uplink: rotated(uplink) for uplink in UPLINKS},
    )


def some_alive() -> Iterator[frozenset[OfPort]]:
    for count in range(1, len(UPLINKS) + 1):
        yield from map(frozenset, itertools.combinations(UPLINKS, count))


ALIVE = list(some_alive())


def came(
    uplink: OfPort, mac: str, in_team: Team, alive: Collection[int], **more: int
) -> list[Copy]:
    """The copies of a frame to an address that an uplink brings."""
    brought = frame(in_port=int(uplink), eth_src=PEER, eth_dst=mac, eth_type=0x0800)
    everyone = {*alive, ENDPOINT, OTHER}
    return through_table(build(in_team), Table.CLASSIFY, {**brought, **more}, everyone)


def sent(
    port: int, in_team: Team, alive: Collection[int], source: str = OWN, **more: int | str
) -> list[Copy]:
    """The copies of what a VM port sends to a peer, from a source; the switch has learned both."""
    tunnel: dict[str, int | str] = {
        "eth_dst": PEER,
        "eth_type": 0x0800,
        "ip_proto": 17,
        "ipv4_src": "192.0.2.1",
        "ipv4_dst": "192.0.2.9",
        "udp_dst": 6081,
        Register.LEARNED: 1,
        Register.TARGET: tables.ELSEWHERE,
    }
    left = frame(in_port=port, eth_src=source, **(tunnel | more))
    return through_table(build(in_team), Table.CLASSIFY, left, {*alive, ENDPOINT, OTHER})


def connections(in_team: Team, alive: Collection[int]) -> list[list[Copy]]:
    return [sent(ENDPOINT, in_team, alive, udp_src=port) for port in range(4 * len(UPLINKS))]


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("alive", ALIVE, ids=str)
def test_a_frame_that_the_network_floods_comes_to_the_endpoint_once(
    alive: frozenset[OfPort], hashed: bool
) -> None:
    in_team = team(hashed=hashed)
    for lane, mac in OFF_HOME.items():
        copies = {u: came(u, mac, in_team, alive) for u in UPLINKS if u in alive}
        (uplink,) = (u for u, found in copies.items() if found)
        assert uplink == next(u for u in rotated(lane) if u in alive)
        ((copy,),) = (found for found in copies.values() if found)
        assert (copy.port, copy.frame["eth_dst"]) == (ENDPOINT, as_number("eth_dst", OWN))


@pytest.mark.parametrize("alive", ALIVE, ids=str)
def test_a_lane_leaves_by_one_uplink_under_one_address(alive: frozenset[OfPort]) -> None:
    in_team = team()
    whole = connections(in_team, UPLINKS)
    for before, after in zip(whole, connections(in_team, alive), strict=True):
        ((old,), (new,)) = before, after
        assert new.frame["eth_src"] == old.frame["eth_src"], "it moves with what has it"
        assert new.port == next(u for u in rotated(OfPort(old.port)) if u in alive)
    sources = {copy.port: copy.frame["eth_src"] for (copy,) in whole}
    expected = OFF_HOME | {UPLINKS[0]: OWN}
    assert sources == {u: as_number("eth_src", mac) for u, mac in expected.items()}


@pytest.mark.parametrize("home", UPLINKS)
def test_the_home_is_the_lane_of_its_own_address(home: OfPort) -> None:
    """A moved home takes over its uplink's lane; the old home's lane has an off-home address then."""
    for (copy,) in connections(team(home), UPLINKS):
        expected = OWN if copy.port == home else OFF_HOME[OfPort(copy.port)]
        assert copy.frame["eth_src"] == as_number("eth_src", expected)


@pytest.mark.parametrize("hashed", [True, False])
def test_nobody_sends_or_comes_back_under_such_an_address(hashed: bool) -> None:
    in_team = team(hashed=hashed)
    for mac in OFF_HOME.values():
        for port in (ENDPOINT, OTHER):
            assert not sent(port, in_team, UPLINKS, mac)
        for uplink in UPLINKS:
            for destination in (OWN, BROADCAST):
                source = as_number("eth_src", mac)
                assert not came(uplink, destination, in_team, UPLINKS, eth_src=source)


@pytest.mark.parametrize("alive", ALIVE, ids=str)
def test_a_learning_packet_leaves_by_the_uplink_that_serves_its_address(
    alive: frozenset[OfPort],
) -> None:
    to_all: dict[str, int | str] = {"eth_dst": BROADCAST, "eth_type": ETH_RARP}
    for lane, mac in OFF_HOME.items():
        (copy,) = sent(ENDPOINT, team(hashed=False), alive, mac, **to_all)
        assert copy.port == next(u for u in rotated(lane) if u in alive)
        assert not sent(OTHER, team(), alive, mac, **to_all)


def test_only_in_vlans_that_the_endpoint_carries() -> None:
    tagged = {"vlan_vid": tables.VLAN_PRESENT | 8, "vlan_tci": tables.VLAN_PRESENT | 8}
    in_team = team(vlans=access(7))
    assert not came(UPLINKS[0], OFF_HOME[UPLINKS[0]], in_team, UPLINKS, **tagged)
    tagged = {"vlan_vid": tables.VLAN_PRESENT | 7, "vlan_tci": tables.VLAN_PRESENT | 7}
    (copy,) = came(UPLINKS[0], OFF_HOME[UPLINKS[0]], in_team, UPLINKS, **tagged)
    assert copy.frame["vlan_vid"] == 0


def test_an_address_that_has_sent_is_remembered() -> None:
    """Only those: so that a flood of an address that was silent is taken once."""
    teaching = [
        flow
        for flow in build(team()).flows.values()
        if any(isinstance(a, Learn) and a.table == Table.SPOKEN for a in flow.actions)
    ]
    assert {flow.table for flow in teaching} == {Table.LEARN, Table.OFF_HOME}
    for flow in teaching:
        (learn,) = (action for action in flow.actions if isinstance(action, Learn))
        assert learn.delete_learned, "what was learned of an endpoint ends with it"
        assert 0 < learn.hard_timeout_s < tables.LEARNED_TIMEOUT_S
    in_team = team()
    # As the learned flow does.
    known = {Register.TARGET: int(ENDPOINT)}
    for uplink in UPLINKS:
        (copy,) = came(uplink, OFF_HOME[UPLINKS[0]], in_team, UPLINKS, **known)
        assert copy.port == ENDPOINT
