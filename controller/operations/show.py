"""The answer to `show`: JSON for programs, and the same as tables for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from controller.api.events import Faulted
from controller.api.status import BridgeStatus, PortStatus, UplinkStatus
from controller.config.values import VmPortConfig
from controller.text import drawing, show_view
from policies.rules import Rule

BAR_CELLS = 20


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
    return _written({"bridges": _bridges(statuses), **wait, **_faults(faults)}, json_wanted)


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


def _bridges(statuses: Sequence[BridgeStatus]) -> list[dict[str, Any]]:
    return [
        {
            "name": bridge.name,
            "policy": bridge.policy,
            "teaming": bridge.teaming,
            "mode": bridge.mode,
            "connected": bridge.connected,
            "threshold_ratio": bridge.threshold_ratio,
            "uplinks": [_uplink(uplink) for uplink in bridge.uplinks],
            "ports": [_port(port) for port in bridge.ports],
            "buckets": bridge.buckets,
            **_connection_hash(bridge),
            "config_errors": list(bridge.config_errors),
            "not_done": list(bridge.not_done),
            "rules_broken": [
                {"port": port.name, "vm": port.vm, "rule": rule, "how": how}
                for port, rule, how in bridge.rules_broken
            ],
            **({"fallen_back": True} if bridge.fallen_back else {}),
            **({"on_normal": True} if bridge.on_normal else {}),
            **({"offload": list(bridge.offload)} if bridge.offload else {}),
            **({"failure": bridge.failure} if bridge.failure else {}),
        }
        for bridge in statuses
    ]


def _connection_hash(bridge: BridgeStatus) -> dict[str, Any]:
    if bridge.connection_hash is None:
        return {}
    used, why, cost = bridge.connection_hash
    told = {"used": used, "why": why}
    return {"connection_hash": told if cost is None else {**told, "cost": cost}}


def part_of(port: PortStatus | VmPortConfig) -> str:
    """A VM port's part of an uplink in words; empty if none is set."""
    return show_view.part(_parts(port))


def bar(ratio: float, cells: int = BAR_CELLS) -> str:
    """A share as a bar and a percentage."""
    full = min(cells, round(ratio * cells))
    return f"[{'#' * full:<{cells}}] {ratio:4.0%}"


def _uplink(uplink: UplinkStatus) -> dict[str, Any]:
    return {
        "name": uplink.name,
        "up": uplink.up,
        "role": uplink.role,
        "capacity_bps": uplink.capacity_bps,
        "tx_bps": uplink.load.tx_bps,
        "rx_bps": uplink.load.rx_bps,
        "utilization_ratio": uplink.utilization_ratio,
        **({"silent": list(uplink.silent)} if uplink.silent else {}),
        **({"waits": uplink.waits} if uplink.waits else {}),
        **({"path_faults": [*map(asdict, uplink.path_faults)]} if uplink.path_faults else {}),
        **({"path_hindered": [*map(asdict, uplink.path_hindered)]} if uplink.path_hindered else {}),
    }


def _port(port: PortStatus) -> dict[str, Any]:
    return {
        "name": port.name,
        "vm": port.vm,
        "policy": port.policy,
        "uplink": port.uplink,
        "tx_bps": port.load.tx_bps,
        "rx_bps": port.load.rx_bps,
        "tx_packets": port.tx_packets,
        "rx_packets": port.rx_packets,
        "tx_dropped_packets": port.tx_dropped_packets,
        "rx_dropped_packets": port.rx_dropped_packets,
        "reason": port.reason,
        "bound_at": port.bound_at,
        **({} if port.planned_uplink is None else {"planned_uplink": port.planned_uplink}),
        **_parts(port),
        **({} if port.units is None else {"units": port.units}),
        **({"split": True} if port.split else {}),
        **({"pinned": True} if port.rules.get(Rule.PIN.value) == "" else {}),
        **({"endpoint": asdict(port.endpoint)} if port.endpoint else {}),
    }


def _parts(port: PortStatus | VmPortConfig) -> Mapping[str, float]:
    """The settings for a port's part of an uplink that are present."""
    if isinstance(port, VmPortConfig):
        reserve_bps = port.rules.reserve_bps or None
    else:
        reserve_bps = port.reserve_bps
    parts = {
        "shares": port.shares,
        "reserve_bps": reserve_bps,
        "limit_bps": port.limit_bps,
    }
    return {key: value for key, value in parts.items() if value is not None}
