"""What VMs send to the outside, frame by frame, to see by which uplink each leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.switch import frames
from tests.switch.bed import Bed, Shot, Station

FLOWS_PER_VM = 8
REPORT = "group report"
# Nobody's.
UNKNOWN = "02:dd:00:00:00:99"
SOLICITATION_IPS, ADVERTISEMENT_IPS = ("fe80::1", "ff02::1:ff00:63"), ("fe80::1", "fe80::2")


@dataclass(frozen=True, slots=True)
class Sending:
    """A frame that a station sends in a VLAN (0: untagged), from the address `source`.

    `build` makes it of the tag on the wire and an id. `connection` is the same for frames
    that must not be parted; `ips`: its IP addresses, if any. `hashed_alone`: unicast IP that
    nobody needs to see by the sender's own uplink. `floods`: neighbours hear it, too.
    """

    name: str
    station: Station
    source: str
    vlan: int
    connection: str
    build: Callable[[int, int], bytes]
    ips: tuple[str, str] | None = None
    hashed_alone: bool = False
    floods: bool = False

    def __str__(self) -> str:
        return f"{self.station}: {self.name}"

    def shot(self, bed: Bed) -> Shot:
        tag = self.station.sends(self.vlan)

        def build(_source: str, wire_tag: int, frame_id: int) -> bytes:
            return self.build(wire_tag, frame_id)

        return bed.shot(self.station.point, build, self.source, self.vlan, tag, self.name)

    def frame(self) -> bytes:
        """One that is never sent, to ask the switch about."""
        return self.build(self.station.sends(self.vlan), 0)


@dataclass(frozen=True, slots=True)
class Landing:
    """What came of a sending: (uplink, source address, tag) of each copy that left, and the
    stations that heard it with the tags there.
    """

    left: tuple[tuple[str, str, int], ...]
    heard: tuple[tuple[str, int], ...]


def vlan_of(bed: Bed, station: Station) -> int:
    """The VLAN that a station speaks in; of those with all VLANs, the first two use none."""
    if station.vlan is not None:
        return station.vlan
    return 0 if station in bed.vms[:2] else bed.vlans[0]


def own_ips(number: int) -> tuple[str, str]:
    """The addresses of VM `number`, from 0: IPv4 and IPv6."""
    return f"10.77.1.{number + 1}", f"fd77::1:{number + 1:x}"


def connections(bed: Bed, many_macs: bool = False) -> list[Sending]:
    """64 flows of 8 VMs with one host: IPv4 and IPv6, some differing in ports only.

    `many_macs`: each flow of a VM has a source address of its own, as VMs nested in a VM do.
    """
    made = []
    for number, vm in enumerate(bed.vms):
        ip4, ip6 = own_ips(number)
        pairs = [(ip4, "198.51.100.1", port) for port in (10001, 10002, 10003, 10004)]
        pairs += [(ip4, f"198.51.{number}.{last}", 10001) for last in (2, 77)]
        pairs += [(ip6, "2001:db8::1", port) for port in (20001, 20002)]
        assert len(pairs) == FLOWS_PER_VM
        for index, (source_ip, destination_ip, port) in enumerate(pairs):
            source = f"{vm.mac[:-2]}{index + 1:x}{number:x}" if many_macs else vm.mac
            made.append(udp(bed, vm, (source_ip, destination_ip), port, source))
    return made


def udp(bed: Bed, vm: Station, ips: tuple[str, str], source_port: int, source: str = "") -> Sending:
    """One datagram of a connection of a VM with the first host upstream."""
    name = f"UDP {ips[0]}:{source_port} to {ips[1]}"

    def build(tag: int, frame_id: int) -> bytes:
        return frames.segment(
            source or vm.mac,
            bed.hosts[0].mac,
            source_ip=ips[0],
            destination_ip=ips[1],
            ports=(source_port, 5000),
            protocol=frames.UDP,
            vlan=tag,
            frame_id=frame_id,
        )

    connection = f"{name} from {source}"
    return Sending(name, vm, source or vm.mac, vlan_of(bed, vm), connection, build, ips, True)


def cut_up(bed: Bed) -> Iterator[Sending]:
    """Datagrams in two fragments, which only the first of has ports."""
    for number, vm in enumerate(bed.vms):
        ips, vlan = (own_ips(number)[0], "198.51.100.1"), vlan_of(bed, vm)
        for part in range(2):
            name = f"fragment {part + 1} of a datagram"
            build = functools.partial(_fragment, vm.mac, bed.hosts[0].mac, ips, part)
            yield Sending(name, vm, vm.mac, vlan, "a datagram", build, ips, True)


def _fragment(
    source: str, destination: str, ips: tuple[str, str], part: int, tag: int, frame_id: int
) -> bytes:
    return frames.fragments(source, destination, *ips, tag)[part](frame_id)


def others(bed: Bed) -> Iterator[Sending]:
    """What is not a connection: ARP, ND, broadcast, multicast, protocols other than IP."""
    host = bed.hosts[0].mac
    # What it is, how it is made, for which address if not for a group's, and its IP addresses.
    kinds: tuple[tuple[str, Callable[..., bytes], tuple[str, ...], tuple[str, str] | None], ...] = (
        ("broadcast", frames.broadcast, (), None),
        ("ARP request", frames.arp_request, (), None),
        ("multicast", frames.multicast, (), ("192.0.2.1", "239.1.2.3")),
        ("neighbour solicitation", frames.neighbour_solicitation, (), SOLICITATION_IPS),
        ("ARP reply", frames.arp_reply, (host,), None),
        ("neighbour advertisement", frames.solicited_advertisement, (host,), ADVERTISEMENT_IPS),
        ("unicast of another protocol", frames.plain, (host,), None),
        ("unknown unicast", frames.plain, (UNKNOWN,), None),
        (REPORT, frames.igmp_report, (), ("192.0.2.1", "224.0.0.22")),
    )
    for station in bed.stations:
        place = (station, station.mac, vlan_of(bed, station))
        for name, make, to, ips in kinds:
            build = functools.partial(make, station.mac, *to)
            yield Sending(name, *place, name, build, ips, floods=to != (host,))


def fire(bed: Bed, sendings: Sequence[Sending]) -> list[Landing]:
    """Send them, one after another; what came of each."""
    shots = [sending.shot(bed) for sending in sendings]
    left: dict[int, list[tuple[str, str, int]]] = {shot.frame_id: [] for shot in shots}
    heard: dict[int, list[tuple[str, int]]] = {shot.frame_id: [] for shot in shots}
    for point, all_heard in bed.fire_and_hear(shots).items():
        for one in all_heard:
            if one.outgoing or one.frame_id not in left:
                continue
            if point in bed.ends:
                left[one.frame_id].append((bed.ends[point], one.source, one.vlan))
            else:
                heard[one.frame_id].append((point, one.vlan))
    return [
        Landing(tuple(left[shot.frame_id]), tuple(sorted(heard[shot.frame_id]))) for shot in shots
    ]
