"""Defines the configuration of a bridge, its uplinks and its VM ports, as data classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.config.kinds import CheckedHost, Known
from controller.config.offload import NOTHING, Offload
from controller.config.rows import PREFIX, Endpoint, Guest, InterfaceRow, PortRow
from controller.config.vlans import TRUNK, PortVlans
from controller.text.wording import one_line
from policies.damping import Moved
from policies.model import NO_RULES, OfPort, Role, Rules, Teaming
from policies.presets import PRESETS

# The policy in force while a bond with LACP fallback has not negotiated LACP.
FALLBACK_POLICY = "explicit"


@dataclass(frozen=True, slots=True)
class BadValue:
    """An invalid value in the database, with the problem and the action that solves it."""

    # The table and the name of the record, for example "Bridge br0".
    record: str
    # The key with its prefix, or a column.
    key: str
    problem: str
    # Ignored when errors are compared, because names in the remedy may change.
    remedy: str = field(compare=False)

    def __str__(self) -> str:
        return one_line(f"{self.record} {self.key}: {self.problem}; {self.remedy}")


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """The configuration of an uplink: its capacity, role and VLANs, and what monitors its link."""

    name: str
    ofport: OfPort
    # The value of the key, or else the port's QoS rate; None if neither is set.
    capacity_bps: float | None
    # The link speed in the database; None if not known.
    link_speed_bps: float | None
    role: Role
    # The role that `undrain` restores.
    role_before: Role = Role.ACTIVE
    vlans: PortVlans = TRUNK
    mac: str | None = None
    # Whether the service may replace another program's qdisc on the uplink.
    replaces_qdisc: bool = False
    # The protocols that monitor the link in addition to carrier: LACP, BFD, CFM.
    watched_by: tuple[str, ...] = ()
    # Whether spanning tree blocks the uplink.
    blocked: bool = False

    def __post_init__(self) -> None:
        assert self.capacity_bps is None or self.capacity_bps > 0.0, "a capacity, or none known"

    @property
    def serves(self) -> bool:
        """Whether the role is active or standby: neither drained nor unused."""
        return self.role in (Role.ACTIVE, Role.STANDBY)


@dataclass(frozen=True, slots=True)
class VmPortConfig:
    """The configuration of a port other than an uplink. The port LOCAL counts as a VM port."""

    name: str
    ofport: OfPort
    # The VM's name, or the interface's name if the VM has no name.
    vm: str
    # The port's own policy, else the bridge's.
    policy: str
    # "port", or "source-mac" if each address behind the port is assigned to an uplink separately.
    unit: str
    vlans: PortVlans = TRUNK
    # The uplinks in both `carriers` and `allow`. In these three fields, None means all uplinks.
    allowed: frozenset[str] | None = None
    # The uplinks that carry the port's VLANs.
    carriers: frozenset[str] | None = None
    # The uplinks that the operator allows.
    allow: frozenset[str] | None = None
    # The VM's own addresses, in lower case, where known.
    attached_macs: tuple[str, ...] = ()
    # Whether frames from other addresses are accepted.
    forges: bool = True
    # Whether `forged-transmits` is `accept`. VMs on such ports may use each other's addresses.
    trusted: bool = False
    # The other rules about the port's uplink, which are passed to policies unchanged.
    rules: Rules = NO_RULES
    # Whether policies must not move the port to balance load.
    excluded: bool = False
    # The uplink that the service last wrote to the database.
    binding: str | None = None
    # The moves that count against the port's budget; times in seconds since the epoch.
    moved: tuple[Moved, ...] = ()
    # The identity under which the bridge stores the VM's rules; None if the VM has no identity.
    vm_id: str | None = None
    # All identities that no other port of the VM has; the bridge can store rules under each of them.
    vm_ids: tuple[str, ...] = ()
    # The weight of traffic above the reservation that the port sends on a full uplink; None if not set.
    shares: int | None = None
    limit_bps: float | None = None
    # Whether the port uses one uplink although its policy spreads connections. This applies to a tunnel
    # endpoint without off-home addresses whose peers would send to the source addresses of its frames.
    keeps_address: bool = False
    # A tunnel endpoint's own address, if it can use all uplinks and they are not a LAG; else None. Frames
    # to the endpoint's off-home addresses are delivered with this destination address.
    tunnel_mac: str | None = None
    # Whether the port is one of several endpoints of the userspace datapath on its bridge. Such a port is
    # not split: its inbound uplink would be random, and each endpoint is placed separately anyway.
    one_of_several: bool = False
    # The next four are as in the `InterfaceRow`, with the pins that the bridge stores for `guests`.
    endpoint: Endpoint | None = None
    tunnel_peers: tuple[tuple[str, str], ...] = ()
    mtu: int | None = None
    guests: tuple[Guest, ...] = ()
    # Whether the port is a patch port, whose counters the switch updates only about twice a second.
    is_patch: bool = False
    # Whether the port's load is computed from flow counters only, because its port counters do not
    # include the tunnels that the userspace datapath starts and ends at the port.
    counted_by_flows: bool = False

    def guest(self, mac: str) -> Guest | None:
        """Return the VM behind this port that has the address `mac`; None if not known."""
        return next((guest for guest in self.guests if guest.mac == mac), None)

    @property
    def unsplittable(self) -> bool:
        """Whether all sent traffic of the port must use one uplink."""
        return self.rules.unsplittable or self.keeps_address

    @property
    def may_spread(self) -> bool:
        """Whether the policy can spread the port's connections over several uplinks, always or by a split."""
        return PRESETS[self.policy].spreads_connections and not self.unsplittable

    @property
    def per_address(self) -> bool:
        """Whether each address behind the port is a separate unit.

        False under a hashed policy, which separates addresses itself, and with a rule that requires
        one uplink for the port.
        """
        if self.unit != "source-mac":
            return False
        return not (self.rules.unsplittable or PRESETS[self.policy].classifier.hashed)

    @property
    def is_queued(self) -> bool:
        """Whether the port has shares, a limit or a reservation."""
        asked = self.shares is not None or self.limit_bps is not None
        return asked or bool(self.rules.reserve_bps)


@dataclass(frozen=True, slots=True)
class ReadVmPort:
    """A VM port, as read from its records.

    `settings`: the port's values in force, keyed by record and key. `errors`: the invalid values.
    """

    port: PortRow
    interface: InterfaceRow
    config: VmPortConfig
    settings: Mapping[tuple[str, str], Any]
    errors: tuple[BadValue, ...]


@dataclass(frozen=True, slots=True)
class ReadVmPorts:
    """A bridge's VM ports, as read from records. `common`: the values on which all VM ports depend."""

    common: tuple[object, ...]
    by_name: Mapping[str, ReadVmPort]


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """The configuration of an attached bridge."""

    name: str
    policy: str
    teaming: str
    mode: str
    threshold_ratio: float
    window_s: float
    poll_interval_s: float
    failback_delay_s: float
    # Whether the uplinks are members of the bridge's bond.
    on_bond: bool = False
    bond_mode: str | None = None
    uplinks: tuple[UplinkConfig, ...] = ()
    # The uplinks that do not exist on the switch. Their ofports are invalid.
    absent: tuple[UplinkConfig, ...] = ()
    # Interfaces that seem to be connected to the network, but are not named as uplinks. They are not
    # used as VM ports either.
    missing: tuple[str, ...] = ()
    # The last valid team, and its text in the database.
    team: Known = field(default_factory=Known)
    team_in_database: str | None = None
    vm_ports: tuple[VmPortConfig, ...] = ()
    # The active member of an active-backup bond: NORMAL accepts frames only from it.
    active_member: str | None = None
    # Whether NORMAL snoops multicast.
    snoops: bool = False
    # The members that have recently received LACPDUs from their partner.
    lacp_current: frozenset[str] = frozenset()
    # Whether the bond also carries traffic without LACP.
    falls_back: bool = False
    # The configuration that the operator requested, while this configuration is in force because
    # LACP is not negotiated.
    instead_of: BridgeConfig | None = None
    # The hash of connections, as configured or by default.
    connection_hash: str = "multipath"
    # The VM port because of which the default is not multipath; None if the default is multipath.
    hashed_for: str | None = None
    # Whether path checks are configured, and the hosts to which uplinks send queries.
    path_check: bool = False
    path_check_targets: tuple[CheckedHost, ...] = ()
    # The `unit` of patch ports without the key `unit`.
    patch_unit: str = "port"
    # The VM ports that had the flag no-flood before attach.
    no_flood_before: frozenset[str] = frozenset()
    # The next three are as in the `BridgeRow`.
    forwards_bpdu: bool = False
    hw_offload: bool = False
    in_userspace: bool = False
    offload: Offload = NOTHING
    # Features in use that ovs-lbt does not support, and settings without effect: a line for each.
    not_done: tuple[str, ...] = ()
    errors: tuple[BadValue, ...] = ()
    # The values in force by record and key. A valid value stays in force while its record has an invalid one.
    settings: Mapping[tuple[str, str], Any] = field(default_factory=dict, compare=False)
    # The VM ports as read. A VM port whose records have not changed is not read again.
    read: ReadVmPorts | None = field(default=None, compare=False, repr=False)
    # Values derived from VM ports once, because each poll uses them several times: the policies in use,
    # the policies in use that balance load, and the ports with a unit for each address.
    policies: tuple[str, ...] = field(init=False, compare=False, repr=False)
    rebalancing: tuple[str, ...] = field(init=False, compare=False, repr=False)
    per_address: tuple[VmPortConfig, ...] = field(init=False, compare=False, repr=False)
    # The ports with shares, a limit or a reservation.
    queued: tuple[VmPortConfig, ...] = field(init=False, compare=False, repr=False)
    # The tunnel endpoints that have off-home addresses.
    endpoints: tuple[VmPortConfig, ...] = field(init=False, compare=False, repr=False)
    # The ports by name and by ofport, and the uplinks by ofport.
    port_named: Mapping[str, VmPortConfig] = field(init=False, compare=False, repr=False)
    port_at: Mapping[int, VmPortConfig] = field(init=False, compare=False, repr=False)
    uplink_at: Mapping[int, UplinkConfig] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        uplinks = {uplink.name for uplink in self.uplinks}
        assert len(uplinks) == len(self.uplinks), "an uplink is in the team once"
        assert uplinks.isdisjoint(port.name for port in self.vm_ports), "uplink or VM port"
        assert self.instead_of is None or not self.instead_of.fallen_back, "one fallback at a time"
        policies = tuple(sorted({port.policy for port in self.vm_ports}))
        found = {
            "policies": policies,
            "rebalancing": tuple(policy for policy in policies if PRESETS[policy].rebalances),
            "per_address": tuple(port for port in self.vm_ports if port.per_address),
            "queued": tuple(port for port in self.vm_ports if port.is_queued),
            "endpoints": tuple(p for p in self.vm_ports if p.tunnel_mac is not None),
            "port_named": {port.name: port for port in self.vm_ports},
            "port_at": {int(port.ofport): port for port in self.vm_ports},
            "uplink_at": {int(uplink.ofport): uplink for uplink in self.uplinks},
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def on_a_lag(self) -> bool:
        """Whether the upstream switch treats the uplinks as one link."""
        return self.teaming != Teaming.SWITCH_INDEPENDENT

    @property
    def checks_paths(self) -> bool:
        """Whether uplinks probe each other. False on a LAG, where the upstream switch picks the uplink."""
        return self.path_check and not self.on_a_lag and not self.observes_bond

    @property
    def observes(self) -> bool:
        """Whether the service makes and reports decisions, but does not move VM ports."""
        return self.mode == "observe"

    @property
    def observes_bond(self) -> bool:
        """Whether a bond is in observe mode: NORMAL forwards, without ovs-lbt flows."""
        return self.observes and self.on_bond

    @property
    def forwards(self) -> bool:
        """Whether a pipeline is possible: uplinks exist, or are configured by name but absent.

        Without a pipeline, a bridge with plain uplinks (fail mode secure) forwards no frames.
        """
        return bool(self.uplinks or self.settings.get((f"Bridge {self.name}", f"{PREFIX}uplinks")))

    @property
    def asked(self) -> BridgeConfig:
        """The configuration that the operator requested, which is not always in force."""
        return self.instead_of or self

    @property
    def fallen_back(self) -> bool:
        """Whether another configuration is in force because LACP is not negotiated."""
        return self.instead_of is not None

    def in_force(self, up: frozenset[str]) -> BridgeConfig:
        """Return the configuration in force. `up`: the uplinks that carry traffic.

        If a bond continues without LACP, the upstream switch treats its members as separate ports
        and floods each frame to each of them. While the LACP partner times out, no member carries
        traffic, so the fallback configuration is in force before a member carries traffic again. (A
        member that is down can still count as current, because it waits for its partner.)
        """
        asked = self.asked
        if not asked.falls_back or not asked.lacp_current.isdisjoint(up):
            return asked
        ports = tuple(replace(p, policy=FALLBACK_POLICY, binding=None) for p in asked.vm_ports)
        return replace(
            asked,
            policy=FALLBACK_POLICY,
            teaming="switch-independent",
            vm_ports=ports,
            instead_of=asked,
        )
