"""Why a VM port is where it is, and what would have to change: what an operator reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.config.rows import BridgeRow
from tests.said import says
from tests.unit.controller.decisions.test_planning import (
    CROWDED_BPS,
    KNOWN_AT_S,
    crowded,
    loaded,
    plan,
)
from tests.unit.controller.engine.told import explained
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host, port, with_ids, with_interface, with_lacp


def said(here: World, name: str = "vnet0") -> Any:
    return explained(here, name)["said"]


def explained_after(row: BridgeRow, bps: Sequence[float], name: str = "vnet0") -> dict[str, Any]:
    return explained(loaded(row, bps).run_until(40), name)


def test_a_port_about_to_move_says_where_and_when() -> None:
    here = crowded()
    found = explained(here)
    assert (found["against"], found["target"]) == ("moves", "eth2")
    assert says(found["said"]["now"], "eth2", "19 s", "11 s", "30 s")
    assert "ovs-lbt plan br0, then ovs-lbt apply br0" in found["said"]["to change"]
    assert says(said(here, "vnet1")["now"], "vnet0", "eth1 -> eth2"), "another one goes first"
    here.run_for(found["decided_in_s"] + 1)
    assert here.bindings()["vnet0"] == "eth2", "as it was said"


def test_a_port_that_was_moved_says_why_with_the_loads_at_that_moment() -> None:
    here = crowded().run_until(60)
    found = explained(here)
    assert (found["uplink"], found["reason"], found["bound_at"]) == ("eth2", "threshold", 28.0)
    assert says(found["last_move"]["why"], "eth1", "85%", "30 s", "75%")
    told = found["said"]
    assert says(told["where"], "eth2", "00:00:28 UTC", "32 s")
    assert says(told["why there"], "threshold", "eth1 85% -> 55%", "eth2 0% -> 30%")
    assert says(told["carries"], "3000.00", "0.00", "30 s", "30% of eth2", "10000 Mbit/s")
    assert found["against"] == "below-threshold"
    assert says(told["now"], "eth2", "30.0%", "75%")


def test_a_binding_that_was_only_planned_is_made_when_the_mode_becomes_enforce() -> None:
    """On a bond in observe mode, the bond decides until then."""
    here = crowded(mode="observe").run_until(60)
    assert said(here)["where"].startswith("would be on eth2, since 00:00:28 UTC")
    done(here.ask("set", "bridge", "br0", "mode=enforce"))
    here.run_until(70)
    found = explained(here)
    assert (found["uplink"], found["bound_at"]) == ("eth2", 60.0)
    assert says(found["said"]["where"], "on eth2 since 00:01:00 UTC", "10 s")


def test_a_pin_is_named_as_long_as_it_is_one() -> None:
    here = world(host(binding="eth1")).start()
    assert said(here)["where"].startswith("on eth1 at least since ")
    done(here.ask("pin", "vnet0", "eth2"))
    assert "pinned to eth2" in said(here)["rules"]
    done(here.ask("unpin", "vnet0"))
    assert said(here)["why there"] == "pin: the VM port was pinned to eth2, and has not moved since"


def test_a_reason_without_a_sentence_of_its_own_is_explained_by_the_decision_log() -> None:
    here = crowded().run_until(60)
    bridge = here.engine.fleet.bridges["br0"]
    bridge.placing.planned.bound["vnet0"] = replace(
        bridge.placing.planned.bound["vnet0"], reason="split"
    )
    assert says(said(here)["why there"], "split", "eth1", "85%", "eth1 85% -> 55%, eth2 0% -> 30%")
    bridge.decision_log.entries.clear()
    assert said(here)["why there"].startswith("split: ")


@pytest.mark.parametrize(
    ("bps", "name", "against", "now"),
    [
        ((9e9, 0.05e9), "vnet0", "no-room", ("eth1", "90.5%", "75%", "eth2", "90.0%")),
        ((9e9, 0.05e9), "vnet1", "too-small", ("eth1", "90.5%", "75%", "1%")),
        ((1e9,), "vnet0", "below-threshold", ("eth1", "10.0%", "75%")),
    ],
)
def test_the_policy_says_what_is_against_a_move(
    bps: Sequence[float], name: str, against: str, now: tuple[str, ...]
) -> None:
    found = explained_after(host(binding="eth1"), bps, name)
    assert found["against"] == against
    assert says(found["said"]["now"], *now)


def test_how_much_room_is_missing_elsewhere() -> None:
    row = with_interface(host(binding="eth1"), "vnet3", pin="eth2")
    found = explained_after(row, (4e9, 4e9, 0.0, 5e9))
    assert found["against"] == "no-room" and found["expected_ratio"] == {"eth2": 0.9}
    assert says(found["said"]["to change"], "eth2", "15%")


def test_what_a_verdict_says_is_what_the_plan_does() -> None:
    """Both are of the same policy and the same loads."""
    for bps in (CROWDED_BPS, (6e9, 3e9, 0.0, 0.0), (1e9, 1e9, 1e9, 1e9), (9e9, 0.0, 0.0, 0.0)):
        here = loaded(host(binding="eth1"), bps).run_until(KNOWN_AT_S)
        first = [(m["port"], m["target"]) for m in plan(here)["moves"]][:1]
        said_to_move = [
            (name, found["target"])
            for name in ("vnet0", "vnet1", "vnet2", "vnet3")
            if (found := explained(here, name))["against"] == "moves"
        ]
        assert said_to_move == first


@pytest.mark.parametrize(
    ("keys", "against", "rule", "command"),
    [
        ({"pin": "eth1"}, "pinned", "eth1", "unpin vnet0"),
        ({"exclude": "true"}, "excluded", "exclude", "set interface vnet0 exclude=false"),
        ({"policy": "explicit"}, "never-by-load", "load-based", "move vnet0 UPLINK"),
    ],
)
def test_rules_that_hold_a_port(
    keys: dict[str, str], against: str, rule: str, command: str
) -> None:
    row = with_interface(host(binding="eth1"), "vnet0", binding="eth1", **keys)
    found = explained_after(row, CROWDED_BPS)
    told = found["said"]
    assert found["against"] == against
    assert rule in told["rules"] and told["to change"].endswith(f"ovs-lbt {command}")


def test_where_it_goes_when_its_uplink_fails() -> None:
    here = loaded(host(binding="eth1", uplinks=4)).run_until(KNOWN_AT_S)
    done(here.ask("set", "interface", "eth2", "role=standby"))
    done(here.ask("set", "interface", "eth3", "role=unused"))
    here.set_link(4, up=False).run_for(1)
    found = explained(here)
    assert says(found["said"]["if it fails"], "eth2", "standby", "eth4", "link down")
    here.set_link(1, up=False).run_for(1)
    assert here.bindings()["vnet0"] == found["fails_over_to"][0] == "eth2"


def test_away_from_home_and_what_it_waits_for() -> None:
    here = loaded(host(binding="eth1")).run_until(20)
    here.set_link(1, up=False).run_for(1)
    found = explained(here)
    assert (found["against"], found["home"], found["uplink"]) == ("away-from-home", "eth1", "eth2")
    assert says(found["said"]["why there"], "failover: ", "eth1")
    assert says(found["said"]["now"], "eth1", "link down")
    here.set_link(1, up=True).run_for(5)
    assert says(said(here)["now"], "eth1", "failback delay", "40 s")
    here.run_for(41)
    assert says(said(here)["why there"], "failback: ", "eth1")


def test_until_loads_are_known() -> None:
    here = loaded(host(binding="eth1")).run_until(2.5)
    found = explained(here)
    assert found["against"] == "loads-unknown"
    here.run_until(20).add_port(port("vnet7", 17)).run_for(4)
    found = explained(here, "vnet7")
    assert found["against"] == "load-unknown"


def test_observed_it_is_said_where_it_would_be() -> None:
    here = crowded(mode="observe")
    found = explained(here)
    assert says(found["said"]["where"], "would", "eth1")
    assert says(found["said"]["now"], "would", "eth2", "19 s")
    assert found["said"]["to change"] == "ovs-lbt set bridge br0 mode=enforce"
    here.run_until(60)
    assert says(said(here)["why there"], "threshold: ", "eth1")


def test_a_hashed_port_has_a_home_and_sends_by_buckets() -> None:
    found = explained_after(host("dynamic", binding="eth1"), (1e9,))
    assert found["buckets"] == {"eth1": 128, "eth2": 128}
    assert says(found["said"]["carries"], "256 buckets", "128 on eth1", "128 on eth2")


def test_a_bridge_that_is_away() -> None:
    here = crowded()
    here.disconnect()
    found = explained(here)
    assert found["against"] == "not-connected"
    assert found["said"]["carries"].startswith("unknown")


def test_without_lacp_one_uplink_serves_all() -> None:
    row = with_lacp(host(binding="eth1"), falls_back=True)
    here = loaded(with_ids(row, teaming="lacp")).run_until(20)
    found = explained(here)
    assert (found["against"], found["policy"]) == ("lacp-fallback", "load-based")


def test_a_port_without_an_uplink() -> None:
    row = host(binding="eth1")
    ports = tuple(
        replace(p, trunks=(7,)) if p.name == "bond0" else replace(p, tag=5) for p in row.ports
    )
    found = explained_after(replace(row, ports=ports), CROWDED_BPS)
    assert found["against"] == "no-uplink" and found["uplink"] is None
    assert "VLANs" in found["said"]["why there"]


def test_it_may_be_asked_for_by_the_name_of_its_vm() -> None:
    row = host(vms=())
    vms = (port(f"vnet{n}", 10 + n, {"vm-id": vm}) for n, vm in enumerate(("web", "db", "db")))
    here = world(replace(row, ports=(*row.ports, *vms))).start().run_until(20)
    assert explained(here, "web")["port"] == "vnet0"
    assert done(here.ask("explain", "web")).startswith("vnet0 (web) on br0, load-based\n")
    found = refusal(here.ask("explain", "db"))
    assert found == "VM db has 2 ports; use one of vnet1, vnet2"


def test_every_explanation_fits_eighty_columns() -> None:
    here = crowded()
    for until_s in (KNOWN_AT_S, 30, 60):
        here.run_until(until_s)
        for name in ("vnet0", "vnet1"):
            text = done(here.ask("explain", name))
            assert max(map(len, text.splitlines())) <= 80, text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain", "--json"), "explain: port is missing; usage: PORT [--json]"),
        (("explain", "vnet0", "vnet1"), "vnet0 vnet1 is invalid; expected one name [--json]"),
        (("show", "br0", "br1"), "br0 br1 is invalid; expected one name [--json]"),
        (("plan", "br0", "br1"), "br0 br1 is invalid; expected one name [--json]"),
    ],
)
def test_too_few_and_too_many_names_are_refused(words: tuple[str, ...], expected: str) -> None:
    here = world(host()).start()
    assert refusal(here.ask(*words)) == expected


def test_a_refusal_is_one_line_whatever_was_asked() -> None:
    here = world(host()).start()
    text = refusal(here.ask("explain", "a\nb\x1b[2J\ud800"))
    assert text.startswith(r"no interface of an attached bridge is named a\nb\x1b[2J\ud800; ")
