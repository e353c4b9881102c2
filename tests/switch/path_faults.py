"""Faults between uplinks whose links stay up, what path checks say of them, and what VMs lose meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from controller.api import history
from tests.switch import datapath, frames
from tests.switch.bed import Bed, Station, Uplink, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import SEQUENCE_MASK, STREAM_SHIFT, CountingEar, Sent, Stream
from topologies.network.private_ovs import PrivateOvs

# A fault as `show` has it: uplink, kind, whether it is decided, and VLAN.
Shown = tuple[str, str, bool, int | None]
# Where the service writes it. (What `topologies.compare` imports does not run with stock Ryu.)
HISTORY = "ovs-lbt-history.jsonl"
# Of each flow of `Talk`: what is lost is known to 10 ms.
TALK_PPS = 100.0
# What is still on its way when a stream ends arrives within this time.
UNDER_WAY_S = 0.3
# What ears have heard is kept for them for much longer.
TAKEN_UP_EVERY_S = 0.5


def flows(bed: Bed) -> list[str]:
    """The flows that give probes to the service."""
    dumped = bed.ofctl("dump-flows", "cookie=0x6c62740900000000/0xffffffff00000000")
    return [line for line in dumped.splitlines() if "cookie=" in line]


def probes(bed: Bed, kind: str = "") -> int:
    """How many frames of path checks the switch has given to the service; `kind`: only such, as `arp`."""
    of = [flow for flow in flows(bed) if kind in flow]
    return sum(int(flow.partition("n_packets=")[2].partition(",")[0]) for flow in of)


def faults(service: Service, bed: Bed) -> set[Shown]:
    """The faults that `show` names."""
    shown = service.show_json(bed.bridge)
    return {
        (uplink["name"], fault["kind"], fault["decided"], fault["vlan"])
        for uplink in shown["uplinks"]
        for fault in uplink.get("path_faults", ())
    }


def found_after_s(service: Service, bed: Bed, *expected: Shown) -> float:
    """How long it takes from now until the service has found these, and nothing else."""
    began_s = time.monotonic()
    wait_until(lambda: faults(service, bed), "a fault is found")
    took_s = time.monotonic() - began_s
    wait_until(lambda: faults(service, bed) == {*expected}, f"{expected} found, and nothing else")
    return took_s


@contextlib.contextmanager
def checking(service: Service, bed: Bed, *hosts: str) -> Iterator[None]:
    """The bed's uplinks probe each other in this block, and ask these hosts; all of that is answered."""
    service.do("set", "bridge", bed.bridge, "path-check=on")
    ask(service, bed, *hosts)
    try:
        wait_until(lambda: probes(bed) > 2 * len(bed.uplinks), "probes arrive")
        yield
    finally:
        service.do("unset", "bridge", bed.bridge, "path-check")
        bed.ovs.vsctl("remove", "bridge", bed.bridge, "external_ids", "ovs-lbt-path-check-targets")
    wait_until(lambda: not flows(bed), "nothing of path checks is on the switch")
    wait_until(lambda: not faults(service, bed), "no fault is in force")


def ask(service: Service, bed: Bed, *hosts: str) -> None:
    """Have each uplink ask these hosts, and wait until they have answered, by IPv4."""
    if not hosts:
        return
    service.do("set", "bridge", bed.bridge, f"path-check-targets={','.join(hosts)}")
    # By each uplink that is not cut off, more than once.
    answers = 2 * len(hosts) * len(bed.uplinks)
    wait_until(lambda: probes(bed, "arp") > answers, f"{', '.join(hosts)} answer")


def told(ovs: PrivateOvs, since_at: float = 0.0) -> list[dict[str, Any]]:
    """What the history says since a time, in seconds since the epoch."""
    path = ovs.rundir / HISTORY
    lines = path.read_text().splitlines() if path.exists() else []
    entries = history.read(lines, history.Query(last=history.MOST))
    return [entry for entry in entries if entry["at"] >= since_at]


def told_faults(ovs: PrivateOvs, since_at: float = 0.0) -> list[dict[str, Any]]:
    """The faults among that."""
    path_fault = history.Happened.PATH_FAULT
    return [entry for entry in told(ovs, since_at) if entry["event"] == path_fault]


# ---- faults ------------------------------------------------------------------------------


@contextlib.contextmanager
def blocked(bed: Bed, uplink: Uplink, *ways: str) -> Iterator[None]:
    """The switch upstream neither takes nor sends frames by an uplink's port, whose link stays up.

    `ways`: `receive`, `forward` or both.
    """
    end = uplink.upstream_end.interface

    def set_to(flag: str) -> None:
        bed.tor.ovs.run("ovs-ofctl", "-O", "OpenFlow10", "mod-port", bed.upstream, end, flag)

    for way in ways:
        set_to(f"no-{way}")
    try:
        yield
    finally:
        for way in ways:
            set_to(way)


class SwitchUpstream:
    """A switch between uplinks and the bed's upstream one, the core, to which a cable joins it."""

    def __init__(self, bed: Bed, number: int) -> None:
        self.bridge = f"{bed.prefix}s{number}"
        self.cable = (f"{bed.prefix}c{number}", f"{bed.prefix}d{number}")
        self._netns = bed.tor.netns

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """It has lost its own uplink in this block. The uplinks that end on it keep their links."""
        run("ip", "-n", self._netns, "link", "set", self.cable[0], "down")
        try:
            yield
        finally:
            run("ip", "-n", self._netns, "link", "set", self.cable[0], "up")


@contextlib.contextmanager
def switches_upstream(bed: Bed, *ends: Sequence[int]) -> Iterator[list[SwitchUpstream]]:
    """Uplinks end on switches of their own in this block. `ends`: for each switch, their numbers."""
    switches = [SwitchUpstream(bed, number) for number in range(len(ends))]
    netns, ovs = bed.tor.netns, bed.tor.ovs
    interfaces = [[bed.uplinks[number].upstream_end.interface for number in of] for of in ends]
    lines, words, back = [], list[str](), list[str]()
    for switch, of in zip(switches, interfaces, strict=True):
        at_core, at_switch = switch.cable
        mtu = f"mtu {bed.spec.mtu_bytes}"
        lines += [f"link add {at_core} {mtu} type veth peer {at_switch} {mtu}"]
        lines += [f"link set {one} up" for one in switch.cable]
        words += ["--", "add-br", switch.bridge]
        words += ["--", "set", "bridge", switch.bridge, datapath.SETTING]
        words += ["--", "add-port", switch.bridge, at_switch]
        words += ["--", "add-port", bed.upstream, at_core]
        back += ["--", "del-port", bed.upstream, at_core, "--", "del-br", switch.bridge]
        for end in of:
            words += ["--", "del-port", bed.upstream, end, "--", "add-port", switch.bridge, end]
            back += ["--", "add-port", bed.upstream, end]
    run("ip", "-n", netns, "-batch", "-", stdin="\n".join(lines))
    try:
        ovs.vsctl(*words[1:])
        try:
            bed.introduce()
            yield switches
        finally:
            ovs.vsctl(*back[1:])
    finally:
        for switch in switches:
            run("ip", "-n", netns, "link", "del", switch.cable[0])


# ---- what VMs lose -----------------------------------------------------------------------


def _frame(sender: Station, receiver: Station, _number: int) -> bytes:
    return frames.udp(sender.mac, receiver.mac)


class Talk:
    """VMs and a host upstream send to each other, both ways, until `stop` or the end of this block.

    There are so many connections of each VM. `build`: the frame of one way of the connection of a number.
    """

    def __init__(
        self,
        vms: Sequence[Station],
        host: Station,
        pps: float = TALK_PPS,
        connections: int = 1,
        build: Callable[[Station, Station, int], bytes] = _frame,
    ) -> None:
        self._pps = pps
        self._ways = [way for vm in vms for way in ((vm, host), (host, vm)) * connections]
        flows = [(a.point, build(a, b, number)) for number, (a, b) in enumerate(self._ways)]
        self._stream = Stream(flows, pps)
        # VMs of several beds have the same names.
        ears = {id(one): CountingEar(one.point) for one in (*vms, host)}
        self._ears = list(ears.values())
        self._receivers = [ears[id(receiver)] for _, receiver in self._ways]
        self._began_at = 0.0

    def __enter__(self) -> Talk:
        self._stream.__enter__()
        self._began_at = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.stop()
        for ear in self._ears:
            ear.close()

    def go_on(self, for_s: float) -> None:
        """Let them talk for a time."""
        end_s = time.monotonic() + for_s
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, TAKEN_UP_EVERY_S))
            self._listen()

    def until_heard(self, for_s: float) -> None:
        """Let them talk until of each flow something has arrived that was sent so much later than now."""
        goal = (time.time() - self._began_at + for_s) * self._pps

        def arrive() -> bool:
            self._listen()
            return all(max(of, default=-1) >= goal for of in self._arrived())

        wait_until(arrive, f"all flows arrive, {for_s:g} s later", interval_s=TAKEN_UP_EVERY_S)

    def stop(self) -> Sent:
        """End it, and take up what is still under way; what was sent."""
        sent = self._stream.stop()
        assert not any(sent.refused), "the stations' own interfaces refused frames"
        time.sleep(UNDER_WAY_S)
        self._listen()
        return sent

    @property
    def sent(self) -> int:
        """How many frames all flows have sent."""
        return self._stream.stop().count * len(self._ways)

    @property
    def lost_at(self) -> list[list[float]]:
        """When each frame of each flow was sent that was lost, in seconds since the epoch, in order."""
        count, arrived = self._stream.stop().count, self._arrived()
        return [
            [self._began_at + n / self._pps for n in range(count) if n not in of] for of in arrived
        ]

    def silent(self, last_s: float) -> list[str]:
        """The flows of which nothing arrived of what was sent in the last seconds."""
        last = self._stream.stop().count - last_s * self._pps
        arrived = self._arrived()
        return [
            f"{a.mac} to {b.mac}"
            for flow, (a, b) in enumerate(self._ways)
            if max(arrived[flow], default=-1) < last
        ]

    def _arrived(self) -> list[set[int]]:
        """The numbers of the frames of each flow that have arrived."""
        first = self._stream.first_id(0) >> STREAM_SHIFT
        return [
            {one & SEQUENCE_MASK for one in ear.counts if one >> STREAM_SHIFT == flow}
            for flow, ear in enumerate(self._receivers, start=first)
        ]

    def _listen(self) -> None:
        for ear in self._ears:
            ear.listen()
