"""Handles keys in `top`: returns the state after a pressed key, and requests to the service."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.cli.top.state import (
    Choosing,
    Confirming,
    Message,
    Reading,
    Row,
    State,
    Typing,
    Watching,
)
from controller.text import top_manual as manual
from controller.text.show_view import JsonObject

UP, DOWN, LEFT, RIGHT = "up", "down", "left", "right"
PAGE_UP, PAGE_DOWN, HOME, END = "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"

_INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
YES = ("y", "Y")


@dataclass(frozen=True, slots=True)
class Quit:
    """End `top`."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Request the service's status immediately."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a command to the service."""

    words: tuple[str, ...]


Effect = Quit | Refresh | Ask


@dataclass(frozen=True, slots=True)
class Page:
    """A pane: its height in lines, and the last line that can be scrolled to the top."""

    lines: int
    last: int = 0


def press(state: State, key: str, page: Page) -> tuple[State, tuple[Effect, ...]]:
    """Return the state and effects of a pressed key. `key`: a character, or a name in this module.

    `page`: the pane that scroll keys affect.
    """
    state = replace(state, message=None)
    match state.mode:
        case Typing(before=before):
            return _type(state, key, before), ()
        case Reading():
            return _read(state, state.mode, key, page)
        case Choosing():
            return _choose(state, state.mode, key), ()
        case Confirming(words=words):
            watching = replace(state, mode=Watching())
            if key not in YES:
                return replace(watching, message=Message("cancelled")), ()
            return replace(watching, message=Message(f"{' '.join(words)} ...")), (Ask(words),)
    return _watch(state, key, page)


def answered(state: State, words: tuple[str, ...], text: str, refused: bool) -> State:
    """Return the state after the service has carried out or refused a command."""
    command, name, *_ = words
    if command == "explain":
        if not isinstance(state.mode, Reading) or state.mode.port != name:
            return state
        if not refused:
            return replace(state, mode=Reading(text, name))
        state = replace(state, mode=Watching())
    answer = "; ".join(text.split("\n"))
    if not refused and answer:
        return replace(state, message=Message(answer))
    return replace(state, message=Message(f"{' '.join(words)}: {answer or 'done'}", refused))


# ---- watching --------------------------------------------------------------------------


def _watch(state: State, key: str, page: Page) -> tuple[State, tuple[Effect, ...]]:
    match key:
        case "q" | "Q":
            return state, (Quit(),)
        case " ":
            return state, (Refresh(),)
        case "h" | "?":
            return replace(state, mode=Reading(manual.TEXT)), ()
        case "/":
            return replace(state, mode=Typing(state.filter), filter=""), ()
        case "\x1b" | "escape":
            return replace(state, filter=""), ()
        case "r":
            return replace(state, reverse=not state.reverse), ()
        case "s" | ">" | "<":
            return _sort(state, -1 if key == "<" else 1), ()
        case "b":
            return _next_bridge(state), ()
        case "+" | "-":
            faster = key == "+"
            return replace(state, interval_s=_interval(state.interval_s, faster)), (Refresh(),)
        case "d":
            return _drain(state), ()
        case "e" | "m" | "p" | "u":
            return _of_port(state, key)
    return _select(state, key, page), ()


def _select(state: State, key: str, page: Page) -> State:
    rows = state.rows
    steps = _steps(page.lines, len(rows))
    if key not in steps or not rows:
        return state
    at = min(max(0, state.at + steps[key]), len(rows) - 1)
    return replace(state, selected=rows[at].key)


def _steps(page: int, all_of_it: int) -> dict[str, int]:
    """Return the number of lines by which each key scrolls a text or moves the selection."""
    far = {PAGE_UP: -page, PAGE_DOWN: page, HOME: -all_of_it, END: all_of_it}
    return {UP: -1, "k": -1, DOWN: 1, "j": 1, **far}


def _sort(state: State, step: int) -> State:
    columns = list(manual.SORTS)
    at = (columns.index(state.sort) + step) % len(columns)
    return replace(state, sort=columns[at], reverse=False)


def _next_bridge(state: State) -> State:
    """Show the next bridge alone, or all bridges after the last one."""
    order = [None, *(bridge["name"] for bridge in state.offered)]
    at = order.index(state.bridge) if state.bridge in order else 0
    return replace(state, bridge=order[(at + 1) % len(order)])


def _interval(interval_s: float, faster: bool) -> float:
    if faster:
        return max((i for i in _INTERVALS_S if i < interval_s), default=_INTERVALS_S[0])
    return min((i for i in _INTERVALS_S if i > interval_s), default=_INTERVALS_S[-1])


# ---- the filter, and texts to read -----------------------------------------------------


def _type(state: State, key: str, before: str) -> State:
    match key:
        case "enter":
            return replace(state, mode=Watching())
        case "escape":
            return replace(state, mode=Watching(), filter="")
        case "backspace":
            if not state.filter:
                return replace(state, mode=Watching(), filter=before)
            return replace(state, filter=state.filter[:-1])
    return replace(state, filter=state.filter + key) if len(key) == 1 else state


def _read(state: State, mode: Reading, key: str, page: Page) -> tuple[State, tuple[Effect, ...]]:
    """Scroll the help or an explanation, up to the last line in `page`, or close it."""
    steps = {**_steps(page.lines, page.last), " ": page.lines}
    if key in steps:
        top = min(max(0, mode.top + steps[key]), page.last)
        return replace(state, mode=replace(mode, top=top)), ()
    if key in ("q", "Q", "h", "?", "e", ESCAPE, ENTER):
        return replace(state, mode=Watching()), ()
    return state, ()


# ---- commands --------------------------------------------------------------------------


def _of_port(state: State, key: str) -> tuple[State, tuple[Effect, ...]]:
    """Begin a command for the selected VM port: explain, move, pin or unpin, depending on the key."""
    rows = state.rows
    if not rows:
        return replace(state, message=Message("no VM port is selected", bad=True)), ()
    row = rows[state.at]
    state = replace(state, selected=row.key)
    name = row.port["name"]
    if key == "e":
        return replace(state, mode=Reading(None, name)), (Ask(("explain", name)),)
    if key == "u":
        question = f"unpin {_named(row)}, so that its policy can move it again"
        return replace(state, mode=Confirming(("unpin", name), question)), ()
    return _choosing(state, "move" if key == "m" else "pin", row), ()


def _choosing(state: State, command: str, row: Row) -> State:
    """Offer uplinks; preselect the current one for a pin, the least loaded other one for a move."""
    (bridge,) = (b for b in state.bridges if b["name"] == row.key[0])
    uplinks = tuple(uplink["name"] for uplink in bridge["uplinks"])
    if not uplinks:
        return replace(state, message=Message("the bridge has no uplinks", bad=True))
    at = uplinks.index(row.port["uplink"]) if row.port["uplink"] in uplinks else 0
    if command == "move":
        others = [u for u in bridge["uplinks"] if u["name"] != row.port["uplink"]]
        best = min(others, key=_rank, default=None)
        at = uplinks.index(best["name"]) if best else at
    return replace(state, mode=Choosing(command, uplinks, at, row.key))


def _rank(uplink: JsonObject) -> tuple[bool, bool, float]:
    return not uplink["up"], uplink["role"] != "active", uplink["utilization_ratio"]


def _drain(state: State) -> State:
    uplinks = tuple(u["name"] for bridge in state.bridges for u in bridge["uplinks"])
    if not uplinks:
        return replace(state, message=Message("no bridge has uplinks", bad=True))
    rows = state.rows
    own = rows[state.at].port["uplink"] if rows and state.selected else None
    at = uplinks.index(own) if own in uplinks else 0
    return replace(state, mode=Choosing("drain", uplinks, at))


def _choose(state: State, mode: Choosing, key: str) -> State:
    count = len(mode.uplinks)
    match key:
        case "left" | "up" | "h" | "k":
            return replace(state, mode=replace(mode, at=(mode.at - 1) % count))
        case "right" | "down" | "l" | "j" | "\t":
            return replace(state, mode=replace(mode, at=(mode.at + 1) % count))
        case "enter":
            return replace(state, mode=_confirming(state, mode))
        case _ if len(key) == 1 and key in "123456789" and int(key) <= count:
            return replace(state, mode=_confirming(state, replace(mode, at=int(key) - 1)))
        case "escape" | "q":
            return replace(state, mode=Watching(), message=Message("cancelled"))
    return state


def _confirming(state: State, mode: Choosing) -> Watching | Confirming:
    """Return the mode that asks the operator to confirm a command, with the effect of the command."""
    target = mode.uplinks[mode.at]
    if mode.port is None:
        return _draining(state, target)
    row = next((row for row in state.rows if row.key == mode.port), None)
    if row is None:
        return Watching()
    words = mode.command, row.port["name"], target
    source = row.port["uplink"] or "no uplink"
    if mode.command == "move":
        return Confirming(words, f"move {_named(row)} from {source} to {target} now")
    comes = "" if row.port["uplink"] == target else f", and move it there from {source}"
    return Confirming(words, f"pin {_named(row)} to {target}{comes}")


def _draining(state: State, uplink: str) -> Watching | Confirming:
    found = next((u for b in state.bridges for u in b["uplinks"] if u["name"] == uplink), None)
    if found is None:
        return Watching()
    if found["role"] == "drained":
        return Confirming(("undrain", uplink), f"undrain {uplink}, so that it is used again")
    ports = sum(port["uplink"] == uplink for b in state.bridges for port in b["ports"])
    what = f"{ports} VM port{'' if ports == 1 else 's'}"
    return Confirming(("drain", uplink), f"drain {uplink}: move {what} off it, and stop using it")


def _named(row: Row) -> str:
    port = row.port
    return port["name"] if port["vm"] == port["name"] else f"{port['name']} ({port['vm']})"
