"""Defines data classes for records of Open vSwitch's database, which `ovsdb.records` creates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.text.wording import tunnels_sent

PREFIX = "ovs-lbt-"


@dataclass(frozen=True, slots=True)
class Tunnel:
    """The local and the remote end of a tunnel interface.

    `local_ip`, `remote_ip`: options of the interface, None if not set. `device`: the device with the
    route to the remote end, as reported by ovs-vswitchd; None if not reported.
    """

    local_ip: str | None = None
    device: str | None = None
    remote_ip: str | None = None


@dataclass(frozen=True, slots=True)
class Ovn:
    """The tunnel settings of OVN in the table Open_vSwitch: source addresses and types of tunnels.

    `bridge`: OVN's integration bridge.
    """

    addresses: tuple[str, ...]
    kinds: tuple[str, ...] = ("geneve",)
    bridge: str = "br-int"
    # The bridges of this host that connect physical networks (`ovn-bridge-mappings`).
    mapped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The tunnels whose encapsulated frames a port sends. Tuples are sorted, without duplicates.

    `addresses`: the known source addresses. `kinds`: the types of the tunnels. `bridges`: the bridges
    that have the tunnel interfaces.
    """

    addresses: tuple[str, ...]
    kinds: tuple[str, ...]
    bridges: tuple[str, ...]

    def __str__(self) -> str:
        return tunnels_sent(self.kinds, self.bridges, self.addresses)


@dataclass(frozen=True, slots=True)
class Guest:
    """A VM behind a patch port: one of its addresses, and its name.

    `identity`: the name under which the bridge stores the VM's rules. `pin`: the VM's rule `pin`.
    `identities`: all names under which the bridge can store rules, in increasing order of precedence.
    """

    mac: str
    vm: str
    identity: str
    pin: str | None = None
    identities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InterfaceRow:
    """An Interface record. `ofport` is None until the switch has assigned a port number."""

    name: str
    ofport: int | None = None
    link_speed_bps: float | None = None
    external_ids: Mapping[str, str] = field(default_factory=dict)
    # The ID of the record. A record that is created again gets another ID.
    uuid: str = ""
    mac: str | None = None
    # Whether LACPDUs were recently received from the partner; None without LACP.
    lacp_current: bool | None = None
    # Whether BFD and CFM are enabled on the interface.
    bfd: bool = False
    cfm: bool = False
    # The type of the interface, empty for a system device; and the driver of the device, if known.
    kind: str = ""
    driver: str | None = None
    # Whether the interface is the representor of a network card's function, such as a VM's VF.
    represents: bool = False
    # Whether the device can offload tc flows; None if not known, or not queried without hw-offload.
    offloads: bool | None = None
    # The maximum packet length on the interface; None if not known.
    mtu: int | None = None
    # The ends of the tunnel; None if the interface is not a tunnel.
    tunnel: Tunnel | None = None
    # The name of the peer of a patch port; None if the interface is not a patch port.
    peer: str | None = None
    # The VMs behind a patch port, by address (`config.marks`).
    guests: tuple[Guest, ...] = ()
    # The tunnels whose frames the interface sends (`config.marks`); None if there are none.
    endpoint: Endpoint | None = None
    # Pairs of an IPv6 address of the interface and the remote end of a tunnel from this address.
    tunnel_peers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PortRow:
    """A Port record; a bond is a port with several interfaces."""

    name: str
    interfaces: tuple[InterfaceRow, ...]
    tag: int | None = None
    lacp: str | None = None
    bond_mode: str | None = None
    qos_max_rate_bps: float | None = None
    vlan_mode: str | None = None
    trunks: tuple[int, ...] = ()
    protected: bool = False
    # Whether spanning tree blocks the port.
    blocked: bool = False
    # The MAC address of the active member of an active-backup bond.
    active_mac: str | None = None
    # In milliseconds, the times for which the link of a bond's member must be up or down; 0: no time.
    bond_updelay: int = 0
    bond_downdelay: int = 0
    other_config: Mapping[str, str] = field(default_factory=dict)
    external_ids: Mapping[str, str] = field(default_factory=dict)

    def with_interfaces(self, changed: Callable[[InterfaceRow], InterfaceRow]) -> PortRow:
        """Return the port with `changed` applied to its interfaces; the same object if none changes."""
        interfaces = tuple(map(changed, self.interfaces))
        return self if interfaces == self.interfaces else replace(self, interfaces=interfaces)


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A Mirror record: the port or the VLAN to which Open vSwitch sends mirrored frames."""

    name: str
    output_port: str | None = None
    output_vlan: int | None = None


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """A Bridge record, with its ports sorted by name.

    `controllers`: the targets of the bridge's controller records. `protocols`: the allowed OpenFlow
    versions; empty if all are allowed. `datapath_id`: 16 hexadecimal digits; None: not set yet.
    """

    name: str
    ports: tuple[PortRow, ...] = ()
    fail_mode: str | None = None
    external_ids: Mapping[str, str] = field(default_factory=dict)
    stp_enable: bool = False
    rstp_enable: bool = False
    mcast_snooping_enable: bool = False
    other_config: Mapping[str, str] = field(default_factory=dict)
    flood_vlans: tuple[int, ...] = ()
    # The OpenFlow tables whose number of flows is limited.
    flow_tables: tuple[int, ...] = ()
    mirrors: tuple[MirrorRow, ...] = ()
    controllers: tuple[str, ...] = ()
    # Whether Open vSwitch has hidden flows for a controller, and whether no controller answers it.
    in_band: bool = False
    unanswered: bool = False
    protocols: tuple[str, ...] = ()
    datapath_id: str | None = None
    # Whether ovs-vswitchd forwards frames instead of the kernel.
    in_userspace: bool = False
    # The options `hw-offload` and `tc-policy` of this Open vSwitch.
    hw_offload: bool = False
    tc_policy: str = "none"
    # Whether this Open vSwitch waits for its scripts to restore flows (`flow-restore-wait`).
    restores_flows: bool = False
    # Our keys in columns that are not read: the table and name of each record, the column, and the key.
    misplaced: tuple[tuple[str, str, str], ...] = ()
    # Whether the key `policy` has disappeared from the database. The record then has the last keys.
    keys_lost: bool = False

    @property
    def interfaces(self) -> Iterator[InterfaceRow]:
        """The interfaces of all ports, in the order of the ports."""
        for port in self.ports:
            yield from port.interfaces

    @property
    def mirrored_to(self) -> frozenset[str]:
        """The interfaces that Open vSwitch reserves for mirrored frames."""
        reserved = {mirror.output_port for mirror in self.mirrors}
        return frozenset(
            i.name for port in self.ports if port.name in reserved for i in port.interfaces
        )

    def with_interfaces(self, changed: Callable[[InterfaceRow], InterfaceRow]) -> BridgeRow:
        """Return the bridge with `changed` applied to its interfaces; the same object if none changes."""
        ports = tuple(port.with_interfaces(changed) for port in self.ports)
        return self if ports == self.ports else replace(self, ports=ports)

    def without_our_keys(self) -> BridgeRow:
        """Return the bridge without ovs-lbt keys, as if it had never been attached."""
        ids = {key: v for key, v in self.external_ids.items() if not key.startswith(PREFIX)}
        return replace(self, external_ids=ids)

    @property
    def keys(self) -> dict[str, str]:
        """The ovs-lbt keys in external_ids, with their values."""
        return {k: v for k, v in self.external_ids.items() if k.startswith(PREFIX)}

    @property
    def attached(self) -> bool:
        """Whether the bridge is attached. An attached bridge has the key `policy`."""
        return PREFIX + "policy" in self.external_ids
