"""Database records for tests, written as an operator would say them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from controller.config.marks import Marks
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, Ovn, PortRow, Tunnel

VMS = ("vnet0", "vnet1", "vnet2", "vnet3")


def marked(
    rows: Iterable[BridgeRow],
    ovn: Ovn | None = None,
    addresses: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Marks:
    """What a first reading of these records says of tunnel endpoints and of VMs behind patch ports."""
    marks = Marks()
    marks.mark(rows, ovn, addresses)
    return marks


def ours(**keys: str) -> dict[str, str]:
    """Keys of ours as they stand in external_ids: `window_s` is `ovs-lbt-window-s`."""
    return {PREFIX + key.replace("_", "-"): value for key, value in keys.items()}


def interface(
    name: str, ofport: int | None, ids: Mapping[str, str] | None = None, **columns: Any
) -> InterfaceRow:
    return InterfaceRow(name, ofport, external_ids=ids or {}, **columns)


def port(
    name: str,
    ofport: int | None,
    ids: Mapping[str, str] | None = None,
    tag: int | None = None,
    vlan_mode: str | None = None,
    trunks: tuple[int, ...] = (),
    **columns: Any,
) -> PortRow:
    """A port with one interface of the same name, which has these columns."""
    made = (interface(name, ofport, ids, **columns),)
    return PortRow(name, made, tag, vlan_mode=vlan_mode, trunks=trunks)


def patch(name: str, peer: str, **keys: str) -> PortRow:
    return port(name, 20, ours(**keys), kind="patch", peer=peer)


def tunnel(name: str, kind: str = "geneve", **ends: str | None) -> PortRow:
    return port(name, 30, kind=kind, tunnel=Tunnel(**ends))


def bond(*members: InterfaceRow, lacp: str | None = None) -> PortRow:
    return PortRow("bond0", members, lacp=lacp)


def with_lacp(row: BridgeRow, *current: str, lacp: str = "active", falls_back: bool) -> BridgeRow:
    """The same bridge with LACP on its bond, whose members `current` hear their partner."""

    def on(one: PortRow) -> PortRow:
        if len(one.interfaces) < 2:
            return one
        members = tuple(replace(i, lacp_current=i.name in current) for i in one.interfaces)
        other = {"lacp-fallback-ab": str(falls_back).lower()}
        return replace(one, interfaces=members, lacp=lacp, other_config=other)

    return replace(row, ports=tuple(map(on, row.ports)))


def bridge(
    *ports: PortRow, ids: Mapping[str, str] | None = None, fail_mode: str | None = None
) -> BridgeRow:
    """An attached bridge br0, unless `ids` says otherwise."""
    ids = ours(policy="load-based") if ids is None else ids
    return BridgeRow("br0", tuple(sorted(ports, key=lambda p: p.name)), fail_mode, ids)


def plain_uplinks(fail_mode: str | None = None) -> BridgeRow:
    """A bridge that is not attached, with two uplinks and no bond."""
    ports = (port("eth1", 1), port("eth2", 2), port("vnet0", 10))
    return bridge(*ports, ids={}, fail_mode=fail_mode)


def two_uplinks() -> tuple[PortRow, PortRow]:
    return port("eth1", 1), port("eth2", 2)


def host(
    policy: str = "load-based",
    binding: str | None = None,
    vms: tuple[str, ...] = VMS,
    uplinks: int = 2,
    plain: bool = False,
    **keys: str,
) -> BridgeRow:
    """Bridge br0 with a bond of eth1, eth2… and VM ports from number 10 on; `plain`: without a bond."""
    members = [interface(f"eth{i}", i) for i in range(1, uplinks + 1)]
    bound = ours(binding=binding) if binding else {}
    ports = [port(name, 10 + int(name.removeprefix("vnet")), bound) for name in vms]
    if not plain:
        return bridge(bond(*members), *ports, ids=ours(policy=policy, **keys))
    ids = ours(policy=policy, uplinks=",".join(one.name for one in members), **keys)
    return bridge(*(PortRow(m.name, (m,)) for m in members), *ports, ids=ids, fail_mode="secure")


def backed_up(**ids: str) -> BridgeRow:
    """An active-backup bond whose active member is eth2."""
    members = (
        interface("eth1", 1, mac="02:00:00:00:00:01"),
        interface("eth2", 2, mac="02:00:00:00:00:02"),
    )
    active = replace(bond(*members), active_mac="02:00:00:00:00:02")
    vms = (port("vnet0", 10), port("vnet1", 11))
    return bridge(active, *vms, ids=ours(policy="load-based", **ids))


def without_us(row: BridgeRow) -> BridgeRow:
    return replace(row, external_ids={})


def with_ids(row: BridgeRow, **keys: str) -> BridgeRow:
    return replace(row, external_ids={**row.external_ids, **ours(**keys)})


def with_interface(row: BridgeRow, name: str, **keys: str) -> BridgeRow:
    def changed(one: InterfaceRow) -> InterfaceRow:
        return one if one.name != name else replace(one, external_ids=ours(**keys))

    return row.with_interfaces(changed)
