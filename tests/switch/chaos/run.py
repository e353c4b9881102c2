"""One run of chaos: events one after another, each followed by all checks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.switch.bed import Upstream
from tests.switch.chaos import checks, model
from tests.switch.chaos.model import Event
from tests.switch.chaos.world import World, built, first_state
from tests.switch.wire import Ears

Told = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """What happened, until the first violation; how long each event took with its checks."""

    seed: int
    events: list[Event] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    # Of each event, by what was sent, the most frames that one receiver heard more than once.
    twice: list[dict[str, int]] = field(default_factory=list)
    # What the service had at most: resident bytes, threads, open files.
    service: dict[str, int] = field(default_factory=dict)
    log_tail: str = ""


def events_of(seed: int, count: int) -> list[Event]:
    """The first events of a seed."""
    return list(itertools.islice(model.generate(first_state(seed), seed), count))


def carry_out(
    seed: int,
    events: Iterable[Event],
    tor: Upstream,
    tell: Told = print,
    for_s: float = float("inf"),
    settled_within_s: float = checks.SETTLED_WITHIN_S,
) -> Report:
    """Build a seed's world, and let the events happen to it until one goes wrong.

    No event begins later than `for_s` after the first one. All is to be well again
    `settled_within_s` after each.
    """
    report = Report(seed)
    with built(seed, tor) as world, _ears(world) as ears:
        if wrong := checks.settle(world, settled_within_s):
            report.violations = ["before any event", *wrong]
            return report
        begin_s = time.monotonic()
        for number, event in enumerate(events):
            since_s = time.monotonic()
            if since_s > begin_s + for_s:
                break
            report.events.append(event)
            report.violations, twice = _one(world, ears, number, event, settled_within_s)
            report.twice.append(twice)
            report.took_s.append(time.monotonic() - since_s)
            for what, found in checks.resources_of(world).items():
                report.service[what] = max(found, report.service.get(what, 0))
            told = ", ".join(f"{n} {what}" for what, n in twice.items())
            twice_text = f"  ({told} twice)" if told else ""
            tell(f"{number:4} {report.took_s[-1]:5.1f} s  {event}{twice_text}")
            if report.violations:
                report.log_tail = world.service.log_tail()
                break
    return report


def _one(
    world: World, ears: Ears, number: int, event: Event, settled_within_s: float
) -> tuple[list[str], dict[str, int]]:
    """What went wrong, and what was heard twice while it happened."""
    before = world.state
    with checks.Background(world, ears, number) as background:
        try:
            world.carry_out(event)
            background.vms_fall_silent()
            wrong = checks.settle(world, settled_within_s)
        except (AssertionError, RuntimeError, OSError, ValueError) as error:
            wrong = [f"{type(error).__name__}: {error}"]
        # Ears must not run full.
        ears.listen()
    wrong += background.wrong(before, event)
    return wrong, dict(background.twice)


def _ears(world: World) -> Ears:
    bed = world.bed
    points = [vm.point for vm in bed.vms] + [u.upstream_end for u in bed.uplinks]
    return Ears([*points, *(host.point for host in bed.hosts)])


def lines(report: Report) -> Iterator[str]:
    """What a failure says, and a replay file of it."""
    yield f"seed {report.seed}, event {len(report.events) - 1}: {report.events[-1]}"
    yield from (f"  {line}" for line in report.violations)
    yield f"replay with: make soak SEED={report.seed} ARGS='--replay FILE', where FILE is:"
    yield from map(str, report.events)
    yield "the end of the service's log:"
    yield report.log_tail
