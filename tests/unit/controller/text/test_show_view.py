"""`show` for people: tables as wide as their contents, and no wider than a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.events import UNSUPPORTED, PortCounters, PortStatsRead
from controller.text import show_view
from controller.text.drawing import Look, Style, clean, plain, width_of
from tests.unit.controller.engine.told import shown
from tests.unit.fake_switch import world
from tests.unit.rows import host
from tests.unit.show_json import JsonObject, br0, bridge, port, uplink


def drawn(bridges: list[JsonObject], look: Look | None = None) -> str:
    lines = show_view.lines({"bridges": bridges}, look or Look())
    return "\n".join(plain(line).rstrip() for line in lines)


def test_bars_on_a_terminal_are_of_blocks() -> None:
    assert "[████████│█  ] 83%" in drawn([br0()], Look(80, unicode=True))


def test_what_is_too_long_is_cut_on_a_terminal_only() -> None:
    vm = "a4f1c2de-7b1e-4f7a-9a53-3f0c0f3a1b22"
    told = bridge(
        "br-ex",
        [uplink("enp59s0f0np0"), uplink("enp59s0f1np1")],
        [port("tapa4f1c2de-7b1", "enp59s0f0np0", 12345, 10, vm=vm)],
    )
    assert vm in drawn([told])
    on_terminal = drawn([told], Look(80))
    assert "a4f1c2" in on_terminal and vm not in on_terminal
    assert {"tapa4f1c2de-7b1", "enp59s0f0np0"} <= set(on_terminal.split())


def test_what_is_wrong_is_said_and_stands_out() -> None:
    told = br0() | {
        "connected": False,
        "mode": "observe",
        "fallen_back": True,
        "config_errors": ["bridge br0: threshold: 7 is invalid; expected 10 to 100"],
        "not_done": ["spanning tree"],
        "rules_broken": [{"port": "vnet2", "vm": "web-1", "rule": "pin", "how": "eth2 -> eth1"}],
        "buckets": {"dynamic": {"eth1": 128, "eth2": 128}},
    }
    silent = uplink("eth3", up=False) | {"silent": ["LACP", "BFD"]}
    told["uplinks"] = [uplink("eth1", up=False), uplink("eth2", role="drained"), silent]
    told["ports"] = [port("vnet2", None, units={"eth1": 3, "eth2": 1}, shares=60, limit_bps=1e7)]
    lines = show_view.lines({"bridges": [told]}, Look())
    text = "\n".join(map(plain, lines))
    for said in (
        "NOT CONNECTED",
        show_view.OBSERVING_UPLINKS,
        show_view.FALLEN_BACK,
        "  eth3: link up, but no response from the peer (LACP, BFD)",
        "  rule broken  vnet2 pin: eth2 -> eth1",
        "  bad value  bridge br0: threshold: 7 is invalid; expected 10 to 100",
        "  not done   spanning tree",
        "  dynamic: 256 buckets, eth1 128, eth2 128",
        "  vnet2: 4 addresses, eth1 3, eth2 1",
        "  vnet2: shares 60, at most 10 Mbit/s",
    ):
        assert said in text
    styles = {span.text: span.style for line in lines for span in line}
    assert styles["down"] is styles["no answer"] is styles["NOT CONNECTED"] is Style.BAD
    assert styles["drained"] is Style.WARN


def test_without_a_bridge_there_is_a_hint() -> None:
    assert drawn([]) == "no bridge is attached; attach one with: ovs-lbt attach BRIDGE"


def test_packets_are_told_as_the_vm_sees_them() -> None:
    """What the switch sends out of a VM port is what the VM receives."""
    here = world(host()).start()
    names = ("tx_packets", "rx_packets", "tx_dropped_packets", "rx_dropped_packets")

    def told() -> list[JsonObject]:
        return [port for port in shown(here)["ports"] if port["name"] == "vnet0"]

    counters = PortCounters(10, 1.0, 0, 0, 3, 4, tx_packets=50, rx_packets=60)
    here.say(PortStatsRead("br0", (counters,)))
    assert [[port[name] for name in names] for port in told()] == [[60, 50, 4, 3]]
    silent = PortCounters(10, 2.0, 0, 0, UNSUPPORTED, UNSUPPORTED)
    here.say(PortStatsRead("br0", (silent,)))
    assert [[port[name] for name in names] for port in told()] == [[None] * 4]


def test_an_older_service_is_understood() -> None:
    told = br0()
    del told["threshold_ratio"]
    for one in told["ports"]:
        for name in ("tx_packets", "rx_packets", "tx_dropped_packets", "rx_dropped_packets"):
            del one[name]
    assert "vnet10" in drawn([told])


RATES = st.floats(0, 1e6)
NAMES = st.text(min_size=1, max_size=15)


@st.composite
def bridges(draw: st.DrawFn, names: st.SearchStrategy[str] = NAMES) -> JsonObject:
    """Bridges with whatever names there might be."""
    uplinks = [
        uplink(draw(names), draw(RATES), draw(RATES), draw(st.sampled_from([0, 10, 1e5])))
        for _ in range(draw(st.integers(0, 5)))
    ]
    ports = [
        port(name, draw(st.none() | names), draw(RATES), draw(RATES), vm=draw(st.text()))
        for name in draw(st.lists(names, max_size=8, unique=True))
    ]
    errors = draw(st.lists(st.text(), max_size=2))
    connected = draw(st.booleans())
    return bridge(draw(names), uplinks, ports, config_errors=errors, connected=connected)


@given(bridges(), st.integers(80, 200), st.booleans())
def test_nothing_is_wider_than_the_terminal(told: JsonObject, width: int, unicode: bool) -> None:
    """With names as long as interfaces may have; only the headline may be longer."""
    for line in show_view.lines({"bridges": [told]}, Look(width, unicode))[1:]:
        assert width_of(plain(line)) <= width, plain(line)


@pytest.mark.parametrize("width", [1, 10, 40])
def test_a_narrow_terminal_is_no_error(width: int) -> None:
    assert clean("br0") in drawn([br0()], Look(width))
