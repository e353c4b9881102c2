"""The status of bridges for `show`, metrics and dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.config.endpoints import Endpoint
from policies.model import Load


@dataclass(frozen=True, slots=True)
class PathFaultStatus:
    """What is lost on an uplink whose link is up.

    `kind`: `unreachable`, `vlan` or `mtu`. `decided`: False if another uplink may be at fault instead.
    `vlan`: 0 for frames without a tag; None: all. `since_at`: seconds since the epoch. `found`,
    `expected`: sentences.
    """

    kind: str
    decided: bool
    vlan: int | None
    mtu: int | None
    since_at: float
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class PathHindrance:
    """What other hosts do to the path checks of an uplink.

    `kind`: `flooded`, or `address` if another host sends from the address of its probes. `seen_on`: the
    uplinks that received such frames.
    """

    kind: str
    uplink: str
    found: str
    expected: str
    seen_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UplinkStatus:
    """An uplink now. Byte and drop counters are the switch's own; None if it does not count them.

    `unrelieved`: it is above the threshold, and its policy has no move that helps. `link_changes`:
    how often its link went up or down since the service started. `units`: the number of addresses
    behind VM ports that use it, if such addresses are units of their own. `silent`: the protocols
    that receive nothing on it although its link is up. `decided`: the load, carried or offered, on
    which the last moves because of load were based; None before the first. `waits`: why it carries
    nothing, if spanning tree blocks it, or if it has received nothing since its link returned.
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
    path_faults: tuple[PathFaultStatus, ...] = ()
    path_hindered: tuple[PathHindrance, ...] = ()
    waits: str = ""

    @property
    def utilization_ratio(self) -> float:
        return self.load.utilization_ratio(self.capacity_bps)


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A VM port now. `tx` is what the VM sends, `rx` what it receives.

    `policy`: its own policy, else the bridge's. `bound_at`: seconds since the epoch; None while the
    port is not bound. `planned_uplink`: the uplink it would use in enforce mode. `rules`: for each
    of its rules what is wrong, or an empty text. `shares`, `reserve_bps`, `limit_bps`: its part of
    an uplink, where set. `shaped_drops`: its frames that were dropped because its queue was full.
    `units`: the number of addresses behind it on each uplink, if they are units of their own.
    `split`: what it sends is spread over its policy's buckets, because it is too much for one
    uplink. `tx_packets`, `tx_dropped_packets` and so on: counters of its port, None if the switch
    does not count them. Dropped packets are not included in the others. `endpoint`: the tunnels of
    Open vSwitch that are sent by it.
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
    endpoint: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """A bridge now. Moves are counted by reason since the service started.

    `on_normal`: the bridge is a bond in observe mode, and NORMAL forwards; the uplinks of ports are
    then the planned ones. `fallen_back`: LACP is not negotiated, and until it is, one uplink serves
    all VM ports. `optimality_ratio`: the highest utilization of an uplink, divided by the lowest
    that any placement could reach. `buckets`: the number of buckets of a hashed policy on each
    uplink. `budgets_spent`: the number of units that have used up their budget of moves.
    `reannounced`: how often a VM port was announced again because inbound traffic did not follow
    its move. `not_followed`: the moves that it never followed. `offload`: what hardware offload,
    DPDK ports and representors mean for the bridge. `connection_hash`: the hash of connections in
    use, why, and what it costs if that is worth telling; None if no policy of the bridge spreads connections. `path_rounds`, `path_frames`: what
    became of rounds of path checks, and of the frames in them, by result; empty while they are off.
    `flooded_pps`: the rate at which frames reach every VM port of a VLAN. `repeated_pps`: the rate
    at which all members of a LAG bring the same broadcasts. `overruling`: how many flows of other
    programs take frames before ours do.
    `failure`: the last error of ours while the bridge was handled; empty if there is none.
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
    offload: tuple[str, ...] = ()
    connection_hash: tuple[str, str, str | None] | None = None
    path_rounds: dict[str, int] = field(default_factory=dict)
    path_frames: dict[str, int] = field(default_factory=dict)
    flooded_pps: float = 0.0
    repeated_pps: float = 0.0
    overruling: int = 0
    failure: str = ""

    @property
    def rules_broken(self) -> tuple[tuple[PortStatus, str, str], ...]:
        """The broken rules: VM port, rule, and what was found -> what is expected."""
        return tuple((p, rule, how) for p in self.ports for rule, how in p.rules.items() if how)
