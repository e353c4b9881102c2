"""Placement by number and by order: blind to load, and to failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import rules
from policies.model import Load, OfPort, Plan, Role, Snapshot, Unit, Uplink
from policies.planners import static
from policies.presets import DEFAULT_PRESET, PRESETS, Preset

UPLINKS = tuple(Uplink(f"eth{i}", OfPort(i), 1e9) for i in (1, 2, 3))


def vm_port(ofport: int, **fields: object) -> Unit:
    return replace(Unit(f"vm{ofport}", OfPort(ofport)), **fields)  # type: ignore[arg-type]


def test_originating_port_is_the_port_number_modulo_the_uplinks() -> None:
    homes = [static.by_port_number(vm_port(number), UPLINKS) for number in range(10, 16)]
    assert homes == ["eth2", "eth3", "eth1", "eth2", "eth3", "eth1"]


def test_originating_port_counts_uplinks_that_are_down_so_that_others_stay() -> None:
    eth1_down = (replace(UPLINKS[0], usable=False), *UPLINKS[1:])
    for number in range(100):
        unit = vm_port(number)
        assert static.by_port_number(unit, eth1_down) == static.by_port_number(unit, UPLINKS)


@pytest.mark.parametrize("role", [Role.STANDBY, Role.UNUSED, Role.DRAINED])
def test_originating_port_counts_active_uplinks_only(role: Role) -> None:
    uplinks = (UPLINKS[0], replace(UPLINKS[1], role=role), UPLINKS[2])
    homes = {static.by_port_number(vm_port(number), uplinks) for number in range(100)}
    assert homes == {"eth1", "eth3"}


def test_explicit_puts_everything_on_the_first_active_uplink() -> None:
    assert static.first_in_order(vm_port(11), UPLINKS) == "eth1"
    standby_first = (replace(UPLINKS[0], role=Role.STANDBY), *UPLINKS[1:])
    assert static.first_in_order(vm_port(11), standby_first) == "eth2"
    eth1_down = (replace(UPLINKS[0], usable=False), *UPLINKS[1:])
    assert static.first_in_order(vm_port(11), eth1_down) == "eth1", "home is where it returns to"


def test_standby_uplinks_are_homes_only_where_no_active_one_is_configured() -> None:
    standby = tuple(replace(uplink, role=Role.STANDBY) for uplink in UPLINKS[:2])
    unused = replace(UPLINKS[2], role=Role.UNUSED)
    assert static.placeable((unused, *standby)) == list(standby)
    assert static.placeable((unused,)) == (unused,)


@pytest.mark.parametrize("name", ["originating-port", "explicit"])
def test_static_policies_never_move_anything(name: str) -> None:
    full = tuple(replace(uplink, load=Load(tx_bps=1e9)) for uplink in UPLINKS)
    units = tuple(vm_port(i, uplink="eth1", load=Load(tx_bps=1e8)) for i in range(10))
    assert PRESETS[name].rebalance(Snapshot(full, units)) == Plan()


def test_load_based_starts_as_originating_port_and_is_the_default() -> None:
    assert DEFAULT_PRESET == "load-based"
    assert PRESETS["load-based"].home is PRESETS["originating-port"].home


# ---- rules, the same for every policy --------------------------------------------------


@pytest.mark.parametrize("policy", PRESETS.values(), ids=list(PRESETS))
def test_a_pin_outranks_a_binding_and_that_outranks_the_policy(policy: Preset) -> None:
    bound = vm_port(10, uplink="eth3")
    assert rules.home(replace(bound, pin="eth2"), UPLINKS, policy) == "eth2"
    assert rules.home(bound, UPLINKS, policy) == "eth3"
    assert rules.home(vm_port(10), UPLINKS, policy) == policy.home(vm_port(10), UPLINKS)


def test_a_pin_or_binding_to_what_is_no_uplink_any_more_is_ignored() -> None:
    policy = PRESETS["explicit"]
    assert rules.home(vm_port(10, pin="eth9", uplink="eth8"), UPLINKS, policy) == "eth1"


@given(
    name=st.sampled_from(sorted(PRESETS)),
    ofport=st.integers(1, 0xFFFE),
    allowed=st.frozensets(st.sampled_from(("eth1", "eth2", "eth3")), min_size=1),
    had=st.none() | st.sampled_from(("eth1", "eth2", "eth3")),
    pin=st.none() | st.sampled_from(("eth1", "eth2", "eth3")),
)
def test_a_home_is_an_uplink_that_the_vm_port_may_use(
    name: str, ofport: int, allowed: frozenset[str], had: str | None, pin: str | None
) -> None:
    unit = vm_port(ofport, allowed=allowed, uplink=had, pin=pin)
    home = rules.home(unit, UPLINKS, PRESETS[name])
    assert home in allowed
    assert home == pin or pin not in allowed
    assert home == had or had not in allowed or pin in allowed


@given(
    name=st.sampled_from(sorted(PRESETS)),
    ofport=st.integers(1, 0xFFFE),
    pin=st.none() | st.sampled_from(("eth1", "eth2", "gone")),
    roles=st.lists(st.sampled_from(Role), min_size=1, max_size=6),
)
def test_every_vm_port_has_exactly_one_home_among_the_uplinks(
    name: str, ofport: int, pin: str | None, roles: list[Role]
) -> None:
    uplinks = [Uplink(f"eth{i}", OfPort(i + 1), 1e9, role) for i, role in enumerate(roles)]
    home = rules.home(vm_port(ofport, pin=pin), uplinks, PRESETS[name])
    assert [uplink.name for uplink in uplinks].count(home) == 1
