"""Entries of the history as one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from controller.api.history import Happened, ends
from controller.top.state import Happening


def happenings(
    entries: Iterable[Mapping[str, Any]], clock: Callable[[float], str]
) -> tuple[Happening, ...]:
    """Decisions, the newest first. Entries about results (`outcome`) are left out."""
    lines = [
        Happening(clock(entry["at"]), entry["bridge"], text)
        for entry in entries
        if entry["event"] != Happened.OUTCOME
        for text in _lines(entry)
    ]
    return tuple(reversed(lines))


def _lines(entry: Mapping[str, Any]) -> Iterator[str]:
    event, why = entry["event"], entry.get("why", "")
    event_text = "" if event == Happened.MOVED else f"{event}: "
    moves = entry.get("moves", [])
    if not moves:
        yield f"{event_text}{why}"
    # The newest entry is the last one.
    for move in reversed(moves):
        yield f"{event_text}{_way(move)}: {why}"


def _way(move: Mapping[str, Any]) -> str:
    """A move in the short form that fits into a line."""
    what = move["port"] if "port" in move else f"{move['policy']}, {move['buckets']} buckets"
    source, target = ends(move.get("source"), move["target"], move["reason"])
    return f"{what}: {source} -> {target}, {move['reason']}"
