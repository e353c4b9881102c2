"""Counts over time: every event once, in the bar of the time when it happened, on any grid."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from dashboards.queries import BUILDS, each_step, in_range
from tests.unit.dashboards.dashboards import VARIABLE

SCRAPED_EVERY_S = 5
COUNTER = 'counted_total{job="ovs-lbt", instance="host:9476"}'
SERVICE = BUILDS.replace('job=~"$job", instance=~"$instance"', 'job="ovs-lbt"')
SERVICE_SERIES = 'ovslbt_build_info{job="ovs-lbt", instance="host:9476", version="1"}'
NO_SAMPLE = None

Samples = Sequence[int | None]
# Scrapes of the counter; those in which it has no sample, too.
STORIES: dict[str, tuple[Samples, Samples]] = {
    "one event": ([0] * 30 + [1] * 50, [1] * 80),
    "eight at once": ([0] * 31 + [8] * 49, [1] * 80),
    "one after another": ([*range(20), *[20] * 60], [1] * 80),
    "a restart that no scrape has seen": ([0] * 10 + [5] * 21 + [0, 2] + [3] * 47, [1] * 80),
    "a restart after a while": (
        [0] * 10 + [5] * 20 + [NO_SAMPLE] * 10 + [0] * 3 + [2] * 37,
        [1] * 30 + [NO_SAMPLE] * 10 + [1] * 40,
    ),
    "events just before the end": (
        [0] * 30 + [4] + [NO_SAMPLE] * 20 + [0] * 29,
        [1] * 31 + [NO_SAMPLE] * 20 + [1] * 29,
    ),
    "a gap in the scrapes": (
        [0] * 30 + [NO_SAMPLE] * 20 + [6] * 30,
        [1] * 30 + [NO_SAMPLE] * 20 + [1] * 30,
    ),
    "a counter that is new": ([NO_SAMPLE] * 33 + [1] * 20 + [2] * 27, [1] * 80),
}


def happened(samples: Samples) -> int:
    """How many events a counter tells of that starts from zero with its service."""
    seen = [0, *(sample for sample in samples if sample is not None)]
    return sum(b - a if b >= a else b for a, b in itertools.pairwise(seen))


def series(name: str, samples: Samples) -> dict[str, str]:
    return {"series": name, "values": " ".join("_" if s is None else str(s) for s in samples)}


def play(
    tmp_path: Path,
    told: dict[str, Samples],
    expr: str,
    expected: dict[int, int],
) -> None:
    """See that a query has these answers, by the time in seconds at which it is asked."""
    asked = [
        {
            "expr": f"sum({expr}) or vector(0)",
            "eval_time": f"{at_s}s",
            "exp_samples": [{"labels": "{}", "value": count}],
        }
        for at_s, count in expected.items()
    ]
    case = {
        "interval": f"{SCRAPED_EVERY_S}s",
        "input_series": [series(name, samples) for name, samples in told.items()],
        "promql_expr_test": asked,
    }
    path = tmp_path / "counts.yml"
    path.write_text(yaml.safe_dump({"tests": [case]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def filled(expr: str, **values: str) -> str:
    return VARIABLE.sub(lambda found: values[found[1]], expr)


@pytest.mark.parametrize("step_s", [5, 10, 15, 20, 60])
@pytest.mark.parametrize("name", STORIES)
def test_bars_count_every_event_once(tmp_path: Path, name: str, step_s: int) -> None:
    samples, service = STORIES[name]
    told = {COUNTER: samples, SERVICE_SERIES: service}
    expected = dict.fromkeys(range(step_s, len(samples) * SCRAPED_EVERY_S, step_s), 0)
    until_now = 0
    for at_s in expected:
        so_far = happened(samples[: at_s // SCRAPED_EVERY_S + 1])
        expected[at_s], until_now = so_far - until_now, so_far
    play(tmp_path, told, filled(each_step(COUNTER, SERVICE), __interval=f"{step_s}s"), expected)


def test_what_was_counted_before_anybody_asked_is_no_event(tmp_path: Path) -> None:
    told: dict[str, Samples] = {COUNTER: [50] * 40, SERVICE_SERIES: [1] * 40}
    expr = filled(each_step(COUNTER, SERVICE), __interval="20s")
    play(tmp_path, told, expr, dict.fromkeys(range(0, 200, 20), 0))


@pytest.mark.parametrize("range_s", [60, 120, 300])
@pytest.mark.parametrize("name", ["one event", "eight at once", "one after another"])
def test_counts_of_the_time_shown_are_exact(tmp_path: Path, name: str, range_s: int) -> None:
    samples, service = STORIES[name]
    end_s = (len(samples) - 1) * SCRAPED_EVERY_S
    before = samples[: (end_s - range_s) // SCRAPED_EVERY_S + 1]
    expr = filled(in_range(COUNTER), __range=f"{range_s}s")
    expected = {end_s: happened(samples) - happened(before)}
    play(tmp_path, {COUNTER: samples, SERVICE_SERIES: service}, expr, expected)


def test_a_restart_in_the_time_shown_loses_nothing(tmp_path: Path) -> None:
    samples, service = STORIES["a restart after a while"]
    expr = filled(in_range(COUNTER), __range="390s")
    told = {COUNTER: samples, SERVICE_SERIES: service}
    play(tmp_path, told, expr, {395: happened(samples)})
