"""Values that are made again only from other parts."""

from __future__ import annotations

from controller.load.reused import Reused
from policies.model import Load


def test_equal_parts_give_the_same_object_and_others_a_new_one() -> None:
    reused = Reused()
    loads, others = reused.reuse("loads"), reused.reuse("other loads")
    first = loads("vnet0", Load, (1.0, 2.0))
    assert loads("vnet0", Load, (1.0, 2.0)) is first
    assert loads("vnet1", Load, (1.0, 2.0)) is not first
    assert others("vnet0", Load, (1.0, 2.0)) is not first
    assert loads("vnet0", Load, (1.0, 3.0)) == Load(1.0, 3.0)
    assert loads("vnet0", Load, (1.0, 2.0)) is not first, "only the last one is kept"


def test_units_that_are_gone_are_forgotten() -> None:
    reused = Reused()
    loads = reused.reuse("loads")
    kept, gone = loads("vnet0", Load, (1.0, 2.0)), loads("vnet1", Load, (1.0, 2.0))
    reused.keep_units({"vnet0"})
    loads = reused.reuse("loads")
    assert loads("vnet0", Load, (1.0, 2.0)) is kept
    assert loads("vnet1", Load, (1.0, 2.0)) is not gone
