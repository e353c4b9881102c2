"""What hashed VM ports send, on a real switch: once, by its bucket's uplink, and recognizable.

The pipeline is installed as the service would, without it; packets and `ofproto/trace` say what
the switch makes of it.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Mapping

import pytest

from controller.config.vlans import TRUNK, PortVlans, access, port_vlans
from controller.dataplane import pipeline
from controller.dataplane.pipeline import build
from controller.dataplane.team import Hash, Team, VmPort
from policies.classifiers import Classifier
from policies.model import OfPort
from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Shot, Station, on_beds
from tests.switch.direct import Direct

VLAN = 10
OFF_HOME_MAC = "0a:1b:00:00:00:{:02x}"
OUTSIDER = "02:ee:00:00:00:02"
# How late a frame may leave that is not lost.
LATE_S = 1.0
CONNECTIONS = 32
ADDRESSES = {4: ("192.0.2.1", "198.51.100.1"), 6: ("2001:db8::1", "2001:db8:1::1")}
on_a_bed = on_beds(BedSpec(PLAIN, 4, (None, VLAN, None)))
by_either_hash = pytest.mark.parametrize("dp_hash", [False, True], ids=["multipath", "dp_hash"])
on_a_wide_bed = on_beds(BedSpec(PLAIN, 8, (None,)))


# ---- teams -----------------------------------------------------------------------------


def number(bed: Bed, port: str) -> OfPort:
    return OfPort(int(bed.ovs.vsctl("get", "interface", port, "ofport")))


def in_turn(uplinks: tuple[OfPort, ...], count: int) -> tuple[tuple[OfPort, ...], ...]:
    """Failover orders of so many buckets: bucket i's starts at uplink i, and round again."""
    n = len(uplinks)
    return tuple(uplinks[i % n :] + uplinks[: i % n] for i in range(count))


def team_of(
    bed: Bed,
    classifier: Classifier,
    *,
    uplinks: int | None = None,
    on_a_lag: bool = False,
    uplink_vlans: Mapping[int, PortVlans] | None = None,
    dp_hash: bool = False,
) -> Team:
    """All stations of a bed under one hash; the first VM's home is the first uplink, and so on."""
    numbers = tuple(number(bed, u.name) for u in bed.uplinks)[:uplinks]
    homes = in_turn(numbers, len(bed.stations))
    ports = tuple(
        VmPort(number(bed, s.port), order, access(s.vlan) if s.vlan else TRUNK, hashed=1)
        for s, order in zip(bed.stations, homes, strict=True)
    )
    made = Hash(1, classifier, in_turn(numbers, classifier.buckets(len(numbers))))
    macs = {} if on_a_lag else {u: OFF_HOME_MAC.format(u) for u in numbers}
    carried = {numbers[i]: vlans for i, vlans in (uplink_vlans or {}).items()}
    return Team(
        numbers,
        ports,
        hears_everywhere=on_a_lag,
        hashes=(made,),
        off_home_macs=macs,
        uplink_vlans=carried,
        dp_hash=dp_hash,
    )


def install(bed: Bed, direct: Direct, team: Team) -> Team:
    if team.dp_hash:
        direct.add_select_group()
    direct.install(build(team))
    # Frames that meet an older cached flow teach the switch nothing. By dp_hash, one serves all
    # connections: that of an earlier test would serve these, even if it got other actions meanwhile.
    bed.ovs.run("ovs-appctl", "revalidator/purge")
    bed.introduce(OUTSIDER)
    bed.revalidated()
    return team


# ---- what is installed -----------------------------------------------------------------


@on_a_wide_bed
@pytest.mark.parametrize("classifier", [c for c in Classifier if c.hashed])
@pytest.mark.parametrize("on_a_lag", [False, True])
def test_what_is_read_back_is_what_was_installed(
    bed: Bed, direct: Direct, classifier: Classifier, on_a_lag: bool
) -> None:
    restricted = {1: port_vlans("trunk", None, (0, 7, 8))}
    team = team_of(bed, classifier, uplinks=5, on_a_lag=on_a_lag, uplink_vlans=restricted)
    sent_bytes, took_s = direct.install(build(team))
    print(f"{classifier}: {sent_bytes} bytes in {took_s * 1e3:.0f} ms")
    assert not pipeline.changes(build(team), direct.installed())


# ---- packets ---------------------------------------------------------------------------

Left = tuple[str, str, int]


def left_by(bed: Bed, shots: Iterable[Shot]) -> dict[int, list[Left]]:
    """(uplink, source address, tag) of every copy that left by an uplink, by the frame's id.

    Nothing of it came to a VM, neither directly nor reflected, unless it was for all of them. Frames
    that nobody has seen by then may come late from a busy machine: they are waited for.
    """
    shots = list(shots)
    bed.introduce(OUTSIDER)
    seen: dict[int, list[Left]] = {shot.frame_id: [] for shot in shots}
    with bed.ears(*(u.upstream_end for u in bed.uplinks)) as ears:
        copies = bed.fire(shots)
        deadline_s = time.monotonic() + LATE_S
        while seen.keys() - ears.frame_ids() and time.monotonic() < deadline_s:
            ears.listen(within_s=0.05)
        for end, ear in ears.by_name.items():
            for heard in ear.frames():
                if heard.frame_id in seen and not heard.outgoing:
                    seen[heard.frame_id].append((bed.ends[end], heard.source, heard.vlan))
    for shot in shots:
        for_all = shot.frame[0] & 1 or shot.frame.startswith(frames.UNKNOWN_MAC)
        assert for_all or set(copies[shot.frame_id].points) <= bed.ends.keys(), shot.story
    return seen


def connections(bed: Bed, vm: Station, vlan: int) -> list[list[Shot]]:
    """Two frames of each of many connections of a VM with an outsider."""
    made: list[list[Shot]] = []
    kinds = itertools.cycle(itertools.product((4, 6), (frames.TCP, frames.UDP)))
    for i, (version, protocol) in enumerate(itertools.islice(kinds, CONNECTIONS)):
        build = functools.partial(segment, version, protocol, 40000 + i)
        story = f"IPv{version}, protocol {protocol}, port {40000 + i}"
        tag = vm.sends(vlan)
        made.append([bed.shot(vm.point, build, vm.mac, vlan, tag, story) for _ in range(2)])
    return made


def segment(version: int, protocol: int, port: int, source: str, tag: int, frame_id: int) -> bytes:
    source_ip, destination_ip = ADDRESSES[version]
    return frames.segment(
        source,
        OUTSIDER,
        source_ip=source_ip,
        destination_ip=destination_ip,
        ports=(port, 443),
        protocol=protocol,
        vlan=tag,
        frame_id=frame_id,
    )


def uplinks_of(bed: Bed, made: list[list[Shot]], *expected: Left) -> list[str]:
    """The uplink of each connection, whose frames left once and as one of those expected."""
    seen = left_by(bed, [shot for connection in made for shot in connection])
    used = []
    for connection in made:
        story = connection[0].story
        found = [seen[shot.frame_id] for shot in connection]
        assert [len(copies) for copies in found] == [1, 1], f"{story}: {found}"
        (first,), (second,) = found
        assert first == second, f"{story} does not stay on one uplink: {found}"
        assert first in expected, f"{story}: {first}"
        used.append(first[0])
    return used


def recognizable(
    bed: Bed, team: Team, vm: Station, home: str, tags: Mapping[str, int]
) -> list[Left]:
    """How a VM's connections may leave by each uplink: from their home under their own name."""
    return [
        (u.name, vm.mac if u.name == home else team.off_home_macs[n], tags[u.name])
        for u, n in zip(bed.uplinks, team.uplinks, strict=True)
        if u.name in tags
    ]


@on_a_bed
@by_either_hash
def test_connections_use_all_uplinks_and_those_left_when_one_fails(
    bed: Bed, direct: Direct, dp_hash: bool
) -> None:
    team = install(bed, direct, team_of(bed, Classifier.TRANSPORT, dp_hash=dp_hash))
    vm, tags = bed.vms[0], {u.name: VLAN for u in bed.uplinks}
    home, second = (u.name for u in bed.uplinks[:2])
    before = uplinks_of(bed, connections(bed, vm, VLAN), *recognizable(bed, team, vm, home, tags))
    assert set(before) == tags.keys(), "connections use all uplinks"
    for down in bed.uplinks:
        with bed.cable_pulled(down):
            bed.revalidated()
            living = {name: tag for name, tag in tags.items() if name != down.name}
            now_home = second if home == down.name else home
            expected = recognizable(bed, team, vm, now_home, living)
            after = uplinks_of(bed, connections(bed, vm, VLAN), *expected)
            moved = {a for a, b in zip(before, after, strict=True) if a != b}
            assert moved == {down.name}
            (broadcast,) = left_by(bed, [bed.frame_of(vm)]).values()
            assert broadcast == [(now_home, vm.mac, VLAN)]
        bed.revalidated()
        back = recognizable(bed, team, vm, home, tags)
        assert uplinks_of(bed, connections(bed, vm, VLAN), *back) == before


@on_a_bed
@by_either_hash
def test_fragments_leave_with_the_first_of_their_datagram(
    bed: Bed, direct: Direct, dp_hash: bool
) -> None:
    install(bed, direct, team_of(bed, Classifier.TRANSPORT, dp_hash=dp_hash))
    vm = bed.vms[0]
    used = set()
    for host in range(1, 33):
        first, last = frames.fragments(vm.mac, OUTSIDER, "192.0.2.1", f"198.51.100.{host}")
        shots = [
            bed.frame_of(vm, lambda _source, _tag, frame_id, made=made: made(frame_id))  # type: ignore[misc]
            for made in (first, last, first)
        ]
        ways = [tuple(copies) for copies in left_by(bed, shots).values()]
        assert len(ways[0]) == 1 and len({*ways}) == 1, f"host {host}: {ways}"
        used |= {*ways[0]}
    assert len(used) > 1
