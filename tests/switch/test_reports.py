"""Situations from public reports: what Open vSwitch alone delivers, the service delivers, once.

docs/reliability/reports.md lists them, with links. On a bond, the same frames are also sent without the
service. NORMAL would join plain uplinks into a loop, so there only the copies that should arrive are known.
"""

from __future__ import annotations

import contextlib
import functools
import json
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.switch import frames
from tests.switch.bed import (
    BALANCE_SLB,
    LACP,
    NETWORK,
    PLAIN,
    Bed,
    BedSpec,
    Shot,
    Station,
    on_beds,
    run,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (10, 10, 20, None)) for team in (BALANCE_SLB, LACP, PLAIN)]
HOST_MAC, ROUTER_MAC = "02:88:00:00:00:01", "00:00:5e:00:01:0a"
LLC, JUMBO_LLC = 46, 0x8870
ALL_L1_ROUTERS, ALL_ROUTERS = "01:80:c2:00:00:14", "09:00:2b:00:00:05"
TAG, SERVICE_TAG = 0x8100, 0x88A8
# How long an announcement keeps its address from moving.
LOCKED_S = 5.5
# Open vSwitch looks for that long for a controller that it has lost, and then forwards by NORMAL.
FAILS_OPEN_AFTER_S = 16.0
REPAIRED_WITHIN_S = 12.0

# Where addresses are in a VLAN, besides the stations: a station, or None for the network.
Places = Mapping[tuple[str, int], Station | None]
# Frames that are sent one after another.
Step = tuple[Sequence[Shot], Places]
NOWHERE_ELSE: Places = {}


def said(
    bed: Bed, by: Station, vlan: int, build: frames.Builder = frames.broadcast, source: str = ""
) -> Shot:
    """What a station sends in a VLAN; `source`: another address than its own."""
    return bed.frame_of(by, build, source, f"{source or by.mac}, VLAN {vlan}", vlan)


def everything(bed: Bed, *left_out: tuple[Station, int]) -> list[Shot]:
    """Each VM, LOCAL and the host send to all in each VLAN, and to each one but those left out."""
    stations, shots = [*bed.stations, *bed.hosts], []
    for sender in stations:
        for vlan in [sender.vlan] if sender.vlan else bed.vlans:
            shots.append(said(bed, sender, vlan))
            for other in stations:
                if other is not sender and other.hears(vlan) and (other, vlan) not in left_out:
                    shots.append(said(bed, sender, vlan, frames.to(other.mac)))
    return shots


def introduce(bed: Bed) -> None:
    """Everybody has spoken in each VLAN, and no cached flow is from before."""
    bed.fire([shot for shot in everything(bed) if shot.frame[:6] == b"\xff" * 6])
    bed.revalidated()


def should_come_out(bed: Bed, shot: Shot, places: Places) -> Counter[str]:
    destination, vlan = shot.frame[:6].hex(":"), shot.vlan
    hosts = {str(host): host.mac for host in bed.hosts}
    here = [s for s in bed.stations if s.hears(vlan) and str(s) != str(shot.point)]
    leaves = str(shot.point) not in hosts
    if (destination, vlan) in places:
        place = places[destination, vlan]
        here, leaves = [place] if place else [], leaves and place is None
    elif destination in hosts.values():
        here = []
    elif destination in {s.mac for s in bed.stations}:
        here, leaves = [s for s in here if s.mac == destination], False
    return Counter([*map(str, here), *[NETWORK] * leaves])


def wrong(bed: Bed, steps: Iterator[Step]) -> list[str]:
    """What came out elsewhere than it should, or not as often."""
    found = []
    for shots, places in steps:
        for shot, at in zip(shots, bed.came_out(shots), strict=True):
            came = Counter(name for name, _ in at.elements())
            if came != (wanted := should_come_out(bed, shot, places)):
                to = shot.frame[:6].hex(":")
                found.append(f"{shot.story} to {to}: {dict(came)}, not {dict(wanted)}")
        bed.revalidated()
    return found


# ---- what makes no difference --------------------------------------------------------------


def trunks_on_uplinks(bed: Bed) -> Iterator[Step]:
    ports = [bed.bond] if bed.spec.on_bond else [uplink.name for uplink in bed.uplinks]
    with bridge_settings(bed, *(("port", port, "trunks=10") for port in ports)):
        introduce(bed)
        shots = [shot for shot in everything(bed) if shot.vlan == 10]
        yield shots, NOWHERE_ELSE
        isolated = [said(bed, vm, 20, frames.to(bed.vms[3].mac)) for vm in bed.vms[2:3]]
        yield isolated, NOWHERE_ELSE


def trunks_on_local(bed: Bed) -> Iterator[Step]:
    with bridge_settings(bed, ("port", bed.bridge, "trunks=10")):
        introduce(bed)
        local = bed.local.mac
        shots = [s for s in everything(bed) if s.vlan == 10 and str(s.point) != str(bed.local)]
        yield shots, NOWHERE_ELSE
        to_local = [said(bed, bed.vms[0], 10, frames.to(local))]
        yield to_local, NOWHERE_ELSE


def hairpin(bed: Bed) -> Iterator[Step]:
    """The upstream switch ports send back each frame."""
    ends = [uplink.upstream_end.interface for uplink in bed.uplinks]
    ofctl = functools.partial(bed.tor.ovs.run, "ovs-ofctl")
    for end in ends:
        ofctl("add-flow", bed.upstream, f"priority=10,in_port={end},actions=IN_PORT,NORMAL")
    try:
        introduce(bed)
        yield everything(bed), NOWHERE_ELSE
    finally:
        for end in ends:
            ofctl("--strict", "del-flows", bed.upstream, f"priority=10,in_port={end}")


def two_tags(bed: Bed) -> Iterator[Step]:
    trunk, host = bed.vms[3], bed.hosts[0]

    def build(to: str, outer: int, source: str, vlan: int, frame_id: int) -> bytes:
        tags = struct.pack("!HHHH", outer, vlan, TAG, 456)
        head = frames.mac_bytes(to) + frames.mac_bytes(source) + tags
        return head + bytes(60) + frames.TRAILER.pack(frames.MAGIC, frame_id)

    for sender, other in ((trunk, host), (host, trunk)):
        for to in (frames.BROADCAST, other.mac, bed.vms[0].mac):
            for outer in (TAG, SERVICE_TAG):
                shot = said(bed, sender, 10, functools.partial(build, to, outer))
                yield [shot], NOWHERE_ELSE


def between_routers(bed: Bed) -> Iterator[Step]:
    """IS-IS, in frames with a length or the type of long frames."""

    def build(to: str, kind: int, source: str, vlan: int, frame_id: int) -> bytes:
        return frames.ethernet(source, to, kind, b"\xfe\xfe\x03" + bytes(25), vlan, frame_id)

    for sender in (bed.vms[0], bed.vms[3], bed.hosts[0]):
        for to in (ALL_L1_ROUTERS, ALL_ROUTERS, bed.vms[1].mac):
            builds = [functools.partial(build, to, kind) for kind in (LLC, JUMBO_LLC)]
            yield [said(bed, sender, 10, each) for each in builds], NOWHERE_ELSE


def guest_bridge(bed: Bed) -> Iterator[Step]:
    """VMs 0 and 2 are ports of one VM, which connects VLANs 10 and 20."""
    in_10, other, in_20, trunk = bed.vms
    host, trunk_mac = bed.hosts[0], trunk.mac
    places: Places = {(HOST_MAC, 20): in_20, (HOST_MAC, 10): None, (trunk_mac, 10): in_10}
    to_host, to_trunk = frames.to(HOST_MAC), frames.to(trunk_mac)
    yield [said(bed, host, 10, source=HOST_MAC)], places
    yield [said(bed, in_20, 20, source=HOST_MAC)], places
    yield [said(bed, trunk, 20, to_host)], places
    yield [said(bed, in_10, 10, to_host, trunk_mac)], places
    yield [said(bed, host, 10, to_trunk, HOST_MAC)], places
    yield [said(bed, in_20, 20, to_trunk, HOST_MAC)], places
    yield [said(bed, other, 10, to_trunk)], places
    yield [said(bed, host, 20, to_trunk)], places
    yield [said(bed, trunk, 10)], places


def advertisements(bed: Bed) -> Iterator[Step]:
    """Routers of one address, a VM and a host: each announces it once, and then advertises itself."""

    def advertises(source: str, vlan: int, frame_id: int) -> bytes:
        to, group = "01:00:5e:00:00:12", "224.0.0.18"
        return frames.udp(source, to, destination_ip=group, vlan=vlan, frame_id=frame_id)

    router, neighbour, host = bed.vms[0], bed.vms[1], bed.hosts[0]
    here: Places = {(ROUTER_MAC, 10): router}
    there: Places = {(ROUTER_MAC, 10): None}
    for by, place, kinds in (
        (router, here, (frames.gratuitous_arp, advertises)),
        (host, there, (frames.gratuitous_arp, advertises)),
        (router, here, (advertises,)),
    ):
        # Cached flows of the other router's frames take the returning copies of this one's, too.
        bed.ovs.run("ovs-appctl", "revalidator/purge")
        for build in kinds:
            yield [said(bed, by, 10, build, ROUTER_MAC)], place
            yield [said(bed, neighbour, 10, frames.to(ROUTER_MAC))], place
            if place is here:
                yield [said(bed, host, 10, frames.to(ROUTER_MAC))], place
        time.sleep(LOCKED_S)


def address_of_local(bed: Bed) -> Iterator[Step]:
    new, local = HOST_MAC, bed.local
    places: Places = {(new, 10): local}
    try:
        bed.ovs.vsctl("set", "bridge", bed.bridge, f'other_config:hwaddr="{new}"')
        yield [said(bed, local, 10, frames.gratuitous_arp, new)], places
        senders = bed.vms[0], bed.vms[3], bed.hosts[0]
        yield [said(bed, one, 10, frames.to(new)) for one in senders], places
    finally:
        bed.ovs.vsctl("remove", "bridge", bed.bridge, "other_config", "hwaddr")
        run("ip", "link", "set", bed.bridge, "address", local.mac)


SITUATIONS: Sequence[Callable[[Bed], Iterator[Step]]] = (
    trunks_on_uplinks,
    trunks_on_local,
    hairpin,
    two_tags,
    between_routers,
    guest_bridge,
    advertisements,
    address_of_local,
)


@contextlib.contextmanager
def bridge_settings(bed: Bed, *settings: tuple[str, str, str]) -> Iterator[None]:
    """These columns are set in this block, as table, record and value, and are then empty again."""
    for table, record, value in settings:
        bed.ovs.vsctl("set", table, record, value)
    # The service follows within that.
    time.sleep(1)
    try:
        yield
    finally:
        for table, record, value in settings:
            bed.ovs.vsctl("clear", table, record, value.partition("=")[0])
        time.sleep(1)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
@on_beds(*BEDS)
def test_frames_arrive_as_with_open_vswitch_alone(
    bed: Bed, service: Service, situation: Callable[[Bed], Iterator[Step]]
) -> None:
    # On a LAG, NORMAL takes VMs to be where their frames return from.
    if bed.spec.on_bond and not (bed.spec.is_lag and situation is hairpin):
        bed.introduce_to_normal()
        introduce(bed)
        assert wrong(bed, situation(bed)) == [], "without the service"
    with service.attached(bed, "--policy", "originating-port"):
        introduce(bed)
        assert wrong(bed, situation(bed)) == []
        introduce(bed)
        assert wrong(bed, iter([(everything(bed), NOWHERE_ELSE)])) == [], "afterwards"


# ---- what has broken -----------------------------------------------------------------------


def unanswered(bed: Bed) -> None:
    """A controller is set that does not answer, and NORMAL forwards."""
    settings = "connection-mode=out-of-band", "inactivity_probe=5000"
    target = ("set-controller", bed.bridge, "tcp:127.0.0.1:1")
    bed.ovs.vsctl(*target, "--", "set", "controller", bed.bridge, *settings)
    time.sleep(FAILS_OPEN_AFTER_S)


def in_band(bed: Bed) -> None:
    """A controller is set that Open vSwitch wants to reach through the bridge."""
    bed.ovs.vsctl("set-controller", bed.bridge, "tcp:192.0.2.9:6653")
    time.sleep(1)


def of_hidden_flows(bed: Bed, service: Service) -> str:
    """What `check` finds of flows that no program sees; what to do about it."""
    answer = json.loads(service.command("check", bed.bridge, "--json").stdout)
    texts = [one["text"] for one in answer["findings"] if one["check"] in ("hidden-flows", "unfit")]
    return texts[0] if texts else ""


@pytest.mark.parametrize("controller", [unanswered, in_band], ids=lambda one: one.__name__)
@on_beds(*BEDS)
def test_flows_for_a_controller_that_bypass_ours_are_refused_and_found(
    bed: Bed, service: Service, controller: Callable[[Bed], None]
) -> None:
    def undo() -> None:
        bed.ovs.vsctl("del-controller", bed.bridge)
        bed.ovs.vsctl("remove", "bridge", bed.bridge, "other_config", "disable-in-band")

    def asks(vlan: int) -> Shot:
        return said(bed, bed.local, vlan, frames.arp_request)

    def follow(text: str) -> None:
        bed.ovs.run(*text.rpartition(": ")[2].split())

    def differs(known: str) -> bool:
        return of_hidden_flows(bed, service) != known

    harms = bed.spec.on_bond or controller is in_band
    try:
        with service.attached(bed, "--policy", "originating-port"):
            introduce(bed)
            assert not of_hidden_flows(bed, service)
            controller(bed)
            introduce(bed)
            steps = [([asks(10), *everything(bed)], NOWHERE_ELSE)]
            assert bool(wrong(bed, iter(steps))) == harms
            found = of_hidden_flows(bed, service)
            assert bool(found) == harms
            while found:
                follow(found)
                wait_until(functools.partial(differs, found), "the advice helps")
                found = of_hidden_flows(bed, service)
            introduce(bed)
            steps = [([asks(10), *everything(bed)], NOWHERE_ELSE)]
            assert wrong(bed, iter(steps)) == []
        undo()
        controller(bed)
        refused = service.command("attach", bed.bridge, *bed.uplink_options)
        assert bool(refused.returncode) == harms
        if harms:
            follow(refused.stderr.strip())
            with service.attached(bed, "--policy", "originating-port"):
                introduce(bed)
                steps = [([asks(10), *everything(bed)], NOWHERE_ELSE)]
                assert wrong(bed, iter(steps)) == []
        else:
            service.do("detach", bed.bridge)
    finally:
        undo()


@on_beds(*BEDS)
def test_old_flows_that_a_script_restores_are_removed(bed: Bed, service: Service) -> None:
    """Until then, a VM may be in its old VLAN, but no frame arrives twice."""
    file = bed.ovs.rundir / "saved"
    vm, moved = bed.vms[1], "tag=20"
    with service.attached(bed, "--policy", "originating-port"):
        introduce(bed)
        dumped = bed.ofctl("dump-flows", "--no-names", "--no-stats").splitlines()
        file.write_text("\n".join(line for line in dumped if "table" in line))
        bed.ovs.vsctl("set", "port", vm.port, moved)
        bed.vms[1] = Station(vm.point, vm.port, vm.mac, 20, vm.ip)
        try:
            service.place(bed, 1, 1, 0, 0)
            introduce(bed)
            bed.ofctl("replace-flows", str(file))
            bed.revalidated()
            for copies in bed.fire(everything(bed)).values():
                assert max(Counter(copies.points).values(), default=0) <= 1

            def is_right() -> bool:
                introduce(bed)
                return not wrong(bed, iter([(everything(bed), NOWHERE_ELSE)]))

            wait_until(is_right, "our flows are installed again", REPAIRED_WITHIN_S)
        finally:
            bed.vms[1] = vm
            bed.ovs.vsctl("set", "port", vm.port, f"tag={vm.vlan}")


@on_beds(BEDS[-1])
def test_vms_reach_each_other_while_the_bridge_has_no_uplinks(bed: Bed, service: Service) -> None:
    """NetworkManager removes all uplinks one by one, and adds them again."""
    here = {str(station) for station in bed.stations}

    def local_copies_are_right() -> bool:
        shots = [shot for shot in everything(bed) if str(shot.point) in here]
        copies = bed.fire(shots)
        came = [Counter(at for at in copies[shot.frame_id].points if at in here) for shot in shots]
        wanted = [Counter(here & should_come_out(bed, shot, {}).keys()) for shot in shots]
        return came == wanted

    def all_is_right() -> bool:
        introduce(bed)
        return not wrong(bed, iter([(everything(bed), NOWHERE_ELSE)]))

    with service.attached(bed, "--policy", "originating-port"):
        introduce(bed)
        for uplink in bed.uplinks:
            bed.ovs.vsctl("del-port", uplink.name)
            wait_until(local_copies_are_right, f"VMs reach each other without {uplink}")
        for uplink in bed.uplinks:
            bed.ovs.vsctl("add-port", bed.bridge, uplink.name)
            wait_until(all_is_right, f"all is delivered with {uplink} again")
