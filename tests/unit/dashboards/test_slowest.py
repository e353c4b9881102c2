"""Graphs of the slowest bridges: the ten of the time shown, the same ones in every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards.queries import BRIDGES, MOST, slowest
from tests.unit.dashboards import recorded
from tests.unit.dashboards.dashboards import VARIABLE
from tests.unit.dashboards.story import BEGIN_S, SCRAPE_S, Points, Series

HISTOGRAM = "took_seconds_bucket"
LONG_S = 600.0
# One bridge after another is slow, the later the longer; two never have anything to tell.
SLOW, IDLE = 14, 2
FILLED = {"job": ".+", "instance": ".+", "bridge": ".+"}


def _buckets(number: int, *, is_idle: bool) -> dict[Series, Points]:
    """Of a bridge that has one event a scrape, or none: those of some scrapes are slow."""
    begins_s = number * LONG_S / SLOW
    made: dict[Series, Points] = {}
    for le in ("0.001", "0.1", "+Inf"):
        name = (("bridge", "br0"), ("instance", f"node{number:02}"), ("job", "ovs-lbt"), ("le", le))
        points, count = made.setdefault((f"ovslbt_{HISTOGRAM}", name), []), 0
        for nth in range(int(LONG_S / SCRAPE_S)):
            is_slow = begins_s <= nth * SCRAPE_S < begins_s + SCRAPE_S * (number + 1)
            count += not is_idle and (le != "0.001" or not is_slow)
            points.append((BEGIN_S + nth * SCRAPE_S, float(count)))
    return made


@pytest.mark.parametrize("slow", [SLOW, MOST // 2], ids=["more than shown", "fewer than shown"])
def test_are_the_same_in_every_step_and_not_those_without_events(tmp_path: Path, slow: int) -> None:
    bridges = [_buckets(n, is_idle=n >= slow) for n in range(slow + IDLE)]
    recorded.store({s: p for bridge in bridges for s, p in bridge.items()}, tmp_path)
    values = FILLED | {"__rate_interval": "20s", "__range": f"{LONG_S:g}s"}
    query = VARIABLE.sub(lambda found: values[found[1]], slowest(0.99, BRIDGES(HISTOGRAM)))

    expected = {f"node{number:02}" for number in range(max(0, slow - MOST), slow)}
    with recorded.answering(tmp_path) as prometheus:
        found = prometheus.over(query, BEGIN_S, BEGIN_S + LONG_S, SCRAPE_S)
    assert {series.labels["instance"] for series in found} == expected
    # A line in every step from the second scrape on: none is left out where another is slower.
    assert {len(series.points) for series in found} == {int(LONG_S / SCRAPE_S)}
