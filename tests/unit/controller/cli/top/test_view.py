"""`top`'s screens: what they say, at every size of a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.top import view
from controller.cli.top.state import (
    Choosing,
    Confirming,
    Happening,
    Message,
    Mode,
    Picture,
    Reading,
    State,
    Typing,
    Watching,
    dropped,
    happenings,
    with_picture,
)
from controller.text import top_manual as manual
from controller.text.drawing import Look, Style, plain, width_of
from tests.unit.controller.text.test_show_view import bridges
from tests.unit.show_json import JsonObject, br0, bridge, port, uplink

HAPPENED = (
    Happening("14:03:01", "br0", "vnet2: eth2 -> eth1, threshold: eth2 at 80% over 30 s"),
    Happening("14:02:01", "br1", "link-up: eth9: its link is up"),
)


def picture(*bridges: JsonObject, at_s: float = 10.0, **more: Any) -> Picture:
    return Picture(at_s, "14:03:22", "0.1.0", bridges or (br0(),), HAPPENED, **more)


def watching(*bridges: JsonObject, **more: Any) -> State:
    return State(pictures=(picture(*bridges),), now_s=10.0, **more)


def screen(state: State, width: int = 80, height: int = 24) -> list[str]:
    return [plain(line).rstrip() for line in view.screen(state, width, height)]


def test_ports_are_sorted_and_filtered() -> None:
    def ports(state: State) -> list[str]:
        return [row.key[1] for row in state.rows]

    state = watching()
    assert ports(state) == ["vnet10", "vnet2", "vnet1"]
    assert ports(replace(state, reverse=True)) == ["vnet1", "vnet2", "vnet10"]
    assert ports(replace(state, sort="port")) == ["vnet1", "vnet2", "vnet10"]
    assert ports(replace(state, sort="used-by")) == ["vnet1", "vnet10", "vnet2"]
    assert ports(replace(state, sort="uplink")) == ["vnet2", "vnet10", "vnet1"]
    assert ports(replace(state, sort="rx", filter="WEB")) == ["vnet2"]
    assert ports(replace(state, filter="eth2")) == ["vnet1"]
    assert "no VM port matches 'nosuch'" in "\n".join(screen(replace(state, filter="nosuch")))


def test_the_page_with_the_selected_port_is_shown() -> None:
    ports = [port(f"vnet{i}", "eth1", 50 - i) for i in range(50)]
    state = watching(bridge("br0", [uplink("eth1"), uplink("eth2")], ports))
    text = "\n".join(screen(state))
    assert "vnet0 " in text and "vnet30" not in text and " of 50 " in text
    lines = view.screen(replace(state, selected=("br0", "vnet30")), 80, 24)
    (chosen,) = (line for line in lines if any(span.style is Style.CHOSEN for span in line))
    assert "vnet30" in plain(chosen) and not any("vnet0 " in plain(line) for line in lines)


def test_several_bridges_are_told_apart() -> None:
    other = bridge("br1", [uplink("eth9")], [port("vnet1", "eth9")], connected=False)
    state = watching(br0(), other)
    text = "\n".join(screen(state))
    assert "NOT CONNECTED: br1" in text and "br1     eth9" in text and "link-up: eth9" in text
    only = "\n".join(screen(replace(state, bridge="br0")))
    assert "eth9" not in only and "BRIDGE" not in only
    assert len(replace(state, only=("br1",)).rows) == 1


def test_while_the_service_is_away_the_last_picture_stays() -> None:
    away = watching(away="no service is running; start it with: ovs-lbt run")
    text = screen(away)
    assert "NO ANSWER SINCE 14:03:22" in text[0] and text[-1].startswith("no service is running")
    assert "vnet10" in "\n".join(text)
    body = [span for line in view.screen(away, 80, 24)[1:-1] for span in line]
    assert {span.style for span in body} == {Style.DIM}
    assert not watching().stale and replace(watching(), now_s=100.0).stale
    back = with_picture(away, picture(at_s=20.0))
    assert not back.stale and len(back.pictures) == 1


def test_what_is_wrong_has_a_line() -> None:
    broken = {"port": "vnet2", "vm": "web-1", "rule": "pin", "how": "eth2 -> eth1"}
    state = watching(br0() | {"mode": "observe", "rules_broken": [broken]})
    assert screen(state)[4] == " (1 more: ovs-lbt show) rule broken  vnet2 pin: eth2 -> eth1"


def test_a_long_question_is_there_to_its_end() -> None:
    vm = "a4f1c2de-7b1e-4f7a-9a53-3f0c0f3a1b22"
    question = f"move tapa4f1c2de-7b1 ({vm}) from enp59s0f0np0 to enp59s0f1np1 now"
    lines = screen(watching(mode=Confirming(("move",), question)))
    assert len(lines) == 24 and " ".join(lines[-2:]) == f"[y/n] {question}?"
    refused = Message("uplink eth1: " + 20 * "so it is " + "-> another", bad=True)
    assert screen(watching(message=refused))[-1].endswith("-> another")


def test_help_and_explanations_scroll() -> None:
    helped = "\n".join(screen(watching(mode=Reading(manual.TEXT)), height=50))
    assert manual.TEXT in helped
    assert "quit" in "\n".join(screen(watching(mode=Reading(manual.TEXT, top=999))))
    assert all(len(line) < 80 for line in manual.TEXT.splitlines())
    told = "\n".join(f"line {i}" for i in range(50))
    lines = screen(watching(mode=Reading(told, "vnet2", top=999)))
    assert lines[-2] == "line 49" and lines[2].startswith(" eth1")
    page = view.page(watching(mode=Reading(told, "vnet2")), 80, 24)
    assert lines[5] == f"line {page.last}" and page.last + page.lines == 50


def test_uplinks_that_do_not_fit_are_counted() -> None:
    many = bridge("br0", [uplink(f"eth{i}") for i in range(32)], [port("vnet0", "eth0")])
    text = screen(watching(many))
    assert " ... 27 more uplinks: ovs-lbt show" in text
    assert sum(line.startswith(" eth") for line in text) == 5
    assert any(line.startswith(" vnet0") for line in text)


def test_once_shows_everything() -> None:
    ports = [port(f"vnet{i}", "eth1", i, vm="v" * 60) for i in range(200)]
    state = watching(bridge("br0", [uplink("eth1"), uplink("eth2")], ports))
    text = [plain(line) for line in view.once(state, Look())]
    assert sum("v" * 60 in line for line in text) == 200
    assert any("threshold" in line for line in text)


# ---- drops ------------------------------------------------------------------------------


def counted(*counts: int | None) -> JsonObject:
    names = ("tx_packets", "tx_dropped_packets", "rx_packets", "rx_dropped_packets")
    return dict(zip(names, counts, strict=True))


@pytest.mark.parametrize(
    ("before", "now", "ratio"),
    [
        (counted(0, 0, 0, 0), counted(90, 10, 100, 0), 0.1),
        (counted(0, 0, 0, 0), counted(100, 0, 50, 50), 0.5),
        (counted(5, 5, 5, 5), counted(5, 5, 5, 5), 0.0),
        (counted(0, 0, None, None), counted(90, 10, None, None), 0.1),
        (counted(100, 0, 100, 0), counted(3, 0, 3, 0), None),
        (None, counted(90, 10, 100, 0), None),
        ({}, {}, None),
    ],
)
def test_drops_are_those_of_the_worse_direction(
    before: JsonObject | None, now: JsonObject, ratio: float | None
) -> None:
    assert dropped(before, now) == ratio


def test_drops_are_counted_over_seconds() -> None:
    state = State(interval_s=1.0)
    for second in range(10):
        one = port("vnet0", "eth1", tx_packets=90 * second, tx_dropped_packets=10 * second)
        told = bridge("br0", [uplink("eth1")], [one])
        state = with_picture(state, picture(told, at_s=second))
    assert [p.at_s for p in state.pictures] == [6, 7, 8, 9]
    assert state.rows[0].drop_ratio == 0.1
    assert " 10.00  load-based" in "\n".join(screen(state))


def test_what_the_host_itself_does_not_listen_to_is_not_lost() -> None:
    ports = [port(name, "eth1", rx_packets=1, rx_dropped_packets=1) for name in ("br0", "vnet0")]
    before = [port(name, "eth1") for name in ("br0", "vnet0")]
    uplinks = [uplink("eth1"), uplink("eth2")]
    old, new = (picture(bridge("br0", uplinks, told)) for told in (before, ports))
    ratios = {row.key[1]: row.drop_ratio for row in State(pictures=(old, new)).rows}
    assert ratios == {"br0": None, "vnet0": 0.5}


def test_decisions_are_told_in_a_line_the_newest_first() -> None:
    moves = [
        {"port": "vnet0", "vm": "a", "source": "eth1", "target": "eth2", "reason": "threshold"},
        {"policy": "slb", "buckets": 3, "source": "eth1", "target": "eth2", "reason": "rebalance"},
    ]
    entries = [
        {"at": 1.0, "bridge": "br0", "event": "moved", "moves": moves, "why": "eth1 at 85%"},
        {"at": 2.0, "bridge": "br0", "event": "outcome", "why": "8 s after the move"},
        {"at": 3.0, "bridge": "br0", "event": "link-down", "why": "eth1: its link is down"},
        {"at": 4.0, "bridge": "br0", "event": "refused", "moves": moves[:1], "why": "pinned"},
    ]
    assert [(one.clock, one.text) for one in happenings(entries, str)] == [
        ("4.0", "refused: vnet0: eth1 -> eth2, threshold: pinned"),
        ("3.0", "link-down: eth1: its link is down"),
        ("1.0", "vnet0: eth1 -> eth2, threshold: eth1 at 85%"),
        ("1.0", "slb, 3 buckets: eth1 -> eth2, rebalance: eth1 at 85%"),
    ]


# ---- whatever there is to show ----------------------------------------------------------

NAMES = st.text(min_size=1, max_size=20)
MODES: st.SearchStrategy[Mode] = st.one_of(
    st.builds(Watching),
    st.builds(Typing, st.text()),
    st.builds(Reading, st.just(manual.TEXT), st.none(), st.integers(0, 99)),
    st.builds(Reading, st.none() | st.text(), NAMES, st.integers(0, 99)),
    st.builds(Confirming, st.just(("move",)), st.text()),
    st.lists(NAMES, min_size=1, max_size=40).flatmap(
        lambda names: st.builds(
            Choosing,
            st.sampled_from(["move", "pin", "drain"]),
            st.just(tuple(names)),
            st.integers(0, len(names) - 1),
            st.none() | st.tuples(NAMES, NAMES),
        )
    ),
)
STATES = st.builds(
    State,
    pictures=st.lists(
        st.builds(
            Picture,
            st.just(0.0),
            st.just("14:03:22"),
            st.text(max_size=9),
            st.lists(bridges(NAMES), max_size=3, unique_by=lambda b: b["name"]).map(tuple),
            st.lists(st.builds(Happening, st.text(), NAMES, st.text()), max_size=3).map(tuple),
            st.text(),
        ),
        max_size=2,
    ).map(tuple),
    sort=st.sampled_from(list(manual.SORTS)),
    reverse=st.booleans(),
    filter=st.text(max_size=2),
    mode=MODES,
    message=st.none() | st.builds(Message, st.text(), st.booleans()),
    away=st.none() | st.text(),
)


@given(STATES, st.integers(1, 130), st.integers(1, 50), st.booleans())
def test_a_screen_fits_whatever_there_is_to_show(
    state: State, width: int, height: int, unicode: bool
) -> None:
    lines = view.screen(state, width, height, unicode)
    assert len(lines) == max(2, height) or len(lines) == height
    for line in lines:
        assert width_of(plain(line)) <= width
        assert plain(line).isprintable()
    page = view.page(state, width, height)
    assert page.lines >= 1 and page.last >= 0
