"""Matches on register VLAN, which the tables define."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import VlanSet
from controller.dataplane.tables import in_vlans, masked


@given(st.frozensets(st.integers(0, 4095), max_size=20))
def test_values_match_the_vlans_of_a_set_and_no_other_ones(vlans: frozenset[int]) -> None:
    matched = []
    for (value,) in map(dict.values, in_vlans(VlanSet.of(*vlans))):
        wanted, mask = value if isinstance(value, tuple) else (value, 0xFFFFFFFF)
        assert isinstance(wanted, int) and isinstance(mask, int)
        matched += [vlan for vlan in range(4096) if vlan & mask == wanted]
    assert sorted(matched) == sorted(vlans)


def test_a_value_of_which_every_bit_counts_has_no_mask() -> None:
    assert masked(7, 0xFFF, 0xFFF) == 7
    assert masked(8, 0xFF8, 0xFFF) == (8, 0xFF8)
