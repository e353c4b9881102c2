"""The answer to `show`: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from controller.config import VmPortConfig
from controller.status import BridgeStatus, PortStatus, UplinkStatus

BAR_CELLS = 20
OBSERVING_BOND = "observing: the bond forwards as without us; ports are shown where they would be"
FALLEN_BACK = "LACP is not negotiated: until it is, one uplink serves all VM ports"
OBSERVING_UPLINKS = "observing: nothing is moved; (in parentheses) where a port would be"


def as_json(statuses: Sequence[BridgeStatus]) -> str:
    """Bridges as documented in docs/architecture.md; rates in bit/s, times since the epoch."""
    bridges = [
        {
            "name": bridge.name,
            "policy": bridge.policy,
            "teaming": bridge.teaming,
            "mode": bridge.mode,
            "connected": bridge.connected,
            "uplinks": [_uplink(uplink) for uplink in bridge.uplinks],
            "ports": [_port(port) for port in bridge.ports],
            "buckets": bridge.buckets,
            "config_errors": list(bridge.config_errors),
            "not_done": list(bridge.not_done),
            "rules_broken": [
                {"port": port.name, "vm": port.vm, "rule": rule, "how": how}
                for port, rule, how in bridge.rules_broken
            ],
            **({"fallen_back": True} if bridge.fallen_back else {}),
        }
        for bridge in statuses
    ]
    return json.dumps({"bridges": bridges}, indent=2)


def as_text(statuses: Sequence[BridgeStatus]) -> str:
    """A block for each bridge: uplinks with a bar of their load, then the ports on them."""
    if not statuses:
        return "no bridge is attached; try: ovs-lbt attach BRIDGE"
    return "\n\n".join(_block(bridge) for bridge in statuses)


def _block(bridge: BridgeStatus) -> str:
    state = "connected" if bridge.connected else "NOT CONNECTED"
    lines = [f"{bridge.name}  {bridge.policy}  {bridge.teaming}  {bridge.mode}  {state}"]
    if bridge.mode == "observe":
        lines.append(f"  {OBSERVING_BOND if bridge.on_normal else OBSERVING_UPLINKS}")
    if bridge.fallen_back:
        lines.append(f"  {FALLEN_BACK}")
    lines.append(f"  {'UPLINK':<16}{'STATE':<10}{'Mbit/s':>8} {'MbTX/s':>9} {'MbRX/s':>9}  LOAD")
    for uplink in bridge.uplinks:
        state = uplink.role if uplink.up else "down"
        rates = f"{_mbps(uplink.load.tx_bps)} {_mbps(uplink.load.rx_bps)}"
        lines.append(
            f"  {uplink.name:<16}{state:<10}{uplink.capacity_bps / 1e6:>8.0f} {rates}"
            f"  {bar(uplink.utilization_ratio)}"
        )
    lines.append(f"  {'PORT':<16}{'USED-BY':<18}{'UPLINK':<16}{'MbTX/s':>9} {'MbRX/s':>9}  WHY")
    for port in bridge.ports:
        rates = f"{_mbps(port.load.tx_bps)} {_mbps(port.load.rx_bps)}"
        lines.append(
            f"  {port.name:<16}{port.vm:<18}{_where(port):<16}{rates}  {_why(port, bridge.policy)}"
        )
    for port in bridge.ports:
        if port.units is not None:
            lines.append(f"  {port.name}: {_shared(port.units, 'addresses')}")
    for policy, uplinks in bridge.buckets.items():
        lines.append(f"  {policy}: {_shared(uplinks, 'buckets')}")
    lines += [f"  rule broken  {p.name} {rule}: {how}" for p, rule, how in bridge.rules_broken]
    lines += [f"  {port.name:<16}{part}" for port in bridge.ports if (part := part_of(port))]
    lines += [f"  bad value  {error}" for error in bridge.config_errors]
    lines += [f"  not done   {text}" for text in bridge.not_done]
    return "\n".join(lines)


def _shared(counts: Mapping[str, int], what: str) -> str:
    """So many of something in all, and on each uplink."""
    shares = ", ".join(f"{uplink} {count}" for uplink, count in counts.items())
    return f"{sum(counts.values())} {what}, {shares}"


def _where(port: PortStatus) -> str:
    """The uplink in use, and the planned one where that is another."""
    if port.planned_uplink in (None, port.uplink):
        return port.uplink or "-"
    return f"{port.uplink or '-'} ({port.planned_uplink})"


def _why(port: PortStatus, policy: str) -> str:
    """Why a port is where it is, and its own policy where it has one."""
    own = "" if port.policy in (policy, port.reason) else f" ({port.policy})"
    return f"{port.reason or '-'}{own}"


def part_of(port: PortStatus | VmPortConfig) -> str:
    """What part of an uplink a VM port has, in words; empty where nobody said so."""
    said = [f"shares {port.shares}"] if port.shares is not None else []
    if port.reserve_bps is not None:
        said.append(f"{port.reserve_bps / 1e6:g} Mbit/s reserved")
    if port.limit_bps is not None:
        said.append(f"at most {port.limit_bps / 1e6:g} Mbit/s")
    return ", ".join(said)


def bar(ratio: float, cells: int = BAR_CELLS) -> str:
    """A share as so many cells, and in digits."""
    full = min(cells, round(ratio * cells))
    return f"[{'#' * full:<{cells}}] {ratio:4.0%}"


def _mbps(rate_bps: float) -> str:
    return f"{rate_bps / 1e6:9.2f}"


def _uplink(uplink: UplinkStatus) -> dict[str, object]:
    return {
        "name": uplink.name,
        "up": uplink.up,
        "role": uplink.role,
        "capacity_bps": uplink.capacity_bps,
        "tx_bps": uplink.load.tx_bps,
        "rx_bps": uplink.load.rx_bps,
        "utilization_ratio": uplink.utilization_ratio,
    }


def _port(port: PortStatus) -> dict[str, object]:
    parts = {
        "shares": port.shares,
        "reserve_bps": port.reserve_bps,
        "limit_bps": port.limit_bps,
    }
    return {
        "name": port.name,
        "vm": port.vm,
        "policy": port.policy,
        "uplink": port.uplink,
        "tx_bps": port.load.tx_bps,
        "rx_bps": port.load.rx_bps,
        "reason": port.reason,
        "bound_at": port.bound_at,
        **({} if port.planned_uplink is None else {"planned_uplink": port.planned_uplink}),
        **{key: value for key, value in parts.items() if value is not None},
        **({} if port.units is None else {"units": port.units}),
        **({"split": True} if port.split else {}),
    }
