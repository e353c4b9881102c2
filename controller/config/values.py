"""The configuration of an attached bridge, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.config.kinds import CheckedHost, Known
from controller.config.offload import NOTHING, Offload
from controller.config.rows import Endpoint, Guest, InterfaceRow, PortRow
from controller.config.vlans import TRUNK, PortVlans
from controller.text.wording import one_line
from policies.damping import Moved
from policies.model import NO_RULES, OfPort, Role, Rules, Teaming
from policies.presets import PRESETS

# The policy in force while a bond with LACP fallback has not negotiated LACP.
FALLBACK_POLICY = "explicit"


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value in the database that cannot be in force, the problem with it, and what to do."""

    # The table and the name, for example "Bridge br0".
    record: str
    # The key with its prefix, or a column.
    key: str
    problem: str
    # Not compared to tell new errors from known ones, because the names in it may have changed.
    remedy: str = field(compare=False)

    def __str__(self) -> str:
        return one_line(f"{self.record} {self.key}: {self.problem}; {self.remedy}")


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """The configuration of an uplink."""

    name: str
    ofport: OfPort
    # From the key, or from the port's QoS; None without both.
    capacity_bps: float | None
    # From the database; None if it is not there.
    link_speed_bps: float | None
    role: Role
    # The role that `undrain` restores.
    role_before: Role = Role.ACTIVE
    vlans: PortVlans = TRUNK
    mac: str | None = None
    # Whether the service may replace a qdisc that somebody else has set on it.
    replaces_qdisc: bool = False
    # The protocols that watch the link besides carrier: LACP, BFD, CFM.
    watched_by: tuple[str, ...] = ()
    # Whether spanning tree keeps it from forwarding.
    blocked: bool = False

    def __post_init__(self) -> None:
        assert self.capacity_bps is None or self.capacity_bps > 0.0, "a capacity, or none known"

    @property
    def serves(self) -> bool:
        """Whether it is active or standby: neither drained nor unused."""
        return self.role in (Role.ACTIVE, Role.STANDBY)


@dataclass(frozen=True, slots=True)
class VmPortConfig:
    """The configuration of a port that is not an uplink. The port LOCAL is one as well."""

    name: str
    ofport: OfPort
    # The VM's name, or the interface's if the VM has no name.
    vm: str
    # The port's own policy, else the bridge's.
    policy: str
    # "port", or "source-mac": each address behind the port gets an uplink of its own.
    unit: str
    vlans: PortVlans = TRUNK
    # The uplinks in both `carriers` and `allow`. In all three, None means all uplinks of the team.
    allowed: frozenset[str] | None = None
    # The uplinks that carry the port's VLANs.
    carriers: frozenset[str] | None = None
    # The uplinks that the operator allows.
    allow: frozenset[str] | None = None
    # The VM's own addresses, in lower case, where known.
    attached_macs: tuple[str, ...] = ()
    # Whether frames from other addresses are accepted.
    forges: bool = True
    # Whether the operator says so. Such VMs may use each other's addresses.
    trusted: bool = False
    # The other rules that say where the port should be; policies get them unchanged.
    rules: Rules = NO_RULES
    # Whether policies must not move it because of load.
    excluded: bool = False
    # The uplink that the service last wrote to the database.
    binding: str | None = None
    # The moves that count against its budget; times in seconds since the epoch.
    moved: tuple[Moved, ...] = ()
    # The identity under which the Bridge keeps the VM's rules; None if the VM has none.
    vm_id: str | None = None
    # All identities that no other port of the VM has; the Bridge may keep rules under any of them.
    vm_ids: tuple[str, ...] = ()
    # The weight of what it sends on a full uplink, besides its reservation; None if not set.
    shares: int | None = None
    limit_bps: float | None = None
    # Whether it is not spread over uplinks although its policy says so, because it sends tunnels to
    # hosts that would answer to our source addresses, and has no off-home addresses.
    keeps_address: bool = False
    # Its own address, if it sends tunnels without a LAG and may leave by every uplink; else None. What
    # peers send to its off-home addresses is given to it under this one.
    tunnel_mac: str | None = None
    # Whether it is one of several endpoints of the userspace datapath on its bridge. A split would leave
    # it to chance by which uplink its inbound traffic comes, and several need none.
    one_of_several: bool = False
    # The tunnels that it sends; None if there are none.
    endpoint: Endpoint | None = None
    # The other ends of tunnels from its IPv6 addresses, each after the address.
    tunnel_peers: tuple[tuple[str, str], ...] = ()
    # Whether only flows count what it carries: the counters of a port leave out the tunnels that the
    # userspace datapath makes and ends at it.
    counted_by_flows: bool = False
    # The longest packet that it carries; None if not known.
    mtu: int | None = None
    # The VMs behind a patch port, as far as their hypervisor has written their addresses.
    guests: tuple[Guest, ...] = ()

    def guest(self, mac: str) -> Guest | None:
        """The VM behind this port that has an address, if it is known."""
        return next((guest for guest in self.guests if guest.mac == mac), None)

    @property
    def unsplittable(self) -> bool:
        """Whether all its traffic must leave on one uplink."""
        return self.rules.unsplittable or self.keeps_address

    @property
    def may_spread(self) -> bool:
        """Whether its connections may leave on several uplinks, always or at times."""
        return PRESETS[self.policy].spreads_connections and not self.unsplittable

    @property
    def per_address(self) -> bool:
        """Whether each address behind the port is a separate unit.

        Not under a hashed policy, which separates addresses anyway, nor with a rule, which keeps
        them together.
        """
        if self.unit != "source-mac":
            return False
        return not (self.rules.unsplittable or PRESETS[self.policy].classifier.hashed)

    @property
    def is_queued(self) -> bool:
        """Whether it has shares, a limit or a reservation."""
        asked = self.shares is not None or self.limit_bps is not None
        return asked or bool(self.rules.reserve_bps)


@dataclass(frozen=True, slots=True)
class ReadVmPort:
    """A VM port as it was read from its records.

    `settings`: its values in force, by record and key. `errors`: its invalid values.
    """

    port: PortRow
    interface: InterfaceRow
    config: VmPortConfig
    settings: Mapping[tuple[str, str], Any]
    errors: tuple[BadValue, ...]


@dataclass(frozen=True, slots=True)
class ReadVmPorts:
    """The VM ports of a bridge as they were read, by name. `common`: what all of them depend on."""

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
    # Interfaces that seem to lead to the network although nobody named them as uplinks. They are
    # not VM ports either.
    missing: tuple[str, ...] = ()
    # The last valid team, and its text in the database.
    team: Known = field(default_factory=Known)
    team_in_database: str | None = None
    vm_ports: tuple[VmPortConfig, ...] = ()
    # The active member of an active-backup bond: NORMAL accepts frames only from it.
    active_member: str | None = None
    # Whether NORMAL floods frames between switches, such as LLDP (`forward-bpdu`).
    forwards_bpdu: bool = False
    # Whether NORMAL snoops multicast.
    snoops: bool = False
    # The members that have recently heard from their LACP partner.
    lacp_current: frozenset[str] = frozenset()
    # Whether the bond also carries traffic without LACP.
    falls_back: bool = False
    # The configuration that the operator requested, while LACP is not negotiated and this one is in
    # force.
    instead_of: BridgeConfig | None = None
    # The hash of connections: the operator's, or the default.
    connection_hash: str = "multipath"
    # The VM port because of which the default is another than multipath; None: it is not.
    hashed_for: str | None = None
    # Whether the uplinks probe each other, as the operator asks; and the hosts that are asked as well.
    path_check: bool = False
    path_check_targets: tuple[CheckedHost, ...] = ()
    # The `unit` of patch ports that have none of their own.
    patch_unit: str = "port"
    # Whether the switch is told to have network cards forward where they can.
    hw_offload: bool = False
    # The VM ports that had the flag no-flood before attach.
    no_flood_before: frozenset[str] = frozenset()
    # Whether ovs-vswitchd itself forwards, rather than the kernel.
    in_userspace: bool = False
    offload: Offload = NOTHING
    # Features of this bridge that NORMAL supports and ovs-lbt does not, a line each.
    not_done: tuple[str, ...] = ()
    errors: tuple[BadValue, ...] = ()
    # The values in force by record and key. A value stays while its record has an invalid one.
    settings: Mapping[tuple[str, str], Any] = field(default_factory=dict, compare=False)
    # What was read of VM ports: those whose records do not change are not read again.
    read: ReadVmPorts | None = field(default=None, compare=False, repr=False)
    # What follows from the VM ports, which every poll asks for several times: the policies in use,
    # those of them that move units because of load, and the ports with a unit for each address.
    policies: tuple[str, ...] = field(init=False, compare=False, repr=False)
    rebalancing: tuple[str, ...] = field(init=False, compare=False, repr=False)
    per_address: tuple[VmPortConfig, ...] = field(init=False, compare=False, repr=False)
    # The ports with shares, a limit or a reservation.
    queued: tuple[VmPortConfig, ...] = field(init=False, compare=False, repr=False)
    # The tunnel endpoints with off-home addresses of their own.
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
        """Whether the uplinks probe each other. On a LAG the upstream switch chooses the uplink."""
        return self.path_check and not self.on_a_lag and not self.observes_bond

    @property
    def observes_bond(self) -> bool:
        """Whether NORMAL forwards, and the switch has none of our flows."""
        return self.mode == "observe" and self.on_bond

    @property
    def asked(self) -> BridgeConfig:
        """The configuration that the operator requested."""
        return self.instead_of or self

    @property
    def fallen_back(self) -> bool:
        """Whether another configuration is in force because LACP is not negotiated."""
        return self.instead_of is not None

    def in_force(self, up: frozenset[str]) -> BridgeConfig:
        """The configuration in force, given the uplinks that carry traffic.

        If a bond continues without LACP, the upstream switch treats its members as separate ports
        and floods each frame to each of them. While LACP gives up its partner, no member carries
        traffic, so the other configuration is in place before they do again. (A member that is down
        can still count as current, because it waits for its partner.)
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
