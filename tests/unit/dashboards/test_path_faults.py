"""A link that is up, and on which path checks lose probes, is not drawn as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.dashboards import recorded
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.story import BEGIN_S, SCRAPE_S, Points, Series
from tests.unit.dashboards.viewing import Look

SERVICE = {"job": "ovs-lbt", "instance": "hv1:9476"}
BRIDGE = {**SERVICE, "bridge": "br0"}
SHOWN_S = 60.0
# Each uplink: whether it is up, whether its peer is silent, what path checks find, and what is said.
UPLINKS = {
    "eth1": (1.0, 0.0, None, "up (green)"),
    "eth2": (0.0, 0.0, "unreachable", "cut off (red)"),
    "eth3": (1.0, 0.0, "vlan", "lossy (orange)"),
    "eth4": (0.0, 0.0, None, "down (red)"),
    "eth5": (0.0, 1.0, "mtu", "no answer (red)"),
    "eth6": (0.0, 1.0, None, "no answer (red)"),
}
# What becomes of frames of path checks, and of their rounds.
PER_SECOND = {
    "ovslbt_path_frames_total": {"arrived": 10.0, "lost": 2.0, "full": 0.0},
    "ovslbt_path_rounds_total": {"judged": 2.0, "void": 0.0},
}
SAID = {uplink: said for uplink, (*_, said) in UPLINKS.items()}


def _series() -> dict[Series, Points]:
    times = [BEGIN_S + n * SCRAPE_S for n in range(int(SHOWN_S / SCRAPE_S) + 1)]
    made: dict[Series, Points] = {}

    def add(name: str, value: float, **labels: str) -> None:
        made[name, tuple(sorted(labels.items()))] = [(at_s, value) for at_s in times]

    add("up", 1.0, **SERVICE)
    add("ovslbt_leader", 1.0, **SERVICE)
    add("ovslbt_bridge_connected", 1.0, **BRIDGE)
    about = {"policy": "load-based", "teaming": "switch-independent", "mode": "enforce"}
    add("ovslbt_bridge_info", 1.0, **BRIDGE, **about)
    for name, results in PER_SECOND.items():
        for result, rate in results.items():
            labels = tuple(sorted({**BRIDGE, "result": result}.items()))
            made[name, labels] = [(at_s, rate * (at_s - BEGIN_S)) for at_s in times]
    for uplink, (is_up, is_silent, kind, _) in UPLINKS.items():
        add("ovslbt_uplink_info", 1.0, uplink=uplink, role="active", **BRIDGE)
        add("ovslbt_uplink_up", is_up, uplink=uplink, **BRIDGE)
        add("ovslbt_uplink_silent", is_silent, uplink=uplink, **BRIDGE)
        if kind:
            found = {"kind": kind, "mtu": "", "decided": "true"}
            # In two VLANs: one uplink has several faults.
            for vlan in ("10", "20"):
                name = "ovslbt_uplink_path_fault"
                add(name, 1.0, uplink=uplink, vlan=vlan, **found, **BRIDGE)
    return made


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    directory = tmp_path_factory.mktemp("path_faults")
    recorded.store(_series(), directory)
    with recorded.answering(directory) as started:
        prometheus: Prometheus = started
        yield Look(prometheus, BY_NAME["bridge"], BEGIN_S + SHOWN_S, SHOWN_S, BRIDGE)


def test_the_table_of_uplinks_says_what_is_lost(look: Look) -> None:
    rows = look.table(look.panel("Uplinks now"))
    assert {row["Uplink"].text: str(row["Link"]) for row in rows} == SAID


def test_so_does_the_timeline_of_links(look: Look) -> None:
    shown = look.timeline(look.panel("Links"))
    assert {uplink: str(bars[-1].cell) for uplink, bars in shown.items()} == SAID


def test_each_fault_is_listed(look: Look) -> None:
    rows = look.table(look.panel("Lost between uplinks"))
    said = [tuple(row[name].text for name in ("Uplink", "Lost", "VLAN", "Decided")) for row in rows]
    assert said == [
        (uplink, kind, vlan, "true")
        for uplink, (_, _, kind, _) in UPLINKS.items()
        if kind
        for vlan in ("10", "20")
    ]


def test_what_became_of_probes_is_counted(look: Look) -> None:
    for found, expected in zip(
        look.answers(look.panel("Probes")).values(), PER_SECOND.values(), strict=True
    ):
        last = {one.labels["result"]: round(one.points[-1][1], 3) for one in found}
        assert last == expected
