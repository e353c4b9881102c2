"""Proven over all ways in and all kinds of destination with the switch's own `ofproto/trace`.

No frame goes from uplink to uplink, back to where it came from, or twice to one port; and
each goes exactly where it should.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station
from tests.switch.service import Service
from tests.switch.trace import outputs, port_numbers

BEDS = [
    BedSpec(PLAIN, 2, (None, None, None)),
    BedSpec(PLAIN, 2, (10, 10, 20)),
    BedSpec(BALANCE_SLB, 2, (10, 10, 20)),
]
REMOTE = "02:ee:00:00:00:02"
UNKNOWN = "02:dd:00:00:00:01"
ND = {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 135}
Fields = Mapping[str, str | int]
FLOODED: dict[str, Fields] = {
    "broadcast": {"dl_dst": frames.BROADCAST},
    "ARP request": {
        "dl_dst": frames.BROADCAST,
        "eth_type": 0x0806,
        "arp_spa": "192.0.2.1",
        "arp_tpa": "192.0.2.9",
    },
    "multicast": {"dl_dst": frames.MULTICAST, "eth_type": 0x0800, "nw_proto": 17},
    "neighbour solicitation": {"dl_dst": frames.ND_MULTICAST, **ND},
    "unknown unicast": {"dl_dst": UNKNOWN},
    "remote unicast": {"dl_dst": REMOTE},
}
on_every_bed = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)


@pytest.fixture
def placed(attached: Bed, service: Service) -> Bed:
    """Stations spread over both uplinks, all of them and a remote host learned by the switch."""
    service.place(attached, *itertools.islice(itertools.cycle((0, 1)), len(attached.stations)))
    attached.introduce(REMOTE)
    return attached


@on_every_bed
def test_frames_from_uplinks(placed: Bed, service: Service) -> None:
    bed = placed
    bindings = service.bindings(bed)
    wrong: list[str] = []
    for uplink, vlan in itertools.product(bed.uplinks, bed.vlans):
        here = [s for s in bed.stations if bindings[s.port] == uplink.name and s.hears(vlan)]
        for kind, fields in FLOODED.items():
            wrong += differs(bed, uplink.name, vlan, kind, fields, [s.port for s in here])
        reserved: Fields = {"dl_dst": frames.RESERVED_MULTICAST}
        wrong += differs(bed, uplink.name, vlan, "reserved multicast", reserved, [])
        for station in bed.stations:
            if station.hears(vlan) and vlan == vlan_of(bed, station):
                unicast: Fields = {"dl_dst": station.mac}
                wrong += differs(bed, uplink.name, vlan, f"to {station}", unicast, [station.port])
            for kind, fields in FLOODED.items():
                if vlan == vlan_of(bed, station):
                    own = {"dl_src": station.mac, **fields}
                    story = f"{kind} of {station}, reflected"
                    wrong += differs(bed, uplink.name, vlan, story, own, [])
    assert not wrong, "\n".join(wrong)


@on_every_bed
def test_frames_from_vms_and_the_host(placed: Bed, service: Service) -> None:
    bed = placed
    bindings = service.bindings(bed)
    wrong: list[str] = []
    for station in bed.stations:
        vlan = vlan_of(bed, station)
        tag = station.sends(vlan)
        source = {"dl_src": station.mac}
        home = bindings[station.port]
        others = [s for s in bed.stations if s != station and s.hears(vlan)]
        for kind, fields in FLOODED.items():
            local = [] if kind == "remote unicast" else [s.port for s in others]
            wrong += differs(bed, station.port, tag, kind, {**source, **fields}, [*local, home])
        reserved = {**source, "dl_dst": frames.RESERVED_MULTICAST}
        wrong += differs(bed, station.port, tag, "reserved multicast", reserved, [])
        own = {**source, "dl_dst": station.mac}
        wrong += differs(bed, station.port, tag, "to itself", own, [])
        for other in others:
            if vlan == vlan_of(bed, other):
                unicast = {**source, "dl_dst": other.mac}
                wrong += differs(bed, station.port, tag, f"to {other}", unicast, [other.port])
        if station.vlan:
            tagged: Fields = {**source, "dl_dst": frames.BROADCAST}
            wrong += differs(bed, station.port, 99, "tagged by an access VM", tagged, [])
    assert not wrong, "\n".join(wrong)


def test_actions_nobody_thought_of_are_not_passed_over() -> None:
    with pytest.raises(ValueError, match="sample"):
        list(port_numbers("sample(sample=50%,actions(3))"))


def vlan_of(bed: Bed, station: Station) -> int:
    """The VLAN in which a station's address is known."""
    return bed.vlans[0] if station.vlan is None else station.vlan


def differs(
    bed: Bed,
    in_port: str,
    tag: int,
    kind: str,
    fields: Fields,
    expected: list[str],
) -> Iterator[str]:
    """The story of a frame that would not go exactly where it should."""
    vlan = {"vlan_tci": 0x1000 | tag} if tag else {"vlan_tci": 0}
    flow = {"dl_src": "02:ee:00:00:00:01", **fields, **vlan}
    seen = outputs(bed.ovs, bed.bridge, in_port, **flow)
    uplinks = {u.name for u in bed.uplinks}
    story = f"{kind} from {in_port}" + (f", VLAN {tag}" if tag else "")
    if in_port in seen:
        yield f"{story} goes back to where it came from: {seen}"
    if in_port in uplinks and uplinks & set(seen):
        yield f"{story} goes from uplink to uplink: {seen}"
    if Counter(seen) != Counter(expected):
        yield f"{story} goes to {sorted(seen)}, expected {sorted(expected)}"
