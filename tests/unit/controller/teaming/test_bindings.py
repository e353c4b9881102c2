"""The homes of units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.teaming import bindings as bindings_module
from controller.teaming.bindings import Bindings
from policies.model import OfPort, Reason, Unit, Uplink


def test_a_unit_is_not_copied_again_to_a_home_that_it_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[str | None] = []

    def noted(unit: Unit, *, uplink: str | None) -> Unit:
        copied.append(uplink)
        return replace(unit, uplink=uplink)

    monkeypatch.setattr(bindings_module, "replace", noted)
    uplinks = tuple(Uplink(f"eth{n}", OfPort(n + 1), 1e9) for n in range(3))
    unit = Unit("web", 1, "explicit")
    bindings = Bindings({"web": "eth1"})
    for at_s in (0.0, 1.0):
        bindings.rebind([unit], uplinks, at_s)
        assert bindings.homes == bindings.by_unit() == {"web": "eth1"}
    assert copied == ["eth1"]
    bindings.place("web", "eth2", Reason.MANUAL)
    assert [move.target for move in bindings.rebind([unit], uplinks, 2.0)] == ["eth2"]
    assert bindings.by_unit() == {"web": "eth2"}
