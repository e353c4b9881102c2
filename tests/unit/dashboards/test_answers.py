"""A real Prometheus answers the queries of the dashboards with what happened on recorded hosts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.queries import MOST
from policies.model import Reason
from tests.unit.dashboards import answers, simulated, synthetic
from tests.unit.dashboards.dashboards import BY_NAME, QUERIES, VALUE_QUERIES
from tests.unit.dashboards.expected import TILES
from tests.unit.dashboards.exported import EXPORTED, TARGET_LABELS
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.simulated import BEGIN_S, SCRAPE_S, two_hosts

WRITTEN: dict[str, Any] = json.loads(answers.FILE.read_text())
VIEWS: dict[str, answers.Answers] = WRITTEN["answers"]


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    with answers.answering() as started:
        yield started


@pytest.fixture(scope="module")
def found(prometheus: Prometheus) -> dict[str, Any]:
    return dict(json.loads(answers.written(answers.made(prometheus))))


@pytest.mark.system
@pytest.mark.parametrize("view", VIEWS)
def test_answers_are_those_of_the_file(found: dict[str, Any], view: str) -> None:
    hint = f"if the new answers are right, run {answers.COMMAND}"
    assert found["answers"][view] == VIEWS[view], hint
    assert found["answers"].keys() == VIEWS.keys(), hint
    assert found["moments"] == WRITTEN["moments"], hint


@pytest.mark.parametrize("place", TILES)
def test_tiles_have_the_values_that_follow_from_the_events(place: str) -> None:
    view, dashboard, query = place.split("/")
    expected = TILES[place]
    found = VIEWS[view][dashboard].get(query)
    assert found == (None if expected is None else {"": expected})


def test_without_data_nothing_has_a_value() -> None:
    """The tile of the policy has no values but words, which say that it is not known."""
    assert {name: places for name, places in VIEWS["nothing recorded"].items() if places} == {
        "bridge": {"Policy A (said)": {"not known": "now 1"}}
    }


def test_every_query_has_data_in_some_view() -> None:
    answered = {
        f"{dashboard}: {place.partition(' (')[0]}"
        for view in VIEWS.values()
        for dashboard, places in view.items()
        for place in places
    }
    assert {str(query) for query in (*QUERIES, *VALUE_QUERIES)} == answered


def test_every_series_has_numbers() -> None:
    """Of values that are not a number, Grafana draws an empty graph with a legend."""
    for view in VIEWS.values():
        for places in view.values():
            for place, series in places.items():
                for values in series.values() if not place.startswith("variable") else ():
                    assert re.search(r"(^| )(at )?-?\d\S*(,|$)", values), (place, values)


@pytest.mark.slow
def test_recorded_series_are_those_that_the_service_exports() -> None:
    recorded = two_hosts().series | simulated.unbound() | synthetic.series()
    labels = {name: {label for label, _ in labels} for name, labels in recorded if name != "ALERTS"}
    assert labels.keys() >= EXPORTED.keys()
    assert labels == {name: EXPORTED.get(name, TARGET_LABELS) for name in labels}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["hv1 br0/bridge", "two hosts/decisions"])
def test_each_move_is_marked_once_at_the_time_when_the_switch_made_it(place: str) -> None:
    view, dashboard = place.split("/")
    of_links = {"Failovers": {Reason.FAILOVER}, "Failbacks": {Reason.FAILBACK}}
    kinds = {"Moves": set(Reason).difference(*of_links.values()), **of_links}
    labels = "(bridge, instance, port, reason, uplink)"
    marked: dict[tuple[str, str, str], str] = {}
    for kind, reasons in kinds.items():
        series = VIEWS[view][dashboard][f"annotation {kind} {labels}"]
        for names, at in series.items():
            for _, _, port, reason, uplink in map(str.split, names.split("; ")):
                assert reason in reasons
                marked[port, reason, uplink] = at
    made_s = {(m.port, m.reason, m.uplink): m.at_s - BEGIN_S for m in two_hosts().moves}
    assert marked.keys() == made_s.keys()
    for key, at in marked.items():
        minutes, seconds = map(int, at.removeprefix("at ").split(":"))
        assert 0 <= made_s[key] - (60 * minutes + seconds) <= SCRAPE_S, key


@pytest.mark.system
@pytest.mark.parametrize(
    ("view", "place"),
    [
        ("two hosts", "decisions: Applied by reason A"),
        ("hv1 br0", "bridge: Moves by reason A"),
        ("two hosts", "fleet: Moves by bridge A"),
    ],
)
def test_bars_have_as_many_events_as_the_switch_had(
    prometheus: Prometheus, view: str, place: str
) -> None:
    """Also after the services were killed, and their counters have begun with zero."""
    (query,) = (query for query in QUERIES if str(query) == place)
    counted = {
        labels.get("reason", ""): sum(values.values())
        for labels, values in answers.ask(prometheus, answers.views()[view], query)
    }
    moves = Counter(move.reason for move in two_hosts().moves)
    assert counted == (moves if "reason" in place else {"": moves.total()})


@pytest.mark.system
def test_bars_count_each_event_once_over_restarts_and_gaps(prometheus: Prometheus) -> None:
    (query,) = (query for query in QUERIES if str(query) == "fleet: Moves by bridge A")
    counted = {
        labels["instance"]: sum(values.values())
        for labels, values in answers.ask(prometheus, answers.views()["counts"], query)
    }
    expected = {instance: synthetic.happened(instance) for instance in synthetic.COUNTED}
    assert counted == {instance: count for instance, count in expected.items() if count}


@pytest.mark.system
@pytest.mark.parametrize("name", answers.MANY)
def test_no_graph_of_forty_hosts_has_more_lines_than_can_be_read(
    prometheus: Prometheus, name: str
) -> None:
    drawn = ("timeseries", "state-timeline", "bargauge")
    titles = {panel["title"] for panel in BY_NAME[name].asking if panel["type"] in drawn}
    for query in BY_NAME[name].queries:
        if query.place.rpartition(" ")[0] in titles:
            lines = answers.ask(prometheus, answers.views()["forty hosts"], query)
            assert len(lines) <= MOST, f"{query}: {len(lines)} lines"
