"""Where Open vSwitch's datapaths differ in what concerns the service, measured on one datapath.

`OVS_LBT_DATAPATH=kernel python -m tests.switch.datapath_figures` prints what it found as JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from controller.dataplane.pipeline import build
from controller.dataplane.specs import EMPTY
from controller.dataplane.team import Team, VmPort
from tests.switch import datapath, frames, iperf
from tests.switch.bed import PLAIN, Bed, BedSpec, run, upstream_ovs
from tests.switch.direct import Direct
from tests.switch.test_hashing import in_turn, number
from tests.switch.waiting import SLOWNESS_RATIO, wait_until
from tests.switch.wire import Heard, OwnNetwork, Point, Stream
from topologies.network.private_ovs import PrivateOvs

SPEC = BedSpec(PLAIN, 2, (None, None), addresses=True)
PPS, LOOKED_S = 200.0, 6.0
REPEAT = 5
TCP_S = 3
VXLAN_PORT = (4789).to_bytes(2, "big")
# What crosses an uplink of 1500 bytes, and what does not.
FITS_BYTES, TOO_LONG_BYTES = 1514, 2000
JUMBO_BYTES = 9000


def main() -> None:
    found: dict[str, Any] = {"datapath": datapath.NAME, "slowness_ratio": SLOWNESS_RATIO}
    measurements: dict[str, Callable[[Bed, Direct], object]] = {
        "counters": beats,
        "change_of_rules": lost_until_changed,
        "mtu": across_mtu,
        "tcp": tcp,
        "tunnel": tunnelled,
    }
    with (
        OwnNetwork().entered(),
        upstream_ovs() as tor,
        PrivateOvs("ovs-lbt-figures-") as ovs,
        Bed(ovs, tor, SPEC) as bed,
        contextlib.closing(Direct(bed)) as direct,
    ):
        direct.install(build(team(bed)))
        bed.introduce()
        bed.revalidated()
        for name, measure in measurements.items():
            try:
                found[name] = measure(bed, direct)
            except (AssertionError, RuntimeError, subprocess.SubprocessError) as failed:
                found[name] = {"failed": f"{type(failed).__name__}: {failed}"}
        direct.install(EMPTY)
    print(json.dumps(found), flush=True)


def team(bed: Bed, first: int = 0) -> Team:
    """Every station by one uplink, without the service."""
    uplinks = tuple(number(bed, uplink.name) for uplink in bed.uplinks)
    orders = in_turn(uplinks[first:] + uplinks[:first], len(bed.stations))
    numbers = [number(bed, station.port) for station in bed.stations]
    return Team(uplinks, tuple(map(VmPort, numbers, orders)))


def beats(bed: Bed, direct: Direct) -> dict[str, object]:
    """How often counters of a port and of flows change under a steady stream, in seconds."""
    vm, host = bed.vms[0], bed.hosts[0]
    of_vm, of_uplink = number(bed, vm.port), number(bed, bed.uplinks[0].name)
    port: list[tuple[float, float]] = []
    flow: list[tuple[float, float]] = []
    with Stream([(vm.point, frames.udp(vm.mac, host.mac))], PPS):
        end_s = time.monotonic() + LOOKED_S
        while (now_s := time.monotonic()) < end_s:
            port.append((now_s, ports(direct)[of_uplink].tx_bytes))
            units = dict(direct.counters().units)
            flow.append((time.monotonic(), units[of_vm].tx_bytes or 0.0))
    return {"pps": PPS, "looks": len(port), "port": beat(port), "flows": beat(flow)}


def ports(direct: Direct) -> dict[int, Any]:
    """The counters of the bridge's ports, by their numbers."""
    return {int(one.ofport): one for one in direct.port_stats().ports}


def beat(seen: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of a counter that was looked at again and again: the time between its changes."""
    changed_s = [now[0] for before, now in itertools.pairwise(seen) if now[1] != before[1]]
    apart_s = [b - a for a, b in itertools.pairwise(changed_s)]
    found: dict[str, float] = {"changes": len(changed_s)}
    if apart_s:
        found["median_s"] = round(statistics.median(apart_s), 3)
        found["max_s"] = round(max(apart_s), 3)
    return found


def lost_until_changed(bed: Bed, direct: Direct) -> dict[str, object]:
    """What comes by the old uplink after a change of rules was confirmed, and how long it comes."""
    runs = [changed(bed, direct, turn) for turn in range(REPEAT)]
    late_s, lost = zip(*runs, strict=True)
    return {"pps": PPS, "last_by_the_old_way_after_s": late_s, "lost": lost}


def changed(bed: Bed, direct: Direct, turn: int) -> tuple[float, int]:
    """One change: seconds until the last frame by the old uplink, and frames lost."""
    vm, host = bed.vms[0], bed.hosts[0]
    old, new = bed.uplinks[turn % 2].upstream_end, bed.uplinks[(turn + 1) % 2].upstream_end
    stream = Stream([(vm.point, frames.udp(vm.mac, host.mac))], PPS)
    with bed.ears(old, new) as ears, stream:

        def arrive_by(end: Point) -> bool:
            return len(stream.received(ears[end], 0)) > PPS / 2

        wait_until(lambda: arrive_by(old), "frames go by the old uplink")
        direct.install(build(team(bed, (turn + 1) % 2)))
        confirmed_s = time.time()
        wait_until(lambda: arrive_by(new), "frames go by the new uplink")
        sent = stream.stop()
        ears.until_quiet()
        late = [h.at_s - confirmed_s for h in ears[old].frames() if h.frame_id and not h.outgoing]
        arrived = {*stream.received(ears[old], 0), *stream.received(ears[new], 0)}
    return round(max(0.0, *late), 3), sent.count - len(arrived)


def across_mtu(bed: Bed, direct: Direct) -> dict[str, object]:
    """Whether a VM's frames cross an uplink whose MTU is smaller than the VM's."""
    vm, home = bed.vms[0], bed.uplinks[1 if REPEAT % 2 else 0]
    run("ip", "link", "set", vm.port, "mtu", str(JUMBO_BYTES))
    run("ip", "link", "set", "eth0", "mtu", str(JUMBO_BYTES), netns=vm.point.netns)
    end, of_home = home.upstream_end, number(bed, home.name)
    crossed: dict[str, object] = {}
    for size in (FITS_BYTES, TOO_LONG_BYTES):
        with bed.ears(end) as ears:
            before = ports(direct)[of_home]
            for frame_id in range(1, 6):
                data = frames.udp(vm.mac, bed.hosts[0].mac, frame_id=frame_id, frame_bytes=size)
                bed.send(vm.point, data)
            bed.fence()
            ears.until_quiet(quiet_s=datapath.QUIET_S)
            heard = sum(1 for h in ears[end].frames() if h.frame_id and not h.outgoing)
            after = ports(direct)[of_home]
            crossed[f"{size} bytes"] = {
                "sent": 5,
                "arrived": heard,
                "counted_as_sent": after.tx_packets - before.tx_packets,
                "counted_as_dropped": after.tx_dropped - before.tx_dropped,
            }
    run("ip", "link", "set", "eth0", "mtu", "1500", netns=vm.point.netns)
    run("ip", "link", "set", vm.port, "mtu", "1500")
    return crossed


def tcp(bed: Bed, direct: Direct) -> dict[str, object]:
    """TCP with the VM's offloads off and on: its rate, and what flows and ports count of it."""
    vm, host = bed.vms[0], bed.hosts[0]
    of_vm, of_uplink = number(bed, vm.port), number(bed, bed.uplinks[1 if REPEAT % 2 else 0].name)
    found: dict[str, object] = {}
    for offloads in ("off", "on"):
        run("ethtool", "-K", "eth0", "tx", offloads, netns=vm.point.netns)
        # Segments are cut before an uplink, as a network card or the kernel does.
        for uplink in bed.uplinks:
            run("ethtool", "-K", uplink.name, "tso", "off", "gso", "off")
        before = settled(direct, of_vm, of_uplink)
        with iperf.server(host), iperf.client(vm, host, TCP_S) as process:
            try:
                ended = iperf.end(process, TCP_S)
            except (AssertionError, subprocess.TimeoutExpired) as failed:
                found[f"offloads {offloads}"] = {"failed": f"{failed}"[:200]}
                continue
        after = settled(direct, of_vm, of_uplink)
        by_flow, by_port = (b - a for a, b in zip(before, after, strict=True))
        found[f"offloads {offloads}"] = {
            "mbps": round(ended["sum_received"]["bits_per_second"] / 1e6, 1),
            "flow_bytes": by_flow,
            "port_bytes": by_port,
            "flow_over_port": round(by_flow / by_port, 4) if by_port else None,
        }
    run("ethtool", "-K", "eth0", "tx", "off", netns=vm.point.netns)
    return found


def settled(direct: Direct, vm: int, uplink: int) -> tuple[float, float]:
    """The bytes that a VM port's flow and an uplink have sent, when both stand still."""
    seen = (-1.0, -1.0)
    while True:
        time.sleep(1.5)
        units = {int(port): sample for port, sample in direct.counters().units}
        now = (float(units[vm].tx_bytes or 0), float(ports(direct)[uplink].tx_bytes))
        if now == seen:
            return now
        seen = now


def tunnelled(bed: Bed, _: Direct) -> dict[str, object]:
    """Where frames leave that another bridge sends by VXLAN over the host's address on LOCAL."""
    host, inner = bed.hosts[0], f"{bed.prefix}tu"
    run("ip", "addr", "add", "10.77.9.1/16", "dev", bed.bridge)
    settings = ["--", "set", "bridge", inner, datapath.SETTING]
    tunnel = ["--", "add-port", inner, "vx0", "--", "set", "interface", "vx0", "type=vxlan"]
    bed.ovs.vsctl("add-br", inner, *settings, *tunnel, f"options:remote_ip={host.ip}")
    run("ip", "link", "set", inner, "up")
    with bed.ears(*(u.upstream_end for u in bed.uplinks)) as ears:

        def vxlan_by() -> dict[str, int]:
            frame = frames.broadcast("02:ee:00:00:00:09", 0, 7).hex()
            sent = f"in_port=LOCAL packet={frame} actions=output:vx0"
            for _ in range(3):
                bed.ovs.run("ovs-ofctl", "packet-out", inner, sent)
            return {u.name: sum(map(is_vxlan, ears[u.upstream_end].frames())) for u in bed.uplinks}

        wait_until(lambda: sum(vxlan_by().values()) > 0, "encapsulated frames leave", 20.0)
        by = vxlan_by()
    homes = bed.homes()
    bed.ovs.vsctl("del-br", inner)
    used = [name for name, count in by.items() if count]
    return {"leaves_by": len(used), "by_the_home_of_LOCAL": used == homes["LOCAL"]}


def is_vxlan(heard: Heard) -> bool:
    """Whether it is a datagram of VXLAN that has come there."""
    return not heard.outgoing and heard.ethertype == 0x0800 and heard.data[36:38] == VXLAN_PORT


if __name__ == "__main__":
    main()
