"""`get` and `unset`: what is set, where, and what applies without it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS, Key, settable
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import host, with_interface


@pytest.fixture
def here() -> World:
    row = with_interface(host(threshold="60"), "vnet0", prefer="eth2")
    return world(with_interface(row, "eth1", capacity_mbps="500")).start()


SET_IN = "{} = {} (set in {} external_ids:ovs-lbt-{}; default: "


@pytest.mark.parametrize(
    ("name", "keys", "line"),
    [
        ("bridge br0", BRIDGE_KEYS, ("threshold", "60", "Bridge br0", "threshold")),
        (
            "interface eth1",
            UPLINK_KEYS,
            ("capacity-mbps", "500", "Interface eth1", "capacity-mbps"),
        ),
        ("interface vnet0", VM_RULE_KEYS, ("prefer", "eth2", "Interface vnet0", "prefer")),
    ],
)
def test_all_settings_are_listed_with_place_and_default(
    here: World, name: str, keys: Mapping[str, Key], line: tuple[str, ...]
) -> None:
    lines = done(here.ask("settings", *name.split())).splitlines()
    assert [one.split()[0] for one in lines if one[0] != " "] == [*settable(keys)]
    assert any(one.startswith(SET_IN.format(*line)) for one in lines)
    found = json.loads(done(here.ask("get", *name.split(), "--json")))["settings"]
    by_key = {one["key"]: (one["value"], one["where"]) for one in found}
    assert by_key[line[0]] == (line[1], f"{line[2]} external_ids:ovs-lbt-{line[3]}")


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("bridge br0 teaming", "switch-independent"),
        ("bridge br0 uplinks", "eth1,eth2"),
        ("bridge br0 poll-interval-ms", "1000"),
        ("interface eth1 capacity-mbps", "500"),
        ("interface eth2 capacity-mbps", "10000"),
        ("interface vnet0 policy", "load-based"),
        ("interface vnet0 forged-transmits", "accept"),
    ],
)
def test_the_value_in_force_is_printed_where_the_default_is_a_rule(
    here: World, words: str, value: str
) -> None:
    assert done(here.ask("get", *words.split())) == value
    (found,) = json.loads(done(here.ask("get", *words.split(), "--json")))["settings"]
    assert found["in_effect"] == value and found["value"] in (None, value)
    *record, key = words.split()
    where = "" if found["value"] is None else f"set in {found['where']}; "
    line = f"{key} = {value} ({where}default: {found['default']})"
    assert line in done(here.ask("get", *record)).splitlines()
