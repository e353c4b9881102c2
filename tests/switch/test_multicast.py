"""A multicast receiver behind a snooping switch loses at most a second at a move or failover.

The switch upstream sends a group only where somebody reported it, and nobody would report
it anew by the other uplink before the next query, which is minutes away.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Station, on_beds, run
from tests.switch.judging import few_twice, judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Ear, Stream, inside

GROUP_V4, GROUP_V6 = "239.1.2.3", "ff05::4711"
PPS = 500
FRAMES = 200
SILENT_MAX_S = 1.0
TWICE_AT_FAILURE_MAX = 2
# RFC 3376 section 8.11, RFC 3810 section 9.11.
UNSOLICITED_REPORT_S = 1.0

pytestmark = on_beds(BedSpec(BALANCE_SLB, 2, (10, 20), addresses=True))


@judges_time
def test_a_receiver_goes_on_hearing_its_groups(attached: Bed, service: Service) -> None:
    bed, vm = attached, attached.vms[0]
    first, second = bed.uplinks
    vlan = bed.vlans[0]
    service.place(bed, 0, 0)
    host = bed.hosts[0]
    tag = host.sends(vlan)
    flows = [
        (host.point, frames.multicast(host.mac, tag, 0)),
        (host.point, multicast_v6(host.mac, tag)),
    ]
    with (
        snooping(bed),
        member(bed, vm),
        bed.ears(vm.point) as ears,
        Stream(flows, PPS) as stream,
    ):
        ear = ears[vm.point]
        stream.more([ear, ear], FRAMES)
        started_s = latest_s(ear)
        service.move(vm, second)
        wait_until(lambda: service.bindings(bed)[vm.port] == second.name, "the VM is moved")
        stream.more([ear, ear], FRAMES)
        # What the upstream switch has heard by the first uplink would do after the failover.
        for command in ("del-port", "add-port"):
            bed.tor.ovs.vsctl(command, bed.upstream, first.upstream_end.interface)
        wait_until(lambda: memberships(bed) == 2, "what was heard by the first is forgotten")
        moved_s = latest_s(ear)
        with bed.cable_pulled(second):
            stream.more([ear, ear], FRAMES)
        stream.stop()
        ears.until_quiet()
        twice = {
            group: sum(copies > 1 for copies in stream.received(ear, flow).values())
            for flow, group in enumerate((GROUP_V4, GROUP_V6))
        }
        few_twice(twice, TWICE_AT_FAILURE_MAX)
        for what, since_s, until_s in (
            ("move", started_s, moved_s),
            ("failover", moved_s, float("inf")),
        ):
            for group, flow in ((GROUP_V4, 0), (GROUP_V6, 1)):
                silent_s = silence_s(stream.arrivals(ear, flow), since_s, until_s)
                soon(f"{what}: {group} silent", silent_s, SILENT_MAX_S)


@contextlib.contextmanager
def snooping(bed: Bed) -> Iterator[None]:
    """The upstream switch sends multicast only where there is a member, in this block."""
    unregistered = "other_config:mcast-snooping-disable-flood-unregistered"
    bed.tor.ovs.vsctl(
        "set", "bridge", bed.upstream, "mcast_snooping_enable=true", f"{unregistered}=true"
    )
    try:
        yield
    finally:
        bed.tor.ovs.vsctl("set", "bridge", bed.upstream, "mcast_snooping_enable=false")


@contextlib.contextmanager
def member(bed: Bed, vm: Station) -> Iterator[None]:
    """A program in the VM listens to both groups in this block, as its kernel reports them."""
    interface, netns = vm.point.interface, vm.point.netns
    for setting in ("accept_dad=0", "disable_ipv6=0"):
        run("sysctl", "-qw", f"net.ipv6.conf.{interface}.{setting}", netns=netns)
    with contextlib.ExitStack() as sockets:
        with inside(netns):
            index = socket.if_nametoindex(interface)
            v4 = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            v6 = sockets.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        everywhere = socket.inet_aton("0.0.0.0")
        v4.setsockopt(
            socket.IPPROTO_IP,
            socket.IP_ADD_MEMBERSHIP,
            struct.pack("=4s4si", socket.inet_aton(GROUP_V4), everywhere, index),
        )
        v6.setsockopt(
            socket.IPPROTO_IPV6,
            socket.IPV6_JOIN_GROUP,
            struct.pack("=16si", IPv6Address(GROUP_V6).packed, index),
        )

        with bed.ears(vm.point) as ears:
            wait_until(lambda: memberships(bed) == 2, "the upstream switch has heard of both")
            # Hosts report a new membership twice; the second one must not do it for us.
            wait_until(lambda: quiet(ears[vm.point]), "the VM has reported all it will unasked")
        yield
    run("sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1", netns=netns)


def quiet(ear: Ear) -> bool:
    """Whether the VM has reported nothing for as long as it may wait to do it again."""
    sent = [heard.at_s for heard in ear.frames() if heard.outgoing]
    return time.time() - max(sent, default=time.time()) > UNSOLICITED_REPORT_S


def memberships(bed: Bed) -> int:
    """How many members of the two groups, by any port, the upstream switch knows."""
    shown = bed.tor.ovs.run("ovs-appctl", "-t", "ovs-vswitchd", "mdb/show", bed.upstream)
    return shown.count(GROUP_V4) + shown.count(GROUP_V6)


def multicast_v6(source: str, vlan: int) -> bytes:
    """A datagram to the IPv6 group."""
    group = IPv6Address(GROUP_V6).packed
    datagram = struct.pack("!HHHH", frames.UDP_PORT, frames.UDP_PORT, 8, 1)
    head = struct.pack("!IHBB", 6 << 28, len(datagram), frames.UDP, 8)
    body = head + IPv6Address("fd00::1").packed + group + datagram
    destination = "33:33:" + group[-4:].hex(":")
    return frames.ethernet(source, destination, frames.ETH_IPV6, body, vlan)


def latest_s(ear: Ear) -> float:
    return ear.frames()[-1].at_s


def silence_s(arrivals: Sequence[tuple[int, float]], since_s: float, until_s: float) -> float:
    """The longest time between two frames of a flow."""
    times = [at_s for _, at_s in arrivals if since_s <= at_s <= until_s]
    return max(later - earlier for earlier, later in itertools.pairwise(times))
