"""The history's entries as one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from controller.api.history import Happened, ends
from controller.top.state import Happening


def happenings(
    entries: Iterable[Mapping[str, Any]], clock: Callable[[float], str]
) -> tuple[Happening, ...]:
    """Decisions, the newest first; what they came to (`outcome`) is left out."""
    told = [
        Happening(clock(entry["at"]), entry["bridge"], text)
        for entry in entries
        if entry["event"] != Happened.OUTCOME
        for text in _told(entry)
    ]
    return tuple(reversed(told))


def _told(entry: Mapping[str, Any]) -> Iterator[str]:
    event, why = entry["event"], entry.get("why", "")
    said = "" if event == Happened.MOVED else f"{event}: "
    moves = entry.get("moves", [])
    if not moves:
        yield f"{said}{why}"
    # The last is read first.
    for move in reversed(moves):
        yield f"{said}{_way(move)}: {why}"


def _way(move: Mapping[str, Any]) -> str:
    """Shorter than the history has it: a line has room for little."""
    what = move["port"] if "port" in move else f"{move['policy']}, {move['buckets']} buckets"
    source, target = ends(move.get("source"), move["target"], move["reason"])
    return f"{what}: {source} -> {target}, {move['reason']}"
