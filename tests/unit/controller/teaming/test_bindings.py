"""The order of a unit's uplinks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.teaming import bindings as bindings_module
from controller.teaming.bindings import Bindings, Bound, ordered
from policies.model import IDLE, Load, OfPort, Reason, Role, Rules, Unit, Uplink

NAMES = ("eth0", "eth1", "eth2")
UPLINKS = st.tuples(
    *(
        st.builds(
            Uplink,
            st.just(name),
            st.just(OfPort(number)),
            st.sampled_from([1e9, 10e9]),
            st.sampled_from(Role),
            st.booleans(),
            st.builds(Load, st.floats(0, 1e9), st.floats(0, 1e9)),
        )
        for number, name in enumerate(NAMES, 1)
    )
)
UNITS = st.builds(
    Unit,
    st.sampled_from(["web", "db"]),
    st.just(1),
    st.sampled_from(["adaptive", "explicit"]),
    rules=st.builds(Rules, anti_affinity=st.sampled_from([None, "apart"])),
    kept_off=st.sets(st.sampled_from(NAMES), max_size=1).map(frozenset),
)


@given(UNITS, UPLINKS, st.sampled_from([None, *NAMES]), st.sampled_from(NAMES), st.booleans())
def test_the_order_of_uplinks_does_not_depend_on_what_they_carry(
    unit: Unit, uplinks: tuple[Uplink, ...], at: str | None, home: str, held: bool
) -> None:
    bound = {unit.name: Bound(at, 0.0, "failover")} if at else {}
    bindings = Bindings({unit.name: home}, bound, held)
    idle = tuple(replace(uplink, load=IDLE) for uplink in uplinks)
    found = bindings.order(unit, uplinks)
    assert [u.name for u in ordered(bindings.whereabouts(unit), unit, idle)] == [
        u.name for u in found
    ]
    assert at is None or at not in {u.name for u in found} or found[0].name == at


def test_a_unit_is_not_copied_again_to_a_home_that_it_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[str | None] = []

    def noted(unit: Unit, *, uplink: str | None) -> Unit:
        copied.append(uplink)
        return replace(unit, uplink=uplink)

    monkeypatch.setattr(bindings_module, "replace", noted)
    uplinks = tuple(Uplink(name, OfPort(n), 1e9) for n, name in enumerate(NAMES, 1))
    unit = Unit("web", 1, "explicit")
    bindings = Bindings({"web": "eth1"})
    for at_s in (0.0, 1.0):
        bindings.rebind([unit], uplinks, at_s)
        assert bindings.homes == bindings.by_unit() == {"web": "eth1"}
    assert copied == ["eth1"]
    bindings.place("web", "eth2", Reason.MANUAL)
    assert [move.target for move in bindings.rebind([unit], uplinks, 2.0)] == ["eth2"]
    assert bindings.by_unit() == {"web": "eth2"}
