"""A bridge under test with real uplinks, VMs and an upstream switch.

    VM netns ── veth ──┐                  ┌── uplink 0 ── veth ──┐
    VM netns ── veth ──┤ bridge under test├── uplink 1 ── veth ──┤ upstream ── veth ── host netns
    LOCAL ─────────────┘                  └── ...                ┘

Each switch is a bridge of a private Open vSwitch of its own, so that neither one's work delays
the other. The upstream one is an ordinary learning switch (NORMAL); pulling the cable of an
uplink sets its upstream end down.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.dataplane.tables import Table
from tests.switch import datapath, frames
from tests.switch.appctl import Appctl
from tests.switch.waiting import HANG_S, wait_until
from tests.switch.wire import STREAM_SHIFT, Ears, Heard, Point, inside, sending_socket
from topologies.network.private_ovs import PrivateOvs

# Bond modes of Open vSwitch, "lacp" (balance-slb with LACP), or uplinks that are ports of their own:
# to the upstream switch, too, or members of one link there. balance-tcp works with LACP only.
PLAIN, ACTIVE_BACKUP, BALANCE_SLB, LACP = "plain", "active-backup", "balance-slb", "lacp"
BALANCE_TCP, STATIC_LAG = "balance-tcp", "static-lag"
# Of its own accord Open vSwitch takes a member's number for the key of all, and another one
# when that member goes, which costs the other end all of them for some seconds.
LACP_KEY = "other_config:lacp-aggregation-key=77"
LACP_BOND = ["lacp=active", "other_config:lacp-time=fast"]
# By what the upstream switch spreads frames over the members of a static LAG.
LAG_HASH_FIELDS = (
    *("eth_src", "eth_dst", "ip_src", "ip_dst", "ipv6_src", "ipv6_dst"),
    *("tcp_src", "tcp_dst", "udp_src", "udp_dst"),
)
# What `Bed.came_out` calls the upstream ends of uplinks.
NETWORK = "network"
# Fewer frames than a port of a switch has room for while the switch has no time; see `Bed.fence`.
SENT_AT_ONCE = 64
_bed_numbers = itertools.count()
_uplink_indexes = itertools.count(100_000)


def run(*command: str, stdin: str | None = None, netns: str | None = None) -> str:
    """Run a command; its output. Raises AssertionError with what it said when it failed."""
    if netns:
        command = ("ip", "netns", "exec", netns, *command)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class BedSpec:
    """What to build. `vm_vlans`: one VM per entry, its access VLAN or None for all VLANs.

    `in_names`: a part of each interface's and bridge's name.
    """

    team: str = PLAIN
    uplinks: int = 2
    vm_vlans: tuple[int | None, ...] = (None, None)
    host_vlans: tuple[int | None, ...] = (None,)
    mtu_bytes: int = 1500
    addresses: bool = False
    in_names: str = ""

    @property
    def on_bond(self) -> bool:
        """Whether the uplinks are a bond of the bridge under test."""
        return self.team not in (PLAIN, STATIC_LAG)

    @property
    def is_lag(self) -> bool:
        """Whether the upstream switch takes the uplinks for one link."""
        return self.has_lacp or self.team == STATIC_LAG

    @property
    def has_lacp(self) -> bool:
        """Whether both ends of the uplinks speak LACP."""
        return self.team in (LACP, BALANCE_TCP)

    @property
    def bond_settings(self) -> list[str]:
        """Of a bond's Port record, under test and upstream."""
        mode = BALANCE_SLB if self.team == LACP else self.team
        return [f"bond_mode={mode}", *(LACP_BOND if self.has_lacp else ())]

    def __str__(self) -> str:
        vlans = "vlans" if any(self.vm_vlans) else "untagged"
        return f"{self.team}-{self.uplinks}-{vlans}"


def on_beds(*specs: BedSpec) -> pytest.MarkDecorator:
    """The test's `bed`, or what is made of that, is each of these in turn."""
    return pytest.mark.parametrize("bed", specs, ids=str, indirect=True)


@dataclass(frozen=True, slots=True)
class Station:
    """A VM, the bridge's LOCAL port, or a host upstream.

    `port` is its interface on the switch. `vlan`: its access VLAN, None for all of them.
    """

    point: Point
    port: str
    mac: str
    vlan: int | None
    ip: str

    def __str__(self) -> str:
        return self.point.name

    def hears(self, vlan: int) -> bool:
        """Whether frames of this VLAN (0: untagged) are meant for it."""
        return self.vlan is None or self.vlan == vlan

    def sends(self, vlan: int) -> int:
        """The tag it puts on a frame for this VLAN; 0: none."""
        return vlan if self.vlan is None else 0


@dataclass(frozen=True, slots=True)
class Uplink:
    """An uplink: its interface on the bridge under test, and the other end of the cable."""

    name: str
    upstream_end: Point

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Shot:
    """One frame to send: where, what, in which VLAN, and what it is called in a story."""

    point: Point
    frame: bytes
    vlan: int
    story: str

    @property
    def frame_id(self) -> int:
        return int.from_bytes(self.frame[-8:], "big")


@dataclass(frozen=True, slots=True)
class Copies:
    """Where copies of one frame came out, as (point, tag) with their number."""

    at: Counter[tuple[str, int]]

    @property
    def points(self) -> list[str]:
        return [name for (name, _), n in sorted(self.at.items()) for _ in range(n)]


@dataclass(frozen=True, slots=True)
class Upstream:
    """The Open vSwitch upstream, in a network namespace of its own; `setting`: of its bridges."""

    ovs: PrivateOvs
    netns: str
    setting: str = datapath.SETTING


@contextlib.contextmanager
def upstream_ovs(name: str = "tor", setting: str = datapath.SETTING) -> Iterator[Upstream]:
    """Start the Open vSwitch that stands in for the switches at the rack's top."""
    netns = f"t{os.getpid() & 0xFFFFF:05x}{name}"
    run("ip", "netns", "add", netns)
    try:
        run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", netns=netns)
        with contextlib.ExitStack() as running:
            with inside(netns):
                private = running.enter_context(PrivateOvs(prefix="ovs-lbt-upstream-"))
            yield Upstream(private, netns, setting)
    finally:
        run("ip", "netns", "del", netns)


@contextlib.contextmanager
def learning_at_once(upstream: PrivateOvs) -> Iterator[None]:
    """The switch upstream learns from each frame, as one of hardware does.

    By itself, Open vSwitch learns from the first frame of a flow, and then from what it counts each
    half a second (docs/reliability/chaos.md#an-upstream-switch-that-learns-late). So it caches no flow.
    """
    limit = "other_config", "flow-limit"
    upstream.vsctl("set", "Open_vSwitch", ".", f"{':'.join(limit)}=0")
    try:
        yield
    finally:
        upstream.vsctl("remove", "Open_vSwitch", ".", *limit)


class Bed:
    """Builds what `spec` says between two switches; `close` removes all of it."""

    def __init__(self, ovs: PrivateOvs, tor: Upstream, spec: BedSpec) -> None:
        self.ovs = ovs
        self.tor = tor
        self.spec = spec
        number = next(_bed_numbers)
        self.prefix = f"t{os.getpid() & 0xFFFFF:05x}{number:x}{spec.in_names}"
        self._mac_prefix = f"02:1b:{number & 0xFF:02x}"
        self.bridge = f"{self.prefix}br"
        self.upstream = f"{self.prefix}up"
        self.lag = f"{self.prefix}lg"
        self.bond = f"{self.prefix}bo"
        self._ids = itertools.count(1)
        self._sockets: dict[str, socket.socket] = {}
        self._ears: Ears | None = None
        self._namespaces: list[str] = []
        self._links: list[tuple[str, str | None]] = []
        self.uplinks = [
            Uplink(f"{self.prefix}u{i}", self._upstream_end(i)) for i in range(spec.uplinks)
        ]
        self.vms = [self._station("vm", i, vlan) for i, vlan in enumerate(spec.vm_vlans)]
        self.hosts = [self._station("host", i, vlan) for i, vlan in enumerate(spec.host_vlans)]
        # VMs on a bridge of their own, behind one port of the bridge under test.
        self.nested: list[Station] = []
        self.patch = f"{self.prefix}pe"
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        (local,) = json.loads(run("ip", "-j", "link", "show", self.bridge))
        self.local = Station(Point("LOCAL", self.bridge), self.bridge, local["address"], None, "")

    def __enter__(self) -> Bed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.spec)

    # ---- what is there -----------------------------------------------------------------

    @property
    def stations(self) -> list[Station]:
        """Everything on the bridge under test that is not an uplink."""
        return [*self.vms, self.local]

    @property
    def vlans(self) -> list[int]:
        """The VLANs in use; 0 (untagged) where no VM has one."""
        return sorted({vlan for vlan in self.spec.vm_vlans if vlan}) or [0]

    @property
    def ends(self) -> dict[str, str]:
        """The name of each uplink, by that of its upstream end."""
        return {str(uplink.upstream_end): uplink.name for uplink in self.uplinks}

    @property
    def uplink_options(self) -> list[str]:
        """The options by which `attach` is told which uplinks there are."""
        if self.spec.on_bond:
            return []
        return [word for uplink in self.uplinks for word in ("--uplink", uplink.name)]

    def fail_mode(self) -> str:
        return self.ovs.vsctl("get-fail-mode", self.bridge)

    def ofport(self, interface: str) -> int:
        """The number of a port."""
        return int(self.ovs.vsctl("get", "interface", interface, "ofport"))

    def ofctl(self, command: str, *arguments: str) -> str:
        """`ovs-ofctl` on the bridge under test."""
        return self.ovs.run("ovs-ofctl", "-O", "OpenFlow13", command, self.bridge, *arguments)

    def not_flooded(self) -> set[str]:
        """The ports that NORMAL does not flood to."""
        shown = self.ovs.run("ovs-ofctl", "-O", "OpenFlow10", "show", self.bridge)
        flag = r"^ \S+\((\S+)\): addr.*\n +config: +.*NO_FLOOD"
        return set(re.findall(flag, shown, re.MULTILINE))

    def set(self, table: str, record: str, **keys: str | int | float) -> None:
        """Set ovs-lbt's keys as an operator does, e.g. `window_s=2`."""
        pairs = [f"external_ids:ovs-lbt-{k.replace('_', '-')}={v}" for k, v in keys.items()]
        self.ovs.vsctl("set", table, record, *pairs)

    def carrier(self, uplink: Uplink) -> bool:
        """Whether the switch sees the uplink's link."""
        return self.ovs.vsctl("get", "interface", uplink.name, "link_state") == "up"

    # ---- what one does with it ---------------------------------------------------------

    def pull_cable(self, uplink: Uplink) -> None:
        run("ip", "-n", self.tor.netns, "link", "set", uplink.upstream_end.interface, "down")

    def plug_cable(self, uplink: Uplink) -> None:
        run("ip", "-n", self.tor.netns, "link", "set", uplink.upstream_end.interface, "up")

    @contextlib.contextmanager
    def cable_pulled(self, uplink: Uplink) -> Iterator[None]:
        """The uplink has no carrier in this block, and the switch knows."""
        self.pull_cable(uplink)
        try:
            wait_until(lambda: not self.carrier(uplink), f"{uplink} shown without carrier")
            yield
        finally:
            self.plug_cable(uplink)
            wait_until(lambda: self.carrier(uplink), f"{uplink} shown with carrier")

    @contextlib.contextmanager
    def lacp_withdrawn(self, uplink: Uplink) -> Iterator[None]:
        """The switch upstream has taken the uplink out of its bond in this block.

        Its link stays up. Nothing is connected to it there.
        """
        end, port = uplink.upstream_end.interface, ["port", self.bond, "interfaces"]
        uuid = self.tor.ovs.vsctl("get", "interface", end, "_uuid")
        self.tor.ovs.vsctl("remove", *port, uuid)
        try:
            yield
        finally:
            created = ["--id=@member", "create", "interface", f"name={end}", LACP_KEY]
            self.tor.ovs.vsctl("--", *created, "--", "add", *port, "@member")

    @contextlib.contextmanager
    def lacp_unknown_upstream(self) -> Iterator[None]:
        """The switch upstream takes the uplinks for ports of their own in this block."""
        ends = [u.upstream_end.interface for u in self.uplinks]
        apart = [w for end in ends for w in ("--", "add-port", self.upstream, end)]
        self.tor.ovs.vsctl("del-port", self.upstream, self.bond, *apart)
        try:
            yield
        finally:
            gone = [w for end in ends for w in ("--", "del-port", self.upstream, end)]
            self.tor.ovs.vsctl(*gone[1:], "--", *self._upstream_lacp(ends))

    def restart_switch(self) -> None:
        """ovs-vswitchd is started, or started again; LOCAL is then a new interface."""
        self.ovs.stop("ovs-vswitchd")
        self.ovs.start_switch()
        self.local_is_new()

    def restart_database(self) -> None:
        """ovsdb-server is started again; then wait until ovs-vswitchd has followed it.

        ovs-vswitchd tries for the first time after a second, and then after 2, 4 and 8 s. Until then
        its main loop does nothing for bridges; a userspace datapath forwards in that loop.
        """
        self.ovs.stop("ovsdb-server")
        self.ovs.start_database()
        # It is written by ovs-vswitchd, and no part of the database's file.
        self.ovs.vsctl("wait-until", "interface", self.bridge, "mac_in_use!=[]")

    def local_is_new(self) -> None:
        """Make LOCAL what it was before ovs-vswitchd ended."""

        def exists() -> bool:
            shown = subprocess.run(["ip", "link", "show", self.bridge], capture_output=True)
            return shown.returncode == 0

        wait_until(exists, f"{self.bridge} is back")
        socket_path = self.ovs.rundir / f"{self.bridge}.mgmt"
        wait_until(socket_path.is_socket, f"{self.bridge} takes connections")
        self._silence(self.bridge)
        run("ip", "link", "set", self.bridge, "up", "address", self.local.mac)
        self._is_gone(self.local)

    @contextlib.contextmanager
    def another_vm(self, vlan: int | None = None) -> Iterator[Station]:
        """One more VM in this block, as the hypervisor starts it and ends it."""
        vm = self._station("vm", len(self.vms), vlan)
        self._make_station(vm, None)
        self._silence(vm.port)
        self.plug_in(vm)
        self.vms.append(vm)
        try:
            yield vm
        finally:
            self.vms.remove(vm)
            self._is_gone(vm)
            self.ovs.vsctl("--if-exists", "del-port", self.bridge, vm.port)
            run("ip", "link", "del", vm.port)
            run("ip", "netns", "del", str(vm.point.netns))

    @contextlib.contextmanager
    def integration_bridge(self, vms: int) -> Iterator[list[Station]]:
        """So many VMs in this block, on a learning switch behind the patch port `patch`."""
        inner, peer = f"{self.prefix}in", f"{self.prefix}pi"
        nested = [self._station("vm", 32 + number, None) for number in range(vms)]
        for vm in nested:
            self._make_station(vm, None)
            self._silence(vm.port)
        datapath_type = ["--", "set", "bridge", inner, datapath.SETTING]
        ports = [word for vm in nested for word in ("--", "add-port", inner, vm.port)]
        patches = [
            word
            for bridge, name, to in ((inner, peer, self.patch), (self.bridge, self.patch, peer))
            for word in (
                *("--", "add-port", bridge, name),
                *("--", "set", "interface", name, "type=patch", f"options:peer={to}"),
            )
        ]
        self.ovs.vsctl("add-br", inner, *datapath_type, *ports, *patches)
        self._silence(inner)
        self.nested = nested
        try:
            yield nested
        finally:
            self.nested = []
            gone = ["--", "--if-exists", "del-br", inner]
            self.ovs.vsctl("--if-exists", "del-port", self.bridge, self.patch, *gone)
            for vm in nested:
                self._is_gone(vm)
                run("ip", "link", "del", vm.port)
                run("ip", "netns", "del", str(vm.point.netns))

    def _is_gone(self, station: Station) -> None:
        """Its interface, to which what was sent from it is bound."""
        if old := self._sockets.pop(station.point.name, None):
            old.close()

    def plug_in(self, vm: Station) -> None:
        """Add a VM's port, under a new number, and wait until the switch has it."""
        tag = [f"tag={vm.vlan}"] if vm.vlan else []
        self.ovs.vsctl("add-port", self.bridge, vm.port, *tag)

    def unplug(self, vm: Station) -> None:
        self.ovs.vsctl("del-port", self.bridge, vm.port)

    def revalidated(self) -> None:
        """Wait until no cached flow is older than the tables and groups.

        The answer comes when a round ends, and that may have begun before: the next one did not.
        """
        closing = contextlib.closing
        for _ in range(2):
            with closing(Appctl(self.ovs)) as switch, closing(Appctl(self.tor.ovs)) as upstream:
                for asked in (switch, upstream):
                    asked.send("revalidator/wait")
                for asked in (switch, upstream):
                    asked.answer()

    def settled(self, bridge: str = "") -> None:
        """Wait until no move is halfway on a bridge (this one), and no cached flow is from before it.

        Between the two steps of a move, a VM port hears no broadcasts.
        """

        def held() -> bool:
            words = ["dump-flows", bridge or self.bridge, f"table={Table.PORT_OUT:d}"]
            shown = self.ovs.run("ovs-ofctl", "-O", "OpenFlow13", *words)
            return re.search(r"hard_timeout=\d+, priority=40,", shown) is not None

        wait_until(lambda: not held(), "no move is halfway")
        self.revalidated()

    def limit_uplinks(self, mbps: float, burst_bytes: int | None = None) -> None:
        """Have all uplinks carry that, and the service know it. `burst_bytes`: see `shape`."""
        for uplink in self.uplinks:
            self.shape(uplink, mbps * 1e6, burst_bytes)
            self.set("interface", uplink.name, capacity_mbps=mbps)

    def shape(self, uplink: Uplink, rate_bps: float, burst_bytes: int | None = None) -> None:
        """Limit an uplink in both directions. It is a port by now: OVS removes a port's qdisc.

        `burst_bytes`: how much of the rate it may make up for, if the machine had no time to send; None: 1 ms.
        """
        end, rate = uplink.upstream_end, [f"{rate_bps:.0f}bit"]
        rate += ["burst", str(burst_bytes), "cburst", str(burst_bytes)] if burst_bytes else []
        for interface, netns in ((uplink.name, None), (end.interface, end.netns)):
            device = ["replace", "dev", interface]
            run("tc", "qdisc", *device, "root", "handle", "1:", "htb", "default", "1", netns=netns)
            run("tc", "class", *device, "classid", "1:1", "htb", "rate", *rate, netns=netns)

    def ears(self, *points: Point) -> Ears:
        """Ears at the points; without any, everywhere."""
        return Ears(points or self.points, fence=self.fence_what_runs)

    @property
    def points(self) -> list[Point]:
        cables = [u.upstream_end for u in self.uplinks]
        stations = [*self.stations, *self.nested]
        return [s.point for s in stations] + cables + [h.point for h in self.hosts]

    def shot(
        self, point: Point, build: frames.Builder, source: str, vlan: int, tag: int, story: str
    ) -> Shot:
        """A frame with an id of its own; `tag` is on the wire, `vlan` is what it means."""
        return Shot(point, build(source, tag, next(self._ids)), vlan, f"{story} at {point}")

    def frame_of(
        self,
        station: Station,
        build: frames.Builder = frames.broadcast,
        source: str = "",
        story: str = "a frame",
        vlan: int | None = None,
    ) -> Shot:
        """What a station sends in its VLAN, or in the first one; `source`: another address than its own."""
        if vlan is None:
            vlan = self.vlans[0] if station.vlan is None else station.vlan
        source = source or station.mac
        return self.shot(station.point, build, source, vlan, station.sends(vlan), story)

    def comes_out(self, shot: Shot) -> list[str]:
        """The points where copies of one frame come out."""
        return self.fire([shot])[shot.frame_id].points

    def came_out(self, shots: Sequence[Shot]) -> list[Counter[tuple[str, int]]]:
        """Send frames; for each, the points where copies came out, and with which tags: uplinks are one."""
        copies, found = self.fire(shots), list[Counter[tuple[str, int]]]()
        for shot in shots:
            counted = Counter[tuple[str, int]]()
            for (name, tag), count in copies[shot.frame_id].at.items():
                counted[NETWORK if name in self.ends else name, tag] += count
            found.append(counted)
        return found

    def send(self, point: Point, frame: bytes) -> None:
        if point.name not in self._sockets:
            self._sockets[point.name] = sending_socket(point)
        self._sockets[point.name].send(frame)

    def fire(self, shots: Sequence[Shot]) -> Mapping[int, Copies]:
        """Send frames one after another; where copies of each came out, by its id.

        A copy counts where it leaves the bridge under test: at a station, or at the
        upstream end of an uplink. Frames put on different interfaces may overtake each
        other; the frames of the next `fire` come after all of these.
        """
        return _copies(self.fire_and_hear(shots), [shot.frame_id for shot in shots])

    def fire_and_hear(self, shots: Sequence[Shot]) -> Mapping[str, Sequence[Heard]]:
        """The same; all that came by, by the point's name."""
        with self._open_ears() as ears:
            ears.forget()
            for start in range(0, len(shots), SENT_AT_ONCE):
                for shot in shots[start : start + SENT_AT_ONCE]:
                    self.send(shot.point, shot.frame)
                    ears.listen(within_s=0.002)
                self.fence()
            ears.until_quiet(below_id=1 << STREAM_SHIFT, quiet_s=datapath.QUIET_S)
            return {name: ear.frames() for name, ear in ears.by_name.items()}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Every `fire` in this block is heard by the same ears: closing one takes 10 ms."""
        with self._open_ears() as ears:
            self._ears = ears
            try:
                yield
            finally:
                self._ears = None

    @contextlib.contextmanager
    def _open_ears(self) -> Iterator[Ears]:
        if self._ears:
            yield self._ears
            return
        hosts = [host.point for host in self.hosts]
        with self.ears(*[point for point in self.points if point not in hosts]) as ears:
            yield ears

    def introduce(self, *outsiders: str) -> None:
        """Every VM and host says something, so that both switches know where it is.

        `outsiders`: the addresses of more hosts upstream, which do so in each VLAN.
        """
        for mac, vlan in itertools.product(outsiders, {0, *self.vlans}):
            host = self.hosts[0]
            frame = frames.broadcast(mac, host.sends(vlan), next(self._ids))
            self.send(host.point, frame)
        for station in [*self.stations, *self.nested, *self.hosts]:
            self.send(station.point, self.frame_of(station).frame)
        self.fence()

    def introduce_to_normal(self) -> None:
        """Every VM and host has spoken, and NORMAL knows where the VMs are.

        It may take a VM to be upstream when what comes back of its frame overtakes it. Frames
        that cached flows carry teach it nothing before the next revalidation, so each attempt
        begins without such flows.
        """

        def known() -> bool:
            self.ovs.run("ovs-appctl", "revalidator/purge")
            self.introduce()
            return self.normal_knows_vms()

        try:
            wait_until(known, "NORMAL knows where the VMs are", interval_s=0.3)
        except AssertionError as late:
            late.add_note(self.ovs.run("ovs-appctl", "fdb/show", self.bridge))
            raise

    def normal_knows_vms(self) -> bool:
        shown = self.ovs.run("ovs-appctl", "fdb/show", self.bridge).splitlines()
        found = {(words[0], words[2]) for line in shown if len(words := line.split()) == 4}
        ofports = (self.ovs.vsctl("get", "interface", vm.port, "ofport") for vm in self.vms)
        return all(at in found for at in zip(ofports, [vm.mac for vm in self.vms], strict=True))

    def homes(self) -> dict[str, list[str]]:
        """The uplinks by which a broadcast of each station leaves, by the station's name."""
        shots = {str(s): self.frame_of(s) for s in [*self.stations, *self.nested]}
        copies = self.fire(list(shots.values()))
        return {
            name: [self.ends[at] for at in copies[shot.frame_id].points if at in self.ends]
            for name, shot in shots.items()
        }

    def fence(self) -> None:
        """Return when the switches have taken up everything sent so far.

        They answer commands in the same loop in which they forward, and a round of that loop
        takes up to 32 frames from each port. A port has room for 90, which may come back once
        from the other switch.
        """
        closing = contextlib.closing
        with closing(Appctl(self.ovs)) as switch, closing(Appctl(self.tor.ovs)) as upstream:
            for asked in (switch, upstream) * 5:
                asked.ask("version")

    def fence_what_runs(self) -> None:
        """The same, also while a switch does not run: it has nothing to take up."""
        with contextlib.suppress(OSError, ValueError):
            self.fence()

    def turned_away(self) -> int:
        """How many frames had no room where the switches take them up, so far.

        That is because a switch stood still, and a loss of the machine's.
        """
        shown = [run("ss", "--packet", "--memory", netns=netns) for netns in (None, self.tor.netns)]
        return sum(int(n) for text in shown for n in re.findall(r"\bskmem:.*\bd(\d+)", text))

    # ---- building ----------------------------------------------------------------------

    def _station(self, kind: str, index: int, vlan: int | None) -> Station:
        letter, role = ("v", 1) if kind == "vm" else ("h", 2)
        interface = f"{self.prefix}{letter}{index}"
        return Station(
            Point(f"{kind}{index}", "eth0", interface),
            interface,
            f"{self._mac_prefix}:00:{role:02x}:{index:02x}",
            vlan,
            f"10.77.{role}.{index + 1}",
        )

    def _build(self) -> None:
        self._make_links()
        self._make_bridges()
        if self.spec.has_lacp:
            wait_until(self.lacp_is_negotiated, "LACP negotiated on all uplinks")

    def _make_links(self) -> None:
        """Cables and namespaces, before the switches see any of them."""
        mtu, tor, lines = self.spec.mtu_bytes, self.tor.netns, []
        for uplink in self.uplinks:
            self._links.append((uplink.name, None))
            # Where both ends have the same index, each in its namespace, Linux takes the link
            # for one without a peer, and reports its carrier up to a second late.
            index = next(_uplink_indexes)
            end = f"name {uplink.upstream_end.interface} netns {tor}"
            add = f"link add {uplink.name} index {index} mtu {mtu} type veth"
            lines += [f"{add} peer {end} mtu {mtu}"]
            lines += [f"link set {uplink.name} up"]
        run("ip", "-batch", "-", stdin="\n".join(lines))
        for station, switch_netns in [
            *((vm, None) for vm in self.vms),
            *((host, tor) for host in self.hosts),
        ]:
            self._make_station(station, switch_netns)
        ends = [f"link set {u.upstream_end.interface} up" for u in self.uplinks]
        run("ip", "-n", tor, "-batch", "-", stdin="\n".join(ends))
        for link, netns in self._links:
            if netns is None:
                self._silence(link)

    def _make_station(self, station: Station, switch_netns: str | None) -> None:
        netns, mtu = station.point.netns, self.spec.mtu_bytes
        assert netns
        run("ip", "netns", "add", netns)
        self._namespaces.append(netns)
        # Silence: nothing but what a test sends should come from there.
        run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", netns=netns)
        peer = f"name eth0 netns {netns} mtu {mtu} address {station.mac}"
        add = f"link add {station.port} mtu {mtu} type veth peer {peer}"
        at_switch = ["-n", switch_netns] if switch_netns else []
        run("ip", *at_switch, "-batch", "-", stdin=f"{add}\nlink set {station.port} up")
        self._links.append((station.port, switch_netns))
        own = ["link set lo up", "link set eth0 up"]
        if self.spec.addresses:
            own += [f"addr add {station.ip}/16 dev eth0"]
        run("ip", "-n", netns, "-batch", "-", stdin="\n".join(own))
        run("ethtool", "-K", "eth0", "tx", "off", netns=netns)

    def _make_bridges(self) -> None:
        ends = [u.upstream_end.interface for u in self.uplinks]
        names = [u.name for u in self.uplinks]
        upstream: list[str] = []
        if self.spec.has_lacp:
            upstream += ["--", *self._upstream_lacp(ends)]
        elif self.spec.team != STATIC_LAG:
            for end in ends:
                upstream += ["--", "add-port", self.upstream, end]
        team: list[str] = []
        if not self.spec.on_bond:
            # NORMAL would join plain uplinks into a loop.
            team += ["--", "set-fail-mode", self.bridge, "secure"]
            for name in names:
                team += ["--", "add-port", self.bridge, name]
        else:
            team += ["--", "add-bond", self.bridge, self.bond, *names, *self.spec.bond_settings]
        for switch, bridge, setting, ports, stations in (
            (self.tor.ovs, self.upstream, self.tor.setting, upstream, self.hosts),
            (self.ovs, self.bridge, datapath.SETTING, team, self.vms),
        ):
            for station in stations:
                ports += ["--", "add-port", bridge, station.port]
                ports += [f"tag={station.vlan}"] if station.vlan else []
            switch.vsctl("add-br", bridge, "--", "set", "bridge", bridge, setting, *ports)
        if self.spec.team == STATIC_LAG:
            self._make_static_lag(ends)
        self._silence(self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def _upstream_lacp(self, ends: Sequence[str]) -> list[str]:
        keys = [word for end in ends for word in ("--", "set", "interface", end, LACP_KEY)]
        return ["add-bond", self.upstream, self.bond, *ends, *self.spec.bond_settings, *keys]

    def _make_static_lag(self, ends: Sequence[str]) -> None:
        """Make the upstream switch take the uplinks for one link, without LACP.

        A bond of Open vSwitch would not do: without LACP it takes multicast from one member
        only. So the uplinks end on a bridge of their own, which has no NORMAL and one patch
        port to the upstream switch: what a member brings goes there, never to another
        member, and the upstream switch learns the LAG and no member. What comes from there
        leaves by one member, chosen by a hash of addresses and ports among those whose link
        is up; that is one copy of whatever is flooded.
        """
        switch, bridge = self.tor.ovs, self.lag
        patch, peer = f"{self.prefix}ld", f"{self.prefix}lu"
        ports = [["add-port", bridge, end] for end in ends]
        ports += [
            [
                "add-port",
                on,
                name,
                "--",
                "set",
                "interface",
                name,
                "type=patch",
                f"options:peer={to}",
            ]
            for on, name, to in ((bridge, patch, peer), (self.upstream, peer, patch))
        ]
        settings = ["--", "set", "bridge", bridge, self.tor.setting, "fail_mode=secure"]
        switch.vsctl("add-br", bridge, *settings, *(w for port in ports for w in ("--", *port)))
        ofctl = ["ovs-ofctl", "-O", "OpenFlow15"]
        hashed = f"selection_method=hash,fields({','.join(LAG_HASH_FIELDS)})"
        buckets = ",".join(f"bucket=watch_port:{end},actions=output:{end}" for end in ends)
        switch.run(*ofctl, "add-group", bridge, f"group_id=1,type=select,{hashed},{buckets}")
        switch.run(*ofctl, "add-flow", bridge, f"in_port={patch},actions=group:1")
        switch.run(*ofctl, "add-flow", bridge, f"priority=1,actions=output:{patch}")

    def _upstream_end(self, number: int) -> Point:
        name = f"upstream end of uplink {number}"
        return Point(name, f"{self.prefix}t{number}", self.tor.netns)

    @staticmethod
    def _silence(interface: str) -> None:
        path = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
        if path.exists():
            path.write_text("1")

    def lacp_is_negotiated(self) -> bool:
        """Whether every uplink hears its partner."""
        shown = self.ovs.run("ovs-appctl", "-t", "ovs-vswitchd", "lacp/show", self.bond)
        return len(re.findall(r"current attached", shown)) == len(self.uplinks)

    def close(self) -> None:
        for made in self._sockets.values():
            made.close()
        upstream = [(self.tor.ovs, bridge) for bridge in (self.upstream, self.lag)]
        for switch, bridge in ((self.ovs, self.bridge), *upstream):
            with contextlib.suppress(Exception):
                switch.vsctl("--if-exists", "del-br", bridge)
        for link, netns in self._links:
            at = ["-n", netns] if netns else []
            subprocess.run(["ip", *at, "link", "del", link], capture_output=True)
        for netns in self._namespaces:
            subprocess.run(["ip", "netns", "del", netns], capture_output=True)


def _copies(heard_at: Mapping[str, Sequence[Heard]], ids: Sequence[int]) -> Mapping[int, Copies]:
    found = {frame_id: Copies(Counter()) for frame_id in ids}
    for name, all_heard in heard_at.items():
        for heard in all_heard:
            frame_id = heard.frame_id
            if frame_id in found and not heard.outgoing:
                found[frame_id].at[name, heard.vlan] += 1
    return found
