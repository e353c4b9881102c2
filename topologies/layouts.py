"""All layouts: the graph of each layout, with the shares that a document has published.

`topologies/NAME.py` describes the layout NAME, and lets `mn --custom` start it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec

from topologies.graph import parts
from topologies.graph.layout import Layout, Role
from topologies.graph.parts import STANDARD_MTU, Draft, one_server


@dataclass(frozen=True, slots=True)
class Start:
    """How `mn` starts a layout by default.

    Attributes:
        prefix: the prefix of the names of bridges and of the switches' interfaces.
        team: the form of the team.
        userspace_only: whether the kernel's datapath cannot run it.
    """

    prefix: str
    team: str = "bond"
    userspace_only: bool = False


P = ParamSpec("P")

# The layouts by name, in the order in which `ovs-lbt bench --all` runs them.
LAYOUTS: dict[str, Callable[..., Layout]] = {}
STARTS: dict[str, Start] = {}


def _listed(start: Start) -> Callable[[Callable[P, Layout]], Callable[P, Layout]]:
    """Add a layout under the name of its function, which then checks its arguments."""

    def add(build: Callable[P, Layout]) -> Callable[P, Layout]:
        checked = parts.with_checked_parameters(build)
        LAYOUTS[build.__name__], STARTS[build.__name__] = checked, start
        return checked

    return add


@_listed(Start("lbt-"))
def vmware_lbt(
    uplinks: int = 2,
    vms: int = 4,
    vnics_per_vm: int = 2,
    uplink_mbps: int = 100,
    clients: int = 2,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """One server.

    As in the document, the OpenFlow port numbers make every VM's loaded vNIC hash to the same uplink
    (the port number modulo the number of uplinks).
    """
    draft = Draft("vmware_lbt", mtu=mtu, vlan=vlan)
    draft.switches("server", role=Role.SERVER_BRIDGE)
    draft.switches("upstream")
    draft.uplinks("server", ["upstream"], [uplink_mbps] * uplinks)
    stride = uplinks * max(1, -(-vnics_per_vm // uplinks))
    for number in range(1, vms + 1):
        for index in range(1, vnics_per_vm + 1):
            draft.vnic(
                f"vm{number}",
                "server",
                index=index,
                address=f"10.{index}.0.{number}/16",
                ofport=10 * uplinks + stride * (number - 1) + index - 1,
                loaded=index == 1,
            )
    draft.clients("upstream", clients, network="10.1.1")
    # Shares of the link speed. The phases follow from the document's text: LBT moves a port when an
    # uplink exceeds 75 %, first at a total of 0.75, then at 1.00, when three of four VMs share an uplink
    # at 75 %. The steady load is "a little over 13 Gbps" of 2 x 10 Gbit/s.
    published = {
        "source": "VMware Load-Based Teaming (LBT) Performance, VROOM! blog",
        "total_share": 0.65,
        "uplink_share": 0.65,
        "qos_ratio": 0.9999,
        "moves": 2,
        "phases": [
            {
                "name": "phase 1",
                "what": "one uplink carries all, below 75 %",
                "shares": [0.75, 0.0],
            },
            {"name": "phase 2", "what": "one port moved, both below 75 %", "shares": [0.75, 0.25]},
            {"name": "phase 3", "what": "total above 100 %, a second moved", "shares": [0.5, 0.5]},
            {"name": "phase 4", "what": "steady, both alike", "shares": [0.65, 0.65]},
        ],
    }
    return draft.layout(published)


@_listed(Start("set-"))
def set_vs_lbfo(
    uplinks: int = 2,
    vms: int = 1,
    uplink_mbps: int = 100,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
    lag_hash: str = "mac",
) -> Layout:
    """Two hosts at a switch; the load goes from the first host's VMs to the second's."""
    draft = Draft("set_vs_lbfo", mtu=mtu, vlan=vlan)
    draft.switches("upstream", lag_hash=lag_hash)
    servers = draft.servers("upstream", uplinks, uplink_mbps)
    ends = [
        draft.vms(server, vms, network=f"10.1.{index}", first_ofport=10 * uplinks)
        for index, server in enumerate(servers)
    ]
    # NTttcp's totals as shares of one link of 1 Gbit/s, and the sample coefficient of variation of its
    # eight threads. The document does not assign its outputs to modes; that is inferred from its text.
    rows = (
        ("LACP", 0.914, 0.0312, 0.05986),
        ("switch independent", 0.938, 0.0226, 0.05257),
        ("SET", 0.915, 0.0738, 0.0614),
    )
    names = ("name", "total_share", "stream_cv", "cpu_ratio")
    published = {
        "source": "Hyper-V 2016 and the Small Business: Switch Embedded Teaming, Altaro",
        "modes": [dict(zip(names, row, strict=True)) for row in rows],
        "retransmits": 0,
    }
    return draft.layout(published, *ends)


@_listed(Start("quad-", team="lacp"))
def quad_gbe_team(
    uplinks: int = 4,
    vms: int = 1,
    virtual_switches: int = 0,
    uplink_mbps: int = 100,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """Two servers back to back; the load goes from the first server to the second."""
    draft = Draft("quad_gbe_team", mtu=mtu, vlan=vlan)
    servers = ("server1", "server2")
    draft.switches(*servers, role=Role.SERVER_BRIDGE)
    draft.cables(servers, uplinks, uplink_mbps)
    ends = []
    for index, server in enumerate(servers):
        switch, first_ofport = server, 10 * uplinks
        if index < virtual_switches:
            switch, names = f"vswitch{index + 1}", (f"s{index + 1}-vsw", f"vsw{index + 1}")
            draft.switches(switch, role=Role.VIRTUAL_SWITCH)
            draft.join(server, switch, names, ofport=first_ofport)
        ends.append(draft.vms(switch, vms, network=f"10.1.{index}", first_ofport=first_ofport))
    # One stream has 113 MB/s, as a share of a link. Ten streams have about 410 MB/s, as a share of four
    # times one stream. The document has the MBytes of iperf, which are 2^20 bytes.
    published = {
        "source": "NIC Teaming, Hyper-V switch, QoS and actual performance, part 3, hyper-v.nu",
        "one_stream_share": 0.948,
        "ten_streams_share": 0.907,
        "ten_streams_members": 4,
        "virtual_switches": [
            {"sides": 1, "what": "exactly the same"},
            {"sides": 2, "what": "less: the receiver is bound by one core"},
        ],
    }
    return draft.layout(published, *ends)


@_listed(Start("mig-"))
def live_migration(
    uplinks: int = 2,
    vms: int = 8,
    clients: int = 1,
    uplink_mbps: int = 100,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """Two hosts; the load goes from the first host's stack to the second's."""
    draft = Draft("live_migration", mtu=mtu, vlan=vlan)
    draft.switches("upstream")
    servers = draft.servers("upstream", uplinks, uplink_mbps)
    for number, server in enumerate(servers, start=1):
        for index in range(1, uplinks + 1):
            draft.vnic(
                f"host{number}",
                server,
                role=Role.HOST,
                index=index,
                address=f"10.{index}.0.{number}/16",
                ofport=10 * uplinks + index - 1,
                vlan=0,
                home=f"{server}-uplink{index}",
            )
    draft.vms(servers[0], vms, network="10.100.0", first_ofport=11 * uplinks, loaded=False)
    draft.clients("upstream", clients, network="10.100.1")
    # Shares of both links of 10 Gbit/s. SMB uses several connections. TCP uses one for each VM, which
    # one core limits.
    shares = {
        "LACP, TCP": 0.85,
        "LACP, TCP, two VMs": 0.45,
        "LACP, SMB": 0.95,
        "LACP, SMB, one large VM": 0.95,
        "switch independent": 0.5,
        "no team, SMB Multichannel": 1.0,
        "no team, SMB Direct": 1.0,
    }
    published = {
        "source": "High performance live migration done right means using SMB Direct, "
        "Working Hard In IT",
        "modes": [{"name": name, "total_share": share} for name, share in shares.items()],
        "one_vm_tcp_share": [0.225, 0.25],
        "jumbo_gain_ratio": [0.15, 0.20],
        "first_simultaneous": 4,
    }
    return draft.layout(published, ["host1"], ["host2"])


@_listed(Start("conv-"))
def converged(
    uplinks: int = 2,
    vms: int = 1,
    uplink_mbps: int = 10_000,
    mtu: int = STANDARD_MTU,
    management_vlan: int = 10,
    migration_vlan: int = 20,
    vm_vlan: int = 30,
    odd_uplink: int = 1,
    odd_mtu: int = 0,
    odd_vlan: int = 0,
) -> Layout:
    """Two hosts; the load goes from the first host's VMs to the second's."""
    draft = Draft("converged", mtu=mtu)
    draft.switches("upstream")
    servers = draft.servers("upstream", uplinks, uplink_mbps)
    odd = {"upstream_mtu": odd_mtu, "upstream_vlan": odd_vlan}
    if odd_uplink > uplinks:
        raise ValueError(f"odd_uplink is {odd_uplink}; expected one of {uplinks} uplinks")
    member = draft.graph.nodes[f"server2-uplink{odd_uplink}"]
    member.update({name: value for name, value in odd.items() if value})
    ends = []
    for number, server in enumerate(servers, start=1):
        for index, vlan in enumerate((management_vlan, migration_vlan), start=1):
            draft.vnic(
                f"host{number}",
                server,
                role=Role.HOST,
                index=index,
                address=f"10.{index}.0.{number}/16",
                ofport=10 * uplinks + index - 1,
                vlan=vlan,
                loaded=False,
            )
        network, first_ofport = f"10.3.{number}", 10 * uplinks + 2
        own = draft.vms(server, vms, network=network, first_ofport=first_ofport, vlan=vm_vlan)
        ends.append(own)
    # The throughput between two vNICs in one direction, as a share of a 10 GbE link.
    published = {
        "source": "Hyper-V Virtual Machine Converged Networking Performance, Nutanix",
        "standard_share": 0.48,
        "jumbo_share": 0.90,
        "jumbo_ratio": 1.9,
    }
    return draft.layout(published, *ends)


@_listed(Start("two-"))
def two_switches(
    switches: int = 2,
    uplinks: int = 2,
    vms: int = 4,
    clients: int = 2,
    uplink_mbps: int = 100,
    trunk_mbps: int = 1000,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """One server at several switches; the load goes from the VMs to the clients at the core."""
    draft = Draft("two_switches", mtu=mtu, vlan=vlan)
    draft.switches("server", role=Role.SERVER_BRIDGE)
    racks = [f"tor{number}" for number in range(1, switches + 1)]
    draft.switches(*racks, "core")
    draft.uplinks("server", racks, [uplink_mbps] * uplinks)
    for rack in racks:
        draft.join(rack, "core", (f"{rack}-core", f"core-{rack}"), mbps=trunk_mbps)
    draft.vms("server", vms, network="10.1.0", first_ofport=10 * uplinks)
    draft.clients("core", clients, network="10.1.1")
    return draft.layout()


@_listed(Start("spl-"))
def spine_leaf(
    switches: int = 2,
    uplinks: int = 2,
    vms: int = 4,
    clients: int = 1,
    uplink_mbps: int = 50,
    trunk_mbps: int = 1000,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """Two racks; the load goes from the VMs of the first rack to those of the second."""
    draft = Draft("spine_leaf", mtu=mtu, vlan=vlan)
    racks = (1, 2)
    draft.switches(*(f"server{rack}" for rack in racks), role=Role.SERVER_BRIDGE)
    draft.switches("spine")
    ends = []
    for rack in racks:
        server = f"server{rack}"
        leaves = [f"leaf{rack}{number}" for number in range(1, switches + 1)]
        draft.switches(*leaves)
        draft.uplinks(server, leaves, [uplink_mbps] * uplinks, rack)
        for leaf in leaves:
            draft.join(leaf, "spine", (f"{leaf}-sp", f"sp-{leaf}"), mbps=trunk_mbps)
        ends.append(draft.vms(server, vms, network=f"10.1.{rack}", first_ofport=10 * uplinks))
    draft.clients("spine", clients, network="10.1.3")
    return draft.layout({}, *ends)


@_listed(Start("mix-"))
def mixed_speed(
    fast_uplinks: int = 1,
    slow_uplinks: int = 1,
    vms: int = 11,
    clients: int = 2,
    uplink_mbps: int = 100,
    slow_mbps: int = 10,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """One server; the load goes from the VMs to the clients."""
    speeds_mbps = [uplink_mbps] * fast_uplinks + [slow_mbps] * slow_uplinks
    homes = _homes(speeds_mbps, vms)
    return one_server("mixed_speed", speeds_mbps, vms, clients, mtu=mtu, vlan=vlan, homes=homes)


def _homes(speeds_mbps: Sequence[int], vms: int) -> list[str]:
    """The uplink of each VM, if their numbers are to be in proportion to the uplinks' speeds."""
    counts = [0] * len(speeds_mbps)
    homes = []
    for _ in range(vms):
        # The uplink that then has the fewest VMs for its speed; the first of several.
        place = min(range(len(counts)), key=lambda n: (counts[n] + 1) / speeds_mbps[n])
        counts[place] += 1
        homes.append(f"uplink{place + 1}")
    return homes


@_listed(Start("shf-"))
def shift(
    uplinks: int = 2,
    vms: int = 8,
    clients: int = 2,
    uplink_mbps: int = 100,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """One server; the load goes from the VMs to the clients."""
    return one_server("shift", [uplink_mbps] * uplinks, vms, clients, mtu=mtu, vlan=vlan)


@_listed(Start("flw-"))
def flows(
    uplinks: int = 2,
    vms: int = 8,
    clients: int = 2,
    uplink_mbps: int = 50,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> Layout:
    """One server; the load goes from the VMs to the clients."""
    return one_server("flows", [uplink_mbps] * uplinks, vms, clients, mtu=mtu, vlan=vlan)


@_listed(Start("ovl-", userspace_only=True))
def overlay(
    uplinks: int = 2,
    vms: int = 8,
    endpoints: int = 2,
    uplink_mbps: int = 50,
    mtu: int = STANDARD_MTU,
    encapsulation: str = "geneve",
    far_mbps: int = 0,
) -> Layout:
    """Two hosts; the load goes from the first host's VMs to the second's, and back."""
    draft = Draft("overlay", mtu=mtu)
    draft.switches("upstream")
    servers = draft.servers("upstream", uplinks, uplink_mbps, far_mbps=far_mbps)
    ends: list[tuple[str, ...]] = []
    for number, server in enumerate(servers, start=1):
        bridge = f"vswitch{number}"
        draft.switches(bridge, role=Role.VIRTUAL_SWITCH)
        own = parts.tunnels(number, endpoints, first_ofport=10 * uplinks)
        draft.tunnels(server, bridge, own, encapsulation=encapsulation)
        names = tuple(f"vm{(number - 1) * vms + index}" for index in range(1, vms + 1))
        for index, name in enumerate(names):
            network = index % endpoints + 1
            draft.vnic(
                name,
                bridge,
                address=f"10.{network}.{number}.{index + 1}/16",
                ofport=10 * endpoints + index,
                mtu=mtu - parts.ENCAPSULATION_BYTES,
                vlan=network,
            )
        ends.append(names)
    return draft.layout({}, *ends)
