"""The age of a service's last decision is that of the bridge that waits longest, or it is not known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.dashboards import recorded, story
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.story import BEGIN_S, JOB, SCRAPE_S
from tests.unit.dashboards.viewing import Look

END_S = BEGIN_S + 60
NOT_KNOWN = "- (grey)"
# By service, and by bridge: whether its switch answers, and how old its last decision is, if it has one.
SERVICES: dict[str, dict[str, tuple[bool, float | None]]] = {
    "both:9476": {"br0": (True, 1), "br1": (True, 42)},
    "none-yet:9476": {"br0": (True, 1), "br1": (True, None)},
    # It cannot have one, and is counted as not connected.
    "no-answer:9476": {"br0": (True, 1), "br1": (False, None)},
    "nothing:9476": {"br0": (True, None)},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    made = story.Recording()
    at_s = BEGIN_S
    while at_s < END_S:
        at_s += SCRAPE_S
        for service, bridges in SERVICES.items():
            labels = (("instance", service), ("job", JOB))
            made.add("up", labels, 1, at_s)
            for bridge, (answers, age_s) in bridges.items():
                of_bridge = (("bridge", bridge), *labels)
                made.add("ovslbt_bridge_connected", of_bridge, float(answers), at_s)
                if age_s is not None:
                    name = "ovslbt_last_decision_timestamp_seconds"
                    made.add(name, of_bridge, at_s - age_s, at_s)
    directory = tmp_path_factory.mktemp("oldest")
    recorded.store(made.series, directory)
    with recorded.answering(directory) as started:
        yield Look(started, BY_NAME["fleet"], END_S, END_S - BEGIN_S)


@pytest.mark.parametrize(
    ("service", "says"),
    {
        "both:9476": "42 s (orange)",
        "none-yet:9476": NOT_KNOWN,
        "no-answer:9476": "1 s (green)",
        "nothing:9476": NOT_KNOWN,
    }.items(),
)
def test_is_not_known_while_a_bridge_has_none(seen: Look, service: str, says: str) -> None:
    rows = {row["Host"].text: row for row in seen.table(seen.panel("Services"))}
    assert str(rows[service]["Last decision"]) == says
