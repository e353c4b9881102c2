"""Decodes learned flows: which addresses the switch has learned, and where each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.dataplane.specs import LoadBits, MatchValue
from controller.dataplane.tables import (
    FROM_NORMAL,
    Kind,
    Register,
    cookie,
    cookie_kind,
    cookie_ofport,
)
from controller.openflow.decode import decode_flow, decode_match


def learned_addresses(stats: Iterable[Any]) -> tuple[tuple[int, str, int], ...]:
    """Return (ofport, MAC, VLAN) of every address learned on a VM port.

    Raises:
        ValueError: a learned flow matches no single address.
    """
    addresses = set()
    for flow in stats:
        ofport = cookie_ofport(flow.cookie)
        fields = dict(decode_match(flow.match))
        from_normal = flow.cookie & FROM_NORMAL
        if cookie_kind(flow.cookie) is Kind.LEARNED and ofport and not from_normal:
            vlan = fields.get(Register.VLAN.field, 0)
            addresses.add((ofport, _address(fields), int(_exact(vlan))))
    return tuple(sorted(addresses))


def learned_elsewhere(stats: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    """Return (MAC, VLAN) of every address that was on a VM port and has announced itself elsewhere.

    Raises:
        ValueError: a learned flow matches no single address.
    """
    addresses = set()
    for flow in stats:
        if flow.cookie == cookie(Kind.LEARNED, 0):
            fields = dict(decode_match(flow.match))
            vlan = _exact(fields.get(Register.VLAN.field, 0))
            addresses.add((_address(fields), vlan))
    return tuple(sorted(addresses))


def learned_from_normal(stats: Iterable[Any]) -> tuple[tuple[int, str, int | None], ...]:
    """Return (ofport, MAC, VLAN) of every address learned on a port that only NORMAL served.

    VLAN None: the frames had no tag.

    Raises:
        ValueError: a learned flow matches no single address.
    """
    addresses = set()
    for flow in stats:
        if cookie_kind(flow.cookie) is not Kind.LEARNED or not flow.cookie & FROM_NORMAL:
            continue
        fields = dict(decode_match(flow.match))
        vlan = fields.get(Register.VLAN.field)
        tag = None if vlan is None else _exact(vlan)
        for action in decode_flow(flow).actions:
            if isinstance(action, LoadBits) and action.target == Register.TARGET.field:
                addresses.add((action.value, _address(fields), tag))
    return tuple(sorted(addresses, key=lambda a: (a[0], a[1], a[2] or 0)))


def _address(fields: Mapping[str, MatchValue]) -> str:
    """Return the MAC that a learned flow matches.

    Raises:
        ValueError: it matches no MAC, or a masked one.
    """
    found = fields.get("eth_dst")
    if not isinstance(found, str):
        raise ValueError(f"a learned flow with eth_dst {found} -> one MAC")
    return found


def _exact(value: MatchValue) -> int:
    """Return a field's value without the mask that the switch may report with it."""
    found = value[0] if isinstance(value, tuple) else value
    return int(found)
