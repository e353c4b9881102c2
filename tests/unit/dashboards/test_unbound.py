"""A VM port that its rules leave without an uplink is shown as such, and not left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controller.api.events import AddressesRead
from controller.config.rows import BridgeRow
from tests.unit.dashboards import recorded, story
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.story import BEGIN_S, ENDPOINT, HV1, JOB, SCRAPE_S
from tests.unit.dashboards.viewing import Look
from tests.unit.fake_switch import FIRST_VM_PORT
from tests.unit.rows import bond, bridge, interface, ours, port

DOWN_S, LOST_S, END_S = 60.0, 120.0, 180.0


def team() -> BridgeRow:
    """Bridge br0, whose endpoint of tunnels may use eth2 only."""
    vms = [
        port("vnet0", FIRST_VM_PORT, ours(allow="eth2")),
        port("vnet1", FIRST_VM_PORT + 1, ours(affinity="alone")),
    ]
    keys = ours(policy="load-based", poll_interval_ms=story.POLLED_MS)
    return bridge(bond(interface("eth1", 1), interface("eth2", 2)), *vms, ids=keys)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[recorded.Prometheus]:
    """eth2 goes down; a minute later, the switch does not answer any more."""
    here, made = story.host_of(team()), story.Recording()
    here.addresses = AddressesRead({"vnet0": (ENDPOINT,)})
    here.rows["br-int"] = story.integration()
    here.start()
    target = story.Target(JOB, HV1, here)
    now_s = BEGIN_S
    while now_s < BEGIN_S + END_S:
        now_s += SCRAPE_S
        if now_s == BEGIN_S + DOWN_S:
            here.set_link(2, up=False)
        elif now_s == BEGIN_S + LOST_S:
            here.disconnect()
        target.advance(now_s)
        target.scrape(made, now_s)
    directory = tmp_path_factory.mktemp("unbound")
    recorded.store(made.series, directory)
    with recorded.answering(directory) as started:
        yield started


def uplinks(prometheus: recorded.Prometheus, title: str, after_s: float) -> dict[str, str]:
    """By VM port: its uplink in this table, with the colour, so long after the begin."""
    chosen = {"job": JOB, "instance": HV1, "bridge": "br0"}
    seen = Look(prometheus, BY_NAME["bridge"], BEGIN_S + after_s, after_s, chosen)
    rows = seen.table(seen.panel(title))
    return {(row.get("VM port") or row["Port"]).text: str(row["Uplink"]) for row in rows}


def test_a_table_of_every_vm_port_has_those_without_an_uplink(
    prometheus: recorded.Prometheus,
) -> None:
    before = uplinks(prometheus, "VM ports now", DOWN_S - SCRAPE_S)
    assert before["vnet0"].startswith("eth2 ")
    after = uplinks(prometheus, "VM ports now", LOST_S - SCRAPE_S)
    assert after.keys() == before.keys()
    assert after["vnet0"] == "none (red)"
    assert after["vnet1"].startswith("eth1 ")


def test_an_endpoint_without_an_uplink_is_listed(prometheus: recorded.Prometheus) -> None:
    assert uplinks(prometheus, "Tunnel endpoints", LOST_S - SCRAPE_S) == {"vnet0": "none (red)"}


def test_what_uplink_a_port_had_is_told_over_time(prometheus: recorded.Prometheus) -> None:
    chosen = {"job": JOB, "instance": HV1, "bridge": "br0"}
    seen = Look(prometheus, BY_NAME["bridge"], BEGIN_S + END_S, END_S - SCRAPE_S, chosen)
    (found,) = seen.answers(seen.panel("Uplink of each VM port")).values()
    had = {
        (series.labels["port"], series.labels["uplink"]): series.points[0][0] - BEGIN_S
        for series in found
    }
    assert had["vnet0", "eth2"] < DOWN_S <= had["vnet0", "none"] <= DOWN_S + SCRAPE_S
    # Without the switch, nobody knows.
    assert ("vnet1", "none") not in had
    assert ("vnet0", "not known") in had


def test_what_an_endpoint_sends_is_not_known_without_its_switch(
    prometheus: recorded.Prometheus,
) -> None:
    chosen = {"job": JOB, "instance": HV1, "bridge": "br0"}
    seen = Look(prometheus, BY_NAME["bridge"], BEGIN_S + END_S, END_S - SCRAPE_S, chosen)
    ((found,),) = seen.answers(seen.panel("Tunnel endpoints: sent")).values()
    assert LOST_S - 2 * SCRAPE_S <= found.points[-1][0] - BEGIN_S <= LOST_S


def test_a_rule_is_not_said_to_be_kept_without_the_switch(prometheus: recorded.Prometheus) -> None:
    chosen = {"job": JOB, "instance": HV1, "bridge": "br0"}
    for after_s, kept in ((LOST_S - SCRAPE_S, "kept (green)"), (END_S, "- (grey)")):
        seen = Look(prometheus, BY_NAME["bridge"], BEGIN_S + after_s, after_s, chosen)
        rows = seen.table(seen.panel("Rules of VM ports"))
        said = {row["VM port"].text: str(row["Now"]) for row in rows}
        assert said == {"vnet0": "broken (red)", "vnet1": kept}
