"""A real Prometheus answers the queries of the dashboards with what happened on recorded hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.queries import MOST
from tests.unit.dashboards import answers, simulated, synthetic
from tests.unit.dashboards.dashboards import BY_NAME, QUERIES, VALUE_QUERIES
from tests.unit.dashboards.exported import EXPORTED, TARGET_LABELS
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.simulated import two_hosts

WRITTEN: dict[str, Any] = json.loads(answers.FILE.read_text())
VIEWS: dict[str, answers.Answers] = WRITTEN["answers"]

# While a service is down, or all services of a job are on standby, zero is not known.
_UNKNOWN = "service dead -, service back 0, all dead -, all back 0, no leader -"
# While the switch of hv2 does not answer, its uplinks are not known either.
_LINKS = f"no answer -, still a bad value 0, {_UNKNOWN}"
# Nothing is known about a bridge while its own service is down.
_OWN = "service dead -, service back 0, all dead -, all back 0"
_NOT_SHOWN = "all dead, 5 minutes shown -, all back"

# By view, dashboard and query: the value of a tile at each moment, or None without an answer. No program
# writes these: they follow from the events of simulated.py alone.
TILES = {
    "two hosts/fleet/Services down A": "quiet 0, service dead 1, service back 0, all dead 3, all back 0",
    "two hosts/fleet/Bridges not connected A": f"quiet 0, no answer 1, still a bad value 0, {_UNKNOWN}",
    "two hosts/fleet/Uplinks down A": f"quiet 0, uplink down 1, failed back 0, {_LINKS}",
    "two hosts/fleet/Unrelieved uplinks A": f"quiet 0, full 1, spread 0, {_LINKS}",
    "two hosts/fleet/Configuration errors A": f"quiet 0, bad value 1, corrected 0, {_UNKNOWN}",
    "two hosts/decisions/Planned A": "quiet 0, full 2, spread 6, moved 7, pinned 8, refused 9, "
    f"uplink down 14, failed back 18, drained 19, undrained 20, {_NOT_SHOWN} 20",
    "two hosts/decisions/Applied A": "quiet 0, full 2, spread 6, moved 7, pinned 8, uplink down 12, "
    f"failed back 16, drained 17, undrained 18, {_NOT_SHOWN} 18",
    "two hosts/decisions/Refused A": f"quiet 0, refused 1, uplink down 2, {_NOT_SHOWN} 2",
    "two hosts/decisions/Failovers A": f"quiet 0, uplink down 4, {_NOT_SHOWN} 4",
    "two hosts/decisions/Bridges in observe mode A": "quiet 1, service dead -, service back 1, "
    "bridge gone 0, all dead -, all back 0, no leader -",
    # From the fault of a part of hv1 on, an alert fires about its service.
    "two hosts/decisions/Wrong now A": "quiet 0, full 1, spread 0, uplink down 1, failed back 0, "
    "bad value 1, no answer 2, still a bad value 1, all dead 3, no leader 4",
    "two hosts/controller/Deciding A": "quiet 2, service dead 1, service back 2, all dead -, "
    "all back 2, no leader 1",
    "hv1 br0/bridge/Switch A": "quiet 1, service dead -1, service back 1, all dead -1, all back 1",
    "hv1 br0/bridge/Uplinks down A": f"quiet 0, uplink down 1, failed back 0, {_OWN}",
    "hv1 br0/bridge/Configuration errors A": f"quiet 0, bad value 1, corrected 0, {_OWN}",
    "hv1 br1/bridge/Switch A": "quiet 1, service dead -1, bridge gone -, all dead -1, no leader -",
    "hv2 br0/bridge/Switch A": "quiet 1, no answer 0, service dead 1, all dead -1, no leader -",
    "hv2 br0/bridge/Uplinks down A": "quiet 0, no answer -, service dead 0, all dead -",
    # Four of forty hosts have a fault. Whether the dead one is connected is not known.
    "forty hosts/fleet/Services down A": "now 1",
    "forty hosts/fleet/Bridges not connected A": None,
    "forty hosts/fleet/Uplinks down A": "now 1",
    "forty hosts/fleet/Unrelieved uplinks A": "now 1",
    "forty hosts/fleet/Configuration errors A": "now 1",
    "forty hosts/decisions/Wrong now A": "now 4",
    # The link of an uplink that an operator has drained may be down.
    "uplink that is drained/fleet/Uplinks down A": "now 0",
    "uplink that is drained/bridge/Uplinks down A": "now 0",
    "uplink that is drained/decisions/Wrong now A": "now 0",
    "uplink that is standby/fleet/Uplinks down A": "now 1",
    "uplink that is standby/bridge/Uplinks down A": "now 1",
    "uplink that is standby/decisions/Wrong now A": "now 1",
}


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


def test_answers_have_the_labels_by_which_panels_show_them() -> None:
    """No recorded path fault is one of large frames, whose series alone has the label `mtu`."""
    found: dict[str, set[str]] = {"bridge: Lost between uplinks A": {"mtu"}}
    for view in VIEWS.values():
        for dashboard, places in view.items():
            for name, _, labels in (place.partition(" (") for place in places):
                found.setdefault(f"{dashboard}: {name}", set()).update(re.findall(r"\w+", labels))
    assert not [query for query in QUERIES if not query.shown <= found[str(query)]]


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
