"""Graphs of the slowest bridges: the ten of the time shown, the same ones in every step."""

from __future__ import annotations

from pathlib import Path

from dashboards.queries import BRIDGES, MOST, slowest
from tests.unit.dashboards import recorded
from tests.unit.dashboards.dashboards import VARIABLE
from tests.unit.dashboards.story import BEGIN_S, SCRAPE_S, Points, Series

HISTOGRAM = "took_seconds_bucket"
LONG_S = 600.0
# One bridge after another is slow, the later the longer; two never have anything to tell.
SLOW, IDLE = 14, 2
FIRST_OF_SLOWEST = SLOW - MOST
FILLED = {"job": ".+", "instance": ".+", "bridge": ".+"}


def _buckets(number: int) -> dict[Series, Points]:
    """Of a bridge that has one event a scrape: those of some scrapes are slow."""
    begins_s = number * LONG_S / SLOW
    made: dict[Series, Points] = {}
    for le in ("0.001", "0.1", "+Inf"):
        name = (("bridge", "br0"), ("instance", f"node{number:02}"), ("job", "ovs-lbt"), ("le", le))
        points, count = made.setdefault((f"ovslbt_{HISTOGRAM}", name), []), 0
        for nth in range(int(LONG_S / SCRAPE_S)):
            is_slow = begins_s <= nth * SCRAPE_S < begins_s + SCRAPE_S * (number + 1)
            count += number < SLOW and (le != "0.001" or not is_slow)
            points.append((BEGIN_S + nth * SCRAPE_S, float(count)))
    return made


def test_are_the_same_in_every_step_and_not_those_without_events(tmp_path: Path) -> None:
    numbers = range(SLOW + IDLE)
    recorded.store({s: p for n in numbers for s, p in _buckets(n).items()}, tmp_path)
    values = FILLED | {"__rate_interval": "20s", "__range": f"{LONG_S:g}s"}
    query = VARIABLE.sub(lambda found: values[found[1]], slowest(0.99, BRIDGES(HISTOGRAM)))

    slow = {f"node{number:02}" for number in numbers if FIRST_OF_SLOWEST <= number < SLOW}
    with recorded.answering(tmp_path) as prometheus:
        found = prometheus.over(query, BEGIN_S, BEGIN_S + LONG_S, SCRAPE_S)
    assert {series.labels["instance"] for series in found} == slow
    # A line in every step from the second scrape on: none is left out where another is slower.
    assert {len(series.points) for series in found} == {int(LONG_S / SCRAPE_S)}
