"""A small cloud: OVN, hosts with two uplinks each, and the switch of the rack between them.

    VM ── br-int ══ Geneve ══ br-ex ── eth0, eth1 ── rack ── eth0, eth1 ── br-ex ══ Geneve ══ br-int ── VM

The hosts are network namespaces with an Open vSwitch, an ovn-controller and a service each.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from tests.switch import datapath
from tests.switch.appctl import Appctl
from tests.switch.bed import Upstream, run
from tests.switch.ovn.central import Central
from tests.switch.ovn.host import Host, Vm
from tests.switch.wire import Point

RACK = "rack"


@dataclass(slots=True)
class Network:
    """A logical switch, 10.N.0.0/16, and the addresses of its VMs."""

    name: str
    number: int
    vms: list[Vm] = field(default_factory=list)
    # A host of the physical network, if it is a provider network.
    outside: Vm | None = None

    @property
    def gateway(self) -> str:
        """The router's address."""
        return f"10.{self.number}.0.1"

    @property
    def gateway_mac(self) -> str:
        return f"02:0a:{self.number:02x}:00:00:01"


class Cloud:
    """`hosts`: how many. `bond`: the mode of their bonds; None: plain uplinks. A context manager."""

    def __init__(self, tor: Upstream, hosts: int = 2, bond: str | None = None) -> None:
        self.tor = tor
        self.central = Central()
        self.hosts = [Host(number, tor, bond) for number in range(1, hosts + 1)]
        self.networks: list[Network] = []
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Cloud:
        with contextlib.ExitStack() as building:
            building.enter_context(self.central)
            for host in self.hosts:
                building.enter_context(host)
            ends = [uplink.upstream_end.interface for host in self.hosts for uplink in host.uplinks]
            ports = [word for end in ends for word in ("--", "add-port", RACK, end)]
            self.tor.ovs.vsctl(
                "add-br", RACK, "--", "set", "bridge", RACK, datapath.SETTING, *ports
            )
            building.callback(self.tor.ovs.vsctl, "del-br", RACK)
            self._running = building.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def add_network(self, name: str) -> Network:
        """A logical switch."""
        self.networks.append(network := Network(name, len(self.networks) + 1))
        self.central.nbctl("ls-add", name)
        return network

    def add_provider_network(self, name: str, physical: str, vlan: int | None = None) -> Network:
        """A logical switch of a physical network, and a host upstream in its VLAN: 10.N.0.254."""
        network = self.add_network(name)
        self.add_localnet(network, physical, vlan)
        netns, port = f"outside-{name}", f"out{network.number}"
        mac, ip = f"02:0a:{network.number:02x}:00:00:fe", f"10.{network.number}.0.254"
        run("ip", "netns", "add", netns)
        self._running.callback(run, "ip", "netns", "del", netns)
        run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", netns=netns)
        peer = f"name eth0 netns {netns} address {mac}"
        lines = [f"link add {port} type veth peer {peer}", f"link set {port} up"]
        run("ip", "-n", self.tor.netns, "-batch", "-", stdin="\n".join(lines))
        own = ["link set lo up", "link set eth0 up", f"addr add {ip}/16 dev eth0"]
        run("ip", "-n", netns, "-batch", "-", stdin="\n".join(own))
        tag = () if vlan is None else (f"tag={vlan}",)
        self.tor.ovs.vsctl("add-port", RACK, port, *tag)
        network.outside = Vm(netns, port, mac, ip, Point(netns, "eth0", netns))
        return network

    def add_localnet(self, network: Network, physical: str, vlan: int | None = None) -> None:
        """The port by which a logical switch is a part of a physical network."""
        port = f"ln-{network.name}"
        tag = (
            ()
            if vlan is None
            else ("--", "set", "logical_switch_port", port, f"tag_request={vlan}")
        )
        self.central.nbctl(
            *("lsp-add", network.name, port),
            *("--", "lsp-set-type", port, "localnet"),
            *("--", "lsp-set-addresses", port, "unknown"),
            *("--", "lsp-set-options", port, f"network_name={physical}"),
            *tag,
        )

    def add_router(self, name: str, *networks: Network) -> None:
        """A router between logical switches."""
        self.central.nbctl("lr-add", name)
        for network in networks:
            gateway = (network.gateway_mac, f"{network.gateway}/16")
            self.join_router(name, network.name, *gateway)

    def join_router(self, router: str, switch: str, mac: str, address: str) -> None:
        """Give a router a port, `ROUTER-SWITCH`, in a logical switch."""
        own, port = f"{router}-{switch}", f"{switch}-{router}"
        self.central.nbctl(
            *("lrp-add", router, own, mac, address),
            *("--", "lsp-add", switch, port),
            *("--", "lsp-set-type", port, "router"),
            *("--", "lsp-set-addresses", port, "router"),
            *("--", "lsp-set-options", port, f"router-port={own}"),
        )

    def start_vm(self, host: Host, network: Network) -> Vm:
        """Start a VM in a network. `NETWORK-HOST-N` is its name."""
        index = 1 + sum(vm in host.vms for vm in network.vms)
        name = f"{network.name}-{host.number}-{index}"
        mac = f"02:0a:{network.number:02x}:00:{host.number:02x}:{index:02x}"
        ip = f"10.{network.number}.{host.number}.{index}"
        added = ("lsp-add", network.name, name, "--", "lsp-set-addresses", name, f"{mac} {ip}")
        self.central.nbctl(*added)
        network.vms.append(vm := host.start_vm(name, mac, f"{ip}/16", network.gateway))
        return vm

    def next_hop(self, one: Vm, to: Vm) -> str:
        """The address to which a VM, or a host upstream, sends what is for another one."""
        network = next(n for n in self.networks if one in (*n.vms, n.outside))
        return to.mac if to in (*network.vms, network.outside) else network.gateway_mac

    def fence(self) -> None:
        """Return when the switches have taken up everything sent so far: as `Bed.fence`.

        Between two VMs there are three switches: those of their hosts, and the one between.
        """
        with contextlib.ExitStack() as stack:
            tor, *hosts = (
                stack.enter_context(contextlib.closing(Appctl(ovs)))
                for ovs in (self.tor.ovs, *(host.ovs for host in self.hosts))
            )
            for asked in (*hosts, tor) * 5 + (*hosts,):
                asked.ask("version")

    def log_tails(self, lines: int) -> dict[str, str]:
        """The last lines of the log of each daemon that runs here, by the host's and the log's name."""
        found = self.central.log_tails(lines)
        for host in self.hosts:
            found |= host.log_tails(lines)
        return found

    def settle(self) -> None:
        """Wait until every VM's port is known, and all hosts have the flows for it."""
        is_up = [
            word
            for network in self.networks
            for vm in network.vms
            for word in ("--", "wait-until", "logical_switch_port", vm.name, "up=true")
        ]
        self.central.nbctl("--timeout=30", *is_up)
        self.central.settle()
