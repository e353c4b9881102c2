"""What an attached bridge is configured to do, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.config.vlans import TRUNK, PortVlans
from controller.text.wording import one_line, shortened
from policies.damping import Moved
from policies.model import NO_RULES, OfPort, Role, Rules, Teaming
from policies.presets import DEFAULT_PRESET, PRESETS

# The policy in force while a bond with LACP fallback negotiates no LACP.
FALLBACK_POLICY = "explicit"


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value in the database that is not in force, and what is expected instead."""

    # The table and the name, such as "Bridge br0".
    record: str
    # The key with its prefix, or a column.
    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        found = shortened(self.found)
        return one_line(f"{self.record} {self.key}: {found} -> {self.expected}")


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """What the database says of an uplink."""

    name: str
    ofport: OfPort
    # As an operator says, or the port's QoS; None where neither does.
    capacity_bps: float | None
    # As the database says; None where it does not.
    link_speed_bps: float | None
    role: Role
    # The role that `undrain` restores.
    role_before: Role = Role.ACTIVE
    vlans: PortVlans = TRUNK
    mac: str | None = None
    # Whether the service may replace a qdisc that somebody else has set on it.
    replaces_qdisc: bool = False
    # The protocols that watch its link besides carrier: LACP, BFD, CFM.
    watched_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VmPortConfig:
    """What the database says of a port that is not an uplink; the port LOCAL is one, too."""

    name: str
    ofport: OfPort
    # The VM's name where it has one, else the interface's.
    vm: str
    # Its own policy if it has one, else the bridge's.
    policy: str = DEFAULT_PRESET
    vlans: PortVlans = TRUNK
    # The uplinks in both `carriers` and `allow`. None, here and in these: all of the team.
    allowed: frozenset[str] | None = None
    # The uplinks that carry its VLANs.
    carriers: frozenset[str] | None = None
    # The uplinks that an operator allows.
    allow: frozenset[str] | None = None
    # The VM's own addresses, in lower case, where they are known.
    attached_macs: tuple[str, ...] = ()
    # Whether frames from other addresses are accepted.
    forges: bool = True
    # What else an operator asks of where it goes; policies get it as it is.
    rules: Rules = NO_RULES
    # Whether no policy moves it because of load.
    excluded: bool = False
    # The uplink that the service wrote down last.
    binding: str | None = None
    # The moves that count against its budget; times since the epoch.
    moved: tuple[Moved, ...] = ()
    # "port", or "source-mac": each address behind it is placed by itself.
    unit: str = "port"
    # The identity by which the Bridge keeps its rules; None where the VM has none.
    vm_id: str | None = None
    # Its part of an uplink besides what it is promised, for what it sends; None where nobody
    # said so.
    shares: int | None = None
    limit_bps: float | None = None
    # Whether what it sends is spread over uplinks now. That is state of its bridge.
    split: bool = False

    @property
    def parted(self) -> bool:
        """Whether each address behind it is a unit of its own.

        A hash parts them already, and a rule holds all of them.
        """
        if self.unit != "source-mac":
            return False
        return not (self.rules.whole or PRESETS[self.policy].classifier.hashed)


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """What the database says of an attached bridge."""

    name: str
    policy: str = DEFAULT_PRESET
    teaming: str = "switch-independent"
    mode: str = "enforce"
    threshold_ratio: float = 0.75
    window_s: float = 30.0
    poll_interval_s: float = 1.0
    failback_delay_s: float = 45.0
    # Whether the uplinks are members of the bridge's bond.
    on_bond: bool = False
    bond_mode: str | None = None
    uplinks: tuple[UplinkConfig, ...] = ()
    # Interfaces that lead to the network, as it seems, though nobody named them as uplinks.
    # They are not VM ports either.
    missing: tuple[str, ...] = ()
    vm_ports: tuple[VmPortConfig, ...] = ()
    # The member of an active-backup bond from which alone NORMAL accepts frames.
    active_member: str | None = None
    # The members that have heard from their LACP partner lately.
    lacp_current: frozenset[str] = frozenset()
    # Whether the bond carries traffic without LACP, too.
    falls_back: bool = False
    # What the operator asked for, while this is in force instead, as LACP is not negotiated.
    instead_of: BridgeConfig | None = None
    # The VM ports that had the flag no-flood before attach.
    no_flood_before: frozenset[str] = frozenset()
    # Whether ovs-vswitchd forwards by itself, rather than the kernel.
    in_userspace: bool = False
    # What NORMAL does on this bridge and ovs-lbt does not, a line each.
    not_done: tuple[str, ...] = ()
    errors: tuple[BadValue, ...] = ()
    # The values in force by record and key: they stay while a record has a bad one.
    settings: Mapping[tuple[str, str], Any] = field(default_factory=dict, compare=False)

    @property
    def on_a_lag(self) -> bool:
        """Whether the switch upstream takes the uplinks for one link."""
        return self.teaming != Teaming.SWITCH_INDEPENDENT

    @property
    def asked(self) -> BridgeConfig:
        """What the operator asked for."""
        return self.instead_of or self

    @property
    def fallen_back(self) -> bool:
        """Whether something else is in force, as LACP is not negotiated."""
        return self.instead_of is not None

    def in_force(self, up: frozenset[str]) -> BridgeConfig:
        """What is done now, given the uplinks that carry traffic.

        Where a bond goes on without LACP, the switch upstream takes its members for ports of
        their own and floods each frame by each. None of them carries anything while LACP
        gives its partner up: what is needed then is ready before they do again. (A member
        that is down may be called current; it still hopes for its partner.)
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
