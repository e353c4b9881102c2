"""Makes Prometheus metric families of the service's status at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.api.status import BridgeStatus
from controller.host.sockets import TlsFiles
from controller.metrics import scrapes

PREFIX = "ovslbt_"
BITS_PER_BYTE = 8
SECONDS_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# Histograms of single observations: by name, the buckets in seconds.
OBSERVED = {
    "decision_duration": SECONDS_BUCKETS,
    "stats_poll_duration": SECONDS_BUCKETS,
    "settling": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    "inbound_follow": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
}
# Those that a bridge may not have for a long time.
RARE = ("settling", "inbound_follow")
# The help text of each family, by its name without prefix, `_total` and `_seconds` of a histogram.
# docs/metrics.md is generated from it.
HELP = {
    "uplink_transmit_bytes": "Bytes that the uplink sent to the network.",
    "uplink_receive_bytes": "Bytes that the uplink received from the network.",
    "uplink_drops": "Frames that the switch dropped at the uplink in either direction.",
    "uplink_capacity_bytes_per_second": "Capacity of the uplink in each direction.",
    "uplink_up": "1 while the uplink's link is up and the partner answers LACP, BFD and CFM, if they are used. 0 otherwise, and before the switch has reported the link.",
    "uplink_silent": "1 while the uplink's link is up, but the partner does not answer LACP, BFD or CFM.",
    "uplink_path_fault": "1 while path checks lose frames on the uplink although its link is up. The label kind is unreachable, vlan or mtu. The label vlan is 0 for untagged frames, and empty for all frames. The label mtu is empty except for kind mtu. The label decided is false if another uplink may be at fault instead. The metric is absent while no frames are lost, and while path checks are off.",
    "uplink_link_changes": "Number of times that the uplink's link went up or down, or that the partner started or stopped answering.",
    "uplink_utilization_ratio": "Utilization of the uplink over the last poll interval. The label direction is transmit or receive.",
    "uplink_decided_utilization_ratio": "Utilization of the uplink on which the last moves because of load were based. The history shows whether this is a mean or a peak. The value is above 1 if VM ports offered more load than the capacity. The metric is absent before the first such move.",
    "uplink_unrelieved": "1 while the uplink's mean load over the policy's window is above the threshold and no possible move would relieve the uplink.",
    "uplink_units": "Number of addresses on the uplink, if each address behind a VM port is a separate unit.",
    "uplink_info": "The role of the uplink: active, standby, unused or drained.",
    "port_transmit_bytes": "Bytes that the VM port sent.",
    "port_receive_bytes": "Bytes that the VM port received.",
    "port_drops": "Frames that the switch dropped at the VM port in either direction.",
    "port_shares": "The weight of the VM port on a full uplink, relative to other VM ports. The metric is absent if no weight is set.",
    "port_reserved_bytes_per_second": "The rate that is reserved for the VM port on its uplink. The metric is absent if no rate is reserved.",
    "port_limit_bytes_per_second": "The highest rate at which the VM port may send on an uplink. The metric is absent if no limit is set.",
    "port_shaped_drops": "Frames from the VM port that were dropped because the VM port's queue at an uplink was full. The metric is absent while uplinks have no queues for VM ports.",
    "port_binding": "1 for the uplink that the VM port uses.",
    "port_bound_timestamp_seconds": "Time when the VM port was bound to its current uplink, in seconds since the epoch. The label reason is the reason of the last move, the policy that first placed the VM port, or restored.",
    "rule_broken": "1 while the rule is broken. The metric has one sample for each rule of the VM port: allow, pin, reserve-mbps, affinity, anti-affinity or prefer.",
    "port_units": "Number of addresses behind the VM port, if each address is a separate unit (unit=source-mac).",
    "port_info": "The VM behind the port.",
    "endpoint_info": "1 if the port is a tunnel endpoint. The label address lists the source addresses of the tunnels, kind lists the tunnel types, and of lists the bridges that have the tunnels. Commas separate the values.",
    "endpoint_transmit_bytes_per_second": "Traffic from a tunnel endpoint to uplinks over the last poll interval, according to flow counters. On the userspace datapath, the byte counters of the port do not include tunnel traffic.",
    "endpoint_receive_bytes_per_second": "Traffic from uplinks to a tunnel endpoint over the last poll interval, according to flow counters.",
    "bridge_connected": "1 while the switch is connected.",
    "bridge_info": "Policy, teaming and mode of the bridge.",
    "bridge_threshold_ratio": "The share of capacity above which load moves VM ports.",
    "bridge_imbalance_ratio": "Difference between the highest and the lowest utilization of the uplinks that are up.",
    "bridge_optimality_ratio": "Utilization of the most utilized uplink, divided by the lowest value that any placement could achieve. The best value is 1. Without load, the value is 1.",
    "move_budget_exhausted": "Number of VM ports and other units that are not moved because of load, because their policy limits moves and they have moved four times in the last 180 s.",
    "inbound_reannounced": "Number of times that a VM port was announced again because inbound traffic still arrived on the old uplink after a move.",
    "inbound_not_followed": "Number of moves after which inbound traffic still arrived on the old uplink when the VM port had been announced again three times.",
    "path_rounds": "Number of rounds of path checks. The label result is judged, or void if the switch did not return the service's own probe. The metric is absent while path checks are off.",
    "path_frames": "Number of probes, and of queries to hosts, in rounds with the result judged. The label result is arrived, lost, full (lost on a full uplink), hindered (lost during a flood) or astray (only a copy arrived). Only frames with the result lost indicate a fault. The metric is absent while path checks are off.",
    "bridge_flooded_packets_per_second": "Rate of frames that reach every VM port of a VLAN, because of broadcasts or a loop. The value is the lowest rate in three polls. It is 0 while the VM ports of the VLAN receive at different rates.",
    "bridge_repeated_packets_per_second": "Rate at which all members of a LAG deliver the same broadcasts, to within 1 % of at least 100 frames. A value above 0 means that the members are separate ports on the upstream switch, and that every VM receives each broadcast once from every member. Without a LAG, the value is 0. The counters are read every 10 s.",
    "bridge_overruling_flows": "Number of other programs' flows that take precedence over the flows of ovs-lbt. The flows are read every 10 s. The command attach refuses a bridge with such flows.",
    "config_errors": "Number of values in the database that are invalid and not in force.",
    "last_decision_timestamp_seconds": "Time of the last decision of the policies, in seconds since the epoch.",
    "failovers": "Number of VM ports and buckets that were moved because their uplink failed.",
    "moves_planned": "Number of moves that were requested by a policy or an operator, or because of a failure.",
    "moves_applied": "Number of moves that the switch has made.",
    "moves_refused": "Number of moves that the switch refused, and of operators' moves that the service refused.",
    "decision_duration": "Time from decoded counters to the commands for the switch.",
    "stats_poll_duration": "Time from the request for the counters of a switch to the last answer of the switch.",
    "settling": "Time from a policy's first move because of load until the policy has no more moves to make.",
    "inbound_follow": "Time from the moment when the switch has made a move until inbound traffic first arrives on the new uplink.",
    "leader": "1 while the service leads and makes decisions. 0 while the service is on standby; a service on standby has no metrics with the label bridge.",
    "faults": "Number of times that a part of the service failed because of an unexpected exception. If a fault ended the process, the next process reports the fault.",
    "build_info": "The version of the running service.",
}


class Exporter:
    """Serves /metrics.

    Each scrape calls `read_status`, `leads` (whether this service leads) and `faults` (how often
    each part has failed) on its own thread.
    """

    def __init__(
        self,
        read_status: Callable[[], tuple[BridgeStatus, ...]],
        version: str,
        leads: Callable[[], bool] = lambda: True,
        faults: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._read_status = read_status
        self._leads = leads
        self._faults = faults
        self._version = version
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._observed = {
            name: Histogram(
                f"{PREFIX}{name}_seconds",
                HELP[name],
                ["bridge"],
                buckets=buckets,
                registry=self._registry,
            )
            for name, buckets in OBSERVED.items()
        }

    def listen(self, address: str, port: int, tls: TlsFiles | None = None) -> scrapes.Server:
        """Serve metrics on a thread of its own, over TLS if `tls` is given.

        Raises:
            OSError: the address cannot be bound.
            ValueError: a TLS file cannot be used, or the address needs TLS and has none.
        """
        return scrapes.serve(make_wsgi_app(self._registry), address, port, tls)

    def observe(self, bridge: str, histogram: str, seconds: float) -> None:
        self._observed[histogram].labels(bridge).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """All families, including those that have no sample yet."""
        bridges = self._read_status()
        for bridge in bridges:
            # Create the series now: rate() and increase() miss the first value of a new one.
            for name in RARE:
                self._observed[name].labels(bridge.name)
        yield from _uplink_families(bridges)
        yield from _port_families(bridges)
        yield from _bridge_families(bridges)
        build = _gauge("build_info", ["version"])
        build.add_metric([self._version], 1)
        leader = _gauge("leader", [])
        leader.add_metric([], float(self._leads()))
        failed = _counter("faults", ["part"])
        for part, count in self._faults().items():
            failed.add_metric([part], count)
        yield from (build, leader, failed)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the families are known only at a scrape."""
        return ()


def _uplink_families(bridges: Iterable[BridgeStatus]) -> Iterator[Metric]:
    labels = ["bridge", "uplink"]
    sent = _counter("uplink_transmit_bytes", labels)
    received = _counter("uplink_receive_bytes", labels)
    drops = _counter("uplink_drops", labels)
    capacity = _gauge("uplink_capacity_bytes_per_second", labels)
    up = _gauge("uplink_up", labels)
    utilization = _gauge("uplink_utilization_ratio", [*labels, "direction"])
    decided = _gauge("uplink_decided_utilization_ratio", [*labels, "direction"])
    info = _gauge("uplink_info", [*labels, "role"])
    unrelieved = _gauge("uplink_unrelieved", labels)
    units = _gauge("uplink_units", labels)
    changes = _counter("uplink_link_changes", labels)
    silent = _gauge("uplink_silent", labels)
    path_fault = _gauge("uplink_path_fault", [*labels, "kind", "vlan", "mtu", "decided"])
    for bridge in bridges:
        for uplink in bridge.uplinks:
            key = [bridge.name, uplink.name]
            for fault in uplink.path_faults:
                where = ["" if part is None else str(part) for part in (fault.vlan, fault.mtu)]
                decided_label = "true" if fault.decided else "false"
                _add(path_fault, [*key, fault.kind, *where, decided_label], 1)
            _add(info, [*key, uplink.role], 1)
            _add(unrelieved, key, uplink.unrelieved)
            _add(units, key, uplink.units)
            _add(changes, key, uplink.link_changes)
            _add(silent, key, bool(uplink.silent))
            _add(sent, key, uplink.tx_bytes)
            _add(received, key, uplink.rx_bytes)
            _add(drops, key, uplink.drops)
            _add(capacity, key, uplink.capacity_bps / BITS_PER_BYTE)
            _add(up, key, uplink.up)
            for family, load in ((utilization, uplink.load), (decided, uplink.decided)):
                if load is not None:
                    _add(family, [*key, "transmit"], load.tx_bps / uplink.capacity_bps)
                    _add(family, [*key, "receive"], load.rx_bps / uplink.capacity_bps)
    yield from (info, sent, received, drops, capacity, up, changes, utilization, unrelieved)
    yield from (units, silent, decided, path_fault)


def _port_families(bridges: Iterable[BridgeStatus]) -> Iterator[Metric]:
    labels = ["bridge", "port"]
    sent = _counter("port_transmit_bytes", labels)
    received = _counter("port_receive_bytes", labels)
    drops = _counter("port_drops", labels)
    binding = _gauge("port_binding", [*labels, "uplink"])
    info = _gauge("port_info", [*labels, "vm"])
    bound = _gauge("port_bound_timestamp_seconds", [*labels, "uplink", "reason"])
    broken = _gauge("rule_broken", [*labels, "rule"])
    shares = _gauge("port_shares", labels)
    reserved = _gauge("port_reserved_bytes_per_second", labels)
    limit = _gauge("port_limit_bytes_per_second", labels)
    shaped = _counter("port_shaped_drops", labels)
    units = _gauge("port_units", labels)
    endpoint = _gauge("endpoint_info", [*labels, "address", "kind", "of"])
    sent_in_tunnels = _gauge("endpoint_transmit_bytes_per_second", labels)
    received_in_tunnels = _gauge("endpoint_receive_bytes_per_second", labels)
    for bridge in bridges:
        for port in bridge.ports:
            key = [bridge.name, port.name]
            if (found := port.endpoint) is not None:
                of = (found.addresses, found.kinds, found.bridges)
                _add(endpoint, [*key, *map(",".join, of)], 1)
                _add(sent_in_tunnels, key, _bytes_per_second(port.load.tx_bps))
                _add(received_in_tunnels, key, _bytes_per_second(port.load.rx_bps))
            _add(shares, key, port.shares)
            _add(reserved, key, _bytes_per_second(port.reserve_bps))
            _add(limit, key, _bytes_per_second(port.limit_bps))
            _add(shaped, key, port.shaped_drops)
            _add(sent, key, port.tx_bytes)
            _add(received, key, port.rx_bytes)
            _add(drops, key, port.drops)
            _add(info, [*key, port.vm], 1)
            for rule, how in port.rules.items():
                _add(broken, [*key, rule], bool(how))
            if port.uplink is not None:
                _add(binding, [*key, port.uplink], 1)
                _add(bound, [*key, port.uplink, port.reason or ""], port.bound_at)
            _add(units, key, None if port.units is None else sum(port.units.values()))
    yield from (sent, received, drops, binding, bound, units, info, broken)
    yield from (shares, reserved, limit, shaped)
    yield from (endpoint, sent_in_tunnels, received_in_tunnels)


def _bridge_families(bridges: Iterable[BridgeStatus]) -> Iterator[Metric]:
    labels = ["bridge"]
    by_reason = ["bridge", "reason"]
    connected = _gauge("bridge_connected", labels)
    threshold = _gauge("bridge_threshold_ratio", labels)
    imbalance = _gauge("bridge_imbalance_ratio", labels)
    optimality = _gauge("bridge_optimality_ratio", labels)
    info = _gauge("bridge_info", [*labels, "policy", "teaming", "mode"])
    errors = _gauge("config_errors", labels)
    decided = _gauge("last_decision_timestamp_seconds", labels)
    failovers = _counter("failovers", labels)
    planned = _counter("moves_planned", by_reason)
    applied = _counter("moves_applied", by_reason)
    refused = _counter("moves_refused", by_reason)
    exhausted = _gauge("move_budget_exhausted", labels)
    reannounced = _counter("inbound_reannounced", labels)
    astray = _counter("inbound_not_followed", labels)
    rounds = _counter("path_rounds", ["bridge", "result"])
    frames = _counter("path_frames", ["bridge", "result"])
    flooded = _gauge("bridge_flooded_packets_per_second", labels)
    repeated = _gauge("bridge_repeated_packets_per_second", labels)
    overruling = _gauge("bridge_overruling_flows", labels)
    for bridge in bridges:
        key = [bridge.name]
        _add(flooded, key, bridge.flooded_pps)
        _add(repeated, key, bridge.repeated_pps)
        _add(overruling, key, bridge.overruling)
        _add(exhausted, key, bridge.budgets_spent)
        _add(reannounced, key, bridge.reannounced)
        _add(astray, key, bridge.not_followed)
        _add(info, [*key, bridge.policy, bridge.teaming, bridge.mode], 1)
        _add(connected, key, bridge.connected)
        _add(optimality, key, bridge.optimality_ratio)
        _add(threshold, key, bridge.threshold_ratio)
        _add(imbalance, key, bridge.imbalance_ratio)
        _add(errors, key, len(bridge.config_errors))
        _add(decided, key, bridge.last_decision_at)
        _add(failovers, key, bridge.failovers)
        for family, counts in (
            (planned, bridge.moves_planned),
            (applied, bridge.moves_applied),
            (refused, bridge.moves_refused),
            (rounds, bridge.path_rounds),
            (frames, bridge.path_frames),
        ):
            for counted, count in counts.items():
                _add(family, [*key, counted], count)
    yield from (info, connected, threshold, imbalance, optimality, errors, decided, failovers)
    yield from (planned, applied, refused, exhausted, reannounced, astray, rounds, frames, flooded)
    yield from (repeated, overruling)


def _bytes_per_second(rate_bps: float | None) -> float | None:
    return None if rate_bps is None else rate_bps / BITS_PER_BYTE


def _counter(name: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, HELP[name], labels=labels)


def _gauge(name: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, HELP[name], labels=labels)


def _add(
    family: CounterMetricFamily | GaugeMetricFamily, labels: list[str], value: float | None
) -> None:
    """Add a sample. A value that is not known is absent, never zero."""
    if value is not None:
        family.add_metric(labels, float(value))
