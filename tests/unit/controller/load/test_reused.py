"""Values that are made again only from other parts."""

from __future__ import annotations

from controller.load.reused import Reused
from policies.model import Load


def test_equal_parts_give_the_same_object_and_others_a_new_one() -> None:
    reuse = Reused().reuse
    first = reuse("loads", "vnet0", Load, (1.0, 2.0))
    assert reuse("loads", "vnet0", Load, (1.0, 2.0)) is first
    assert reuse("loads", "vnet1", Load, (1.0, 2.0)) is not first
    assert reuse("other loads", "vnet0", Load, (1.0, 2.0)) is not first
    assert reuse("loads", "vnet0", Load, (1.0, 3.0)) == Load(1.0, 3.0)
    assert reuse("loads", "vnet0", Load, (1.0, 2.0)) is not first, "only the last one is kept"


def test_units_that_are_gone_are_forgotten() -> None:
    reused = Reused()
    kept, gone = (reused.reuse("loads", f"vnet{n}", Load, (1.0, 2.0)) for n in (0, 1))
    reused.keep_units({"vnet0"})
    assert reused.reuse("loads", "vnet0", Load, (1.0, 2.0)) is kept
    assert reused.reuse("loads", "vnet1", Load, (1.0, 2.0)) is not gone
