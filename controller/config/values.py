"""What an attached bridge is configured to do, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.config.vlans import TRUNK, PortVlans
from controller.text.wording import one_line, shortened
from policies.damping import Moved
from policies.model import OfPort, Role, Teaming
from policies.presets import DEFAULT_PRESET, PRESETS

# While LACP is not negotiated.
FALLBACK_POLICY = "explicit"


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that was not taken: where it stands, what it is, what was expected."""

    record: str
    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        found = shortened(self.found)
        return one_line(f"{self.record} {self.key}: {found} -> {self.expected}")


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """A member of the team. `capacity_bps` is None where only the switch knows the speed."""

    name: str
    ofport: OfPort
    capacity_bps: float | None
    link_speed_bps: float | None
    role: Role
    # What it was before a drain.
    role_before: Role = Role.ACTIVE
    vlans: PortVlans = TRUNK
    mac: str | None = None
    # Whether a qdisc that somebody else chose for it may be replaced.
    replaces_qdisc: bool = False
    # What watches its link beyond carrier.
    watched_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VmPortConfig:
    """A port that is not an uplink, LOCAL included.

    `policy`: its own, else the bridge's. `carriers`: the uplinks that carry its VLANs, and
    `allow` those that an operator says it may use, where those are not all of the team;
    `allowed`: both. `prefer`, `avoid`, `affinity` and `anti_affinity` as in `Unit`.
    """

    name: str
    ofport: OfPort
    vm: str
    policy: str = DEFAULT_PRESET
    vlans: PortVlans = TRUNK
    allowed: frozenset[str] | None = None
    carriers: frozenset[str] | None = None
    allow: frozenset[str] | None = None
    # Its own addresses, in lower case, and whether frames from others are taken from it.
    attached_macs: tuple[str, ...] = ()
    forges: bool = True
    pin: str | None = None
    prefer: tuple[str, ...] = ()
    avoid: frozenset[str] = frozenset()
    affinity: str | None = None
    anti_affinity: str | None = None
    excluded: bool = False
    binding: str | None = None
    # The moves that count against its budget; times since the epoch.
    moved: tuple[Moved, ...] = ()
    unit: str = "port"
    # Whether rules for it can be kept on the Bridge, where a VM's power cycle spares them.
    vm_id: str | None = None
    # Its part of an uplink, for what it sends; None where nobody said so.
    shares: int | None = None
    reserve_bps: float | None = None
    limit_bps: float | None = None
    # Whether a policy that may split it does so now: the state of its bridge, no configuration.
    split: bool = False

    @property
    def ruled(self) -> bool:
        """Whether there is an uplink that it should use, or should not."""
        return bool(self.prefer or self.avoid or self.affinity or self.anti_affinity)

    @property
    def whole(self) -> bool:
        """Whether all of it leaves by its home, whatever its policy is."""
        return self.pin is not None or self.allow is not None or self.ruled

    @property
    def parted(self) -> bool:
        """Whether each address behind it is a unit of its own.

        A hash parts them already, and a rule holds all of them.
        """
        if self.unit != "source-mac":
            return False
        return not (self.whole or PRESETS[self.policy].classifier.hashed)


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """Everything an attached bridge's records say; times in seconds, shares as ratios."""

    name: str
    policy: str = DEFAULT_PRESET
    teaming: str = "switch-independent"
    mode: str = "enforce"
    threshold_ratio: float = 0.75
    window_s: float = 30.0
    poll_interval_s: float = 1.0
    failback_delay_s: float = 45.0
    on_bond: bool = False
    bond_mode: str | None = None
    uplinks: tuple[UplinkConfig, ...] = ()
    # Neither uplinks nor VM ports: the network seems to be behind them, and nobody named them.
    missing: tuple[str, ...] = ()
    vm_ports: tuple[VmPortConfig, ...] = ()
    # The only member of an active-backup bond from which NORMAL takes anything.
    active_member: str | None = None
    # The members that have heard of their LACP partner, and whether the bond goes on without.
    lacp_current: frozenset[str] = frozenset()
    falls_back: bool = False
    # What the operator asked for, while LACP is not negotiated and this is in force instead.
    instead_of: BridgeConfig | None = None
    # VM ports that NORMAL did not flood to before we came.
    no_flood_before: frozenset[str] = frozenset()
    in_userspace: bool = False
    not_done: tuple[str, ...] = ()
    errors: tuple[BadValue, ...] = ()
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
