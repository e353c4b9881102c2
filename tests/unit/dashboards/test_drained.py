"""An uplink that somebody has drained may be without a link: that is not wrong, and not counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.dashboards import recorded
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.story import BEGIN_S, SCRAPE_S, Points, Series
from tests.unit.dashboards.viewing import Look

JOB, BRIDGE = "ovs-lbt", "br0"
SHOWN_S = 60.0
# By the service: the role of its uplink without a link, beside an active one that has its link.
DRAINED, STANDBY = "drained:9476", "standby:9476"
ROLES = {DRAINED: "drained", STANDBY: "standby"}


def _series() -> dict[Series, Points]:
    times = [BEGIN_S + n * SCRAPE_S for n in range(int(SHOWN_S / SCRAPE_S) + 1)]
    made: dict[Series, Points] = {}

    def add(name: str, value: float, **labels: str) -> None:
        made[name, tuple(sorted(labels.items()))] = [(at_s, value) for at_s in times]

    for instance, role in ROLES.items():
        service = {"job": JOB, "instance": instance}
        bridge = {**service, "bridge": BRIDGE}
        add("up", 1.0, **service)
        add("ovslbt_build_info", 1.0, version="1", **service)
        add("ovslbt_leader", 1.0, **service)
        add("ovslbt_bridge_connected", 1.0, **bridge)
        about = {"policy": "load-based", "teaming": "lacp", "mode": "enforce"}
        add("ovslbt_bridge_info", 1.0, **bridge, **about)
        for uplink, is_up, its_role in (("eth1", 1.0, "active"), ("eth2", 0.0, role)):
            add("ovslbt_uplink_up", is_up, uplink=uplink, **bridge)
            add("ovslbt_uplink_info", 1.0, uplink=uplink, role=its_role, **bridge)
    return made


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("drained")
    recorded.store(_series(), directory)
    with recorded.answering(directory) as started:
        yield started


@pytest.mark.parametrize(
    ("dashboard", "tile"),
    [("bridge", "Uplinks down"), ("fleet", "Uplinks down"), ("decisions", "Wrong now")],
)
@pytest.mark.parametrize(("instance", "says"), [(DRAINED, "0 (green)"), (STANDBY, "1 (red)")])
def test_tiles_count_uplinks_in_service(
    prometheus: Prometheus, dashboard: str, tile: str, instance: str, says: str
) -> None:
    chosen = {"job": JOB, "instance": instance, "bridge": BRIDGE}
    seen = Look(prometheus, BY_NAME[dashboard], BEGIN_S + SHOWN_S, SHOWN_S, chosen)
    assert [str(cell) for cell in seen.tiles(seen.panel(tile))] == [says]


def test_so_does_the_table_of_bridges(prometheus: Prometheus) -> None:
    seen = Look(prometheus, BY_NAME["fleet"], BEGIN_S + SHOWN_S, SHOWN_S)
    rows = seen.table(seen.panel("Bridges"))
    said = {row["Host"].text: (str(row["Uplinks down"]), row["of"].text) for row in rows}
    assert said == {DRAINED: ("0 (green)", "1"), STANDBY: ("1 (red)", "2")}
