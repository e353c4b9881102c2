"""What `top` knows, and what it shows of it: values and nothing that happens."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.text.show_view import natural, used_by, why
from controller.top import manual

Told = Mapping[str, Any]
# A VM port: its bridge and its name.
PortKey = tuple[str, str]

# Over what drops are counted at least: services poll once a second.
DROPS_OVER_S = 3.0
# A picture that is older than so many intervals, and than so many seconds, is not the present.
STALE_INTERVALS, STALE_S = 3.0, 5.0


@dataclass(frozen=True, slots=True)
class Happening:
    """A decision: when, where, and what in words."""

    clock: str
    bridge: str
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """What the service said at `at_s`; `clock` is that time in words.

    `happened`: the newest first. `untold`: why there is nothing in it.
    """

    at_s: float
    clock: str
    version: str
    bridges: tuple[Told, ...]
    happened: tuple[Happening, ...] = ()
    untold: str = ""


# ---- what is on the screen -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watching:
    """The usual screen."""


@dataclass(frozen=True, slots=True)
class Typing:
    """The filter is being typed; `before` comes back when that is broken off."""

    before: str


@dataclass(frozen=True, slots=True)
class Helping:
    """The help, from line `top` on."""

    top: int = 0


@dataclass(frozen=True, slots=True)
class Explaining:
    """What `explain` says of a VM port, from line `top` on; None: the answer is under way."""

    port: str
    text: str | None = None
    top: int = 0


@dataclass(frozen=True, slots=True)
class Choosing:
    """An uplink for a command, of a VM port where that is for one."""

    command: str
    uplinks: tuple[str, ...]
    at: int
    port: PortKey | None = None


@dataclass(frozen=True, slots=True)
class Confirming:
    """A command that is carried out if the operator agrees; `question` says what it will do."""

    words: tuple[str, ...]
    question: str


Mode = Watching | Typing | Helping | Explaining | Choosing | Confirming


@dataclass(frozen=True, slots=True)
class Message:
    """What came of something."""

    text: str
    bad: bool = False


# Without slots, as it remembers its rows.
@dataclass(frozen=True)
class State:
    """All of it. `pictures`: the newest last, and those before it that drops are counted from.

    `only`: the bridges asked for, all if empty; `bridge`: the one of them that is looked at.
    `away`: why the service does not answer. `now_s`: on the clock that pictures have.
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
        """Whether the last picture is not the present."""
        if self.picture is None:
            return False
        limit_s = max(STALE_S, STALE_INTERVALS * self.interval_s)
        return self.away is not None or self.now_s - self.picture.at_s > limit_s

    @property
    def names(self) -> tuple[str, ...]:
        """The bridges there are to look at."""
        told = self.picture.bridges if self.picture else ()
        return tuple(b["name"] for b in told if not self.only or b["name"] in self.only)

    @property
    def bridges(self) -> tuple[Told, ...]:
        """Those that are looked at."""
        names = [self.bridge] if self.bridge in self.names else self.names
        told = self.picture.bridges if self.picture else ()
        return tuple(bridge for bridge in told if bridge["name"] in names)

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """The VM ports that are shown, in order; each name once, in the order of names if equal."""
        by_name = sorted(self._found(), key=lambda row: [natural(word) for word in row.key])
        descending = manual.SORTS[self.sort] != self.reverse
        return tuple(sorted(by_name, key=lambda row: row.rank(self.sort), reverse=descending))

    @property
    def at(self) -> int:
        """The number of the selected row; the first, unless one was selected and is shown."""
        keys = [row.key for row in self.rows]
        return keys.index(self.selected) if self.selected in keys else 0

    def _found(self) -> Iterator[Row]:
        before = _ports(self.pictures[0].bridges) if len(self.pictures) > 1 else {}
        wanted = self.filter.casefold()
        for bridge in self.bridges:
            for port in bridge["ports"]:
                key = bridge["name"], port["name"]
                # The host's kernel counts as dropped what nobody on the host listens to.
                is_local = port["name"] == bridge["name"]
                drop_ratio = None if is_local else dropped(before.get(key), port)
                row = Row(key, port, why(port, bridge["policy"]), drop_ratio)
                if wanted in row.text.casefold():
                    yield row


@dataclass(frozen=True, slots=True)
class Row:
    """A VM port. `drop_ratio` None: the switch does not count, or not for long enough."""

    key: PortKey
    port: Told
    why: str
    drop_ratio: float | None

    @property
    def text(self) -> str:
        """Where a filter looks."""
        port = self.port
        words = [port["name"], port["vm"], port["uplink"], port.get("planned_uplink"), self.why]
        return "\n".join(str(word) for word in words if word)

    def rank(self, column: str) -> Any:
        """By what it is sorted; nothing comes below everything."""
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


def dropped(before: Told | None, now: Told) -> float | None:
    """Of the packets of a direction, those that were dropped; of the worse direction.

    None, where the switch does not count both, or counts anew.
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
    """The state when the service has answered."""
    over_s = max(DROPS_OVER_S, state.interval_s)
    kept = [*state.pictures, picture]
    while len(kept) > 2 and picture.at_s - kept[1].at_s >= over_s - 0.1:
        del kept[0]
    if state.picture is not None and state.away is not None:
        # Counters may be those of another switch.
        kept = [picture]
    return replace(state, pictures=tuple(kept), away=None, now_s=picture.at_s)


def _ports(bridges: Iterable[Told]) -> dict[PortKey, Told]:
    return {(b["name"], port["name"]): port for b in bridges for port in b["ports"]}
