"""`top`'s keys: what each does, and that nothing is done without a yes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.top import keys, view
from controller.cli.top.keys import Ask, Effect, Quit, Refresh
from controller.cli.top.state import (
    Confirming,
    Message,
    Picture,
    Reading,
    State,
    Watching,
)
from controller.text import top_manual as manual
from tests.unit.show_json import br0, bridge, port, uplink


def watching(**more: object) -> State:
    other = bridge("br1", [uplink("eth8"), uplink("eth9", role="drained")], [port("tap0", "eth8")])
    picture = Picture(0.0, "14:03:22", "0.1.0", (br0(), other))
    return replace(State(pictures=(picture,)), **more)  # type: ignore[arg-type]


def press(state: State, *pressed: str) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for key in pressed:
        state, more = keys.press(state, key, keys.Page(2, 9))
        effects += more
    return state, effects


def selected(state: State) -> str:
    return state.rows[state.at].key[1]


def test_the_selection_follows_its_port() -> None:
    state, _ = press(watching(), "down")
    assert selected(state) == "vnet2"
    assert selected(press(state, "s", "s")[0]) == "vnet2", "however they are sorted"
    assert selected(press(state, "up", "up")[0]) == "vnet10"
    assert selected(press(state, "j", "k", keys.PAGE_DOWN)[0]) == "tap0"
    assert selected(press(state, keys.END, keys.HOME)[0]) == "vnet10"


def test_sorting() -> None:
    state = watching()
    assert state.sort == "tx"
    assert press(state, "s")[0].sort == press(state, ">")[0].sort == "rx"
    assert press(state, "<")[0].sort == "uplink"
    assert press(state, "r")[0].reverse and not press(state, "r", "s")[0].reverse


def test_the_filter_is_taken_as_it_is_typed() -> None:
    state, effects = press(watching(), "/", "w", "e", "q")
    assert (state.filter, effects) == ("weq", [])
    state, _ = press(state, keys.BACKSPACE, "b", keys.ENTER)
    assert state.filter == "web" and [row.key[1] for row in state.rows] == ["vnet2"]
    assert press(state, keys.ESCAPE)[0].filter == ""
    assert press(state, "/", "x", keys.ESCAPE)[0].filter == ""


def test_bridges_come_one_after_another() -> None:
    seen, state = [], watching()
    for _ in range(4):
        seen.append(state.bridge)
        state, _ = press(state, "b")
    assert seen == [None, "br0", "br1", None]


def test_what_ends_and_what_looks() -> None:
    assert press(watching(), "q")[1] == [Quit()]
    assert press(watching(), " ")[1] == [Refresh()]
    state, effects = press(watching(), "+")
    assert (state.interval_s, effects) == (1.0, [Refresh()])
    assert press(state, *["+"] * 9)[0].interval_s == 0.5
    assert press(state, *["-"] * 9)[0].interval_s == 60.0
    assert isinstance(press(watching(), "h")[0].mode, Reading)
    assert isinstance(press(watching(), "?", "q")[0].mode, Watching)


def test_a_text_is_scrolled_to_its_ends_and_no_further() -> None:
    state, _ = press(watching(), "h", keys.DOWN, keys.PAGE_DOWN)
    assert state.mode == Reading(manual.TEXT, top=3)
    assert press(state, keys.END, keys.DOWN)[0].mode == Reading(manual.TEXT, top=9)
    assert press(state, keys.PAGE_UP, keys.PAGE_UP)[0].mode == Reading(manual.TEXT, top=0)
    assert press(state, keys.HOME)[0].mode == Reading(manual.TEXT, top=0)


@pytest.mark.parametrize(
    ("pressed", "question", "words"),
    [
        ("m enter", "move vnet10 (db-1) from eth1 to eth2 now", ("move", "vnet10", "eth2")),
        ("down m 1", "move vnet2 (web-1) from eth1 to eth1 now", ("move", "vnet2", "eth1")),
        ("p enter", "pin vnet10 (db-1) to eth1", ("pin", "vnet10", "eth1")),
        (
            "p right enter",
            "pin vnet10 (db-1) to eth2, and move it there from eth1",
            ("pin", "vnet10", "eth2"),
        ),
        ("u", "unpin vnet10 (db-1), so that its policy can move it again", ("unpin", "vnet10")),
        ("d enter", "drain eth1: move 2 VM ports off it, and stop using it", ("drain", "eth1")),
        ("d 2", "drain eth2: move 1 VM port off it, and stop using it", ("drain", "eth2")),
        ("d left enter", "undrain eth9, so that it is used again", ("undrain", "eth9")),
    ],
)
def test_what_changes_something_asks_first(
    pressed: str, question: str, words: tuple[str, ...]
) -> None:
    state, effects = press(watching(), *pressed.split())
    assert state.mode == Confirming(words, question) and effects == []
    assert press(state, "n")[1] == press(state, keys.ENTER)[1] == press(state, "q")[1] == []
    state, effects = press(state, "y")
    assert effects == [Ask(words)] and isinstance(state.mode, Watching)


def test_answers_are_told() -> None:
    words = ("drain", "eth1")
    state = keys.answered(watching(), words, "eth1: idle, 2 VM ports moved", refused=False)
    assert state.message == Message("eth1: idle, 2 VM ports moved")
    state = keys.answered(watching(), words, "uplink eth1: the last -> another", refused=True)
    assert state.message == Message("drain eth1: uplink eth1: the last -> another", bad=True)
    assert press(state, "r")[0].message is None
    assert keys.answered(watching(), ("move", "a", "b"), "", False).message == Message(
        "move a b: done"
    )


def test_an_explanation_is_shown_while_it_is_wanted() -> None:
    state, effects = press(watching(), "e")
    assert effects == [Ask(("explain", "vnet10"))]
    told = keys.answered(state, ("explain", "vnet10"), "because", refused=False)
    assert told.mode == Reading("because", "vnet10")
    assert isinstance(press(told, keys.ESCAPE)[0].mode, Watching)
    gone = keys.answered(state, ("explain", "vnet10"), "port: vnet10 -> one of", refused=True)
    assert isinstance(gone.mode, Watching) and gone.message
    late = keys.answered(press(state, keys.ESCAPE)[0], ("explain", "vnet10"), "late", False)
    assert isinstance(late.mode, Watching)


KEYS = st.sampled_from(
    [
        *"qsr/b emuhdp+-y12<>jk?",
        *(keys.UP, keys.DOWN, keys.LEFT, keys.RIGHT, keys.PAGE_UP, keys.PAGE_DOWN),
        *(keys.HOME, keys.END, keys.ENTER, keys.ESCAPE, keys.BACKSPACE),
    ]
)


@given(st.lists(KEYS, max_size=30), st.booleans())
def test_any_keys_in_any_order_are_fine_and_only_yes_changes_something(
    pressed: list[str], empty: bool
) -> None:
    state = State() if empty else watching()
    for key in pressed:
        asked = state.mode
        state, effects = keys.press(state, key, view.page(state, 80, 24))
        view.screen(state, 80, 24)
        for effect in effects:
            if isinstance(effect, Ask) and effect.words[0] != "explain":
                assert key == "y" and isinstance(asked, Confirming)
                assert effect.words == asked.words
