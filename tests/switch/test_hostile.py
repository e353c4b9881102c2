"""What a hostile VM can do to its neighbours, the host and the network: nothing.

With `attached-mac` set, as libvirt and OpenStack do, what it sends from another address goes
nowhere, as in vSphere. Without, it is as on any learning switch: a VM may take an address that is
attached to nobody. After each attack everybody else is reached as before.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Shot, Station, on_beds
from tests.switch.judging import at_most, judges_time, lost_for_want_of_room
from tests.switch.reaching import all_are_reached
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream, sending_socket

VLAN, OTHER_VLAN = 10, 20
HOMES = (0, 1, 1, 0, 0)
NATIVE_TAG, SERVICE_TAG = 0x8100, 0x88A8
ADDRESSES = 10_000
ADDRESSES_LEARNED_MAX = 1024
GROUPS, IGMP_REPORT = 4500, 0x16
STREAM_PPS = 1000
STORM_PPS = 20_000
STORM_S = 2.0
# Answers to polls, each second; in a storm that were handed on, thousands.
MESSAGES_PER_S_MAX = 100
# Of one core. At rest it is about a hundredth.
SERVICE_IN_STORM_RATIO_MAX = 0.05
ANYWHERE_IN_STORM_RATIO_MAX = 0.5

# A victim, the attacker, a neighbour of both, and one whom no frame of theirs is for.
pytestmark = on_beds(BedSpec(BALANCE_SLB, 2, (10, 10, 10, 20)))

BETWEEN_SWITCHES = {
    "BPDU": "01:80:c2:00:00:00",
    "pause frame": "01:80:c2:00:00:01",
    "LACP": "01:80:c2:00:00:02",
    "provider bridge's BPDU": "01:80:c2:00:00:08",
    "LLDP": "01:80:c2:00:00:0e",
    "PVST+": "01:00:0c:cc:cc:cd",
    "CDP": "01:00:0c:cc:cc:cc",
    "UplinkFast": "01:00:0c:cd:cd:cd",
}


@pytest.fixture(scope="module")
def placed(attached: Bed, session_service: Service) -> Bed:
    """VMs on both uplinks, without attached addresses."""
    session_service.place(attached, *HOMES)
    return attached


@pytest.fixture
def known(placed: Bed) -> Bed:
    """Everybody has just spoken, and both switches have learned it.

    A frame that a cached flow carries teaches a switch nothing before it looks through those. Until
    then the one upstream goes on flooding by a flow from before: a copy comes by each uplink.
    """
    placed.introduce()
    placed.revalidated()
    return placed


@contextlib.contextmanager
def attached_to(bed: Bed, *vms: Station) -> Iterator[None]:
    """These VMs have their addresses attached in this block, as libvirt does it."""
    for vm in vms:
        bed.ovs.vsctl("set", "interface", vm.port, f'external_ids:attached-mac="{vm.mac}"')
    wait_until(lambda: guards(bed) >= {vm.mac for vm in vms}, "the addresses are guarded")
    bed.revalidated()
    try:
        yield
    finally:
        for vm in vms:
            bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "attached-mac")
        wait_until(lambda: guards(bed).isdisjoint(v.mac for v in vms), "nobody is guarded")
        bed.introduce()
        bed.revalidated()


def guards(bed: Bed) -> set[str]:
    """The addresses that are taken from one VM port only."""
    flows = bed.ofctl("dump-flows", "table=1")
    return {*re.findall(r"priority=30,.*\bdl_src=([\da-f:]+)", flows)}


# ---- addresses ---------------------------------------------------------------------------


def test_from_anothers_address_nothing_goes_anywhere(known: Bed) -> None:
    """A neighbour's, the gateway's, the host's own; and announcements are frames like others."""
    bed, (victim, attacker, neighbour, _), host = known, known.vms, known.hosts[0]
    with attached_to(bed, *bed.vms):
        shots = [
            shot
            for mac in (victim.mac, neighbour.mac, host.mac, bed.local.mac, "02:66:00:00:00:01")
            for shot in everything(bed, attacker, mac)
        ]
        nowhere(bed, shots)
        all_in_the_vlan_are_reached(bed)
        assert all(attacker.mac in line for line in learned_on(bed, attacker)), "it was learned"


def test_an_address_that_is_attached_is_taken_from_nobody_else(known: Bed) -> None:
    """Whoever has none attached himself; and the host's own address is the host's anyway."""
    bed, (victim, attacker, *_) = known, known.vms
    with attached_to(bed, victim):
        macs = (victim.mac, bed.local.mac)
        nowhere(bed, [shot for mac in macs for shot in everything(bed, attacker, mac)])
        all_in_the_vlan_are_reached(bed)
        # It is another VM's in another VLAN.
        (other,) = (vm for vm in bed.vms if vm.vlan == OTHER_VLAN)
        shot = bed.frame_of(other, source=victim.mac)
        assert bed.comes_out(shot), "an address is one VLAN's"
        all_in_the_vlan_are_reached(bed)


def test_an_address_without_an_owner_is_where_it_spoke_last(known: Bed) -> None:
    """As on any switch that learns; its owner has it back with his next word."""
    bed, (victim, attacker, neighbour, _) = known, known.vms
    stolen = unicast(bed, neighbour, victim.mac)
    # What cached flows carry teaches the switch when they are looked at, in any order.
    bed.revalidated()
    bed.fire([bed.frame_of(attacker, source=victim.mac)])
    bed.revalidated()
    assert bed.comes_out(stolen) == [str(attacker)]
    bed.introduce()
    bed.revalidated()
    all_in_the_vlan_are_reached(bed)


def test_an_operator_says_who_may_forge(known: Bed, service: Service) -> None:
    """A VM that routes for others, or shares a virtual address: not those that are others' own."""
    bed, (victim, attacker, _, _) = known, known.vms
    virtual = "00:00:5e:00:01:07"
    with attached_to(bed, victim, attacker):
        nowhere(bed, everything(bed, attacker, virtual))
        (text,) = wait_until(
            lambda: dropped(bed, service, attacker), "`check` reports the dropped frames", 20
        )
        # `show` has what the last poll published.
        count = wait_until(
            lambda: service.port(bed, attacker).get("dropped_on_purpose", {}).get("address", 0),
            "`show` has them",
        )
        metric = "ovslbt_port_dropped_on_purpose_total"
        assert service.metric(metric, port=attacker.port, reason="address") == count > 0
        assert f"dropped {count} frames" in service.do("show", bed.bridge)
        assert "dropped" in service.do("explain", attacker.port)
        advised = re.search(r"ovs-lbt (set interface \S+ forged-transmits=accept)", text)
        assert advised
        service.do(*advised[1].split())
        wait_until(lambda: not dropped(bed, service, attacker), "the advice ends the finding")

        def is_heard() -> bool:
            return bool(bed.comes_out(bed.frame_of(attacker, source=virtual)))

        wait_until(is_heard, "what it sends from the virtual address is heard")
        nowhere(bed, everything(bed, attacker, victim.mac))
        service.do("set", "interface", attacker.port, "forged-transmits=")
        wait_until(lambda: not is_heard(), "it is not heard any more")
        bed.ofctl("del-flows", f"table=20,dl_dst={virtual}")
        all_in_the_vlan_are_reached(bed)


def dropped(bed: Bed, service: Service, vm: Station) -> list[str]:
    """What `check` says of frames of a VM that are dropped on purpose, besides notes."""
    found = json.loads(service.command("check", bed.bridge, "--json").stdout)["findings"]
    texts = [f["text"] for f in found if f["check"] == "dropped" and f["severity"] != "note"]
    return [text for text in texts if text.startswith(f"{vm.port}: ")]


@pytest.mark.parametrize("own", [True, False], ids=["attached", "not attached"])
def test_ten_thousand_addresses_leave_everybody_reachable(known: Bed, own: bool) -> None:
    bed, attacker = known, known.vms[1]
    with attached_to(bed, *bed.vms) if own else contextlib.nullcontext():
        with bed.ears(*(u.upstream_end for u in bed.uplinks)) as ears:
            flood(attacker)
            bed.revalidated()
            ears.until_quiet()
            out = sum(len(ear.frames()) for ear in ears.by_name.values())
        assert not own or out == 0, f"{out} frames reached the network"
        learned = len(learned_on(bed, attacker))
        assert learned <= (1 if own else ADDRESSES_LEARNED_MAX), f"{learned} addresses learned"
        # By the upstream switch, too, which has room for 8192.
        bed.tor.ovs.run("ovs-appctl", "-t", "ovs-vswitchd", "fdb/flush", bed.upstream)
        bed.introduce()
        bed.revalidated()
        all_in_the_vlan_are_reached(bed)
    bed.ofctl("del-flows", f"cookie={learned_cookie(bed, attacker)}/-1")
    bed.introduce()


def test_an_address_that_is_none_says_nothing(known: Bed) -> None:
    bed = known
    for source in ("00:00:00:00:00:00", "01:00:5e:00:00:01", frames.BROADCAST):
        nowhere(bed, everything(bed, bed.vms[1], source))
    all_in_the_vlan_are_reached(bed)


# ---- what switches say to each other -------------------------------------------------------


def test_what_switches_say_to_each_other_is_not_forwarded(known: Bed) -> None:
    """A BPDU that reached the upstream switch could cost every VM its uplink (BPDU guard)."""
    bed, attacker, host = known, known.vms[1], known.hosts[0]
    shots = [
        bed.frame_of(sender, frames.to(address), story=kind)
        for sender in (attacker, host)
        for kind, address in BETWEEN_SWITCHES.items()
        if sender is attacker or address.startswith("01:00:0c")
    ]

    def pause(source: str, tag: int, frame_id: int) -> bytes:
        body = struct.pack("!HH", 1, 0xFFFF)
        return frames.ethernet(source, host.mac, 0x8808, body, tag, frame_id)

    shots.append(bed.shot(attacker.point, pause, attacker.mac, VLAN, 0, "pause frame to one"))
    stations = {str(s) for s in bed.stations}
    copies = bed.fire(shots)
    for shot in shots:
        sent_here = shot.point == attacker.point
        reached = {p for p in copies[shot.frame_id].points if sent_here or p in stations}
        assert not reached & (stations | bed.ends.keys()), f"{shot.story} came out at {reached}"
    all_in_the_vlan_are_reached(bed)


# ---- VLANs ---------------------------------------------------------------------------------


def test_no_tag_leads_into_another_vlan(known: Bed) -> None:
    bed, attacker = known, known.vms[1]
    doubled = [(outer, inner) for outer in (0, VLAN, OTHER_VLAN, 1) for inner in (VLAN, OTHER_VLAN)]
    shots = [
        shot_with_tags(bed, attacker, destination, *((kind, tag) for tag in tags))
        for destination in (frames.BROADCAST, bed.vms[3].mac, bed.hosts[0].mac)
        for kind in (NATIVE_TAG, SERVICE_TAG)
        for tags in [(VLAN,), (OTHER_VLAN,), (1,), (4095,), *doubled]
    ]
    nowhere(bed, shots)
    # A tag that says no VLAN, and perhaps a priority, is one of its own.
    shots = [
        shot_with_tags(bed, attacker, frames.BROADCAST, (NATIVE_TAG, priority << 13))
        for priority in (0, 5)
    ]
    copies = bed.fire(shots)
    home = str(bed.uplinks[1].upstream_end)
    for shot in shots:
        points = copies[shot.frame_id].points
        assert points == sorted(["vm0", "vm2", "LOCAL", home]), f"{shot.story}: {points}"
    all_in_the_vlan_are_reached(bed)


def test_its_groups_leave_room_for_those_of_others(known: Bed) -> None:
    """A member that heard the report of another one would stay silent, and lose the group."""
    bed, (member, another, third, attacker) = known, known.vms
    with contextlib.closing(sending_socket(attacker.point)) as out:
        for number in range(GROUPS):
            group = f"239.128.{number >> 8}.{number & 0xFF}"
            out.send(frames.igmp(attacker.mac, 0, 0, IGMP_REPORT, group))
            if number % 16 == 15:
                time.sleep(0.006)

    def report(source: str, tag: int, frame_id: int) -> bytes:
        return frames.igmp(source, tag, frame_id, IGMP_REPORT, "239.9.9.9")

    bed.fire([bed.frame_of(member, report)])
    bed.revalidated()
    home = str(bed.uplinks[HOMES[1]].upstream_end)
    second = bed.comes_out(bed.frame_of(another, report))
    assert second == sorted([str(third), "LOCAL", home])


def test_a_report_to_one_address_goes_there_alone(known: Bed) -> None:
    bed, (member, _, third, _) = known, known.vms

    def report(source: str, tag: int, frame_id: int) -> bytes:
        to_group = frames.igmp(source, tag, frame_id, IGMP_REPORT, "239.9.9.9")
        return frames.mac_bytes(third.mac) + to_group[6:]

    assert bed.comes_out(bed.frame_of(member, report)) == [str(third)]


# ---- at work -------------------------------------------------------------------------------


@judges_time
def test_what_is_sent_to_a_vm_that_moves_comes_once(known: Bed, service: Service) -> None:
    bed, (victim, attacker, _, _) = known, known.vms
    ends = [u.upstream_end for u in bed.uplinks]
    flow = (attacker.point, frames.plain(attacker.mac, victim.mac))
    turned_away_before = bed.turned_away()
    with attached_to(bed, *bed.vms), bed.ears(victim.point, *ends) as ears:
        with Stream([flow], STREAM_PPS) as stream:
            for number in (1, 0, 1, 0):
                service.move(victim, bed.uplinks[number])
                nowhere(bed, everything(bed, attacker, victim.mac))
            stream.stop()
        ears.until_quiet()
        received = stream.received(ears[victim.point], 0)
        twice = [number for number, count in received.items() if count > 1]
        assert not twice, f"received twice: {twice}"
        # A switch that gets no time for a moment has no room for all that is sent meanwhile.
        no_room = bed.turned_away() - turned_away_before
        lost = stream.lost(ears[victim.point], 0)
        lost_for_want_of_room(lost, no_room, STREAM_PPS)
        assert all(not stream.received(ears[end], 0) for end in ends)
        all_in_the_vlan_are_reached(bed)


@judges_time
def test_a_storm_costs_the_service_nothing(known: Bed, service: Service) -> None:
    """No frame is ever handed to it, not even by flows of others that hand theirs to controllers."""
    bed, (_, attacker, *_) = known, known.vms
    others = "cookie=0xf0e1,table=0,priority=40000,udp,actions=controller"
    bed.ofctl("add-flow", others)
    try:
        storm = [
            (attacker.point, frames.gratuitous_arp(attacker.mac, 0, 0)),
            (attacker.point, frames.igmp_report(attacker.mac, 0, 0)),
            (attacker.point, frames.udp(attacker.mac, bed.hosts[0].mac)),
            (attacker.point, frames.unsolicited_advertisement(attacker.mac, 0, 0)),
        ]
        with Stream(storm, STORM_PPS / len(storm)) as stream:
            began_s, used_s, told = time.monotonic(), cpu_s(service), messages_sent(bed)
            time.sleep(STORM_S)
            took_s, used_s = time.monotonic() - began_s, cpu_s(service) - used_s
            told = messages_sent(bed) - told
            sent = stream.stop()
    finally:
        bed.ofctl("del-flows", "cookie=0xf0e1/-1")
    pps, used_ratio = sent.count * len(storm) / sent.elapsed_s, used_s / took_s
    assert told < MESSAGES_PER_S_MAX * took_s, f"the switch sent {told} messages in {took_s:.1f} s"
    print(f"{pps:.0f} frames/s; of a core: service {used_ratio:.3f}")
    bed.revalidated()
    bed.introduce()
    all_in_the_vlan_are_reached(bed)
    what = "of a core, the service"
    at_most(what, used_ratio, SERVICE_IN_STORM_RATIO_MAX, ANYWHERE_IN_STORM_RATIO_MAX)


def messages_sent(bed: Bed) -> int:
    """How many OpenFlow messages ovs-vswitchd has sent to anybody."""
    return int(bed.ovs.run("ovs-appctl", "coverage/read-counter", "rconn_sent"))


def cpu_s(service: Service) -> float:
    fields = Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# ---- what is sent, and where it came out ---------------------------------------------------


def everything(bed: Bed, sender: Station, source: str) -> list[Shot]:
    """What floods, what announces, and unicast to each of the others, from an address."""
    shots = [
        bed.frame_of(sender, build, source, f"{kind} from {source}")
        for kind, build in {**frames.FLOODED, **frames.ANNOUNCEMENTS}.items()
    ]
    others = [s for s in (*bed.stations, *bed.hosts) if s is not sender]
    return shots + [unicast(bed, sender, other.mac, source) for other in others]


def unicast(bed: Bed, sender: Station, destination: str, source: str = "") -> Shot:
    return bed.frame_of(sender, frames.to(destination), source, f"unicast to {destination}")


def shot_with_tags(bed: Bed, sender: Station, destination: str, *tags: tuple[int, int]) -> Shot:
    """A broadcast with these tags, each of a kind and with 16 bits, the outermost first."""

    def build(source: str, _tag: int, frame_id: int) -> bytes:
        plain = frames.plain(source, destination, 0, frame_id)
        return plain[:12] + b"".join(struct.pack("!HH", *tag) for tag in tags) + plain[12:]

    story = " ".join(f"{kind:04x}:{tag}" for kind, tag in tags)
    return bed.shot(sender.point, build, sender.mac, VLAN, 0, f"tagged {story} to {destination}")


def nowhere(bed: Bed, shots: list[Shot]) -> None:
    """None of these comes out anywhere."""
    copies = bed.fire(shots)
    wrong = [
        f"{shot.story}: came out at {copies[shot.frame_id].points}"
        for shot in shots
        if copies[shot.frame_id].points
    ]
    assert not wrong, "\n".join(wrong)


def all_in_the_vlan_are_reached(bed: Bed) -> None:
    here = [vm for vm in bed.vms if vm.vlan == VLAN]
    all_are_reached(bed, here, "LOCAL", flooded=frames.arp_request)


def flood(attacker: Station) -> None:
    """A broadcast from each of many addresses, as fast as the switch takes them."""
    with contextlib.closing(sending_socket(attacker.point)) as out:
        for number in range(ADDRESSES):
            source = f"02:f1:{number.to_bytes(4, 'big').hex(':')}"
            out.send(frames.broadcast(source, 0, 0))
            if number % 32 == 31:
                time.sleep(0.002)


def learned_cookie(bed: Bed, station: Station) -> str:
    ofport = int(bed.ovs.vsctl("get", "interface", station.port, "ofport"))
    of_port = rf"reg0=0x{ofport:x}\b.*learn\([^)]*cookie=(\w+)"
    (cookie,) = {*re.findall(of_port, bed.ofctl("dump-flows", "table=1"))}
    return str(cookie)


def learned_on(bed: Bed, station: Station) -> list[str]:
    """What the switch has learned to be behind a VM port."""
    listed = bed.ofctl("dump-flows", f"cookie={learned_cookie(bed, station)}/-1,table=20")
    return [line for line in listed.splitlines() if "dl_dst=" in line]
