"""A real Prometheus answers the queries of the dashboards about hosts in known states."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dashboards.queries import MOST
from policies.model import Reason
from tests.unit.dashboards import hosts, recorded
from tests.unit.dashboards.dashboards import BY_NAME, LABEL_VALUES, QUERIES, VARIABLE, Query
from tests.unit.dashboards.hosts import BEGIN_S, BRIDGE, JOB, NOW_S, SCRAPE_S, SHOWN_S
from tests.unit.dashboards.recorded import Found, Prometheus

pytestmark = pytest.mark.system
# The interval of graphs and bars, and that of marks.
STEP_S, MARK_STEP_S = 30.0, 5.0
MANY = ("fleet", "decisions", "controller")
EVERYTHING = {"job": JOB, "instance": "everything", "bridge": BRIDGE, "uplink": "eth1"}
TILES = (
    *("Services down", "Bridges not connected", "Uplinks down", "Unrelieved uplinks"),
    *("Configuration errors", "Wrong now"),
)
# Of a host beside others of which nothing is wrong, what these tiles show. `-`: it is not known.
SHOWN = {
    "well00": "0 0 0 0 0 0",
    # While a service is down, or all services of a job are on standby, zero is not known.
    "dead": "1 - - - - 1",
    "leaderless": "0 - - - - 1",
    # While a switch does not answer, its uplinks are not known either.
    "apart": "0 1 - - 0 1",
    "linkless": "0 0 1 0 0 1",
    "standby": "0 0 1 0 0 1",
    # The link of an uplink that an operator has drained may be down.
    "drained": "0 0 0 0 0 0",
    "full": "0 0 0 1 0 1",
    "misconfigured": "0 0 0 0 2 1",
    "alarmed": "0 0 0 0 0 1",
}
RANKED = {
    "fleet: Busiest uplink of each bridge A": range(MOST),
    "fleet: Worst uplinks A": range(MOST),
    "fleet: Sent by each host A": range(MOST),
    # Ranked by what they send, so that both graphs have the same hosts.
    "fleet: Received by each host A": range(MOST),
    "decisions: Worst uplinks A": range(3),
}
Chosen = Mapping[str, str]
NONE: Chosen = {}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory: Path = tmp_path_factory.mktemp("prometheus")
    recorded.store(hosts.recorded(), directory)
    with recorded.answering(directory) as started:
        yield started


def filled(text: str, chosen: Chosen, end_s: float) -> str:
    """A query as Grafana sends it."""
    values = {
        **dict.fromkeys(("job", "instance", "bridge"), ".+"),
        "__interval": f"{STEP_S:g}s",
        "__rate_interval": f"{STEP_S + SCRAPE_S:g}s",
        "__range": f"{SHOWN_S:g}s",
        "__from": f"{(end_s - SHOWN_S) * 1000:.0f}",
        **chosen,
    }
    return VARIABLE.sub(lambda found: values[found[1]], text)


def ask(
    prometheus: Prometheus, query: Query, chosen: Chosen = NONE, end_s: float = NOW_S
) -> list[Found]:
    text = filled(query.text, chosen, end_s)
    if query.instant:
        return prometheus.at(text, end_s)
    step_s = MARK_STEP_S if query.is_mark else STEP_S
    return prometheus.over(text, end_s - SHOWN_S, end_s, step_s)


def of(place: str) -> Query:
    (found,) = (query for query in QUERIES if str(query) == place)
    return found


def value(prometheus: Prometheus, place: str, **chosen: str) -> str:
    """What a tile shows."""
    found = ask(prometheus, of(place), chosen)
    return " ".join(f"{one:g}" for _, values in found for one in values.values()) or "-"


@pytest.mark.parametrize("host", SHOWN)
def test_tiles_show_what_is_wrong_and_zero_only_if_it_is_known(
    prometheus: Prometheus, host: str
) -> None:
    boards = ("fleet",) * 5 + ("decisions",)
    chosen = f"well0[0-4]|{host}"
    found = [
        value(prometheus, f"{board}: {tile} A", instance=chosen)
        for board, tile in zip(boards, TILES, strict=True)
    ]
    assert " ".join(found) == SHOWN[host]


@pytest.mark.parametrize(
    ("host", "shown"),
    [("well00", "1 0 0"), ("apart", "0 - 0"), ("dead", "-1 - -"), ("linkless", "1 1 0")],
)
def test_tiles_of_a_bridge_show_its_own_state(
    prometheus: Prometheus, host: str, shown: str
) -> None:
    tiles = ("Switch", "Uplinks down", "Configuration errors")
    chosen = {"job": JOB, "instance": host, "bridge": BRIDGE}
    found = [value(prometheus, f"bridge: {tile} A", **chosen) for tile in tiles]
    assert " ".join(found) == shown


def test_tiles_count_moves_and_services(prometheus: Prometheus) -> None:
    # Three hosts, with one more of each reason in a second.
    each = 3 * SHOWN_S
    for tile, expected in {
        "decisions: Planned A": each * len(hosts.PLANNED),
        "decisions: Applied A": each * len(Reason),
        # Only one of them has any.
        "decisions: Refused A": SHOWN_S * len(Reason),
        "decisions: Failovers A": each,
        "decisions: Bridges in observe mode A": 1,
        "controller: Deciding A": 3,
    }.items():
        assert value(prometheus, tile, instance="well0[01]|observed") == f"{expected:g}", tile


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_query_has_an_answer_with_numbers_and_the_labels_that_are_shown(
    prometheus: Prometheus, query: Query
) -> None:
    found = ask(prometheus, query, EVERYTHING)
    assert found
    # Of values that are not a number, Grafana draws an empty graph with a legend.
    assert all(any(map(math.isfinite, values.values())) for _, values in found)
    labels = {label for own, _ in found for label in own}
    assert query.shown <= labels
    # With other labels, the rows of several queries would not be the same ones.
    assert not query.columns or labels <= query.columns


def test_without_data_nothing_has_a_value(prometheus: Prometheus) -> None:
    """The tile of the policy has no values but words, which say that it is not known."""
    answered = {
        str(query): found
        for query in QUERIES
        if (found := ask(prometheus, query, EVERYTHING, BEGIN_S - SHOWN_S))
    }
    assert answered.keys() == {"bridge: Policy A"}
    assert [labels["said"] for labels, _ in answered["bridge: Policy A"]] == ["not known"]


@pytest.mark.parametrize("instance", hosts.NAMES)
def test_graphs_name_hosts_without_port_and_domain(prometheus: Prometheus, instance: str) -> None:
    chosen = {"instance": re.escape(instance).replace("\\", "\\\\")}
    ((labels, _),) = ask(prometheus, of("fleet: Imbalance A"), chosen)
    assert labels["host"] == hosts.NAMES[instance]


@pytest.mark.parametrize("board", BY_NAME)
def test_variables_have_values(prometheus: Prometheus, board: str) -> None:
    for query in BY_NAME[board].value_queries.values():
        asked = LABEL_VALUES.fullmatch(filled(query.text, EVERYTHING, NOW_S))
        assert asked, f"not a query for the values of a label: {query.text}"
        assert prometheus.values(asked[1], asked[2], BEGIN_S, NOW_S), query


def test_a_vm_port_without_an_uplink_is_shown(prometheus: Prometheus) -> None:
    found = [labels for labels, _ in ask(prometheus, of("bridge: VM ports now A"), EVERYTHING)]
    assert {"port": "tap0", "uplink": "none", "vm": "web"} in found
    assert len(found) == len(Reason) + 1


def test_bars_count_each_event_once_over_restarts_and_gaps(prometheus: Prometheus) -> None:
    counted = {
        labels["instance"]: sum(values.values())
        for labels, values in ask(
            prometheus, of("fleet: Moves by bridge A"), {"instance": "count-.+"}
        )
    }
    expected = {instance: hosts.happened(instance) for instance in hosts.COUNTED}
    assert counted == {instance: count for instance, count in expected.items() if count}


@pytest.mark.parametrize("name", MANY)
def test_no_graph_of_many_hosts_has_more_lines_than_can_be_read(
    prometheus: Prometheus, name: str
) -> None:
    drawn = ("timeseries", "state-timeline", "bargauge")
    titles = {panel["title"] for panel in BY_NAME[name].asking if panel["type"] in drawn}
    for query in BY_NAME[name].queries:
        if query.place.rpartition(" ")[0] in titles:
            lines = ask(prometheus, query, {"instance": "well.+"})
            assert len(lines) <= MOST, f"{query}: {len(lines)} lines"


@pytest.mark.parametrize(("place", "numbers"), RANKED.items())
def test_graphs_have_the_hosts_that_send_most(
    prometheus: Prometheus, place: str, numbers: range
) -> None:
    found = ask(prometheus, of(place), {"instance": "well.+"})
    assert {labels["instance"] for labels, _ in found} == {f"well{n:02}" for n in numbers}
