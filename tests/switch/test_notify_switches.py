"""Learning packets: for each address whose way changes, by its new way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Ears, Heard

VM_VLANS = (None, 10, 10)
NESTED_MACS = 6
# Cached flows may be up to a second old, so a switch may not see what is sent at once.
REPEATED_AFTER_S = 0.5

Address = tuple[str, int]


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    with session_service.attached(bed, "--policy", "originating-port"):
        yield bed


@on_beds(BedSpec(PLAIN, 2, VM_VLANS))
@pytest.mark.parametrize("preset", ["source-mac", "slb", "dynamic"])
def test_addresses_that_move_are_announced(team: Bed, service: Service, preset: str) -> None:
    """With their bucket, or, where that is one of connections, with their VM port."""
    bed, failing = team, team.uplinks[0]
    # Attach waits until the switch has the flows of this policy.
    service.do("detach", bed.bridge)
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    service.attach(bed, "--policy", preset)
    wait_until(lambda: len(set(ways(bed).values())) == 2, "both uplinks are used")
    usual = ways(bed)
    moving = {address for address, uplink in usual.items() if uplink == failing.name}
    with bed.ears(*[u.upstream_end for u in bed.uplinks]) as ears:
        with bed.cable_pulled(failing):
            story = f"each address of {failing} is announced elsewhere, and again"
            elsewhere = dict.fromkeys(moving, bed.uplinks[1].name)
            wait_until(lambda: repeated(bed, ears, elsewhere), story)
            ears.forget()
        story = "each is announced at home again"
        wait_until(lambda: repeated(bed, ears, dict.fromkeys(moving, failing.name)), story)
        wait_until(lambda: ways(bed) == usual, "each leaves by its home again")
        at_s = announced(bed, ears)
        for (uplink, address), times_s in at_s.items():
            home = usual[address]
            since_s = at_s[home, address][0] if address in moving else 0.0
            story = f"{address} of {home} is announced by {uplink}"
            assert uplink == home or times_s[-1] < since_s, story


def announced(bed: Bed, ears: Ears) -> dict[tuple[str, Address], list[float]]:
    """When each address was announced, by the uplink it was announced by."""
    at_s = defaultdict(list)
    for uplink in bed.uplinks:
        for heard in packets(ears[uplink.upstream_end].frames()):
            at_s[uplink.name, (heard.source, heard.vlan)].append(heard.at_s)
    return at_s


def repeated(bed: Bed, ears: Ears, wanted: Mapping[Address, str]) -> bool:
    """Whether each address was announced by its uplink, and once more later."""
    seen = announced(bed, ears)
    times_s = [seen.get((uplink, address), []) for address, uplink in wanted.items()]
    return all(t and t[-1] - t[0] > REPEATED_AFTER_S for t in times_s)


def packets(heard: Sequence[Heard]) -> list[Heard]:
    """The learning packets among what came out of the bridge."""
    return [h for h in heard if h.ethertype == frames.ETH_RARP and not h.outgoing]


def ways(bed: Bed) -> dict[Address, str]:
    """The uplink that each address leaves by, in each of its VLANs."""
    shots = {}
    for station in bed.stations:
        for mac, vlan in addresses(station):
            shots[mac, vlan] = bed.frame_of(station, source=mac, vlan=vlan)
    copies = bed.fire(list(shots.values()))
    found = {}
    for address, shot in shots.items():
        uplinks = [bed.ends[at] for at in copies[shot.frame_id].points if at in bed.ends]
        assert len(uplinks) <= 1, f"{address} left by {uplinks}"
        found[address] = uplinks[0] if uplinks else "none"
    return found


def addresses(station: Station) -> list[Address]:
    """A station's address and those of VMs nested in it, with the VLANs they are used in."""
    nested = (f"{station.mac[:-2]}{i:x}{station.mac[-1]}" for i in range(NESTED_MACS))
    vlans = [station.vlan] if station.vlan is not None else [0, 10, 20]
    return [(mac, vlan) for mac in sorted({station.mac, *nested}) for vlan in vlans]
