"""Off-home addresses of tunnel endpoints, on a real switch: they move with what has them, and peers can answer.

The first VM stands for an endpoint, whose connections are spread over three uplinks. The pipeline is
installed as the service would, without it. tests/unit/controller/dataplane/test_endpoints.py carries out
its flows for everything else.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from controller.dataplane import pipeline
from controller.dataplane.pipeline import build
from controller.dataplane.team import Endpoint, Team
from policies.classifiers import Classifier
from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Shot, on_beds
from tests.switch.direct import Direct
from tests.switch.test_hashing import in_turn, install, segment, team_of
from tests.switch.wire import Heard

OFF_HOME = "0a:1c:00:00:00:{:02x}"
CONNECTIONS = 48
pytestmark = on_beds(BedSpec(PLAIN, 3, (None, None)))
by_either_hash = pytest.mark.parametrize("dp_hash", [False, True], ids=["multipath", "dp_hash"])


def overlay(bed: Bed, dp_hash: bool = False) -> Team:
    """The team with the first VM as an endpoint, whose home is the first uplink."""
    team = team_of(bed, Classifier.TRANSPORT, dp_hash=dp_hash)
    macs = tuple((uplink, OFF_HOME.format(uplink)) for uplink in team.uplinks)
    lanes = dict(zip(team.uplinks, in_turn(team.uplinks, len(team.uplinks)), strict=True))
    endpoint = Endpoint(team.vm_ports[0].ofport, bed.vms[0].mac, macs)
    return replace(team, endpoints=(endpoint,), lanes=lanes)


def to(bed: Bed, mac: str, count: int) -> list[Shot]:
    """Frames of a host upstream to an address."""
    sender = bed.hosts[0]

    def made(of: str, tag: int, frame_id: int) -> bytes:
        return frames.udp(of, mac, vlan=tag, frame_id=frame_id)

    return [bed.shot(sender.point, made, sender.mac, 0, 0, f"to {mac}") for _ in range(count)]


def received(bed: Bed, shots: list[Shot]) -> list[list[str]]:
    """Where copies of each frame came out, at stations or by uplinks; at the endpoint under its address."""
    found = copies(bed, shots)
    to_endpoint = [heard for of in found for name, heard in of if name == str(bed.vms[0])]
    assert all(heard.destination == bed.vms[0].mac for heard in to_endpoint)
    return [sorted(name for name, _ in of) for of in found]


def copies(bed: Bed, shots: list[Shot]) -> list[list[tuple[str, Heard]]]:
    """The copies of each frame that came out of the bridge, with the points where they did."""
    found: dict[int | None, list[tuple[str, Heard]]] = {shot.frame_id: [] for shot in shots}
    for name, all_heard in bed.fire_and_hear(shots).items():
        for heard in all_heard:
            if heard.frame_id in found and not heard.outgoing:
                found[heard.frame_id].append((name, heard))
    return [*found.values()]


def connections(bed: Bed) -> list[Shot]:
    """A frame of each of many connections of the endpoint with an outsider."""
    vm = bed.vms[0]
    builders = {n: functools.partial(segment, 4, frames.UDP, 40000 + n) for n in range(CONNECTIONS)}
    return [bed.shot(vm.point, build, vm.mac, 0, 0, str(n)) for n, build in builders.items()]


def left(bed: Bed, shots: list[Shot]) -> list[tuple[str, str]]:
    """The uplink and the source address of each frame, which left once and reached nobody here."""
    found = copies(bed, shots)
    assert all(len(of) == 1 for of in found), found
    return [(bed.ends[name], heard.source) for ((name, heard),) in found]


def sources(bed: Bed, team: Team) -> dict[str, str]:
    """The address of the endpoint's frames by each uplink while all are live, by the uplink's name."""
    off_home = dict(team.endpoints[0].off_home_macs)
    named = zip(bed.uplinks, team.uplinks, strict=True)
    macs = {uplink.name: off_home[number] for uplink, number in named}
    return macs | {bed.uplinks[0].name: bed.vms[0].mac}


def test_what_is_read_back_is_what_was_installed(bed: Bed, direct: Direct) -> None:
    team = overlay(bed)
    direct.install(build(team))
    assert not pipeline.changes(build(team), direct.installed())


def can_be_answered(bed: Bed, team: Team) -> None:
    """Assert that what is sent to each address of the endpoint reaches it once."""
    bed.revalidated()
    for mac in sources(bed, team).values():
        assert received(bed, to(bed, mac, 3)) == 3 * [["vm0"]]


@by_either_hash
def test_addresses_move_to_another_uplink_with_what_has_them(
    bed: Bed, direct: Direct, dp_hash: bool
) -> None:
    """Nobody tells switches upstream but the frames themselves: the service is not there."""
    team = install(bed, direct, overlay(bed, dp_hash))
    before = left(bed, connections(bed))
    assert {*before} == {*sources(bed, team).items()}
    can_be_answered(bed, team)
    for position, failed in enumerate(bed.uplinks):
        following = bed.uplinks[(position + 1) % len(bed.uplinks)].name
        with bed.cable_pulled(failed):
            bed.revalidated()
            kept = {uplink.name: uplink.name for uplink in bed.uplinks} | {failed.name: following}
            after = [(kept[uplink], mac) for uplink, mac in before]
            assert left(bed, connections(bed)) == after
            can_be_answered(bed, team)
        bed.revalidated()
        assert left(bed, connections(bed)) == before
        can_be_answered(bed, team)
