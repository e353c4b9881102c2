"""How old the last decision of a service is said to be: as old as that of its bridge that waits longest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.queries import MOST
from tests.unit.dashboards import recorded
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.shown import legend
from tests.unit.dashboards.story import BEGIN_S, SCRAPE_S, Points, Series
from tests.unit.dashboards.viewing import Look

JOB = "ovs-lbt"
SHOWN_S = 300.0
NOW_S = BEGIN_S + SHOWN_S
# A bridge: whether its switch answers, and how long ago the last decision was about it, if any was.
Bridge = tuple[bool, float | None]
# By the service: its bridges, and what the fleet dashboard has to say of its last decision.
SERVICES: dict[str, tuple[list[Bridge], str]] = {
    "one": ([(True, 5)], "5 s (green)"),
    "one-hangs": ([(True, 5), (True, 45), (True, 10)], "45 s (orange)"),
    "one-hung": ([(True, 240), (True, 5)], "4 mins (red)"),
    # It would seem to be as young as that of the other bridge.
    "one-has-none": ([(True, 5), (True, None)], "- (grey)"),
    "none-has-one": ([(True, None)], "- (grey)"),
    # Nothing is decided of a bridge whose switch has not answered yet: it hides nothing.
    "one-has-no-switch": ([(True, 5), (False, None)], "5 s (green)"),
    "one-lost-its-switch": ([(True, 5), (False, 45)], "45 s (orange)"),
    "no-bridge": ([], "- (grey)"),
}
# So that there are more bridges than a graph shows.
OTHERS: dict[str, list[Bridge]] = {f"busy{n}": [(True, 1.0 + n)] for n in range(MOST)}


def _series() -> dict[Series, Points]:
    times = [BEGIN_S + n * SCRAPE_S for n in range(int(SHOWN_S / SCRAPE_S) + 1)]
    made: dict[Series, Points] = {}

    def add(name: str, value: float, **labels: str) -> None:
        made[name, tuple(sorted(labels.items()))] = [(at_s, value) for at_s in times]

    for host, bridges in ({h: bridges for h, (bridges, _) in SERVICES.items()} | OTHERS).items():
        service = {"job": JOB, "instance": f"{host}:9476"}
        add("up", 1.0, **service)
        add("ovslbt_build_info", 1.0, version="1", **service)
        for number, (is_connected, age_s) in enumerate(bridges):
            bridge = {**service, "bridge": f"br{number}"}
            add("ovslbt_bridge_connected", float(is_connected), **bridge)
            if age_s is not None:
                add("ovslbt_last_decision_timestamp_seconds", NOW_S - age_s, **bridge)
    return made


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("decided")
    recorded.store(_series(), directory)
    with recorded.answering(directory) as started:
        yield started


@pytest.mark.parametrize("host", SERVICES)
def test_is_as_old_as_that_of_the_bridge_that_waits_longest(
    prometheus: Prometheus, host: str
) -> None:
    seen = Look(prometheus, BY_NAME["fleet"], NOW_S, SHOWN_S)
    rows = seen.table(seen.panel("Services"))
    (said,) = (row["Last decision"] for row in rows if row["Host"].text == f"{host}:9476")
    _, expected = SERVICES[host]
    assert str(said) == expected


def test_bridges_that_wait_longest_are_those_that_are_drawn(prometheus: Prometheus) -> None:
    seen = Look(prometheus, BY_NAME["decisions"], NOW_S, SHOWN_S)
    panel = seen.panel("Age of the last decision")
    (target,) = panel["targets"]
    drawn = {legend(target, s): s.value for s in seen.ask(panel, target)}
    all_of_them = {h: bridges for h, (bridges, _) in SERVICES.items()} | OTHERS
    ages_s = {
        f"{host} br{number}": age_s
        for host, bridges in all_of_them.items()
        for number, (_, age_s) in enumerate(bridges)
        if age_s is not None
    }
    assert len(drawn) == MOST < len(ages_s)
    assert drawn == {name: pytest.approx(ages_s[name]) for name in drawn}
    assert min(drawn.values()) >= sorted(ages_s.values())[-MOST]
