"""Placement by number and by order: blind to load, and to failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from policies import homes
from policies.model import Load, OfPort, Plan, Snapshot, Unit, Uplink
from policies.planners import static
from policies.presets import DEFAULT_PRESET, PRESETS
from tests.unit.policies.units import changed

UPLINKS = tuple(Uplink(f"eth{i}", OfPort(i), 1e9) for i in (1, 2, 3))


def vm_port(ofport: int, **fields: object) -> Unit:
    return changed(Unit(f"vm{ofport}", ofport), **fields)


def home_of(unit: Unit, uplinks: Sequence[Uplink] = UPLINKS) -> str:
    return homes.homes([unit], uplinks).by_name[unit.name]


def test_originating_port_is_the_port_number_modulo_the_uplinks_and_explicit_the_first() -> None:
    """Also of those that are down, so that others stay: a home is where units return to."""
    ports = [vm_port(number) for number in range(10, 16)]
    for team in (UPLINKS, (replace(UPLINKS[0], usable=False), *UPLINKS[1:])):
        homes = static.by_number(ports, team).values()
        assert list(homes) == ["eth2", "eth3", "eth1", "eth2", "eth3", "eth1"]
        assert set(static.first_in_order(ports, team).values()) == {"eth1"}


@pytest.mark.parametrize("name", ["originating-port", "explicit"])
def test_static_policies_never_move_anything(name: str) -> None:
    full = tuple(replace(uplink, load=Load(tx_bps=1e9)) for uplink in UPLINKS)
    units = tuple(vm_port(i, uplink="eth1", load=Load(tx_bps=1e8)) for i in range(10))
    assert PRESETS[name].rebalance(Snapshot(full, units)) == Plan()


def test_load_based_starts_as_originating_port_and_is_the_default() -> None:
    assert DEFAULT_PRESET == "load-based"
    assert PRESETS["load-based"].place is PRESETS["originating-port"].place


# ---- rules, the same for every policy --------------------------------------------------


@pytest.mark.parametrize("policy", PRESETS)
def test_a_pin_outranks_a_binding_and_that_outranks_the_policy(policy: str) -> None:
    new = vm_port(10, policy=policy)
    bound = replace(new, uplink="eth3")
    assert home_of(changed(bound, pin="eth2")) == "eth2"
    assert home_of(bound) == "eth3"
    assert home_of(new) == PRESETS[policy].place([new], UPLINKS)[new.name]
