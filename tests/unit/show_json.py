"""Bridges as `show --json` has them, for tests of how they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

JsonObject = dict[str, Any]


def uplink(
    name: str,
    tx_mbps: float = 0,
    rx_mbps: float = 0,
    capacity_mbps: float = 1000,
    up: bool = True,
    role: str = "active",
) -> JsonObject:
    return {
        "name": name,
        "up": up,
        "role": role,
        "capacity_bps": capacity_mbps * 1e6,
        "tx_bps": tx_mbps * 1e6,
        "rx_bps": rx_mbps * 1e6,
        "utilization_ratio": max(tx_mbps, rx_mbps) / capacity_mbps if capacity_mbps else 0.0,
    }


def port(
    name: str, uplink: str | None, tx_mbps: float = 0, rx_mbps: float = 0, **more: Any
) -> JsonObject:
    told = {
        "name": name,
        "vm": name,
        "policy": "load-based",
        "uplink": uplink,
        "tx_bps": tx_mbps * 1e6,
        "rx_bps": rx_mbps * 1e6,
        "tx_packets": 0,
        "rx_packets": 0,
        "tx_dropped_packets": 0,
        "rx_dropped_packets": 0,
        "reason": "load-based",
        "bound_at": 0.0,
    }
    return {**told, **more}


def bridge(
    name: str, uplinks: Sequence[JsonObject], ports: Sequence[JsonObject], **more: Any
) -> JsonObject:
    told = {
        "name": name,
        "policy": "load-based",
        "teaming": "switch-independent",
        "mode": "enforce",
        "connected": True,
        "threshold_ratio": 0.75,
        "uplinks": list(uplinks),
        "ports": list(ports),
        "buckets": {},
        "config_errors": [],
        "not_done": [],
        "rules_broken": [],
    }
    return {**told, **more}


def br0() -> JsonObject:
    """Two uplinks, one of them above the threshold, and three VM ports."""
    uplinks = [uplink("eth1", 830, 120), uplink("eth2", 40, 10)]
    ports = [
        port("vnet2", "eth1", 340, 60, vm="web-1"),
        port("vnet10", "eth1", 490, 60, vm="db-1"),
        port("vnet1", "eth2", 40, 10),
    ]
    return bridge("br0", uplinks, ports)
