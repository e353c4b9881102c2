"""All layouts: the description and the graph of each, with the shares that a document has published.

    mn --custom /path/to/topologies/NAME.py --topo NAME,vms=6,prefix=other- --test pingall

starts a layout from any directory. The parameters are those of its function. Common to most of them: `mtu`
is the MTU of all links, and `vlan` the access VLAN of VMs and clients. `prefix` goes before the names of
bridges and interfaces. `datapath` is `userspace` or `kernel`; the default is the kernel datapath if its
module is loaded. `team` is the form of the team:

    bond           an active-backup bond, the default of most layouts
    balance-slb    Open vSwitch's other bond without a LAG
    lacp           a bond with a LAG upstream
    split          a separate bridge for each uplink
    plain          ordinary ports; the bridge forwards nothing before `ovs-lbt attach`. Set `capacity-mbps`
                   on the uplinks, because virtual links do not report their speed
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
        common: its parameters in addition to those of its function.
    """

    prefix: str
    team: str = "bond"
    userspace_only: bool = False
    common: tuple[str, ...] = ("mtu", "vlan")


# The layouts by name, in the order in which `ovs-lbt bench --all` runs them.
LAYOUTS: dict[str, Callable[..., Layout]] = {}
STARTS: dict[str, Start] = {}


def _listed(start: Start) -> Callable[[Callable[..., Layout]], Callable[..., Layout]]:
    """Add a layout under the name of its function, which gets a draft with the common parameters.

    The layout raises:
        ValueError: a parameter is unknown, or its value is not allowed.
    """

    def add(build: Callable[..., Layout]) -> Callable[..., Layout]:
        name, signature = build.__name__, inspect.signature(build)
        common = {one: {"mtu": STANDARD_MTU, "vlan": 0}[one] for one in start.common}
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = {
            **dict(list(signature.parameters.items())[1:]),  # without the draft
            **{one: inspect.Parameter(one, kind, default=usual) for one, usual in common.items()},
        }

        @functools.wraps(build)
        def checked(**chosen: int | str) -> Layout:
            for parameter, value in chosen.items():
                if parameter not in parameters:
                    expected = " | ".join(parameters)
                    raise ValueError(f"parameter {parameter} does not exist; expected {expected}")
                parts.require_allowed(parameter, value)
            of_draft = {one: int(chosen.pop(one, usual)) for one, usual in common.items()}
            return build(Draft(name, **of_draft), **chosen)

        vars(checked)["__signature__"] = signature.replace(parameters=[*parameters.values()])
        LAYOUTS[name], STARTS[name] = checked, start
        return checked

    return add


@_listed(Start("lbt-"))
def vmware_lbt(
    draft: Draft,
    uplinks: int = 2,
    vms: int = 4,
    vnics_per_vm: int = 2,
    uplink_mbps: int = 100,
    clients: int = 2,
) -> Layout:
    """One server with two uplinks and four VMs, and web clients.

    It reproduces VMware's "Load-Based Teaming (LBT) Performance" (VROOM! blog, 2010). The server
    has two 10 GbE uplinks, here scaled down to 100 Mbit/s, and four VMs with two vNICs each. One
    vNIC of each VM carries the load. Results are comparable as shares of the link speed.

    As in the document, the OpenFlow port numbers make every VM's loaded vNIC hash to the same uplink
    (the port number modulo the number of uplinks).
    """
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
    draft: Draft, uplinks: int = 2, vms: int = 1, uplink_mbps: int = 100, lag_hash: str = "mac"
) -> Layout:
    """Two identical hosts, each with a team of two uplinks and a VM.

    It reproduces "Hyper-V 2016 and the Small Business: Switch Embedded Teaming" (Altaro, 2016).
    Each host has two 1 GbE uplinks, here scaled down to 100 Mbit/s, and one VM. NTttcp sends eight
    streams from one VM to the other. Results are comparable as shares of the link speed.

    `vms` is the number of VMs of each host. `lag_hash` selects the hash of the LAGs between the
    hosts with `team=lacp`: `mac` or `flow`. The default is inferred from the published totals: one
    uplink can carry them.
    """
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
    }
    return draft.layout(published, *ends)


@_listed(Start("quad-", team="lacp"))
def quad_gbe_team(
    draft: Draft, uplinks: int = 4, vms: int = 1, virtual_switches: int = 0, uplink_mbps: int = 100
) -> Layout:
    """Two servers with quad-port NICs, cabled back to back.

    It reproduces "NIC Teaming, Hyper-V switch, QoS and actual performance, part 3" (hyper-v.nu,
    2013). Each server has a team of four 1 GbE ports, here scaled down to 100 Mbit/s, with LACP and
    Address Hash. iperf runs from one server to the other, with streams added one by one up to ten.
    Results are comparable as shares of the link speed.

    `virtual_switches` is the number of servers with a virtual switch between the team and the
    vNICs: 0, 1 (the sender) or 2. A link connects the switch to the team's bridge. `vms` is the
    number of VMs of each server. Without a virtual switch, one of them stands for the server's own
    stack. Only teams whose ends agree on a cable work: `team=lacp`, the default and the document's
    team, `bond` and `split`.
    """
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
    }
    return draft.layout(published, *ends)


@_listed(Start("mig-"))
def live_migration(
    draft: Draft, uplinks: int = 2, vms: int = 8, clients: int = 1, uplink_mbps: int = 100
) -> Layout:
    """Two hosts with two fast uplinks each, and VMs that migrate.

    It reproduces "High performance live migration done right means using SMB Direct" and related
    articles (Working Hard In IT, 2013). Each host has two 10 GbE uplinks, here scaled down to 100
    Mbit/s. The memory of VMs is copied from the first host to the second. Results are comparable as
    shares of the speed of both links.

    Migrations run between the hosts' own stacks, `host1` and `host2`, which have a vNIC for each
    uplink, each in a separate network. Over a team, one of them has the traffic; `team=split` means
    separate NICs, as SMB Multichannel uses them. All VMs start on the first host. To migrate one,
    move its port, and let it announce itself (`vm1 ping -c 1 10.100.1.1` is enough):

        ovs-vsctl del-port mig-server1 mig-vm1-1 -- add-port mig-server2 mig-vm1-1
    """
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
    }
    return draft.layout(published, ["host1"], ["host2"])


@_listed(Start("conv-", common=("mtu",)))
def converged(
    draft: Draft,
    uplinks: int = 2,
    vms: int = 1,
    uplink_mbps: int = 10_000,
    management_vlan: int = 10,
    migration_vlan: int = 20,
    vm_vlan: int = 30,
    odd_uplink: int = 1,
    odd_mtu: int = 0,
    odd_vlan: int = 0,
) -> Layout:
    """Two hosts, each with one team for its own traffic and its VMs.

    It reproduces "Hyper-V Virtual Machine Converged Networking Performance" (Nutanix, 2014). Each
    host has an LBFO team of two 10 GbE uplinks, and an external virtual switch with the vNICs of
    the host and of its VMs. IOmeter runs between the vNICs of two VMs. The layout is not scaled
    down: uplinks of 10 000 Mbit/s are not shaped, so the CPU is the limit, as in the document. Only
    the ratio of jumbo frames to standard frames is comparable.

    Each host's own stack has a vNIC for management and one for live migration. A VLAN of 0 leaves
    that network untagged. `vms` is the number of VMs of each host. `odd_mtu` and `odd_vlan` are the
    faults that the live migration articles describe: the switch port of the second host's uplink
    `odd_uplink` differs from the others.
    """
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
    draft: Draft,
    switches: int = 2,
    uplinks: int = 2,
    vms: int = 4,
    clients: int = 2,
    uplink_mbps: int = 100,
    trunk_mbps: int = 1000,
) -> Layout:
    """One server at two independent top-of-rack switches.

    This is the small design of "I Can't Afford 10GBps For Hyper-V And Other Lies" (Working Hard In
    IT, 2013). It has two cheap, independent switches, so that no LAG can span them, and a core
    switch. For this case, Open vSwitch documents only active-backup bonds. There are no published
    figures.

    Uplinks are assigned to the switches in turn. `trunk_mbps` is the speed of each switch's link to
    the core.
    """
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
    draft: Draft,
    switches: int = 2,
    uplinks: int = 2,
    vms: int = 4,
    clients: int = 1,
    uplink_mbps: int = 50,
    trunk_mbps: int = 1000,
) -> Layout:
    """Two racks with two independent leaf switches each, and a spine.

    This is the medium design of "I Can't Afford 10GBps For Hyper-V And Other Lies" (Working Hard In
    IT, 2013). Every server has an uplink to each of two switches of its rack, which no LAG spans,
    and a switch-independent team. Traffic between racks crosses the spine. There are no published
    figures.

    `switches` is the number of leaf switches of a rack, to which the uplinks are assigned in turn.
    `vms` is the number of VMs of each server, and `trunk_mbps` the speed of a leaf switch's link to
    the spine. The document's spine is two switches that act as one (VLT), which one switch stands
    for here.
    """
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
    draft: Draft,
    fast_uplinks: int = 1,
    slow_uplinks: int = 1,
    vms: int = 11,
    clients: int = 2,
    uplink_mbps: int = 100,
    slow_mbps: int = 10,
) -> Layout:
    """One server with a fast uplink and an uplink a tenth as fast.

    The team has a 10 GbE and a 1 GbE uplink, here scaled down to 100 and 10 Mbit/s. A bond's hash
    ignores the difference. Policies that balance utilization take it into account. Manual placement
    takes the speeds into account, but not the loads: it puts ten times as many VMs on the fast
    uplink. There are no published figures.

    With eleven equal loads, ten VMs on the fast uplink and one on the slow uplink give both the
    same utilization.
    """
    speeds_mbps = [uplink_mbps] * fast_uplinks + [slow_mbps] * slow_uplinks
    homes = _homes(speeds_mbps, vms)
    return one_server(draft, speeds_mbps, vms, clients, homes)


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
    draft: Draft, uplinks: int = 2, vms: int = 8, clients: int = 2, uplink_mbps: int = 100
) -> Layout:
    """One server with two uplinks, and eight VMs whose loads change at the same time.

    No document describes it. At first, all VMs offer the same load. Then the VMs of one uplink
    together offer more than its capacity, and the VMs of the other offer almost nothing. Teams
    differ in how long the overload lasts.
    """
    return one_server(draft, [uplink_mbps] * uplinks, vms, clients)


@_listed(Start("flw-"))
def flows(
    draft: Draft, uplinks: int = 2, vms: int = 8, clients: int = 2, uplink_mbps: int = 50
) -> Layout:
    """One server with two uplinks, and eight VMs of unequal popularity.

    No document describes it. Clients request data from the VMs, in sizes that were published for
    web search (Alizadeh et al., DCTCP, 2010) and for data mining (Greenberg et al., VL2, 2009).
    Sizes are a tenth of those, and links a twentieth of gigabit links, so that every time is twice
    that of a gigabit network. Teams differ in how long each request takes.
    """
    return one_server(draft, [uplink_mbps] * uplinks, vms, clients)


@_listed(Start("ovl-", userspace_only=True, common=("mtu",)))
def overlay(
    draft: Draft,
    uplinks: int = 2,
    vms: int = 8,
    endpoints: int = 2,
    uplink_mbps: int = 50,
    encapsulation: str = "geneve",
    far_mbps: int = 0,
) -> Layout:
    """Two hosts whose VMs talk through tunnels over both uplinks.

    It has the shape of hosts under OVN, OpenStack or Kubernetes. The VMs of a host are on an
    integration bridge of their own. Their traffic to the other host leaves in Geneve or VXLAN
    tunnels, from an internal port of the bridge with the team: the tunnel endpoint. The team thus
    sees one address for each endpoint, regardless of the number of VMs.

    With several endpoints, each has a subnet of its own, because Open vSwitch's userspace datapath
    selects the endpoint by the destination of the tunnel. The VMs take turns: each endpoint carries
    a virtual network. `mtu` is that of the uplinks; the VMs' is 100 bytes smaller. `far_mbps` is
    the speed of the second host's uplinks, if it differs. Both hosts are in one Open vSwitch, whose
    routes distinguish them by the packet mark. The kernel's datapath would deliver such tunnels
    locally.
    """
    draft.switches("upstream")
    servers = draft.servers("upstream", uplinks, uplink_mbps, far_mbps=far_mbps)
    ends: list[tuple[str, ...]] = []
    for number, server in enumerate(servers, start=1):
        bridge = f"vswitch{number}"
        draft.switches(bridge, role=Role.VIRTUAL_SWITCH)
        first = {"host": number, "ofport": 10 * uplinks}
        draft.tunnels(server, bridge, endpoints, **first, encapsulation=encapsulation)
        names = tuple(f"vm{(number - 1) * vms + index}" for index in range(1, vms + 1))
        for index, name in enumerate(names):
            network = index % endpoints + 1
            draft.vnic(
                name,
                bridge,
                address=f"10.{network}.{number}.{index + 1}/16",
                ofport=10 * endpoints + index,
                mtu=draft.mtu - parts.ENCAPSULATION_BYTES,
                vlan=network,
            )
        ends.append(names)
    return draft.layout({}, *ends)
