"""Values in matches, as the tables define them."""

from __future__ import annotations

from controller.dataplane.tables import masked


def test_a_value_of_which_every_bit_counts_has_no_mask() -> None:
    assert masked(7, 0xFFF, 0xFFF) == 7
    assert masked(8, 0xFF8, 0xFFF) == (8, 0xFF8)
