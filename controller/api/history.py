"""What was decided, as values: for people to read, and for nothing that decides."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from controller.text.wording import shortened
from policies.model import Reason, Uplink

# How many entries are shown unless told otherwise.
LAST = 20
# How many can be asked for, as all that is kept are fewer.
MOST = 1_000_000
# The end of the year 9999, less a day for whatever zone it is told in.
LAST_S = 253_402_214_400.0
# Where one that is split sends, for people.
BY_CONNECTION = "by connection"


class Happened(StrEnum):
    """What an entry is about.

    `planned`: moves that were not made, as the bridge is only observed. `outcome`: what
    uplinks carried some time after the decision before. `unrelieved`: an uplink is above the
    threshold and no move helps; `relieved`: that is over. `rule-broken`: a VM port has not what
    a rule says; `rule-kept`: that is over.
    """

    MOVED = "moved"
    PLANNED = "planned"
    REFUSED = "refused"
    OUTCOME = "outcome"
    UNRELIEVED = "unrelieved"
    RELIEVED = "relieved"
    LINK_UP = "link-up"
    LINK_DOWN = "link-down"
    RULE_BROKEN = "rule-broken"
    RULE_KEPT = "rule-kept"


@dataclass(frozen=True, slots=True)
class Moved:
    """One way that a VM port goes, or `buckets` of a policy, which then is `unit`."""

    unit: str
    source: str | None
    target: str
    reason: str
    vm: str | None = None
    buckets: int | None = None

    def __str__(self) -> str:
        what = f"{self.unit}, {self.buckets} buckets" if self.buckets else self.unit
        source, target = self.ends
        return f"{what}: {source} -> {target} ({self.reason})"

    @property
    def ends(self) -> tuple[str, str]:
        """From what to what, in words: one that is split or merged has the same home before."""
        return ends(self.source, self.target, self.reason)


@dataclass(frozen=True, slots=True)
class Utilization:
    """What an uplink carries, as shares of its capacity."""

    transmit_ratio: float
    receive_ratio: float

    @classmethod
    def of(cls, uplink: Uplink) -> Utilization:
        load, capacity_bps = uplink.load, uplink.capacity_bps
        return cls(load.tx_bps / capacity_bps, load.rx_bps / capacity_bps)

    @property
    def worst_ratio(self) -> float:
        return max(self.transmit_ratio, self.receive_ratio)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened to a bridge, at `at_s`.

    `before` and `after` are the uplinks' utilizations by name. Of moves, `after` is what is
    expected; of an `outcome`, what was measured.
    """

    happened: Happened
    at_s: float
    bridge: str
    why: str
    moves: tuple[Moved, ...] = ()
    uplink: str | None = None
    before: Mapping[str, Utilization] = field(default_factory=dict)
    after: Mapping[str, Utilization] = field(default_factory=dict)
    port: str | None = None


def ends(source: str | None, target: str, reason: str) -> tuple[str, str]:
    """From what to what a move is, in words."""
    match reason:
        case Reason.SPLIT:
            return source or "-", BY_CONNECTION
        case Reason.MERGE:
            return BY_CONNECTION, target
    return source or "-", target


def as_line(entry: Entry, epoch_s: float) -> str:
    """An entry as one line of JSON; `epoch_s` is the wall-clock time at which `at_s` was zero."""
    after = "after" if entry.happened is Happened.OUTCOME else "expected"
    fields: dict[str, Any] = {
        "at": round(epoch_s + entry.at_s, 3),
        "bridge": entry.bridge,
        "event": entry.happened.value,
        "uplink": entry.uplink,
        "port": entry.port,
        "moves": [_move(move) for move in entry.moves],
        "why": entry.why,
        "before": _utilizations(entry.before),
        after: _utilizations(entry.after),
    }
    return json.dumps({key: value for key, value in fields.items() if value})


@dataclass(frozen=True, slots=True)
class Names:
    """What there is now that may have no history yet: bridges, and their ports and VMs."""

    bridges: frozenset[str] = frozenset()
    ports: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Query:
    """Which entries are asked for: the `last` of a bridge, and of a port or VM, if given."""

    bridge: str | None = None
    port: str | None = None
    last: int = LAST
    as_json: bool = False

    @classmethod
    def of(cls, words: Sequence[str]) -> Query:
        """`[BRIDGE] [--port PORT] [--last N] [--json]`.

        Raises:
            ValueError: what was found and what is expected.
        """
        query, rest = cls(), list(words)
        while rest:
            word = rest.pop(0)
            if word == "--json":
                query = replace(query, as_json=True)
            elif word == "--port" and rest:
                query = replace(query, port=rest.pop(0))
            elif word == "--last" and rest:
                query = replace(query, last=_last(rest.pop(0)))
            elif not word.startswith("--") and query.bridge is None:
                query = replace(query, bridge=word)
            else:
                raise ValueError(f"history: {word} -> [BRIDGE] [--port PORT] [--last N] [--json]")
        return query

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry, as it was written, is among those asked for."""
        if self.bridge not in (None, entry["bridge"]):
            return False
        moves = entry.get("moves", [])
        return self.port in (None, entry.get("port")) or any(
            self.port in _names(move) for move in moves
        )


def _names(move: Mapping[str, Any]) -> tuple[str | None, ...]:
    """By what a move is asked for: its VM port, that of its address, its VM."""
    port = move.get("port", "")
    return port, port.rpartition("/")[0] or None, move.get("vm")


def read(lines: Iterable[str], query: Query) -> list[dict[str, Any]]:
    """The last entries that are asked for, as they were written; one cut off is left out."""
    found: deque[dict[str, Any]] = deque(maxlen=query.last)
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_entry(entry):
            found += [entry] if query.matches(entry) else []
    return list(found)


def _is_entry(entry: Any) -> bool:
    """Whether a line of a file has what entries are told by; files get damaged."""
    if not isinstance(entry, dict):
        return False
    words = [entry.get(key, "") for key in ("bridge", "event", "why", "port")]
    loads = [entry.get(key, {}) for key in ("before", "expected", "after")]
    moves = entry.get("moves", [])
    return (
        {"at", "bridge", "event"} <= entry.keys()
        and _is_number(entry["at"], LAST_S)
        and all(isinstance(word, str) for word in words)
        and all(isinstance(load, dict) and all(map(_is_load, load.values())) for load in loads)
        and isinstance(moves, list)
        and all(map(_is_move, moves))
    )


def _is_number(value: Any, most: float) -> bool:
    return isinstance(value, int | float) and 0 <= value <= most


def _is_load(value: Any) -> bool:
    directions = ("transmit_ratio", "receive_ratio")
    return isinstance(value, dict) and all(_is_number(value.get(d), 1e15) for d in directions)


def _is_move(value: Any) -> bool:
    if not isinstance(value, dict) or not ({"target", "reason"} <= value.keys()):
        return False
    if not ("port" in value or {"policy", "buckets"} <= value.keys()):
        return False
    return all(isinstance(word, str) for key, word in value.items() if key != "buckets")


def told(entries: Sequence[Mapping[str, Any]], as_json: bool, clock: Callable[[float], str]) -> str:
    """Entries as they were written, a line of JSON each, or for people."""
    if as_json:
        return "\n".join(json.dumps(entry) for entry in entries)
    return as_text(entries, clock)


def as_text(entries: Sequence[Mapping[str, Any]], clock: Callable[[float], str]) -> str:
    """Entries as written, for people: a line for what happened, others for moves and loads.

    `clock` tells a time since the epoch in words.
    """
    if not entries:
        return "nothing is remembered of that"
    return "\n".join(line for entry in entries for line in _told(entry, clock))


def _told(entry: Mapping[str, Any], clock: Callable[[float], str]) -> Iterator[str]:
    yield f"{clock(entry['at'])}  {entry['bridge']}  {entry['event']}: {entry.get('why', '')}"
    if entry["event"] != Happened.OUTCOME:
        yield from (f"    {_way(move)}" for move in entry.get("moves", []))
    before = entry.get("before", {})
    for what in ("expected", "after"):
        if after := entry.get(what):
            changes = ", ".join(f"{name} {_change(before, after, name)}" for name in sorted(after))
            yield f"    {changes}{' expected' if what == 'expected' else ''}"


def _way(move: Mapping[str, Any]) -> str:
    vm = f" [{move['vm']}]" if move.get("vm") not in (None, move.get("port")) else ""
    what = (
        f"{move['port']}{vm}" if "port" in move else f"{move['policy']}, {move['buckets']} buckets"
    )
    source, target = ends(move.get("source"), move["target"], move["reason"])
    return f"{what}: {source} -> {target} ({move['reason']})"


def _change(before: Mapping[str, Any], after: Mapping[str, Any], uplink: str) -> str:
    now = f"{_worst(after[uplink]):.0%}"
    return f"{_worst(before[uplink]):.0%} -> {now}" if uplink in before else now


def _worst(of: Mapping[str, float]) -> float:
    return max(of["transmit_ratio"], of["receive_ratio"])


def _last(text: str) -> int:
    try:
        return count(text)
    except ValueError as error:
        raise ValueError(f"--last: {error}") from error


def count(text: str) -> int:
    """How many entries are asked for.

    Raises:
        ValueError: that is no number, or none that makes sense.
    """
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(MOST))
    if not digits or not 1 <= int(text) <= MOST:
        raise ValueError(f"{shortened(text) or 'nothing'} -> a number from 1 to {MOST}")
    return int(text)


def _move(move: Moved) -> dict[str, Any]:
    what = "policy" if move.buckets else "port"
    fields = {
        what: move.unit,
        "vm": move.vm,
        "buckets": move.buckets,
        "source": move.source,
        "target": move.target,
        "reason": move.reason,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _utilizations(of: Mapping[str, Utilization]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "transmit_ratio": round(one.transmit_ratio, 4),
            "receive_ratio": round(one.receive_ratio, 4),
        }
        for name, one in of.items()
    }
