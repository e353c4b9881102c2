"""The history of decisions: entries, their JSON in files, queries and output. Decisions do not depend on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import StrEnum
from typing import Any

from controller.text.wording import lines_of
from policies.model import Reason, Uplink

# The number of entries shown by default.
LAST = 20
# The largest number of entries that can be requested; files contain fewer.
MOST = 1_000_000
# The end of the year 9999, less one day for time zones.
LAST_S = 253_402_214_400.0
# The target shown for a VM port that is split.
BY_CONNECTION = "by connection"


class Happened(StrEnum):
    """The kind of an entry.

    `planned`: moves that were not made, because the bridge is in observe mode. `outcome`: loads of
    uplinks some time after the previous decision. `unrelieved`: an uplink is above the threshold and no
    move helps; `relieved`: this state has ended. `rule-broken`: a VM port's rule is not met; `rule-kept`:
    the rule is met again. `confirmed`: a change was confirmed; `reverted`: a change was not confirmed,
    and was rolled back. `path-fault`: frames are lost on an uplink whose link is up; `path-mended`: no
    frames are lost any more.
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
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    PATH_FAULT = "path-fault"
    PATH_MENDED = "path-mended"


@dataclass(frozen=True, slots=True)
class Moved:
    """A move of VM port `unit` or, if `buckets` is set, of that many buckets of policy `unit`."""

    unit: str
    source: str | None
    target: str
    reason: str
    vm: str | None = None
    buckets: int | None = None

    @property
    def way(self) -> str:
        """A description of the move: the unit or the buckets, the source and the target."""
        source, target = self.ends
        return f"{self.what}: {source} -> {target}"

    @property
    def what(self) -> str:
        """A description of the unit or the buckets that are moved."""
        return f"{self.unit}, {self.buckets} buckets" if self.buckets else self.unit

    @property
    def ends(self) -> tuple[str, str]:
        """Descriptions of the source and the target, as returned by the function `ends`."""
        return ends(self.source, self.target, self.reason)


@dataclass(frozen=True, slots=True)
class Utilization:
    """The sent and received load of an uplink, as shares of its capacity."""

    transmit_ratio: float
    receive_ratio: float

    @classmethod
    def utilization_of(cls, uplink: Uplink) -> Utilization:
        load, capacity_bps = uplink.load, uplink.capacity_bps
        return cls(load.tx_bps / capacity_bps, load.rx_bps / capacity_bps)

    @property
    def worst_ratio(self) -> float:
        return max(self.transmit_ratio, self.receive_ratio)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the history of a bridge, at time `at_s`.

    `before`, `after`: the utilization of each uplink, by name. `after` is the expected utilization
    for moves, and the measured utilization for an `outcome`.
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

    def __post_init__(self) -> None:
        moves = self.happened in (Happened.MOVED, Happened.PLANNED)
        assert self.moves or not moves, "an entry about moves contains moves"


def ends(source: str | None, target: str, reason: str) -> tuple[str, str]:
    """Describe the source and target of a move: for a split or merge, one is "by connection"."""
    match reason:
        case Reason.SPLIT:
            return source or "-", BY_CONNECTION
        case Reason.MERGE:
            return BY_CONNECTION, target
    return source or "-", target


def as_line(entry: Entry, epoch_s: float) -> str:
    """Return an entry as one line of JSON. `epoch_s`: the wall-clock time of engine time zero."""
    after = "after" if entry.happened is Happened.OUTCOME else "expected"
    shown: dict[str, Any] = {
        "at": round(epoch_s + entry.at_s, 3),
        "bridge": entry.bridge,
        "event": entry.happened.value,
        "uplink": entry.uplink,
        "port": entry.port,
        "moves": [move(one) for one in entry.moves],
        "why": entry.why,
        "before": _utilizations(entry.before),
        after: _utilizations(entry.after),
    }
    return json.dumps({key: value for key, value in shown.items() if value})


@dataclass(frozen=True, slots=True)
class Names:
    """The names of existing bridges, VM ports and VMs, which may have no entries yet."""

    bridges: frozenset[str] = frozenset()
    ports: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Query:
    """A query for the last entries: at most `last`, since `since_s` (epoch), of a bridge, port or VM."""

    bridge: str | None = None
    port: str | None = None
    last: int = LAST
    since_s: float = 0.0

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry, as parsed from a line of JSON, matches the query."""
        if self.bridge not in (None, entry["bridge"]) or entry["at"] < self.since_s:
            return False
        names = {None, entry.get("port")}
        for move in entry.get("moves", []):
            # The name of an address begins with that of its VM port.
            port = move.get("port", "")
            names |= {port, port.rpartition("/")[0] or None, move.get("vm")}
        return self.port in names


def read(line: str) -> dict[str, Any] | None:
    """Parse a line of a file; None if the line is not a valid entry."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if _is_entry(entry) else None


def _is_entry(entry: Any) -> bool:
    """Whether a line of a file has the fields of an entry; files can be damaged."""
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


def render(
    entries: Sequence[Mapping[str, Any]], as_json: bool, clock: Callable[[float], str]
) -> str:
    """Return entries as lines of JSON, or as text: a line for each entry, then its moves and loads.

    `clock` formats seconds since the epoch.
    """
    if as_json:
        return "\n".join(json.dumps(entry) for entry in entries)
    if not entries:
        return "no matching entries"
    return lines_of(line for entry in entries for line in _lines(entry, clock))


def _lines(entry: Mapping[str, Any], clock: Callable[[float], str]) -> Iterator[str]:
    yield f"{clock(entry['at'])}  {entry['bridge']}  {entry['event']}: {entry.get('why', '')}"
    if entry["event"] != Happened.OUTCOME:
        yield from (f"    {_way(move)}" for move in entry.get("moves", []))
    before = entry.get("before", {})
    for what in ("expected", "after"):
        if after := entry.get(what):
            changes = ", ".join(f"{name} {_change(before, after, name)}" for name in sorted(after))
            yield f"    {changes}{' expected' if what == 'expected' else ''}"


def way(move: Mapping[str, Any], vm: str = "") -> str:
    """Describe a move: the port with `vm`, or the buckets, and then the source and the target."""
    what = (
        f"{move['port']}{vm}" if "port" in move else f"{move['policy']}, {move['buckets']} buckets"
    )
    source, target = ends(move.get("source"), move["target"], move["reason"])
    return f"{what}: {source} -> {target}"


def _way(move: Mapping[str, Any]) -> str:
    vm = f" [{move['vm']}]" if move.get("vm") not in (None, move.get("port")) else ""
    # The line above includes the source of a manual move.
    reason = "" if move["reason"] == Reason.MANUAL else f" ({move['reason']})"
    return f"{way(move, vm)}{reason}"


def _change(before: Mapping[str, Any], after: Mapping[str, Any], uplink: str) -> str:
    now = f"{_worst(after[uplink]):.0%}"
    return f"{_worst(before[uplink]):.0%} -> {now}" if uplink in before else now


def _worst(of: Mapping[str, float]) -> float:
    return max(of["transmit_ratio"], of["receive_ratio"])


def move(moved: Moved) -> dict[str, Any]:
    """Return the JSON form of a move, for the history and for plans."""
    what = "policy" if moved.buckets else "port"
    shown = {what: moved.unit, **fields(moved, "vm", "buckets", "source", "target", "reason")}
    return {key: value for key, value in shown.items() if value is not None}


def _utilizations(of: Mapping[str, Utilization]) -> dict[str, dict[str, float]]:
    return {
        name: {direction: round(ratio, 4) for direction, ratio in asdict(one).items()}
        for name, one in of.items()
    }


def fields(record: object, *names: str) -> dict[str, Any]:
    """Return the fields `names` of a record, with values that JSON can represent."""
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON can represent: dataclasses as objects, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [*map(_plain, value)] if isinstance(value, tuple) else value
