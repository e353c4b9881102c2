"""One run of chaos: events one after another, each followed by all checks."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.switch.bed import Upstream
from tests.switch.chaos import checks, model
from tests.switch.chaos.losses import Counted
from tests.switch.chaos.model import Event
from tests.switch.chaos.traffic import Traffic
from tests.switch.chaos.world import Extras, World, built, first_state

Told = Callable[[str], None]
# A sender that is so late says that the machine was busy.
TOLD_LATE_S = 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """Frames that were lost beyond the bound, or came twice, in an event."""

    number: int
    event: str
    what: str
    # How late the sender was at worst meanwhile.
    sender_late_s: float = 0.0


@dataclass(slots=True)
class Report:
    """What happened, until the first violation; how long each event took with its checks."""

    seed: int
    events: list[Event] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    # What each event lost; and which of it, and which frames heard twice, no bound allows.
    counted: list[Counted] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    # What the service had at most: resident bytes, threads, open files.
    service: dict[str, int] = field(default_factory=dict)
    log_tail: str = ""


def events_of(seed: int, count: int, extras: Extras = Extras()) -> list[Event]:  # noqa: B008
    """The first events of a seed."""
    return list(itertools.islice(model.generate(first_state(seed, extras), seed), count))


def carry_out(
    seed: int,
    events: Iterable[Event],
    tor: Upstream,
    tell: Told = print,
    for_s: float = float("inf"),
    extras: Extras = Extras(),  # noqa: B008
    go_on: bool = False,
    keep: Callable[[Report], object] = bool,
) -> Report:
    """Build a seed's world, and let the events happen to it until one goes wrong.

    No event begins later than `for_s` after the first one. `go_on`: losses are findings only, and do not
    end it. `keep` gets the report after each event.
    """
    report = Report(seed)
    with (
        built(seed, tor, extras) as world,
        contextlib.closing(Traffic(world.bed)) as traffic,
    ):
        if wrong := checks.settle(world, traffic):
            report.violations = ["before any event", *wrong]
            return report
        begin_s = time.monotonic()
        for number, event in enumerate(events):
            since_s = time.monotonic()
            if since_s > begin_s + for_s:
                break
            report.events.append(event)
            report.violations, beyond, counted = _one(world, traffic, number, event)
            report.counted.append(counted)
            report.findings += [
                Finding(number, str(event), what, round(counted.late_s, 3)) for what in beyond
            ]
            if not go_on:
                report.violations += beyond
            report.took_s.append(time.monotonic() - since_s)
            for what, found in checks.resources_of(world).items():
                report.service[what] = max(found, report.service.get(what, 0))
            tell(f"{number:4} {report.took_s[-1]:5.1f} s  {event}{_told(counted)}")
            for what in beyond:
                tell(f"     {what}")
            keep(report)
            if report.violations:
                report.log_tail = world.service.log_tail()
                break
    return report


def _one(
    world: World, traffic: Traffic, number: int, event: Event
) -> tuple[list[str], list[str], Counted]:
    """What went wrong, what the way of frames has beyond its bounds, and all that was counted."""
    counted = Counted(event)
    with checks.Background(world, traffic, number, counted) as background:
        try:
            world.carry_out(event)
            background.vms_fall_silent()
            since_s = time.monotonic()
            wrong = checks.settle(world, traffic)
            counted.settle_s = time.monotonic() - since_s
        except (AssertionError, RuntimeError, OSError, ValueError) as error:
            wrong = [f"{type(error).__name__}: {error}"]
    broken, beyond = background.wrong()
    return wrong + broken, beyond, counted


def _told(counted: Counted) -> str:
    """What an event lost and doubled, if anything."""
    worst = counted.worst
    told = [f"{worst.lost_ms:g} ms lost of {worst.flow.name}"] if worst and worst.numbers else []
    told += [f"{n} {what} twice" for what, n in counted.twice.items()]
    told += [f"sender {counted.late_s:.2f} s late"] if counted.late_s > TOLD_LATE_S else []
    return f"  ({', '.join(told)})" if told else ""


def lines(report: Report) -> Iterator[str]:
    """What a failure says, and a replay file of it."""
    yield f"seed {report.seed}, event {len(report.events) - 1}: {report.events[-1]}"
    yield from (f"  {line}" for line in report.violations)
    yield f"replay with: make soak SEED={report.seed} ARGS='--replay FILE', where FILE is:"
    yield from map(str, report.events)
    yield "the end of the service's log:"
    yield report.log_tail
