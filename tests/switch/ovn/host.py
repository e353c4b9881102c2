"""A host of a cloud: an Open vSwitch with two uplinks, ovn-controller, the service, and VMs.

Each host has a network namespace of its own, so its devices have the names that the documents use:
br-ex with eth0 and eth1, br-int, vnet0 and so on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.documents import Block
from tests.switch import datapath, following
from tests.switch.bed import Uplink, Upstream, run
from tests.switch.ovn.central import Central
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Point, inside
from topologies.network import daemons
from topologies.network.private_ovs import PrivateOvs

EXTERNAL, INTEGRATION = "br-ex", "br-int"
UPLINKS = ("eth0", "eth1")
VM_MTU = 1400


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM: its logical port, its port on br-int, and where it sends and hears."""

    name: str
    port: str
    mac: str
    ip: str
    point: Point

    def __str__(self) -> str:
        return self.name


class Host:
    """A chassis of OVN. `number`: 1 for the first. Use it as a context manager.

    `bond`: the mode of the bond that the uplinks are members of; without one they are plain.
    """

    def __init__(self, number: int, tor: Upstream, bond: str | None = None) -> None:
        self.number = number
        self.name = f"hv{number}"
        self.tor = tor
        self.bond = bond
        self.vms: list[Vm] = []
        self.uplinks = [
            Uplink(name, Point(f"{self.name} {name}", f"{self.name}{name}", tor.netns))
            for name in UPLINKS
        ]
        self._running = contextlib.ExitStack()
        self._namespaces: list[str] = []

    def __enter__(self) -> Host:
        with contextlib.ExitStack() as building:
            building.callback(self._remove)
            run("ip", "netns", "add", self.name)
            run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", netns=self.name)
            run("ip", "link", "set", "lo", "up", netns=self.name)
            with self.entered():
                self.ovs = building.enter_context(PrivateOvs(prefix=f"ovs-lbt-{self.name}-"))
                self.service = Service(self.ovs)
            building.callback(self.service.kill)
            self._env = {**self.ovs.env, "OVN_RUNDIR": str(self.ovs.rundir)}
            self._env["OVN_LOGDIR"] = self._env["OVN_RUNDIR"]
            self._daemons = daemons.Daemons(self.ovs.rundir, self._env)
            building.callback(self._daemons.close)
            self._add_external_bridge()
            self._running = building.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def __str__(self) -> str:
        return self.name

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, is on this host."""
        with inside(self.name):
            yield

    def log_tails(self, lines: int) -> dict[str, str]:
        """The last lines of the log of each daemon of this host and of its service, and its tunnels' routes."""
        found = self._daemons.log_tails(lines) | {"ovs-lbt run": self.service.log_tail(lines)}
        for asked in ("tnl/neigh/show", "ovs/route/show", "tnl/ports/show", "dpctl/dump-flows"):
            # A test may have stopped ovs-vswitchd.
            try:
                found[asked] = self.ovs.run("ovs-appctl", "--timeout=5", asked)
            except RuntimeError as failure:
                found[asked] = str(failure)
        return {f"{self} {name}": tail for name, tail in found.items()}

    # ---- what runs there -----------------------------------------------------------------

    def join(self, central: Central, **keys: str) -> None:
        """Start ovn-controller, and wait for its bridge.

        `keys`: more of those in Open_vSwitch, such as `ovn_encap_ip`.
        """
        ids = {
            "system-id": self.name,
            "hostname": self.name,
            "ovn-remote": central.remote,
            "ovn-encap-type": "geneve",
            "ovn-bridge-datapath-type": datapath.SETTING.partition("=")[2],
            **{key.replace("_", "-"): value for key, value in keys.items()},
        }
        self.set_keys(ids)
        self.start_controller()
        wait_until(
            lambda: INTEGRATION in self.ovs.vsctl("list-br").split(), f"{self} has {INTEGRATION}"
        )

    def start_controller(self) -> None:
        """Start ovn-controller, or start it again."""
        with self.entered():
            self._daemons.start("ovn-controller", f"unix:{self.ovs.rundir}/db.sock")

    def remove_patch_ports_at_once(self) -> None:
        """Have ovn-controller remove patch ports that it needs no longer, however young it is.

        By itself it keeps them until it has run 20 times and for 10 s, and then until its next run. Where
        the machine is busy, one run covers many changes. OVN 22.03 has neither the delay nor the command.
        """
        socket = f"{self.ovs.rundir}/ovn-controller.{self._daemons.pid('ovn-controller')}.ctl"
        asked, command = ("ovn-appctl", "-t", socket), "debug/ignore-startup-delay"
        if command in self.ovs.run(*asked, "list-commands"):
            self.ovs.run(*asked, command)

    def set_keys(self, ids: Mapping[str, str]) -> None:
        """Set keys of the table Open_vSwitch."""
        self.ovs.vsctl(
            "set", "open_vswitch", ".", *(f'external_ids:{k}="{v}"' for k, v in ids.items())
        )

    def start_service(self) -> None:
        with self.entered():
            self.service.start()

    def attach(self, *options: str) -> str:
        """Attach br-ex; what is said."""
        named = () if self.bond else (word for name in UPLINKS for word in ("--uplink", name))
        return self.do("attach", EXTERNAL, *named, *options)

    def do(self, *words: str) -> str:
        """`ovs-lbt WORDS…` on this host, which must be done; its standard output."""
        with self.entered():
            return self.service.do(*words)

    def type(self, block: Block, names: Mapping[str, str]) -> str:
        """A block of the documents, typed on this host. `names`: what some names stand for here."""
        with self.entered():
            return following.typed(block, self.service, {"br-ex": EXTERNAL, **names})

    # ---- VMs -----------------------------------------------------------------------------

    def start_vm(self, name: str, mac: str, ip: str, gateway: str, port: str = "") -> Vm:
        """Start a VM, whose logical port has its name. `ip`: with the length of the prefix."""
        port = port or f"vnet{len(self.vms)}"
        run("ip", "netns", "add", name)
        self._namespaces.append(name)
        run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", netns=name)
        peer = f"name eth0 netns {name} mtu {VM_MTU} address {mac}"
        lines = [f"link add {port} mtu {VM_MTU} type veth peer {peer}", f"link set {port} up"]
        run("ip", "-n", self.name, "-batch", "-", stdin="\n".join(lines))
        own = ["link set lo up", "link set eth0 up", f"addr add {ip} dev eth0"]
        own += [f"route add default via {gateway}"]
        run("ip", "-n", name, "-batch", "-", stdin="\n".join(own))
        run("ethtool", "-K", "eth0", "tx", "off", netns=name)
        vm = Vm(name, port, mac, ip.partition("/")[0], Point(name, "eth0", name))
        self.vms.append(vm)
        self.plug_in(vm)
        return vm

    def plug_in(self, vm: Vm) -> None:
        """Add a VM's port to br-int, as a hypervisor does."""
        ids = (f"external_ids:iface-id={vm.name}", f'external_ids:attached-mac="{vm.mac}"')
        added = ("--may-exist", "add-port", INTEGRATION, vm.port)
        self.ovs.vsctl(*added, "--", "set", "interface", vm.port, *ids)

    def unplug(self, vm: Vm) -> None:
        self.ovs.vsctl("del-port", INTEGRATION, vm.port)

    # ---- uplinks -------------------------------------------------------------------------

    def limit_uplinks(self, mbps: float) -> None:
        """Have all uplinks carry that, and the service know it."""
        for uplink in self.uplinks:
            end = uplink.upstream_end
            for interface, netns in ((uplink.name, self.name), (end.interface, end.netns)):
                device, rate = ["replace", "dev", interface], f"{mbps:g}mbit"
                root = [*device, "root", "handle", "1:", "htb", "default", "1"]
                run("tc", "qdisc", *root, netns=netns)
                run("tc", "class", *device, "classid", "1:1", "htb", "rate", rate, netns=netns)
            capacity = f"external_ids:ovs-lbt-capacity-mbps={mbps:g}"
            self.ovs.vsctl("set", "interface", uplink.name, capacity)

    def sent_bytes(self) -> dict[str, int]:
        """What each uplink has sent so far."""
        return {name: sent for name, (_, sent) in self._counted().items()}

    def received_bytes(self) -> dict[str, int]:
        """What each uplink has received so far."""
        return {name: received for name, (received, _) in self._counted().items()}

    def set_link(self, uplink: Uplink, state: str) -> None:
        """Pull (`down`) or plug (`up`) the cable of an uplink, upstream."""
        run("ip", "-n", self.tor.netns, "link", "set", uplink.upstream_end.interface, state)

    def _counted(self) -> dict[str, tuple[int, int]]:
        lines = run("cat", "/proc/net/dev", netns=self.name).splitlines()
        rows = {line.partition(":")[0].strip(): line.partition(":")[2].split() for line in lines}
        return {name: (int(rows[name][0]), int(rows[name][8])) for name in UPLINKS}

    # ---- building ------------------------------------------------------------------------

    def _add_external_bridge(self) -> None:
        lines = []
        for uplink in self.uplinks:
            end = uplink.upstream_end
            lines.append(
                f"link add {uplink.name} netns {self.name} type veth"
                f" peer name {end.interface} netns {self.tor.netns}"
            )
        run("ip", "-batch", "-", stdin="\n".join(lines))
        for uplink in self.uplinks:
            run("ip", "-n", self.name, "link", "set", uplink.name, "up")
            run("ip", "-n", self.tor.netns, "link", "set", uplink.upstream_end.interface, "up")
        self.ovs.vsctl(
            "add-br", EXTERNAL, "--", "set", "bridge", EXTERNAL, datapath.SETTING, *self._team()
        )
        run("ip", "link", "set", EXTERNAL, "up", netns=self.name)

    def _team(self) -> Sequence[str]:
        if self.bond is not None:
            return ["--", "add-bond", EXTERNAL, "bond0", *UPLINKS, f"bond_mode={self.bond}"]
        # NORMAL would join plain uplinks into a loop.
        ports = [word for name in UPLINKS for word in ("--", "add-port", EXTERNAL, name)]
        return ["--", "set-fail-mode", EXTERNAL, "secure", *ports]

    def _remove(self) -> None:
        for netns in (*self._namespaces, self.name):
            with contextlib.suppress(AssertionError):
                run("ip", "netns", "del", netns)
