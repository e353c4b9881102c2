"""Series of states that the simulated hosts do not reach, as Prometheus would have stored them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from dashboards.queries import MOST
from tests.unit.dashboards.simulated import BEGIN_S, HOUR_S, JOB, SCRAPE_S, Recorded

SYNTHETIC_BEGIN_S = BEGIN_S + 72 * HOUR_S
SHOWN_S = 600.0
NOW_S = SYNTHETIC_BEGIN_S + SHOWN_S
TIMES_S = [n * SCRAPE_S for n in range(int(SHOWN_S / SCRAPE_S) + 1)]
BRIDGE = "br0"

# By service: the role of its uplink without a link. Only one in service is wrong.
ROLES = {"drained:9476": "drained", "standby:9476": "standby"}
# By uplink: whether it is up, whether its peer is silent, and what its path checks find.
PATHS = "paths:9476"
UPLINKS = {
    "eth1": (1, 0, None),
    "eth2": (0, 0, "unreachable"),
    "eth3": (1, 0, "vlan"),
    "eth4": (0, 0, None),
    "eth5": (0, 1, "mtu"),
    "eth6": (0, 1, None),
}
# Counters of bridge br0 of that service, by their labels: how much they grow in a second.
PER_SECOND = {
    ("path_frames_total", "result"): {"arrived": 10, "lost": 2, "full": 0},
    ("path_rounds_total", "result"): {"judged": 2, "void": 0},
    ("uplink_drops_total", "uplink"): {"eth1": 3, "eth3": 0},
    ("port_drops_total", "port"): {"vnet0": 4, "vnet1": 0},
    ("port_shaped_drops_total", "port"): {"vnet0": 5, "vnet1": 0},
    ("port_dropped_on_purpose_total", "reason"): {"address": 6, "vlan": 0},
}
# By service: for each of its bridges, whether the switch answers, and how old the last decision is.
# The instances have the forms of names and addresses that Prometheus knows hosts by.
DECISIONS: dict[str, list[tuple[bool, float | None]]] = {
    "kvm-07.example.org:9476": [(True, 6)],
    "kvm-07.example.org:9477": [(True, 7), (True, 45), (True, 10)],
    "kvm-08:9476": [(True, 240), (True, 4)],
    # The decision of one bridge does not stand for another bridge that has none.
    "10.0.0.7:9476": [(True, 30), (True, None)],
    "[fe80::1]:9476": [(True, 31)],
    # Nothing is decided for a switch that has not answered yet.
    "7up.example.org:9476": [(True, 29), (False, None)],
    "kvm-09.example.org": [(True, 5), (False, 46)],
    "none-decided": [(True, None)],
    # More bridges than a graph shows.
    **{f"busy{n}": [(True, 11.0 + n)] for n in range(MOST)},
}
ALERT = {"alertname": "OvsLbtServiceDown", "alertstate": "firing", "severity": "critical"}
# Scrapes of a counter by service: a number of samples with the same value, or without one.
COUNTED: dict[str, list[tuple[int, int | None]]] = {
    "count-one": [(30, 0), (91, 1)],
    "count-eight": [(31, 0), (90, 8)],
    "count-in-turn": [*((1, n) for n in range(20)), (101, 20)],
    "count-restart": [(10, 0), (20, 5), (10, None), (3, 0), (78, 2)],
    "count-quick-restart": [(10, 0), (21, 5), (1, 0), (1, 2), (88, 3)],
    "count-last-before-restart": [(30, 0), (1, 4), (20, None), (70, 0)],
    "count-gap": [(30, 0), (20, None), (71, 6)],
    "count-new": [(33, None), (20, 1), (68, 2)],
    "count-from-before": [(121, 50)],
}
# Forty hosts, four of them with a fault. Each has a little less load than the one before: so it is not
# chance which of them are the highest ten.
HOSTS = [f"node{n:02}:9476" for n in range(1, 41)]
DEAD, LINKLESS, MISCONFIGURED, FULL = "node07:9476", "node12:9476", "node23:9476", "node31:9476"
LOAD_STEP = 1e-6
OF_BRIDGES = {
    "bridge_imbalance_ratio": 0.01,
    "bridge_optimality_ratio": 1.01,
    "move_budget_exhausted": 1.0,
}
# Bridges that are slow one after another, the later ones for longer, and bridges without events.
SLOW, IDLE = 14, 2
HISTOGRAMS = {
    "stats_poll_duration_seconds_bucket": "sluggish",
    "settling_seconds_bucket": "settling",
}

Labels = dict[str, str]


@dataclass
class _Made:
    series: Recorded = field(default_factory=dict)

    def add(self, name: str, labels: Labels, value: float = 1.0, per_s: float = 0.0) -> None:
        """A series that has this value first, and grows by `per_s` each second."""
        self.add_values(name, labels, [value + per_s * t_s for t_s in TIMES_S])

    def add_values(self, name: str, labels: Labels, values: Iterable[float | None]) -> None:
        self.series[name, tuple(sorted(labels.items()))] = [
            (SYNTHETIC_BEGIN_S + t_s, float(value))
            for t_s, value in zip(TIMES_S, values, strict=True)
            if value is not None
        ]

    def add_service(self, instance: str, job: str = JOB) -> Labels:
        service = {"job": job, "instance": instance}
        self.add("up", service)
        self.add("ovslbt_build_info", {"version": "1", **service})
        self.add("ovslbt_leader", service)
        return service

    def add_bridge(self, instance: str, name: str, *, connected: bool = True) -> Labels:
        where = {"job": JOB, "instance": instance, "bridge": name}
        self.add("ovslbt_bridge_connected", where, connected)
        about = {"policy": "load-based", "teaming": "switch-independent", "mode": "enforce"}
        self.add("ovslbt_bridge_info", {**where, **about})
        return where


def samples(instance: str) -> list[int | None]:
    return [value for count, value in COUNTED[instance] for _ in range(count)]


def happened(instance: str) -> int:
    """How many events a counter has counted since the first scrape, over all restarts."""
    first, *others = samples(instance)
    # A counter that is new has begun with zero.
    seen = [first or 0, *(value for value in others if value is not None)]
    return sum(late - early if late >= early else late for early, late in pairwise(seen))


def series() -> Recorded:
    made = _Made()
    for instance, role in ROLES.items():
        made.add_service(instance)
        where = made.add_bridge(instance, BRIDGE)
        for uplink, is_up, its_role in (("eth1", 1, "active"), ("eth2", 0, role)):
            made.add("ovslbt_uplink_up", {"uplink": uplink, **where}, is_up)
            made.add("ovslbt_uplink_info", {"uplink": uplink, "role": its_role, **where})
    for number, instance in enumerate(HOSTS, 1):
        _add_host(made, instance, number)
    _add_paths(made)
    for instance, bridges in DECISIONS.items():
        service = made.add_service(instance)
        if "." in instance or ":" in instance:
            made.add("ALERTS", {**ALERT, **service})
        for number, (connected, age_s) in enumerate(bridges):
            where = made.add_bridge(instance, f"br{number}", connected=connected)
            if age_s is not None:
                decided_s = SYNTHETIC_BEGIN_S - age_s
                made.add("ovslbt_last_decision_timestamp_seconds", where, decided_s, 1.0)
    # A service without bridges, in a job of its own.
    made.add_service("no-bridge", f"{JOB}-idle")
    for instance in COUNTED:
        values = samples(instance)
        service = made.add_service(instance)
        where = made.add_bridge(instance, BRIDGE)
        made.add_values("ovslbt_moves_applied_total", {"reason": "threshold", **where}, values)
        # The service is known before a counter that is new, and not in a gap.
        first = next(n for n, value in enumerate(values) if value is not None)
        known = [1 if n < first or value is not None else None for n, value in enumerate(values)]
        made.add_values("ovslbt_build_info", {"version": "1", **service}, known)
    for histogram, host in HISTOGRAMS.items():
        for number in range(SLOW + IDLE):
            _add_slow(made, histogram, f"{host}{number:02}", number)
    return made.series


def _add_host(made: _Made, instance: str, number: int) -> None:
    if instance == DEAD:
        made.add("up", {"job": JOB, "instance": instance}, 0)
        return
    made.add_service(instance)
    where = made.add_bridge(instance, BRIDGE)
    load = 1 - number * LOAD_STEP
    made.add("ovslbt_bridge_threshold_ratio", where, 0.75)
    made.add("ovslbt_config_errors", where, instance == MISCONFIGURED)
    decided_s = SYNTHETIC_BEGIN_S - 5 * load
    made.add("ovslbt_last_decision_timestamp_seconds", where, decided_s, 1.0)
    for metric, value in OF_BRIDGES.items():
        made.add(f"ovslbt_{metric}", where, value * load)
    # One failover on each host, on one host after another.
    moved = {"reason": "failover", **where}
    bound = {"port": "vnet0", "uplink": "eth1", **moved}
    made.add("ovslbt_port_bound_timestamp_seconds", bound, SYNTHETIC_BEGIN_S + number)
    happened = [n > number for n in range(len(TIMES_S))]
    made.add_values("ovslbt_moves_applied_total", moved, happened)
    made.add_values("ovslbt_failovers_total", where, happened)
    for name in ("eth1", "eth2"):
        uplink = {"uplink": name, **where}
        is_first = name == "eth1"
        made.add("ovslbt_uplink_up", uplink, not (is_first and instance == LINKLESS))
        made.add("ovslbt_uplink_info", {"role": "active", **uplink})
        made.add("ovslbt_uplink_unrelieved", uplink, is_first and instance == FULL)
        # A graph has the hosts that send most, and not those that receive most.
        sent, received = (0.2 if is_first else 0.3) * load, 0.1 / load
        for direction, ratio in (("transmit", sent), ("receive", received)):
            way = {"direction": direction, **uplink}
            made.add("ovslbt_uplink_utilization_ratio", way, ratio)
            made.add(f"ovslbt_uplink_{direction}_bytes_total", uplink, 0, 1e9 * ratio)


def _add_paths(made: _Made) -> None:
    made.add_service(PATHS)
    where = made.add_bridge(PATHS, BRIDGE)
    for name, (is_up, is_silent, kind) in UPLINKS.items():
        uplink = {"uplink": name, **where}
        made.add("ovslbt_uplink_info", {"role": "active", **uplink})
        made.add("ovslbt_uplink_up", uplink, is_up)
        made.add("ovslbt_uplink_silent", uplink, is_silent)
        # One uplink has a fault in each of two VLANs.
        for vlan in ("10", "20") if kind else ():
            found = {"kind": str(kind), "mtu": "", "decided": "true", "vlan": vlan}
            made.add("ovslbt_uplink_path_fault", {**found, **uplink})
    for (counter, label), rates in PER_SECOND.items():
        for value, rate in rates.items():
            own = {"port": "vnet2"} if counter.startswith("port_dropped_on") else {}
            made.add(f"ovslbt_{counter}", {label: value, **own, **where}, 0, rate)


def _add_slow(made: _Made, histogram: str, instance: str, number: int) -> None:
    """The buckets of a bridge with one event in each scrape, of which those of some scrapes are slow."""
    begin_s = number * SHOWN_S / SLOW
    end_s = begin_s + SCRAPE_S * (number + 1)
    where = {"job": JOB, "instance": instance, "bridge": BRIDGE}
    for le in ("0.001", "0.1", "+Inf"):
        counted = [
            number < SLOW and (le != "0.001" or not begin_s <= t_s < end_s) for t_s in TIMES_S
        ]
        made.add_values(f"ovslbt_{histogram}", {"le": le, **where}, accumulate(counted))
