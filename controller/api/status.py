"""What the service says of itself: one picture for `show`, metrics and dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.model import Load


@dataclass(frozen=True, slots=True)
class UplinkStatus:
    """An uplink now; byte and drop counters are the switch's own, None where it has none.

    `unrelieved`: it is above the threshold, and its policy has no move that helps.
    `link_changes`: how often its link came or went since the service started. `units`: how many
    addresses behind VM ports use it, where there are such that are units of their own.
    `silent`: what hears no answer by it, though its link is there. `decided`: what it carried, or was
    offered, as the last moves for the sake of load were chosen; None before there were any.
    """

    name: str
    up: bool
    role: str
    capacity_bps: float
    load: Load
    tx_bytes: int | None
    rx_bytes: int | None
    drops: int | None
    unrelieved: bool = False
    link_changes: int = 0
    units: int | None = None
    silent: tuple[str, ...] = ()
    decided: Load | None = None

    @property
    def utilization_ratio(self) -> float:
        return self.load.utilization_ratio(self.capacity_bps)


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A VM port now. `tx` is what the VM sends, `rx` what it receives.

    `policy`: its own, else the bridge's. `bound_at` is in seconds since the epoch, None while the port is not bound.
    `planned_uplink`: where it would be if the bridge were not only observed. `rules`: what is
    wrong with each that an operator has given it; an empty text where nothing is.
    `shares`, `reserve_bps`, `limit_bps`: its part of an uplink, where somebody said so;
    `shaped_drops`: its frames that found their queue there full.
    `units`: how many of
    the addresses behind it each uplink has, where these are units of their own. `split`: what it
    sends is spread over its policy's buckets, as no uplink should carry all of it.
    `tx_packets`, `tx_dropped_packets` and so on: of its port, None where the switch does not count
    them; what it drops is not among what it passes.
    """

    name: str
    vm: str
    policy: str
    uplink: str | None
    load: Load
    reason: str | None
    bound_at: float | None
    tx_bytes: int | None
    rx_bytes: int | None
    drops: int | None
    planned_uplink: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    shares: int | None = None
    reserve_bps: float | None = None
    limit_bps: float | None = None
    shaped_drops: int | None = None
    units: dict[str, int] | None = None
    split: bool = False
    tx_packets: int | None = None
    rx_packets: int | None = None
    tx_dropped_packets: int | None = None
    rx_dropped_packets: int | None = None


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """A bridge now. Moves are counted by reason since the service started.

    `on_normal`: it is a bond that is only observed, and NORMAL forwards; the uplinks of
    ports are the planned ones. `fallen_back`: LACP is not negotiated, and until it is, one
    uplink serves all VM ports. `optimality_ratio`: the worst utilization over the least that
    any placement could reach. `buckets`: how many of a hashed policy's each uplink has.
    `budgets_spent`: the units that policies leave alone as they have moved as often as they should.
    `reannounced`, `not_followed`: how often VM ports were announced again, as inbound did not
    follow a move, and in vain.
    """

    name: str
    policy: str
    teaming: str
    mode: str
    connected: bool
    threshold_ratio: float
    imbalance_ratio: float
    optimality_ratio: float
    uplinks: tuple[UplinkStatus, ...]
    ports: tuple[PortStatus, ...]
    config_errors: tuple[str, ...]
    not_done: tuple[str, ...]
    moves_planned: dict[str, int]
    moves_applied: dict[str, int]
    moves_refused: dict[str, int]
    failovers: int
    last_decision_at: float | None
    buckets: dict[str, dict[str, int]] = field(default_factory=dict)
    on_normal: bool = False
    fallen_back: bool = False
    budgets_spent: int = 0
    reannounced: int = 0
    not_followed: int = 0

    @property
    def rules_broken(self) -> tuple[tuple[PortStatus, str, str], ...]:
        """The rules that are broken: whose, which, and what was found -> what was expected."""
        return tuple((p, rule, how) for p in self.ports for rule, how in p.rules.items() if how)
