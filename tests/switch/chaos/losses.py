"""How much of a flow may be lost for each kind of event, and how much was: pure.

A flow is what one sender sends to one receiver; a broadcast is a flow to each that is to hear it.
Its frames are numbered and steady, so a loss is told as the time that so many frames take.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import documents
from tests.switch.chaos import model
from tests.switch.chaos.model import Event, Service, State
from topologies.reports import stored

PPS = 50
FRAME_MS = 1000 / PPS
# A broadcast to a VM that gets another uplink: the network floods it to both, and the groups that
# deliver it are changed one after another.
MOVED_BROADCAST_MS = 80
# A service that stops between the two steps of a move leaves the VM port's new way closed for broadcasts.
# The flow that closes it has a hard_timeout of 1 s, and the switch looks for such flows once a second.
HALF_MOVED_BROADCAST_MS = 2000
STOPPING = ("service-killed", "service-paused", "leader-killed", "leader-paused")
# On a bond, NORMAL takes broadcasts from its active member, and we take those for a VM from its home.
# The switch carries the change into its flow cache entry by entry: 14 ms at most in 50 changes.
TAKEN_OVER_BROADCAST_MS = 20
BEGIN, END = "<!-- losses: begin -->", "<!-- losses: end -->"
RUNS = documents.ROOT / "docs/results/soak/losses"
SOURCE = (
    "*Source:* the files of [`results/soak/losses`](../results/soak/losses/seed-10.json);"
    " `make soak SEED=N ARGS=--go-on`."
)
RUNS_BEGIN, RUNS_END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
RUNS_HEAD = (
    "| test network | seed | events | frames sent | lost in one event, at most | flows beyond their bound"
    " | frames twice | load average | violations |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)
FINDINGS_HEAD = (
    "| test network | seed | event | flows | most frames lost of one | ms | bound, ms |\n"
    "|---|---:|---|---:|---:|---:|---:|"
)
HEAD = (
    "| event | link state | BFD | LACP | why |\n|---|---:|---:|---:|---|",
    "| event | lost at most, ms | why |\n|---|---:|---|",
)
TWICE_HEAD = "| event | duplicate broadcasts of one flow | why |\n|---|---:|---|"
FAILING = ("cable-down", "flap", "storm", "dark", "lacp-out")
RETURNING = ("cable-up", "lit", "lacp-in", "flap")
NOTHING_WHY = "forwarding does not change, or the new path is complete before the old one ends"


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one flow may lose, by what watches the links: their state alone, BFD or LACP.

    `each_ms` is added for each link that fails. `slow_ms`: instead of `bfd_ms`, while BFD's messages
    still come once a second. `own_ms`: instead, for the flows of the VM that the event is about.
    """

    carrier_ms: float = 0.0
    bfd_ms: float = 0.0
    lacp_ms: float = 0.0
    each_ms: float = 0.0
    slow_ms: float = 0.0
    own_ms: float | None = None
    why: str = NOTHING_WHY

    def cells(self) -> tuple[str, str, str]:
        """Its cells in the table, by what watches."""
        carrier, bfd, lacp = (self._cell(ms) for ms in (self.carrier_ms, self.bfd_ms, self.lacp_ms))
        return carrier, f"{bfd}, {self.slow_ms:g} at first" if self.slow_ms else bfd, lacp

    def _cell(self, ms: float) -> str:
        each = f"{self.each_ms:g} each" if self.each_ms else ""
        return " + ".join(filter(None, (f"{ms:g}" if ms or not each else "", each)))


NOTHING = Bound()
# Of 44 events with BFD at most 1260 ms were lost, of 27 with LACP 1520 ms; on a busy machine.
_BACK = "two BFD or LACP messages, one a second, until a link is live again"
# Every kind of event has its own; docs/reliability/chaos.md shows them.
BOUNDS: Mapping[str, Bound] = {
    **dict.fromkeys(model.KINDS, NOTHING),
    "cable-down": Bound(
        100, 100, 100, why="until both switches detect the failure and stop using the link"
    ),
    "flap": Bound(0, 2000, 2000, 100, why=f"100 ms for each failure, and {_BACK}"),
    "storm": Bound(0, 2000, 2000, 100, why=f"100 ms for each failure, and {_BACK}"),
    "dark": Bound(
        0,
        1000,
        4100,
        slow_ms=3100,
        why="BFD: three periods of 100 ms at either end, and processing; at first, three periods of 1 s, and"
        " 100 ms for the failover. LACP: four periods of 1 s, and 100 ms for the failover",
    ),
    "lacp-out": Bound(
        0,
        0,
        4100,
        why="four LACP periods of 1 s, because the link is up, and 100 ms for the failover",
    ),
    "switch-restarted": Bound(
        500, 3000, 3000, why="after the bridge accepts connections, until the pipeline is installed"
    ),
    "database-restarted": Bound(
        0,
        2000,
        3000,
        why="from the reconnection of ovs-vswitchd to its database until a link is live again",
    ),
    "vm-renamed": Bound(
        own_ms=1000, why="flows of this VM: until its new port is detected and bound"
    ),
    "vm-retagged": Bound(own_ms=500, why="only frames that this VM sends"),
}


def bound_ms(
    event: Event,
    before: State,
    *,
    own: bool = False,
    broadcast: bool = False,
    moved: bool = False,
    slow: bool = False,
) -> float:
    """What one flow may lose because of an event.

    `own`: it is of the VM that the event is about; `moved`: its VM got another uplink meanwhile;
    `slow`: both ends of the link had not yet agreed how often BFD's messages come.
    """
    bound = BOUNDS[event.kind]
    if own and bound.own_ms is not None:
        most = bound.own_ms
    else:
        watched = bound.bfd_ms if before.watched else bound.carrier_ms
        watched = max(watched, bound.slow_ms) if slow else watched
        most = bound.lacp_ms if before.negotiated else watched
        most += bound.each_ms * model.changes(before, event)[0]
    if broadcast and before.on_bond and event.kind in ("observe", "enforce"):
        most = max(most, TAKEN_OVER_BROADCAST_MS)
    if broadcast and moved:
        most = max(most, HALF_MOVED_BROADCAST_MS if event.kind in STOPPING else MOVED_BROADCAST_MS)
    return most


def twice_bound(event: Event, before: State) -> int:
    """How many frames of one flow of broadcasts may come twice because of an event; of others, none.

    A frame that is under way on two links when one of them fails may come by both. If the service
    is dead, nobody orders what happens when a link returns.
    """
    failing, returning = model.changes(before, event)
    return failing + (returning if before.service is Service.DEAD else 0)


# ---- what was lost ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flow:
    """A VM's flow with the outside. `silent`: the VM does not speak until all is settled."""

    name: str
    vm: str
    inbound: bool
    broadcast: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """From here on the event has left things so; None: the switch does not run."""

    at_s: float
    state: State | None

    def serves(self, vm: str) -> bool:
        """Whether there is a way for a VM's frames."""
        state = self.state
        return state is not None and state.vms[vm].here and bool(state.exits(vm))


@dataclass(frozen=True, slots=True)
class Lost:
    """What came of a flow: frames sent; of these, `cut`, while the event left no way; lost.

    `promised`: whether a bound holds for it at all.
    """

    flow: Flow
    sent: int
    cut: int
    numbers: tuple[int, ...]
    bound_ms: float
    promised: bool = True
    frame_ms: float = FRAME_MS

    @property
    def lost_ms(self) -> float:
        return len(self.numbers) * self.frame_ms

    @property
    def beyond(self) -> bool:
        return self.promised and self.lost_ms > self.bound_ms

    def __str__(self) -> str:
        head = ", ".join(f"#{n}" for n in self.numbers[:3])
        return (
            f"{self.flow.name}: lost {len(self.numbers)} of {self.sent} frames"
            f" ({self.lost_ms:g} ms, from {head}) -> at most {self.bound_ms:g} ms"
        )


def lost(
    flow: Flow,
    sent_at_s: Mapping[int, tuple[float, float]],
    heard: Collection[int],
    moments: Sequence[Moment],
    bound: float,
    *,
    promised: bool = True,
    frame_ms: float = FRAME_MS,
) -> Lost:
    """What a flow lost. `moments` begin before its first frame; `heard`: numbers of frames.

    `sent_at_s`: each frame was sent between two times. It is cut if there was no way at either.
    """
    missing = sorted(sent_at_s.keys() - set(heard))
    serves = [(m.at_s, m.serves(flow.vm)) for m in moments]
    cut: set[int] = set()
    if not all(way for _, way in serves):
        cut = {n for n, at_s in sent_at_s.items() if not all(_way(serves, one) for one in at_s)}
    numbers = tuple(n for n in missing if n not in cut)
    return Lost(flow, len(sent_at_s), len(cut), numbers, bound, promised, frame_ms)


def _way(serves: Sequence[tuple[float, bool]], at_s: float) -> bool:
    return next((way for since_s, way in reversed(serves) if since_s <= at_s), serves[0][1])


def expected(flow: Flow, before: State, after: State) -> bool:
    """Whether a flow has a way before and after, and the same receiver."""
    was, becomes = before.vms[flow.vm], after.vms[flow.vm]
    if not (was.here and becomes.here and before.exits(flow.vm) and after.exits(flow.vm)):
        return False
    return was.vlan == becomes.vlan or not flow.inbound


def promised(flow: Flow, event: Event, before: State, after: State) -> bool:
    """Whether anything is promised to a flow.

    Not what NORMAL does with a bond that is only observed. Nor that a VM which is silent is found
    by another way while nobody is there who could announce it.
    """
    if before.on_normal and after.on_normal:
        return False
    unannounced = flow.inbound and flow.silent and not flow.broadcast
    if unannounced and after.service is Service.DEAD:
        return not any(model.changes(before, event))
    return True


def is_own(flow: Flow, event: Event) -> bool:
    """Whether an event is about the flow's VM."""
    return bool(event.args) and event.args[0] == flow.vm


# ---- all events of a kind ---------------------------------------------------------------


@dataclass(slots=True)
class Counted:
    """What one event cost, until all was settled."""

    event: Event
    flows: list[Lost] = field(default_factory=list)
    # By what was sent: frames that came twice. The most of one flow, and how many that may be.
    twice: dict[str, int] = field(default_factory=dict)
    flow_twice: int = 0
    twice_bound: int = 0
    settle_s: float = math.nan
    # How late the sender was at worst: a machine that has no time for it has none for switches.
    late_s: float = 0.0

    @property
    def beyond(self) -> list[Lost]:
        return [one for one in self.flows if one.beyond]

    @property
    def nearest(self) -> Lost | None:
        """The flow that is nearest to its bound, or farthest beyond it."""
        held = (one for one in self.flows if one.promised)
        return max(held, key=lambda one: one.lost_ms - one.bound_ms, default=None)

    @property
    def worst(self) -> Lost | None:
        """The flow that lost most."""
        held = (one for one in self.flows if one.promised)
        return max(held, key=lambda one: one.lost_ms, default=None)


def by_kind(counted: Sequence[Counted], took_s: Sequence[float]) -> dict[str, dict[str, Any]]:
    """What events of each kind cost, and how long each took, as the result of a run says it."""
    found: dict[str, dict[str, Any]] = {}
    for kind in sorted({one.event.kind for one in counted}):
        of = [(one, s) for one, s in zip(counted, took_s, strict=True) if one.event.kind == kind]
        took = _middle_and_worst([seconds for _, seconds in of])
        found[kind] = {**_summary([one for one, _ in of]), "took_s": took}
    return found


def _middle_and_worst(seconds: Sequence[float]) -> dict[str, float | None]:
    if not seconds:
        return {"median": None, "worst": None}
    return {"median": round(statistics.median(seconds), 3), "worst": round(max(seconds), 3)}


def _summary(counted: Sequence[Counted]) -> dict[str, Any]:
    promised_of = [[one for one in c.flows if one.promised] for c in counted]
    frames = [sum(len(one.numbers) for one in flows) for flows in promised_of]
    worst_ms = [max((one.lost_ms for one in flows), default=0.0) for flows in promised_of]
    bounds = [one.bound_ms for flows in promised_of for one in flows]
    settled = [c.settle_s for c in counted if not math.isnan(c.settle_s)]
    return {
        "n": len(counted),
        "frames_sent": sum(one.sent for flows in promised_of for one in flows),
        "frames_sent_while_cut": sum(one.cut for flows in promised_of for one in flows),
        "frames_lost": {"median": statistics.median(frames), "worst": max(frames)},
        "flow_lost_ms": {"median": statistics.median(worst_ms), "worst": max(worst_ms)},
        "bound_ms": {"least": min(bounds, default=0.0), "most": max(bounds, default=0.0)},
        "flows_beyond_bound": sum(len(c.beyond) for c in counted),
        "frames_twice": max((sum(c.twice.values()) for c in counted), default=0),
        "flow_twice": max((c.flow_twice for c in counted), default=0),
        "events_with_frames_twice": sum(c.flow_twice > 0 for c in counted),
        "unpromised_frames_lost": sum(
            len(one.numbers) for c in counted for one in c.flows if not one.promised
        ),
        "settle_s": _middle_and_worst(settled),
    }


# ---- the document -----------------------------------------------------------------------


def table() -> str:
    """The bounds as Markdown; events that lose nothing are in one row."""
    lines = [HEAD[0]]
    for kind, bound in BOUNDS.items():
        if bound != NOTHING and bound.own_ms is None:
            lines.append(f"| `{kind}` | {' | '.join(bound.cells())} | {bound.why} |")
    own = [(kind, b) for kind, b in BOUNDS.items() if b.own_ms is not None]
    lines += ["", HEAD[1]]
    lines += [f"| `{kind}`; for other VMs 0 | {b.own_ms:g} | {b.why} |" for kind, b in own]
    lines += [
        "| any event, broadcasts to a VM that changes its uplink in the event or 0.5 s before"
        f" | {MOVED_BROADCAST_MS} | the network floods broadcasts to both links during [a move](limits.md) |",
        f"| {_named(STOPPING)}, broadcasts to such a VM | {HALF_MOVED_BROADCAST_MS}"
        " | the service stops between the two steps of [a move](../architecture.md#moves) |",
        f"| `observe`, `enforce` on a bond, broadcasts | {TAKEN_OVER_BROADCAST_MS} | NORMAL accepts broadcasts on"
        " another link, and the switch updates its flow cache entry by entry |",
        f"| any other event | 0 | {NOTHING.why} |",
        "",
        TWICE_HEAD,
        f"| {_named(FAILING)} | 1 for each link that fails | a broadcast may be on two links when one"
        " of them fails ([Groups](../architecture.md#groups)) |",
        f"| {_named(RETURNING)}, if the service is down | 1 more for each"
        " link that returns | no service orders the changes |",
        "| any other event, and unicast frames | 0 | |",
    ]
    return "\n".join(lines)


def _named(kinds: Iterable[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in kinds)


def runs() -> str:
    """The published runs as Markdown, and what they lost beyond the bounds."""
    found = [stored.read(path) for path in sorted(RUNS.glob("*.json"))]
    lines = [RUNS_HEAD, *map(_run, found), "", SOURCE]
    beyond = [row for run in found for row in _beyond(run)]
    return "\n".join([*lines, "", FINDINGS_HEAD, *beyond, "", SOURCE] if beyond else lines)


def _bed(run: Mapping[str, Any]) -> str:
    extras = [name for name in ("adaptive", "standby") if run["extras"][name]]
    return " ".join([run["team"].replace("-vlans", " uplinks").replace("-", " "), *extras])


def _run(run: Mapping[str, Any]) -> str:
    kinds = run["kinds"].values()
    # Medians do not add up; the worst event of each kind does tell.
    worst = max((kind["frames_lost"]["worst"] for kind in kinds), default=0)
    cells = [
        _bed(run),
        str(run["seed"]),
        str(run["events"]),
        str(sum(kind["frames_sent"] for kind in kinds)),
        str(worst),
        str(sum(kind["flows_beyond_bound"] for kind in kinds)),
        str(sum("twice" in finding["what"] for finding in run["beyond_bounds"])),
        f"{run['load_average']['after'][0]:.1f}",
        str(len(run["violations"])),
    ]
    return f"| {' | '.join(cells)} |"


def _beyond(run: Mapping[str, Any]) -> list[str]:
    """What went beyond its bound, a row for each event and bound."""
    events: dict[tuple[int, str, float], list[tuple[int, float]]] = {}
    for finding in run["beyond_bounds"]:
        told = re.search(
            r"lost (\d+) of \d+ frames \(([\d.e+]+) ms.* -> at most ([\d.e+]+) ms", finding["what"]
        )
        if told:
            key = finding["number"], finding["event"], float(told[3])
            events.setdefault(key, []).append((int(told[1]), float(told[2])))
    return [
        f"| {_bed(run)} | {run['seed']} | {number}: `{event}` | {len(flows)}"
        f" | {max(flows)[0]} | {max(flows)[1]:g} | {bound:g} |"
        for (number, event, bound), flows in events.items()
    ]


def with_table(text: str) -> str:
    """A document with the tables between their marks."""
    text = documents.with_made(text, BEGIN, END, f"\n{table()}\n")
    return documents.with_made(text, RUNS_BEGIN, RUNS_END, f"\n{runs()}\n")


def main() -> int:
    """Write the tables anew."""
    page = Path(documents.ROOT) / "docs/reliability/chaos.md"
    page.write_text(with_table(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
