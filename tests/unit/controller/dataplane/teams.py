"""Teams of every kind, for the tests of the pipeline's features."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from controller.config.vlans import TRUNK, PortVlans, access, port_vlans
from controller.dataplane import tables
from controller.dataplane.specs import FlowSpec
from controller.dataplane.tables import VLAN_PRESENT
from controller.dataplane.team import Address, Endpoint, Hash, Team, VmPort
from policies.classifiers import Classifier
from policies.model import OFPORT_LOCAL, OfPort

UPLINKS = (OfPort(1), OfPort(2), OfPort(3))
WAYS = (
    TRUNK,
    access(0),
    access(7),
    access(4094),
    port_vlans("trunk", None, (7, 20)),
    port_vlans("trunk", None, (0, 7, 4095)),
    port_vlans("native-untagged", 7, ()),
    port_vlans("native-untagged", 7, (7, 20)),
    port_vlans("native-untagged", 0, (0, 20)),
    port_vlans("native-tagged", 7, (20,)),
    port_vlans("native-tagged", 20, ()),
)
# VLANs that differ for some of these, as a frame may say them.
VLANS = (0, 7, 8, 20, 4094, 4095)
HASHED_BY = st.sampled_from([c for c in Classifier if c.hashed])
MACS = ("52:54:00:00:00:71", "52:54:00:00:00:72")
TAGS = (0, *(VLAN_PRESENT | vlan for vlan in VLANS))


def own_mac(ofport: int) -> str:
    return f"52:54:00:00:00:{ofport & 0xFF:02x}"


@st.composite
def teams(draw: st.DrawFn, ways: tuple[PortVlans, ...] = WAYS) -> Team:
    uplinks = UPLINKS[: draw(st.integers(2, 3))]
    numbers = draw(st.lists(st.sampled_from((10, 11, 12, OFPORT_LOCAL)), unique=True))
    hashes = tuple(
        Hash(number, draw(HASHED_BY), tuple(map(tuple, draw(buckets))))
        for buckets in [st.lists(st.lists(st.sampled_from(uplinks), unique=True), max_size=2)]
        for number in range(draw(st.integers(0, 2)))
    )
    vm_ports = tuple(
        VmPort(
            OfPort(number),
            tuple(draw(st.permutations(uplinks))[: draw(st.integers(0, len(uplinks)))]),
            draw(st.sampled_from(ways)),
            macs,
            forges=not macs or draw(st.booleans()),
            hashed=draw(
                st.sampled_from((None, tables.ASSIGNED, *(made.number for made in hashes)))
            ),
        )
        for number in numbers
        for macs in [draw(st.sampled_from(((), (own_mac(number),))))]
    )
    split = [p.ofport for p in vm_ports if p.hashed == tables.ASSIGNED and p.order]
    located = st.tuples(
        st.sampled_from(split or [OfPort(0)]), st.sampled_from(MACS), st.sampled_from((0, 7, 20))
    )
    # The switch learns an address on one port only.
    unique = st.lists(located, max_size=3, unique_by=lambda address: address[1:])
    addresses = tuple(
        Address(
            slot,
            *address,
            tuple(draw(st.permutations(uplinks))[: draw(st.integers(1, len(uplinks)))]),
        )
        for slot, address in enumerate(draw(unique) if split else ())
    )
    hears_everywhere = draw(st.booleans())
    if draw(st.booleans()) and not hears_everywhere:
        vm_ports = tuple(
            replace(port, known_on=port.order[0]) if port.order and port.hashed is None else port
            for port in vm_ports
        )
    # Only where the uplinks are no LAG, and the port may leave by every uplink.
    free = [p.ofport for p in vm_ports if set(p.order) == set(uplinks) and not hears_everywhere]
    endpoints = tuple(
        Endpoint(
            port,
            own_mac(port),
            tuple((u, f"0a:00:00:01:{u:02x}:{port & 0xFF:02x}") for u in uplinks),
        )
        for port in free
        if draw(st.booleans())
    )
    uplink_vlans = {u: draw(st.just(TRUNK) | st.sampled_from(ways)) for u in uplinks}
    return Team(
        uplinks,
        vm_ports,
        hears_everywhere=hears_everywhere,
        over_normal=draw(st.booleans()),
        normal_takes_any=draw(st.booleans()),
        no_flood=frozenset(numbers) if draw(st.booleans()) else frozenset(),
        snoops=draw(st.booleans()),
        uplink_vlans=uplink_vlans,
        hashes=hashes,
        off_home_macs=draw(st.sampled_from(({}, {u: f"0a:00:00:00:00:0{u}" for u in uplinks}))),
        addresses=addresses,
        dp_hash=draw(st.booleans()),
        endpoints=endpoints,
        lanes={u: tuple(draw(st.permutations(uplinks))) for u in uplinks} if endpoints else {},
    )


def is_kind(flow: FlowSpec, kind: tables.Kind) -> bool:
    return tables.cookie_kind(flow.cookie) is kind


def vm_numbers(team: Team) -> set[int]:
    return {port.ofport for port in team.vm_ports}
