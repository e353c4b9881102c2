"""Defines the state of `top`: the service's answers, the selection, and the current mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.api.history import Happened, way
from controller.text import top_manual as manual
from controller.text.show_view import JsonObject, natural, used_by, why

# A VM port: the names of its bridge and of the port.
PortKey = tuple[str, str]

# The shortest time over which drops are counted, because services poll once a second.
DROPS_OVER_S = 3.0
# A status older than this many intervals and this many seconds is stale.
STALE_INTERVALS, STALE_S = 3.0, 5.0


@dataclass(frozen=True, slots=True)
class Happening:
    """A decision as text, with its time and its bridge."""

    clock: str
    bridge: str
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The status and decisions in the service's answer at `at_s`. `clock`: that time as text.

    `happened`: the decisions, the newest first. `no_history`: why the decisions are unknown.
    """

    at_s: float
    clock: str
    version: str
    bridges: tuple[JsonObject, ...]
    happened: tuple[Happening, ...] = ()
    no_history: str = ""


def happenings(
    entries: Iterable[Mapping[str, Any]], clock: Callable[[float], str]
) -> tuple[Happening, ...]:
    """Return the decisions in the history, the newest first, without results (`outcome`)."""
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
    # The newest move is the last one.
    for move in reversed(moves):
        yield f"{event_text}{way(move)}, {move['reason']}: {why}"


# ---- what is on the screen -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watching:
    """The mode with the normal screen: uplinks, VM ports and decisions."""


@dataclass(frozen=True, slots=True)
class Typing:
    """The mode in which the operator types a filter. `before`: the previous filter."""

    before: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The mode that shows `text` (None: pending) from line `top` on. `port`: the VM port to explain."""

    text: str | None
    port: str | None = None
    top: int = 0


@dataclass(frozen=True, slots=True)
class Choosing:
    """The mode for choosing one of `uplinks` for a command. `port`: the command's VM port, if any."""

    command: str
    uplinks: tuple[str, ...]
    at: int
    port: PortKey | None = None


@dataclass(frozen=True, slots=True)
class Confirming:
    """The mode in which a command waits for the operator's confirmation, with a `question`."""

    words: tuple[str, ...]
    question: str


Mode = Watching | Typing | Reading | Choosing | Confirming


@dataclass(frozen=True, slots=True)
class Message:
    """A message about the last command. `bad`: the message is an error."""

    text: str
    bad: bool = False


# This class has no slots, because it caches its rows.
@dataclass(frozen=True)
class State:
    """The whole state of `top`. `pictures`: recent answers, the newest last, for counting drops.

    `only`: the bridges to show; empty for all. `bridge`: the bridge that is shown alone. `away`: the reason
    why the service does not answer. `now_s`: the current time on the clock of the pictures.
    """

    pictures: tuple[Picture, ...] = ()
    only: tuple[str, ...] = ()
    bridge: str | None = None
    interval_s: float = manual.INTERVAL_S
    sort: str = manual.SORT
    reverse: bool = False
    filter: str = ""
    selected: PortKey | None = None
    mode: Mode = field(default_factory=Watching)
    message: Message | None = None
    away: str | None = None
    now_s: float = 0.0

    @property
    def picture(self) -> Picture | None:
        return self.pictures[-1] if self.pictures else None

    @property
    def stale(self) -> bool:
        """Whether the last answer is too old to show the current state."""
        if self.picture is None:
            return False
        limit_s = max(STALE_S, STALE_INTERVALS * self.interval_s)
        return self.away is not None or self.now_s - self.picture.at_s > limit_s

    @property
    def offered(self) -> tuple[JsonObject, ...]:
        """The bridges to choose from: those in `only`, or all attached bridges."""
        bridges = self.picture.bridges if self.picture else ()
        return tuple(b for b in bridges if not self.only or b["name"] in self.only)

    @property
    def bridges(self) -> tuple[JsonObject, ...]:
        """The bridges that are shown."""
        return tuple(b for b in self.offered if b["name"] == self.bridge) or self.offered

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """The VM ports shown, sorted; VM ports with equal values are sorted by name."""
        by_name = sorted(self._found(), key=lambda row: [natural(word) for word in row.key])
        descending = manual.SORTS[self.sort] != self.reverse
        return tuple(sorted(by_name, key=lambda row: row.rank(self.sort), reverse=descending))

    @property
    def at(self) -> int:
        """The index of the selected row; the first row if the selected one is not shown."""
        keys = [row.key for row in self.rows]
        return keys.index(self.selected) if self.selected in keys else 0

    def _found(self) -> Iterator[Row]:
        earlier = self.pictures[0].bridges if len(self.pictures) > 1 else ()
        before = {(b["name"], port["name"]): port for b in earlier for port in b["ports"]}
        wanted = self.filter.casefold()
        for bridge in self.bridges:
            for port in bridge["ports"]:
                key = bridge["name"], port["name"]
                # The host's kernel counts frames for LOCAL as dropped if nothing on the host
                # listens.
                is_local = port["name"] == bridge["name"]
                drop_ratio = None if is_local else dropped(before.get(key), port)
                row = Row(key, port, why(port, bridge["policy"]), drop_ratio)
                if wanted in row.text.casefold():
                    yield row


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of VM ports. `drop_ratio`: None if unknown (see `dropped`)."""

    key: PortKey
    port: JsonObject
    why: str
    drop_ratio: float | None

    @property
    def text(self) -> str:
        """The text that a filter searches."""
        port = self.port
        names = [port["name"], port["vm"], used_by(port)]
        words = [*names, port["uplink"], port.get("planned_uplink"), self.why]
        return "\n".join(str(word) for word in words if word)

    def rank(self, column: str) -> Any:
        """Return the value by which `column` sorts rows. An unknown `drop_ratio` sorts lowest."""
        match column:
            case "tx" | "rx":
                return self.port[f"{column}_bps"]
            case "drops":
                return -1.0 if self.drop_ratio is None else self.drop_ratio
            case "port":
                return natural(self.port["name"])
            case "used-by":
                return natural(used_by(self.port))
            case "uplink":
                return natural(self.port["uplink"] or "")
        return natural(self.why)


def dropped(before: JsonObject | None, now: JsonObject) -> float | None:
    """Return the ratio of packets dropped between two answers, in the direction with the higher ratio.

    Return None if the switch counts no drops in either direction, or if its counters were reset.
    """
    if before is None:
        return None
    ratios = []
    for direction in ("tx", "rx"):
        counters = f"{direction}_packets", f"{direction}_dropped_packets"
        pairs = [(before.get(name), now.get(name)) for name in counters]
        more = [new - old for old, new in pairs if old is not None and new is not None]
        if len(more) == len(pairs) and min(more) >= 0:
            ratios.append(more[1] / sum(more) if sum(more) else 0.0)
    return max(ratios, default=None)


def with_picture(state: State, picture: Picture) -> State:
    """Return the state with a new answer from the service."""
    over_s = max(DROPS_OVER_S, state.interval_s)
    kept = [*state.pictures, picture]
    while len(kept) > 2 and picture.at_s - kept[1].at_s >= over_s - 0.1:
        del kept[0]
    if state.picture is not None and state.away is not None:
        # Older counters may belong to another switch, or to the switch before a restart.
        kept = [picture]
    return replace(state, pictures=tuple(kept), away=None, now_s=picture.at_s)
