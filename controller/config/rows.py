"""Records of Open vSwitch's database as values. `ovsdb.records` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.text.wording import tunnels_sent

PREFIX = "ovs-lbt-"


@dataclass(frozen=True, slots=True)
class Tunnel:
    """From where a tunnel interface sends, and to where.

    `local_ip`, `remote_ip`: its options, None if they are not set. `device`: the device that routes to
    its remote end, as ovs-vswitchd reports it; None if it does not.
    """

    local_ip: str | None = None
    device: str | None = None
    remote_ip: str | None = None


@dataclass(frozen=True, slots=True)
class Ovn:
    """From where OVN sends its tunnels, as its keys of the table Open_vSwitch say.

    `bridge`: its integration bridge.
    """

    addresses: tuple[str, ...]
    kinds: tuple[str, ...] = ("geneve",)
    bridge: str = "br-int"
    # The bridges of this host that lead to its physical networks (`ovn-bridge-mappings`).
    mapped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The tunnels that a port sends. Each tuple is sorted and has no value twice.

    `addresses`: their source addresses, as far as they are known. `kinds`: the types of the
    tunnels. `bridges`: the bridges that they belong to.
    """

    addresses: tuple[str, ...]
    kinds: tuple[str, ...]
    bridges: tuple[str, ...]

    def __str__(self) -> str:
        return tunnels_sent(self.kinds, self.bridges, self.addresses)


@dataclass(frozen=True, slots=True)
class Guest:
    """A VM behind a patch port: one of its addresses, and its name.

    `identity`: under which the Bridge keeps its rules. `pin`: the rule that one has. `identities`:
    all names under which the Bridge may have them, the one that takes precedence last.
    """

    mac: str
    vm: str
    identity: str
    pin: str | None = None
    identities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InterfaceRow:
    """An Interface record. `ofport` is None until the switch has assigned one."""

    name: str
    ofport: int | None = None
    link_speed_bps: float | None = None
    external_ids: Mapping[str, str] = field(default_factory=dict)
    mac: str | None = None
    # Whether LACP has recently heard from the partner; None without LACP.
    lacp_current: bool | None = None
    # Whether BFD and CFM are enabled on it.
    bfd: bool = False
    cfm: bool = False
    # Its type, empty for a device of the system; and the driver of the device, if known.
    kind: str = ""
    driver: str | None = None
    # Whether it stands for a function of a card that a VM has, such as a VF.
    represents: bool = False
    # Whether its device can take over flows of tc; None if not known, or not asked because nothing is offloaded.
    offloads: bool | None = None
    # The longest packet that it carries; None if not known.
    mtu: int | None = None
    # None if it is no tunnel.
    tunnel: Tunnel | None = None
    # The other end of a patch port, by name; None if it is no patch port.
    peer: str | None = None
    # The VMs behind a patch port, by address (`config.marks`).
    guests: tuple[Guest, ...] = ()
    # The tunnels of this Open vSwitch that are sent by it (`config.marks`); None if there are none.
    endpoint: Endpoint | None = None
    # The other ends of tunnels from its IPv6 addresses, each after the address.
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
    # Whether spanning tree keeps the port from forwarding.
    blocked: bool = False
    # The MAC address of the active member of an active-backup bond.
    active_mac: str | None = None
    # Whether a bond continues without LACP if its partner does not use LACP.
    lacp_fallback: bool = False
    external_ids: Mapping[str, str] = field(default_factory=dict)

    def with_interfaces(self, changed: Callable[[InterfaceRow], InterfaceRow]) -> PortRow:
        """The same port with each interface as `changed` makes it; itself if none differs."""
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
    """A Bridge record with its ports, the ports sorted by name.

    `controllers`: the targets of its controller records. `protocols`: the versions of OpenFlow that it
    allows; none: all of them. `datapath_id`: 16 hexadecimal digits, None until the switch has chosen it.
    """

    name: str
    ports: tuple[PortRow, ...] = ()
    fail_mode: str | None = None
    external_ids: Mapping[str, str] = field(default_factory=dict)
    stp_enable: bool = False
    rstp_enable: bool = False
    mcast_snooping_enable: bool = False
    # `forward-bpdu`.
    forwards_bpdu: bool = False
    flood_vlans: tuple[int, ...] = ()
    mirrors: tuple[MirrorRow, ...] = ()
    controllers: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    datapath_id: str | None = None
    # Whether ovs-vswitchd itself forwards, rather than the kernel.
    in_userspace: bool = False
    # `hw-offload` and `tc-policy` of this Open vSwitch.
    hw_offload: bool = False
    tc_policy: str = "none"
    # Whether this Open vSwitch waits for its scripts to restore flows (`flow-restore-wait`).
    restores_flows: bool = False
    # Whether its policy has vanished from the database. Its keys are those from before then.
    keys_lost: bool = False

    @property
    def interfaces(self) -> Iterator[InterfaceRow]:
        """Those of all its ports, in the order of the ports."""
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
        """The same bridge with each interface as `changed` makes it; itself if none differs."""
        ports = tuple(port.with_interfaces(changed) for port in self.ports)
        return self if ports == self.ports else replace(self, ports=ports)

    def without_our_keys(self) -> BridgeRow:
        """The same bridge as if it had never been attached."""
        ids = {key: v for key, v in self.external_ids.items() if not key.startswith(PREFIX)}
        return replace(self, external_ids=ids)

    @property
    def keys(self) -> dict[str, str]:
        """Our keys in external_ids."""
        return {k: v for k, v in self.external_ids.items() if k.startswith(PREFIX)}

    @property
    def attached(self) -> bool:
        """Whether the bridge is attached: its policy key is present."""
        return PREFIX + "policy" in self.external_ids
