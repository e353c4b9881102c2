"""`get` and `unset`: what is set, where, and what applies without it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS, Key, settable
from tests.said import says
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host, ours, plain_uplinks, with_ids, with_interface


@pytest.fixture
def here() -> World:
    row = with_interface(host(threshold="60"), "vnet0", prefer="eth2")
    return world(with_interface(row, "eth1", capacity_mbps="500")).start()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("bridge br0 threshold", "60"),
        ("bridge br0 window-s", "30"),
        ("bridge br0 path-check-targets", ""),
        ("interface eth1 capacity-mbps", "500"),
        ("interface eth2 role", "active"),
        ("interface vnet0 prefer", "eth2"),
        ("interface vnet1 policy", "the bridge's policy"),
    ],
)
def test_one_value_is_the_one_that_is_set_or_the_default(
    here: World, words: str, text: str
) -> None:
    assert done(here.ask("get", *words.split())) == text


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


def test_what_is_unset_has_its_default_again(here: World) -> None:
    assert done(here.ask("unset", "bridge", "br0", "threshold")) == "br0: threshold unset (was 60)"
    assert done(here.ask("get", "bridge", "br0", "threshold")) == "75"
    assert here.engine.fleet.bridges["br0"].config.threshold_ratio == 0.75
    done(here.ask("set", "interface", "eth1", "capacity-mbps="))
    assert done(here.ask("get", "interface", "eth1", "capacity-mbps")).startswith("the max-rate")
    done(here.ask("unset", "interface", "vnet0", "prefer"))
    assert done(here.ask("get", "interface", "vnet0", "prefer")) == ""


def test_keys_that_the_bridge_needs_are_not_unset(here: World) -> None:
    why = refusal(here.ask("unset", "bridge", "br0", "policy"))
    assert says(why, "policy cannot be removed", "ovs-lbt detach br0")
    plain = with_ids(plain_uplinks("secure"), policy="load-based", uplinks="eth1,eth2")
    here = world(plain).start()
    assert says(refusal(here.ask("unset", "bridge", "br0", "uplinks")), "no bond", "--uplink")
    assert ours(uplinks="eth1,eth2").items() <= here.rows["br0"].external_ids.items()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("get bridge br0 thresold", ("thresold", "did you mean threshold?", "ovs-lbt get")),
        ("get port vnet0", ("port is invalid", "bridge or interface")),
        ("get bridge br9", ("br9",)),
        ("unset bridge br0 thresold", ("thresold", "did you mean threshold?")),
        ("unset bridge br0", ("keys is missing", "usage: bridge|interface NAME KEY...")),
    ],
)
def test_a_name_that_does_not_exist_is_refused(
    here: World, words: str, parts: tuple[str, ...]
) -> None:
    assert says(refusal(here.ask(*words.split())), *parts)
