"""What is placed as a whole."""

from __future__ import annotations

from dataclasses import fields, replace

from policies.model import Load, Rules, Unit

UNLIKE: dict[str, object] = {
    "name": "vnet0",
    "number": 7,
    "policy": "adaptive",
    "is_bucket": True,
    "uplink": "eth0",
    "load": Load(1.0, 2.0),
    "rules": Rules(pin="eth0", reserve_bps=3.0),
    "excluded": True,
    "allowed": frozenset({"eth0"}),
    "behind": "patch",
    "spread": True,
    "spread_bps": 4.0,
    "divisible": True,
    "merge_due": True,
    "kept_off": frozenset({"eth1"}),
}


def test_as_judged_all_else_stays() -> None:
    assert [field.name for field in fields(Unit)] == list(UNLIKE), "each field is tried"
    unit, load = Unit(**UNLIKE), Load(5.0, 6.0)  # type: ignore[arg-type]
    judged = unit.as_judged(load, spread_bps=8.0, excluded=False)
    assert judged == replace(unit, load=load, spread_bps=8.0, excluded=False)
