"""Matches on VLANs, and the values that the switch gives back for them."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config.vlans import VlanSet, blocks
from controller.dataplane.specs import LearnMatch, MatchValue
from controller.dataplane.tables import VLAN_ID_BITS, VLAN_ID_MASK, Register

# A learned flow matches frames of the same VLAN as the frame that taught it.
SAME_VLAN = LearnMatch(Register.VLAN.field, Register.VLAN.field, VLAN_ID_BITS)


def register_values(vlans: VlanSet) -> Iterator[MatchValue | None]:
    """Values of register VLAN that together match these VLANs; None: match any VLAN."""
    for value, mask in blocks(vlans):
        yield masked(value, ~VLAN_ID_MASK & 0xFFFFFFFF | mask, 0xFFFFFFFF) if mask else None


def masked(value: int, mask: int, all_ones: int) -> MatchValue:
    """A value with its mask, in the form in which the switch reports it: without a full mask."""
    return value if mask == all_ones else (value, mask)
