"""Database records for tests, written as an operator would say them."""

from __future__ import annotations

from collections.abc import Mapping

from controller.database import PREFIX, BridgeRow, InterfaceRow, PortRow


def ours(**keys: str) -> dict[str, str]:
    """Keys of ours as they stand in external_ids: `window_s` is `ovs-lbt-window-s`."""
    return {PREFIX + key.replace("_", "-"): value for key, value in keys.items()}


def interface(
    name: str, ofport: int | None, ids: Mapping[str, str] | None = None, **columns: float
) -> InterfaceRow:
    return InterfaceRow(name, ofport, columns.get("link_speed_bps"), ids or {})


def port(
    name: str,
    ofport: int | None,
    ids: Mapping[str, str] | None = None,
    tag: int | None = None,
    vlan_mode: str | None = None,
    trunks: tuple[int, ...] = (),
) -> PortRow:
    """A port with one interface of the same name."""
    made = (interface(name, ofport, ids),)
    return PortRow(name, made, tag, vlan_mode=vlan_mode, trunks=trunks)


def bond(*members: InterfaceRow, lacp: str | None = None) -> PortRow:
    return PortRow("bond0", members, lacp=lacp)


def bridge(
    *ports: PortRow, ids: Mapping[str, str] | None = None, fail_mode: str | None = None
) -> BridgeRow:
    """An attached bridge br0, unless `ids` says otherwise."""
    ids = ours(policy="load-based") if ids is None else ids
    return BridgeRow("br0", tuple(sorted(ports, key=lambda p: p.name)), fail_mode, ids)


def two_uplinks() -> tuple[PortRow, PortRow]:
    return port("eth1", 1), port("eth2", 2)
