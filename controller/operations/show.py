"""The answer to `show`: JSON for programs, and the same as tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from controller.api.events import Faulted
from controller.api.status import BridgeStatus, PortStatus, UplinkStatus
from controller.text import drawing, show_view
from policies.rules import Rule

RATES = ("tx_bps", "rx_bps")
PACKETS = ("tx_packets", "rx_packets", "tx_dropped_packets", "rx_dropped_packets")


def answer(
    statuses: Sequence[BridgeStatus],
    json_wanted: bool,
    faults: Sequence[Faulted] = (),
    waiting: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Bridges as documented in docs/reference/json.md; rates in bit/s, times since the epoch.

    Or a block for each: uplinks with bars of their load, then the ports on them. `waiting`: the changes
    that wait to be confirmed.
    """
    wait = {"unconfirmed": list(waiting)} if waiting else {}
    return _written({"bridges": [*map(_bridge, statuses)], **wait, **_faults(faults)}, json_wanted)


def standing_by(leader: str, json_wanted: bool, faults: Sequence[Faulted] = ()) -> str:
    """The answer of a service on standby, which has no bridges."""
    shown = {"bridges": [], "standby": True, "leader": leader, **_faults(faults)}
    return _written(shown, json_wanted)


def _written(shown: Mapping[str, Any], json_wanted: bool) -> str:
    if json_wanted:
        return json.dumps(shown, indent=2)
    lines = show_view.lines(shown, drawing.Look())
    return "\n".join(drawing.plain(line).rstrip() for line in lines)


def _faults(faults: Sequence[Faulted]) -> dict[str, Any]:
    listed = [
        {"part": f.part, "count": f.count, "last_at": f.at_s, "found": f.text} for f in faults
    ]
    return {"faults": listed} if listed else {}


def _bridge(bridge: BridgeStatus) -> dict[str, Any]:
    return {
        **_fields(bridge, ("name", "policy", "teaming", "mode", "connected", "threshold_ratio")),
        "uplinks": [_uplink(uplink) for uplink in bridge.uplinks],
        "ports": [_port(port) for port in bridge.ports],
        "buckets": bridge.buckets,
        **_connection_hash(bridge),
        **_fields(bridge, ("config_errors", "not_done")),
        "rules_broken": [
            {"port": port.name, "vm": port.vm, "rule": rule, "how": how}
            for port, rule, how in bridge.rules_broken
        ],
        **_if_set(bridge, ("fallen_back", "on_normal", "offload", "failure")),
    }


def _connection_hash(bridge: BridgeStatus) -> dict[str, Any]:
    if bridge.connection_hash is None:
        return {}
    used, why, cost = bridge.connection_hash
    told = {"used": used, "why": why}
    return {"connection_hash": told if cost is None else {**told, "cost": cost}}


def _uplink(uplink: UplinkStatus) -> dict[str, Any]:
    return {
        **_fields(uplink, ("name", "up", "role", "capacity_bps")),
        **_fields(uplink.load, RATES),
        "utilization_ratio": uplink.utilization_ratio,
        **_if_set(uplink, ("silent", "waits", "path_faults", "path_hindered")),
    }


def _port(port: PortStatus) -> dict[str, Any]:
    return {
        **_fields(port, ("name", "vm", "policy", "uplink")),
        **_fields(port.load, RATES),
        **_fields(port, PACKETS),
        **_fields(port, ("reason", "bound_at")),
        **_if_set(port, ("planned_uplink", "shares", "reserve_bps", "limit_bps", "units", "split")),
        **({"pinned": True} if port.rules.get(Rule.PIN.value) == "" else {}),
        **_if_set(port, ("endpoint",)),
    }


def _fields(record: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: _plain(getattr(record, name)) for name in names}


def _if_set(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Those of the fields that have a value."""
    unset: tuple[Any, ...] = (None, False, "", [])
    return {name: value for name, value in _fields(record, names).items() if value not in unset}


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [*map(_plain, value)] if isinstance(value, tuple) else value
