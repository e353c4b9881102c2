"""The status of bridges for `show`, metrics and dashboards, with its JSON form and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from controller.api.events import UNSUPPORTED, PortCounters
from controller.api.history import fields
from controller.config.rows import Endpoint
from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane.drops import Drop
from policies.model import Load, Reason, Uplink
from policies.path_faults import PathFault
from policies.rules import Rule

BITS_PER_BYTE = 8
Shown = TypeVar("Shown")
# A number, None if the number is not known, or numbers by label value (by tuple for several labels).
Value = float | None | Mapping[Any, float | None]


@dataclass(frozen=True, slots=True)
class PathHindrance:
    """A disturbance of an uplink's path checks by other hosts.

    `kind`: `flooded` (too many frames to or from probe addresses), or `address` (another host sends from
    the uplink's probe address). `seen_on`: the uplinks that received those frames.
    """

    kind: str
    uplink: str
    found: str
    expected: str
    seen_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UplinkStatus:
    """The state of an uplink. `counters`: the uplink's counters in the last poll.

    `unrelieved`: the uplink is above the threshold, and its policy has no move that helps.
    `link_changes`: link changes since the service started. `units`: the number of addresses behind
    VM ports on the uplink, if each is a separate unit. `silent`: the protocols that receive no
    answers on the uplink although its link is up. `decided`: the load, carried or offered, on which
    the last load-balancing moves were based; None before the first move. `path_faults`: faults,
    with the times at which they began, in seconds since the epoch. `waits`: why the uplink is not
    used yet: spanning tree blocks the uplink, or no frame has arrived on it since its link came up.
    `absent`: the uplink does not exist on the switch, for example if its device is missing.
    `capacity_guessed`: the capacity is neither configured nor reported by the switch.
    """

    uplink: Uplink
    up: bool
    counters: PortCounters
    unrelieved: bool = False
    link_changes: int = 0
    units: int | None = None
    silent: tuple[str, ...] = ()
    decided: Load | None = None
    path_faults: tuple[tuple[PathFault, float], ...] = ()
    path_hindered: tuple[PathHindrance, ...] = ()
    waits: str = ""
    absent: bool = False
    capacity_guessed: bool = False


@dataclass(frozen=True, slots=True)
class PortStatus:
    """The state of a VM port. `load.tx_bps`: traffic from the VM; `load.rx_bps`: traffic to the VM.

    `counters`: the port's counters in the last poll, out of the switch (`tx`) and into the switch (`rx`);
    the numbers of packets exclude dropped packets. `bound_at`: seconds since the epoch; None while the
    port is not bound. `planned_uplink`: the uplink that the port would use in enforce mode. `rules`: by
    rule, a description of its violation; empty if the rule is met. `shaped_drops`: the port's frames that
    were dropped because its queue was full. `units`: the number of addresses behind the port on each
    uplink, if each address is a separate unit. `split`: sent traffic is spread over the policy's buckets,
    because one uplink is too small for this traffic. `dropped_on_purpose`: the port's frames that ovs-lbt
    dropped, by reason (`controller.dataplane.drops`), since the service has read their counters.
    """

    port: VmPortConfig
    uplink: str | None
    load: Load
    reason: str | None
    bound_at: float | None
    counters: PortCounters
    planned_uplink: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    shaped_drops: int | None = None
    units: dict[str, int] | None = None
    split: bool = False
    dropped_on_purpose: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """The state of a bridge. Moves are counted by reason since the service started.

    `config`: the configuration that the operator requested. `on_normal`: the bridge has a bond and is in
    observe mode, so NORMAL forwards, and the uplinks of VM ports are only planned. `fallen_back`: LACP is
    not negotiated, so one uplink serves all VM ports. `optimality_ratio`: the highest utilization of an
    uplink, divided by the lowest value that any placement could reach. `buckets`: for each hashed policy,
    the number of buckets on each uplink. `budgets_spent`: the number of units that have used up their
    move budget. `reannounced`: the number of announcements that were repeated because inbound traffic did
    not follow a move. `not_followed`: the number of moves that inbound traffic never followed.
    `connection_hash`: the connection hash in use, the reason, and the cost if it is not negligible; None
    if no policy of the bridge spreads connections. `path_rounds`, `path_frames`: rounds of path checks
    and their frames, by result; empty if path checks are off. `flooded_pps`: the rate of frames that
    reach every VM port in a VLAN. `repeated_pps`: the rate of broadcasts that all members of a LAG
    deliver. `overruling`: the number of other programs' flows that take precedence over our flows.
    `failure`: the last internal error while the bridge was handled; empty if there is none.
    """

    config: BridgeConfig
    connected: bool
    imbalance_ratio: float
    optimality_ratio: float
    uplinks: tuple[UplinkStatus, ...]
    ports: tuple[PortStatus, ...]
    not_done: tuple[str, ...]
    moves_planned: dict[str, int]
    moves_applied: dict[str, int]
    moves_refused: dict[str, int]
    last_decision_at: float | None
    buckets: dict[str, dict[str, int]] = field(default_factory=dict)
    on_normal: bool = False
    fallen_back: bool = False
    budgets_spent: int = 0
    reannounced: int = 0
    not_followed: int = 0
    connection_hash: tuple[str, str, str | None] | None = None
    path_rounds: dict[str, int] = field(default_factory=dict)
    path_frames: dict[str, int] = field(default_factory=dict)
    flooded_pps: float = 0.0
    repeated_pps: float = 0.0
    overruling: int = 0
    failure: str = ""

    @property
    def rules_broken(self) -> tuple[tuple[PortStatus, str, str], ...]:
        """The broken rules: VM port, rule, and a description of the current and the required uplink."""
        return tuple((p, rule, how) for p in self.ports for rule, how in p.rules.items() if how)


# ---- JSON ------------------------------------------------------------------------------


def as_json(bridge: BridgeStatus) -> dict[str, Any]:
    """Return a bridge as JSON (docs/reference/json.md): rates in bit/s, times in seconds since the epoch."""
    config = bridge.config
    of_hash = zip(("used", "why", "cost"), bridge.connection_hash or (), strict=False)
    hashed = {name: value for name, value in of_hash if value is not None}
    return {
        **fields(config, "name", "policy", "teaming", "mode"),
        "connected": bridge.connected,
        "threshold_ratio": config.threshold_ratio,
        "uplinks": [_uplink(uplink) for uplink in bridge.uplinks],
        "ports": [_port(port) for port in bridge.ports],
        "buckets": bridge.buckets,
        **({"connection_hash": hashed} if hashed else {}),
        "config_errors": [*map(str, config.errors)],
        **fields(bridge, "not_done"),
        "rules_broken": [
            {"port": of.port.name, "vm": of.port.vm, "rule": rule, "how": how}
            for of, rule, how in bridge.rules_broken
        ],
        **_if_set(bridge, "fallen_back", "on_normal"),
        **({"offload": [*config.offload.told]} if config.offload.told else {}),
        **_if_set(bridge, "failure"),
    }


def _uplink(uplink: UplinkStatus) -> dict[str, Any]:
    faults = [
        fields(fault, "kind", "decided", "vlan", "mtu")
        | {"since_at": since_at, **fields(fault, "found", "expected")}
        for fault, since_at in uplink.path_faults
    ]
    return {
        "name": uplink.uplink.name,
        "up": uplink.up,
        "role": uplink.uplink.role.value,
        **fields(uplink.uplink, "capacity_bps"),
        **fields(uplink.uplink.load, "tx_bps", "rx_bps"),
        **fields(uplink.uplink, "utilization_ratio"),
        **_if_set(uplink, "silent", "waits", "absent", "capacity_guessed"),
        **({"path_faults": faults} if faults else {}),
        **_if_set(uplink, "path_hindered"),
    }


def _port(of: PortStatus) -> dict[str, Any]:
    port, counters = of.port, of.counters
    return {
        **fields(port, "name", "vm", "policy"),
        "uplink": of.uplink,
        **fields(of.load, "tx_bps", "rx_bps"),
        "tx_packets": _counted(counters.rx_packets),
        "rx_packets": _counted(counters.tx_packets),
        "tx_dropped_packets": _counted(counters.rx_dropped),
        "rx_dropped_packets": _counted(counters.tx_dropped),
        **fields(of, "reason", "bound_at"),
        **_if_set(of, "planned_uplink"),
        **_if_set(port, "shares"),
        **_if_set(port.rules, "reserve_bps"),
        **_if_set(port, "limit_bps"),
        **_if_set(of, "units", "split"),
        **({"dropped_on_purpose": {**of.dropped_on_purpose}} if of.dropped_on_purpose else {}),
        **({"pinned": True} if of.rules.get(Rule.PIN.value) == "" else {}),
        **_if_set(port, "endpoint"),
    }


def _counted(counter: float) -> int | None:
    """Return a counter as an integer; None if the switch does not support this counter."""
    return None if counter == UNSUPPORTED else int(counter)


def _drops(counters: PortCounters) -> int | None:
    drops = [counters.tx_dropped, counters.rx_dropped]
    known = [drop for drop in drops if drop != UNSUPPORTED]
    return sum(known) if known else None


def _if_set(record: object, *names: str) -> dict[str, Any]:
    """Return the named fields of a record whose value is not None, false or empty, for JSON."""
    unset: tuple[Any, ...] = (None, False, "", [])
    return {name: value for name, value in fields(record, *names).items() if value not in unset}


# ---- metrics ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusMetric(Generic[Shown]):
    """A metric of an uplink, VM port or bridge. `labels`: its labels except the record's name."""

    read: Callable[[Shown], Value]
    labels: tuple[str, ...]
    is_counter: bool

    def samples(self, record: Shown) -> Iterable[tuple[tuple[str, ...], float | None]]:
        """Return the samples of a record, each as its label values, in order, and its value."""
        value = self.read(record)
        if not isinstance(value, Mapping):
            return (((), value),)
        return (((at,) if isinstance(at, str) else at, number) for at, number in value.items())


def _gauge(read: Callable[[Shown], Value], *labels: str) -> StatusMetric[Shown]:
    return StatusMetric(read, labels, is_counter=False)


def _counter(read: Callable[[Shown], Value], *labels: str) -> StatusMetric[Shown]:
    return StatusMetric(read, labels, is_counter=True)


def _of_capacity(load: Load | None, uplink: UplinkStatus) -> dict[str, float | None]:
    """Return a load as shares of an uplink's capacity, by direction."""
    if load is None:
        return {}
    of = uplink.uplink.capacity_bps
    return {"transmit": load.tx_bps / of, "receive": load.rx_bps / of}


def _fault_labels(fault: PathFault) -> tuple[str, ...]:
    where = ("" if part is None else str(part) for part in (fault.vlan, fault.mtu))
    return (fault.kind, *where, "true" if fault.decided else "false")


def _endpoint_labels(found: Endpoint) -> tuple[str, ...]:
    return tuple(map(",".join, (found.addresses, found.kinds, found.bridges)))


def _dropped_by_reason(of: PortStatus) -> Mapping[str, int]:
    """Return the frames dropped on purpose. Zeros let `increase` see the first frames that NORMAL would deliver."""
    owned = [Drop.CLAIMED] if of.port.attached_macs else []
    expected = owned if of.port.forges else [*owned, Drop.ADDRESS]
    return {**dict.fromkeys(map(str, expected), 0), **of.dropped_on_purpose}


def _bytes_per_second(rate_bps: float | None) -> float | None:
    return None if rate_bps is None else rate_bps / BITS_PER_BYTE


# The metrics of each uplink, of each VM port, and of each bridge.
UPLINK_METRICS: Mapping[str, StatusMetric[UplinkStatus]] = {
    "uplink_info": _gauge(lambda u: {u.uplink.role.value: 1}, "role"),
    "uplink_transmit_bytes": _counter(lambda u: _counted(u.counters.tx_bytes)),
    "uplink_receive_bytes": _counter(lambda u: _counted(u.counters.rx_bytes)),
    "uplink_drops": _counter(lambda u: _drops(u.counters)),
    "uplink_capacity_bytes_per_second": _gauge(lambda u: _bytes_per_second(u.uplink.capacity_bps)),
    "uplink_capacity_guessed": _gauge(lambda u: u.capacity_guessed),
    "uplink_up": _gauge(lambda u: u.up),
    "uplink_link_changes": _counter(lambda u: u.link_changes),
    "uplink_utilization_ratio": _gauge(lambda u: _of_capacity(u.uplink.load, u), "direction"),
    "uplink_unrelieved": _gauge(lambda u: u.unrelieved),
    "uplink_units": _gauge(lambda u: u.units),
    "uplink_silent": _gauge(lambda u: bool(u.silent)),
    "uplink_decided_utilization_ratio": _gauge(lambda u: _of_capacity(u.decided, u), "direction"),
    "uplink_path_fault": _gauge(
        lambda u: {_fault_labels(f): 1 for f, _ in u.path_faults}, "kind", "vlan", "mtu", "decided"
    ),
}
PORT_METRICS: Mapping[str, StatusMetric[PortStatus]] = {
    "port_transmit_bytes": _counter(lambda p: _counted(p.counters.rx_bytes)),
    "port_receive_bytes": _counter(lambda p: _counted(p.counters.tx_bytes)),
    "port_drops": _counter(lambda p: _drops(p.counters)),
    "port_dropped_on_purpose": _counter(_dropped_by_reason, "reason"),
    "port_binding": _gauge(lambda p: {p.uplink: 1} if p.uplink else {}, "uplink"),
    "port_bound_timestamp_seconds": _gauge(
        lambda p: {(p.uplink, p.reason or ""): p.bound_at} if p.uplink else {}, "uplink", "reason"
    ),
    "port_units": _gauge(lambda p: None if p.units is None else sum(p.units.values())),
    "port_info": _gauge(lambda p: {p.port.vm: 1}, "vm"),
    "rule_broken": _gauge(lambda p: {rule: bool(how) for rule, how in p.rules.items()}, "rule"),
    "port_shares": _gauge(lambda p: p.port.shares),
    "port_reserved_bytes_per_second": _gauge(
        lambda p: _bytes_per_second(p.port.rules.reserve_bps or None)
    ),
    "port_limit_bytes_per_second": _gauge(lambda p: _bytes_per_second(p.port.limit_bps)),
    "port_shaped_drops": _counter(lambda p: p.shaped_drops),
    "endpoint_info": _gauge(
        lambda p: {_endpoint_labels(p.port.endpoint): 1} if p.port.endpoint else {},
        "address",
        "kind",
        "of",
    ),
    "endpoint_transmit_bytes_per_second": _gauge(
        lambda p: _bytes_per_second(p.load.tx_bps) if p.port.endpoint else None
    ),
    "endpoint_receive_bytes_per_second": _gauge(
        lambda p: _bytes_per_second(p.load.rx_bps) if p.port.endpoint else None
    ),
}
BRIDGE_METRICS: Mapping[str, StatusMetric[BridgeStatus]] = {
    "bridge_info": _gauge(
        lambda b: {(b.config.policy, b.config.teaming, b.config.mode): 1},
        "policy",
        "teaming",
        "mode",
    ),
    "bridge_connected": _gauge(lambda b: b.connected),
    "bridge_threshold_ratio": _gauge(lambda b: b.config.threshold_ratio),
    "bridge_imbalance_ratio": _gauge(lambda b: b.imbalance_ratio),
    "bridge_optimality_ratio": _gauge(lambda b: b.optimality_ratio),
    "config_errors": _gauge(lambda b: len(b.config.errors)),
    "last_decision_timestamp_seconds": _gauge(lambda b: b.last_decision_at),
    "failovers": _counter(lambda b: b.moves_applied[Reason.FAILOVER]),
    "moves_planned": _counter(lambda b: b.moves_planned, "reason"),
    "moves_applied": _counter(lambda b: b.moves_applied, "reason"),
    "moves_refused": _counter(lambda b: b.moves_refused, "reason"),
    "move_budget_exhausted": _gauge(lambda b: b.budgets_spent),
    "inbound_reannounced": _counter(lambda b: b.reannounced),
    "inbound_not_followed": _counter(lambda b: b.not_followed),
    "path_rounds": _counter(lambda b: b.path_rounds, "result"),
    "path_frames": _counter(lambda b: b.path_frames, "result"),
    "bridge_flooded_packets_per_second": _gauge(lambda b: b.flooded_pps),
    "bridge_repeated_packets_per_second": _gauge(lambda b: b.repeated_pps),
    "bridge_overruling_flows": _gauge(lambda b: b.overruling),
}
# The help text of each metric above. docs/metrics.md has them in this order.
METRIC_HELP = {
    "uplink_transmit_bytes": "Bytes that the uplink sent to the network.",
    "uplink_receive_bytes": "Bytes that the uplink received from the network.",
    "uplink_drops": "Frames that the switch dropped at the uplink in either direction.",
    "uplink_capacity_bytes_per_second": "Capacity of the uplink in each direction.",
    "uplink_capacity_guessed": "1 while the capacity is a guess, because it is neither configured nor reported by the switch. The guess is the lowest known capacity of the other uplinks, or 1000 Mbit/s if none is known.",
    "uplink_up": "1 while the uplink's link is up and the partner answers LACP, BFD and CFM, if they are used. 0 otherwise, before the switch has reported the link, and while the uplink has no device.",
    "uplink_silent": "1 while the uplink's link is up, but the partner does not answer LACP, BFD or CFM.",
    "uplink_path_fault": "1 while path-check frames are lost on the uplink although its link is up. The label kind is unreachable, vlan or mtu. The label vlan is 0 for untagged frames, and empty for all VLANs. The label mtu is set only for kind mtu. The label decided is false if the fault may be on another uplink. The metric is absent while no frames are lost, and while path checks are off.",
    "uplink_link_changes": "Number of times that the uplink's link went up or down, or that the partner started or stopped answering.",
    "uplink_utilization_ratio": "Utilization of the uplink over the last poll interval. The label direction is transmit or receive.",
    "uplink_decided_utilization_ratio": "Utilization of the uplink that caused the last moves to balance load. The history shows whether this value is a mean or a peak. The value is above 1 if VM ports offered more load than the capacity. The metric is absent before the first such move.",
    "uplink_unrelieved": "1 while the uplink's mean load over the policy's window is above the threshold and no possible move would relieve the uplink.",
    "uplink_units": "Number of addresses on the uplink, if each address behind a VM port is a separate unit.",
    "uplink_info": "The role of the uplink: active, standby, unused or drained.",
    "port_transmit_bytes": "Bytes that the VM port sent.",
    "port_receive_bytes": "Bytes that the VM port received.",
    "port_drops": "Frames that the switch dropped at the VM port in either direction.",
    "port_dropped_on_purpose": "Frames of the VM port that ovs-lbt dropped. The label reason is address (the source address is not in attached-mac), claimed-address (another VM port sent from this port's address), vlan (the port does not carry the VLAN), second-tag (a second VLAN tag) or multicast-source (the source address is a multicast address). The counters are read every 10 s. A reason without such frames may be absent.",
    "port_shares": "The weight of the VM port on a full uplink, relative to other VM ports. The metric is absent if no weight is set.",
    "port_reserved_bytes_per_second": "The rate that is reserved for the VM port on its uplink. The metric is absent if no rate is reserved.",
    "port_limit_bytes_per_second": "The highest rate at which the VM port can send on an uplink. The metric is absent if no limit is set.",
    "port_shaped_drops": "Frames from the VM port that were dropped because the VM port's queue at an uplink was full. The metric is absent while uplinks have no queues for VM ports.",
    "port_binding": "1 for the uplink that the VM port uses.",
    "port_bound_timestamp_seconds": "Time when the VM port was bound to its current uplink, in seconds since the epoch. The label reason is the reason for the last move, the name of the policy that first placed the VM port, or the word restored.",
    "rule_broken": "1 while the rule is broken. The metric has one sample for each rule of the VM port: allow, pin, reserve-mbps, affinity, anti-affinity or prefer.",
    "port_units": "Number of addresses behind the VM port, if each address is a separate unit (unit=source-mac).",
    "port_info": "The VM behind the port.",
    "endpoint_info": "1 if the port is a tunnel endpoint. Its labels contain lists, separated by commas: the source addresses of the tunnels (label address), the tunnel types (label kind), and the bridges that have the tunnels (label of).",
    "endpoint_transmit_bytes_per_second": "Traffic from a tunnel endpoint to uplinks over the last poll interval, according to flow counters. On the userspace datapath, the byte counters of the port do not include tunnel traffic.",
    "endpoint_receive_bytes_per_second": "Traffic from uplinks to a tunnel endpoint over the last poll interval, according to flow counters.",
    "bridge_connected": "1 while the service is connected to the bridge.",
    "bridge_info": "Policy, teaming and mode of the bridge.",
    "bridge_threshold_ratio": "Utilization above which the policy moves VM ports to balance load, as a share of the uplink's capacity.",
    "bridge_imbalance_ratio": "Difference between the highest and the lowest utilization of the uplinks that are up.",
    "bridge_optimality_ratio": "Utilization of the most utilized uplink, divided by the lowest value that any placement could achieve. The best value is 1. Without load, the value is 1.",
    "move_budget_exhausted": "Number of VM ports and other units currently exempt from load balancing, because their policy limits moves and they have moved four times in the last 180 s.",
    "inbound_reannounced": "Number of times that a VM port was announced again because inbound traffic still arrived on the old uplink after a move.",
    "inbound_not_followed": "Number of moves after which inbound traffic still arrived on the old uplink, even after three further announcements of the VM port.",
    "path_rounds": "Number of rounds of path checks. The label result is judged if the results were used, or void if the switch did not return the service's own probe. The metric is absent while path checks are off.",
    "path_frames": "Number of probes, and of queries to hosts, in rounds whose results were used. The label result is arrived, lost, full (lost on a full uplink), hindered (lost during a flood) or astray (only a copy arrived). Only frames with the result lost indicate a fault. The metric is absent while path checks are off.",
    "bridge_flooded_packets_per_second": "Rate of frames that reach every VM port in a VLAN, because of broadcasts or a loop. The value is the lowest rate in the last three polls. It is 0 while the VM ports of the VLAN receive at different rates.",
    "bridge_repeated_packets_per_second": "Rate of broadcasts that all members of a LAG deliver. It is 0 unless at least 100 frames arrived on each member, and these numbers differ by at most 1 %. A value above 0 means that the members are separate ports on the upstream switch, and that every VM receives each broadcast once from every member. Without a LAG, the value is 0. The counters are read every 10 s.",
    "bridge_overruling_flows": "Number of other programs' flows that take precedence over ovs-lbt flows. The flows are read every 10 s. The command attach refuses a bridge with such flows.",
    "config_errors": "Number of values in the database that are invalid and not in force.",
    "last_decision_timestamp_seconds": "Time of the policies' last decision, in seconds since the epoch.",
    "failovers": "Number of VM ports and buckets that were moved because their uplink failed.",
    "moves_planned": "Number of moves that a policy or an operator requested, or that a failure required.",
    "moves_applied": "Number of moves that the switch has made.",
    "moves_refused": "Number of moves that the switch refused, and of operators' moves that the service refused.",
}
