"""VLANs on a real switch: every mode of a port, and re-tagging.

What a port says in its record and what therefore is on its wire stands in `WAYS`; that it
is what NORMAL does is asked of the switch itself.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.bridge.installation import AUDIT_INTERVAL_S
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Shot, Station, on_beds
from tests.switch.judging import judges_time, lost_for_want_of_room, soon
from tests.switch.service import Service
from tests.switch.trace import copies
from tests.switch.waiting import wait_until
from tests.switch.wire import Point, Stream

_AGE = re.compile(r" duration=([\d.]+)s")
OUTSIDER = "02:ee:00:00:00:01"
# A tag that names no VLAN, only a priority.
PRIORITY_TAG = 0x2000
PRESENT = 0x1000
Tags = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Way:
    """A port's columns, and the tag of each VLAN that it carries, on frames from it; 0: none."""

    columns: tuple[str, ...]
    tags: Tags

    def meant(self, tag: int) -> int | None:
        """The VLAN of a frame from the port; None: it is not taken."""
        vlan = tag & 0xFFF
        if not vlan:
            return next((v for v, t in self.tags.items() if not t), None)
        access = list(self.tags.values()) == [0]
        return vlan if vlan in self.tags and not access else None


def way(*columns: str, **tags: int) -> Way:
    """`way("tag=10", v10=0)`: in VLAN 10 without a tag."""
    return Way(columns, {int(vlan.removeprefix("v")): tag for vlan, tag in tags.items()})


WAYS = {
    "access 10": way("tag=10", v10=0),
    "access 10 too": way("tag=10", "trunks=20", v10=0),
    "access 0": way("vlan_mode=access", v0=0),
    "trunk": way(v0=0, v10=10, v20=20, v30=30),
    "trunk 10,20": way("trunks=10,20", v10=10, v20=20),
    "native-untagged 10": way("vlan_mode=native-untagged", "tag=10", v10=0, v20=20, v30=30),
    "native-tagged 10": way("vlan_mode=native-tagged", "tag=10", "trunks=20", v10=0, v20=20),
    "native-untagged": way("vlan_mode=native-untagged", v0=0, v10=10, v20=20, v30=30),
    "native-untagged, not 0": way("vlan_mode=native-untagged", "trunks=10", v0=0, v10=10),
    "native-tagged, not 0": way("vlan_mode=native-tagged", "trunks=10", v0=0, v10=10),
    "LOCAL, native-untagged 20": way(
        "vlan_mode=native-untagged", "tag=20", "trunks=30", v20=0, v30=30
    ),
}


def set_port(bed: Bed, port: str, *columns: str) -> None:
    """A Port record anew: what is not named is empty."""
    clear = [
        word for c in ("tag", "trunks", "vlan_mode") for word in ("--", "clear", "port", port, c)
    ]
    bed.ovs.vsctl(*clear[1:], *(["--", "set", "port", port, *columns] if columns else []))


def tell(bed: Bed, ways: Mapping[str, Way]) -> None:
    """Every station says something in each of its VLANs, so that the switch knows it there."""
    bed.fire(
        [
            bed.shot(s.point, frames.broadcast, s.mac, vlan, tag, "a first word")
            for s in bed.stations
            for vlan, tag in ways[s.port].tags.items()
        ]
    )


@contextlib.contextmanager
def attached_with(bed: Bed, service: Service, ways: Mapping[str, Way]) -> Iterator[None]:
    """In this block the bridge is attached, and its stations are known."""
    with service.attached(bed, "--policy", "originating-port"):
        tell(bed, ways)
        yield


# ---- the same as NORMAL ----------------------------------------------------------------


@on_beds(BedSpec(BALANCE_SLB, 2, (None,) * (len(WAYS) - 1)))
def test_every_vlan_mode_does_what_normal_does(bed: Bed, service: Service) -> None:
    """Ways in × tags × destinations, traced before and after attach."""
    ways = {s.port: w for s, w in zip(bed.stations, WAYS.values(), strict=True)}
    for port, carried in ways.items():
        set_port(bed, port, *carried.columns)
    tell(bed, ways)
    normal = everything_traced(bed, ways)
    assert sum(map(len, normal.values())) > 200, "NORMAL forwards"
    with attached_with(bed, service, ways):
        ours = everything_traced(bed, ways)
        wrong = [
            f"{story}: {sorted(ours[story].elements())}, NORMAL: {sorted(where.elements())}"
            for story, where in normal.items()
            if ours[story] != where
        ]
        assert not wrong, f"{len(wrong)} of {len(normal)}:\n" + "\n".join(wrong)
        trunk = bed.stations[list(WAYS).index("trunk")]
        assert bed.comes_out(two_tags(trunk, PRIORITY_TAG, 20)) == []
        nothing_is_sent_again(bed, service)


def everything_traced(bed: Bed, ways: Mapping[str, Way]) -> dict[str, Counter[tuple[str, int]]]:
    """Where each frame would come out, and with which TCI; "network" is any uplink."""
    numbers = {p: str(bed.ofport(p)) for p in [*ways, *names(bed)]}
    macs = {s.port: s.mac for s in bed.stations}
    found: dict[str, Counter[tuple[str, int]]] = {}

    def trace(in_port: str, source: str, tci: int, target: str) -> Counter[tuple[str, int]]:
        fields: dict[str, str | int] = {"dl_src": source, "dl_dst": target, "vlan_tci": tci}
        seen = copies(bed.ovs, bed.bridge, numbers[in_port], **fields)
        return Counter(("network" if port in names(bed) else port, tag) for port, tag in seen)

    for tag in (0, PRIORITY_TAG, 10, 20, 30, 40):
        tci = tag and PRESENT | tag
        # Of its members a bond takes a broadcast from one only; we take it for each VM port
        # from one.
        found[f"broadcast from the network tagged {tag:#x}"] = sum(
            (trace(u, OUTSIDER, tci, frames.BROADCAST) for u in names(bed)), Counter()
        )
        for port, to in ways.items():
            if tag % PRESENT in to.tags and tag != PRIORITY_TAG:
                story = f"network to {port} tagged {tag:#x}"
                found[story] = trace(names(bed)[0], OUTSIDER, tci, macs[port])
        for port, carried in ways.items():
            story = f"broadcast from {port} tagged {tag:#x}"
            found[story] = trace(port, macs[port], tci, frames.BROADCAST)
            vlan = carried.meant(tag)
            for other, to in ways.items():
                # What has not been heard of in the VLAN would be flooded by NORMAL.
                if vlan is not None and other != port and vlan in to.tags:
                    story = f"{port} to {other} tagged {tag:#x}"
                    found[story] = trace(port, macs[port], tci, macs[other])
    return found


def names(bed: Bed) -> list[str]:
    return [uplink.name for uplink in bed.uplinks]


def two_tags(station: Station, outer: int, inner: int) -> Shot:
    """A frame that, without its outer tag, would be one of the inner tag's VLAN."""
    body = inner.to_bytes(2, "big") + frames.ETH_EXPERIMENT.to_bytes(2, "big")
    nobody = "02:dd:ff:00:00:01"
    frame = frames.ethernet(station.mac, nobody, frames.ETH_VLAN, body, outer, 1 << 40)
    return Shot(station.point, frame, inner, f"tags {outer:#x} and {inner} from {station}")


def nothing_is_sent_again(bed: Bed, service: Service) -> None:
    """What a new service reads back equals what it wants: matches on blocks, limits and all."""
    began_s = time.monotonic()
    with service.dead():
        pass
    service.wait_ready(bed)
    wait_until(lambda: service.metric("ovslbt_stats_poll_duration_seconds_count"), "it polls")
    since_s = time.monotonic() - began_s
    dump = bed.ofctl("dump-flows")
    ages_s = {line: float(age) for line in dump.splitlines() for age in _AGE.findall(line)}
    anew = [line for line, age in ages_s.items() if age < since_s and "cookie=0x6c6274" in line]
    assert not anew, "\n".join(anew)


# ---- re-tagging ------------------------------------------------------------------------

# How long after the database both VLANs may be heard, or none: a transaction, a bundle and
# a revalidation on a busy machine.
RE_TAG_S = 0.5
PPS = 500


@judges_time
@on_beds(BedSpec(PLAIN, 2, (10, 10, 20)))
def test_a_port_is_re_tagged_under_traffic(attached: Bed, service: Service) -> None:
    bed = attached
    moved, old, new = bed.vms
    service.place(bed, 0, 0, 1)
    others = {s.port: flows_of(bed, s) for s in (old, new)}

    def unicast(source: Station, target: str) -> tuple[Point, bytes]:
        return source.point, frames.plain(source.mac, target, source.sends(source.vlan or 0))

    def untagged(source: Station) -> tuple[Point, bytes]:
        return source.point, frames.broadcast(source.mac, 0, 0)

    host = bed.hosts[0]
    flows = [
        untagged(old),
        untagged(new),
        unicast(old, moved.mac),
        unicast(new, moved.mac),
        untagged(moved),
        (host.point, frames.plain(host.mac, moved.mac, 20)),
        unicast(old, host.mac),
    ]
    in_10, in_20, to_10, to_20, own, outside, bystander = range(len(flows))
    no_room = bed.turned_away()
    with bed.ears(moved.point, old.point, new.point, host.point) as ears:
        with Stream(flows, PPS) as stream:
            wait_until(lambda: stream.received(ears[moved.point], in_10), "it hears VLAN 10")
            wait_until(lambda: stream.received(ears[old.point], own), "VLAN 10 hears it")
            at_s = time.time()
            bed.ovs.vsctl("set", "port", moved.port, "tag=20")
            wait_until(lambda: stream.received(ears[moved.point], outside), "reached in VLAN 20")
            wait_until(lambda: stream.received(ears[new.point], own), "VLAN 20 hears it")
            wait_until(
                lambda: len(stream.received(ears[moved.point], outside)) > 2 * RE_TAG_S * PPS,
                "heard in VLAN 20 for long enough",
            )
            stream.stop()
            ears.until_quiet()

        def heard_s(station: Station, flow: int) -> list[float]:
            return [came_s - at_s for _, came_s in stream.arrivals(ears[station.point], flow)]

        old_vlan_s = {
            "its broadcasts": heard_s(moved, in_10),
            "its unicast": heard_s(moved, to_10),
            "the VM's own": heard_s(old, own),
        }
        new_vlan_s = {
            "its broadcasts": heard_s(moved, in_20),
            "its unicast": heard_s(moved, to_20),
            "from outside": heard_s(moved, outside),
            "the VM's own": heard_s(new, own),
        }
        assert all(old_vlan_s.values()), f"heard of the old VLAN: {old_vlan_s}"
        assert all(min(heard) > 0 for heard in new_vlan_s.values()), "heard before it was set"
        assert all(not h.vlan for h in ears[moved.point].frames() if not h.outgoing)
        # Others' frames are none of its business.
        lost = stream.lost(ears[host.point], bystander)
        lost_for_want_of_room(lost, bed.turned_away() - no_room, PPS)
    assert {s.port: flows_of(bed, s) for s in (old, new)} == others, (
        "others' flows are as they were"
    )
    # On a VM port: what comes back from the network is learned with a lower priority.
    learned = bed.ofctl("dump-flows", "table=20").replace("priority=5,", "network,")
    learned = "\n".join(line for line in learned.splitlines() if "network," not in line)
    assert f"reg2=0x14/0xfff,dl_dst={moved.mac}" in learned.replace(" ", ""), learned
    assert f"reg2=0xa/0xfff,dl_dst={moved.mac}" not in learned.replace(" ", ""), learned
    bed.ovs.vsctl("set", "port", moved.port, "tag=10")
    late_s = {f"{what} in the old VLAN until": max(s) for what, s in old_vlan_s.items()}
    late_s |= {f"{what} in the new VLAN from": min(s) for what, s in new_vlan_s.items()}
    for what, late in late_s.items():
        soon(what, late, RE_TAG_S)


def flows_of(bed: Bed, station: Station) -> list[str]:
    """A VM port's own flows: by which it is recognized, learns, and is sent to."""
    number = bed.ofport(station.port)
    matches = (f"in_port={number},", f"in_port={number} ", f"reg0={number:#x}", f"reg3={number:#x}")
    lines = bed.ofctl("dump-flows", "--no-stats").splitlines()
    own = [line for line in lines if any(m in line.partition("actions=")[0] for m in matches)]
    assert len(own) > 10, own
    return sorted(own)


@on_beds(*[BedSpec(team, 2, (None, 10)) for team in (BALANCE_SLB, PLAIN)])
def test_a_silent_vm_is_reached_after_its_trunk_has_grown(bed: Bed, service: Service) -> None:
    """Its address stays known in VLANs that its port keeps. NORMAL forgets it, and floods frames for it."""
    vm, neighbour, host = *bed.vms, bed.hosts[0]

    def grow() -> None:
        """The port carries one more VLAN, and the VM speaks in it only."""
        bed.ovs.vsctl("add", "port", vm.port, "trunks", "30")
        heard = [bed.shot(vm.point, frames.broadcast, vm.mac, 30, 30, "in the new VLAN")]
        wait_until(lambda: bed.fire(heard)[heard[0].frame_id].points, "it is heard in VLAN 30")
        bed.revalidated()

    def to_it(sender: Station) -> list[str]:
        return bed.comes_out(bed.frame_of(sender, frames.to(vm.mac)))

    set_port(bed, vm.port, "trunks=10,20")
    if bed.spec.on_bond:
        bed.introduce_to_normal()
        grow()
        assert to_it(host).count(str(vm)) == to_it(neighbour).count(str(vm)) == 1
        set_port(bed, vm.port, "trunks=10,20")
    with service.attached(bed, "--policy", "originating-port"):
        service.place(bed, 0, 0)
        time.sleep(AUDIT_INTERVAL_S + 1)
        grow()
        assert to_it(neighbour) == [str(vm)]
        service.move(vm, bed.uplinks[1])
        wait_until(lambda: to_it(host) == [str(vm)], "the network knows where the VM is")
