"""Hosts, each in a state of its own, as Prometheus would have scraped them for ten minutes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from controller.api.status import BridgeStatus, UplinkStatus
from dashboards.queries import MOST
from policies.model import Load, Reason, Role
from tests.unit.controller.metrics import test_exporter as plain
from tests.unit.dashboards.exported import BR0, families

# 2026-01-05 10:00 UTC. Prometheus keeps blocks of two hours.
BEGIN_S, SCRAPE_S, SHOWN_S = 1767607200.0, 5.0, 600.0
NOW_S = BEGIN_S + SHOWN_S
TIMES_S = [BEGIN_S + SCRAPE_S * n for n in range(int(SHOWN_S / SCRAPE_S) + 1)]
# When services end that are dead now, and when decisions were made last.
END_S, DECIDED_S = NOW_S - 300.0, NOW_S - 5.0
# The reasons of moves that hosts plan; they have made moves for all reasons.
PLANNED = (Reason.THRESHOLD, Reason.REBALANCE)
JOB, PAIR, BRIDGE = "ovs-lbt", "ovs-lbt-pair", "br0"
ALERT = {"alertname": "OvsLbtUplinkDown", "alertstate": "firing", "severity": "warning"}

# By the instance of a host, as Prometheus may know hosts: how graphs name it.
NAMES = {
    "kvm-07.example.org:9476": "kvm-07",
    "7up.example.org": "7up",
    "10.0.0.7:9476": "10.0.0.7",
    "[fe80::1]:9476": "[fe80::1]",
}

# By name and labels: values, each with its time.
Recorded = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Host:
    """What its service exports, without which it is on standby; whether it has ended; whether an alert fires."""

    bridge: BridgeStatus | None
    has_ended: bool = False
    has_alert: bool = False


def uplink(name: str, load: Load = plain.UPLINK.load, role: Role = Role.ACTIVE) -> UplinkStatus:
    known = replace(plain.UPLINK, name=name, load=load, role=role)
    return replace(plain.ETH1, uplink=known, unrelieved=False, path_faults=())


IDLE = uplink("eth2", Load())


def well(first: UplinkStatus, second: UplinkStatus = IDLE, **changes: Any) -> Host:
    """A host of which nothing but these changes is wrong."""
    good: dict[str, Any] = {
        "config": plain.CONFIG,
        "uplinks": (first, second),
        "moves_planned": dict.fromkeys(PLANNED, 0),
        "moves_refused": {},
    }
    return Host(replace(BR0, last_decision_at=DECIDED_S, **(good | changes)))


UP = uplink("eth1")
# All that a bridge can have, with a VM port for each reason, and one without an uplink.
BOUND = [
    replace(
        plain.VNET0,
        port=replace(plain.VNET0.port, name=f"vnet{n}"),
        reason=reason,
        bound_at=DECIDED_S - n,
    )
    for n, reason in enumerate(Reason)
]
UNBOUND = replace(
    plain.VNET0, port=replace(plain.BARE, name="tap0"), uplink=None, reason=None, bound_at=None
)
EVERYTHING = replace(BR0, ports=(*BOUND, UNBOUND), last_decision_at=DECIDED_S)
HOSTS = {
    # Each has a little less load than the one before: it is not chance which are the highest.
    **{
        f"well{n:02}": well(uplink("eth1", Load(5e8 - 1e6 * n, 1e8 + 1e6 * n)))
        for n in range(MOST + 3)
    },
    "everything": Host(EVERYTHING, has_alert=True),
    "dead": replace(well(UP), has_ended=True),
    "apart": well(UP, connected=False),
    "linkless": well(UP, replace(IDLE, up=False)),
    **{
        str(role): well(UP, replace(uplink("eth2", role=role), up=False))
        for role in (Role.STANDBY, Role.DRAINED)
    },
    "full": well(replace(UP, unrelieved=True)),
    "misconfigured": well(UP, config=BR0.config),
    "observed": well(
        UP, config=replace(plain.CONFIG, mode="observe"), moves_refused=BR0.moves_refused
    ),
    "alarmed": replace(well(UP), has_alert=True),
    "leaderless": Host(None),
    **dict.fromkeys(NAMES, well(UP)),
}
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


def recorded() -> Recorded:
    """The series of all hosts."""
    found: Recorded = {}

    def add(name: str, labels: dict[str, str], values: Iterable[float | None]) -> None:
        points = zip(TIMES_S, values, strict=False)
        known = [(at_s, float(value)) for at_s, value in points if value is not None]
        found[name, tuple(sorted(labels.items()))] = known

    for number, (instance, host) in enumerate(HOSTS.items()):
        target = {"job": JOB if host.bridge else PAIR, "instance": instance}
        alive = [float(not host.has_ended or at_s < END_S) for at_s in TIMES_S]
        add("up", target, alive)
        if host.has_alert:
            add("ALERTS", {**ALERT, **target, "bridge": BRIDGE, "uplink": "eth1"}, alive)
        for name in ("scrape_samples_scraped", "scrape_duration_seconds"):
            add(name, target, alive)
        # Who sends most receives least. Of anything else, each counter has one more in each second.
        bytes_per_s = {
            "ovslbt_uplink_transmit_bytes_total": len(HOSTS) - number,
            "ovslbt_uplink_receive_bytes_total": number,
        }
        for family in families(*([host.bridge] if host.bridge else [])):
            counts = family.type in ("counter", "histogram")
            for sample in family.samples:
                first = 0.0 if sample.name == "ovslbt_leader" and not host.bridge else sample.value
                grows = counts and not sample.name.endswith("_created")
                per_s = bytes_per_s.get(sample.name, 1) if grows else 0
                grown = [first + per_s * (at_s - BEGIN_S) for at_s in TIMES_S]
                add(sample.name, {**sample.labels, **target}, grown[: int(sum(alive))])
    for instance in COUNTED:
        counted = samples(instance)
        target = {"job": JOB, "instance": instance}
        moved = {"reason": "threshold", "bridge": BRIDGE}
        add("ovslbt_moves_applied_total", {**moved, **target}, counted)
        # The service is known before a counter that is new, and not in a gap.
        begin = next(n for n, value in enumerate(counted) if value is not None)
        known = [1 if n < begin or value is not None else None for n, value in enumerate(counted)]
        add("ovslbt_build_info", {"version": "1", **target}, known)
    return found


def samples(instance: str) -> list[int | None]:
    return [value for count, value in COUNTED[instance] for _ in range(count)]


def happened(instance: str) -> int:
    """How many events a counter has counted since the first scrape, over all restarts."""
    first, *others = samples(instance)
    # A counter that is new has begun with zero.
    seen = [first or 0, *(value for value in others if value is not None)]
    return sum(late - early if late >= early else late for early, late in pairwise(seen))
