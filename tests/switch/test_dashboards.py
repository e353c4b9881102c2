"""Every query of dashboards and rules, on a real Prometheus that scrapes a service at work.

One story is played on a real bridge under real traffic: a move by load, one by hand, a
failover and the way back, a move that is refused, and a wrong setting.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from policies.model import Reason
from tests.switch import datapath, frames
from tests.switch.bed import Bed, BedSpec, Uplink, on_beds, run
from tests.switch.prometheus import (
    JOB,
    RATE_INTERVAL,
    RATE_INTERVAL_SCRAPES,
    STEP,
    Prometheus,
    Series,
    scraping,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream
from tests.unit.dashboards.dashboards import (
    ALL,
    LABEL_VALUES,
    QUERIES,
    VALUE_QUERIES,
    VARIABLE,
    Dashboard,
    Query,
    unknown,
    unused,
)
from tests.unit.dashboards.exported import EXPORTED

CAPACITY_MBPS = 4
# Of a tunnel: its endpoint here, and the one that it leads to.
ENDPOINT, REMOTE = "198.18.0.1", "198.18.0.9"
THRESHOLD_PERCENT = 60
# A VM's frames are a quarter of an uplink in each direction: three VMs are above the threshold.
FRAMES_PER_S = 100
FRAME_BYTES = 1250
WINDOW_S = 2
# Too long for a second move by load within the story.
LONG_WINDOW_S = 600
# Marks closer than this are one, as the annotations' step says.
MARKS_APART_MS = 1000
# Panels that the story gives no cause for: no part of the service fails, and nothing is lost between uplinks.
NO_CAUSE = frozenset({"Faults by part A", "Lost between uplinks A", "Probes A", "Probes B"})
# Timelines that sum up in one row what is well all the time, as everything is here.
SUMMED_UP = frozenset({"Connection to switches A", "Unrelieved uplinks A"})
# Whether a frame is lost while a cable is pulled is chance. So is it whether a queue has room for
# what a sender that got no processor for a while then sends at once.
BY_CHANCE = frozenset({"Dropped frames A", "Dropped frames B", "Dropped frames C"})
# No frame is lost between the uplinks.
WITHOUT_CAUSE = (
    "ovslbt_uplink_path_fault",
    "ovslbt_path_frames_total",
    "ovslbt_path_rounds_total",
)
# What the story gives cause for, if only for a moment; all other alerts have no data.
ALERTING = {"OvsLbtConfigurationError", "OvsLbtUplinkDown"}

with_data = on_beds(BedSpec(vm_vlans=(None,) * 4))
each_query = pytest.mark.parametrize("query", QUERIES, ids=str)


@dataclass(frozen=True, slots=True)
class Mark:
    """A move as it was made: between when and when, by the clock on the wall."""

    port: str
    uplink: str
    reason: Reason
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Story:
    """What was played, and the Prometheus that has seen it."""

    prometheus: Prometheus
    bed: Bed
    service: Service
    since_s: float
    # Whoever looks does so at this time, however long the tests take afterwards.
    until_s: float
    moves: Sequence[Mark]

    def variables(self, dashboard: str) -> dict[str, str]:
        """What the variables stand for: the bridge, or all there are."""
        one = {"job": JOB, "instance": self.prometheus.target, "bridge": self.bed.bridge}
        every = {"job": f"({JOB})", "instance": ".+", "bridge": ".+"}
        return {
            **(one if dashboard == "bridge" else every),
            "__rate_interval": RATE_INTERVAL,
            "__interval": STEP,
            "__range": f"{self.until_s - self.since_s:.0f}s",
            "__from": f"{self.since_s * 1000:.0f}",
        }

    def fill(self, query: Query, **more: str) -> str:
        """A query as Grafana sends it."""
        values = self.variables(query.dashboard) | more
        return VARIABLE.sub(lambda found: values[found[1]], query.text)

    def fillings(self, query: Query) -> list[str]:
        """The query for each panel that it is repeated in."""
        if not query.repeat:
            return [self.fill(query)]
        return [self.fill(query, uplink=uplink.name) for uplink in self.bed.uplinks]

    def ask(self, query: Query, text: str) -> list[Series]:
        if query.instant:
            return self.prometheus.at(text, self.until_s)
        return self.over(text)

    def over(self, text: str) -> list[Series]:
        return self.prometheus.over(text, self.since_s, self.until_s)


@pytest.fixture(scope="module")
def prometheus(
    session_service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    target = f"127.0.0.1:{session_service.metrics_port}"
    with scraping(target, tmp_path_factory.mktemp("prometheus")) as started:
        yield started


def inner_bridge(bed: Bed) -> str:
    return f"{bed.prefix}in"


def carry_tunnels(bed: Bed, port: str) -> None:
    """A tunnel of another bridge is sent from this VM port's address."""
    inner, tunnel = inner_bridge(bed), f"{bed.prefix}gn"
    run("ip", "addr", "add", f"{ENDPOINT}/32", "dev", port)
    made = ["add-br", inner, "--", "set", "bridge", inner, datapath.SETTING]
    options = [f"options:local_ip={ENDPOINT}", f"options:remote_ip={REMOTE}"]
    sending = ["--", "set", "interface", tunnel, "type=geneve", *options]
    bed.ovs.vsctl(*made, "--", "add-port", inner, tunnel, *sending)


@pytest.fixture(scope="module")
def story(bed: Bed, session_service: Service, prometheus: Prometheus) -> Iterator[Story]:
    service, (up0, up1), moves = session_service, bed.uplinks, list[Mark]()
    service.start()
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=200, failback_delay_s=1)
    bed.set("bridge", bed.bridge, threshold=THRESHOLD_PERCENT)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    shared = {"shares": 60, "reserve_mbps": 1, "limit_mbps": CAPACITY_MBPS}
    bed.set("interface", bed.vms[0].port, **shared)
    carry_tunnels(bed, bed.vms[3].port)
    service.attach(bed, "--policy", "load-based")
    bed.set("interface", bed.bridge, unit="source-mac")
    service.place(bed, 0, 0, 0, 1)
    # A rule that changes nothing, but is one.
    service.do("set", "interface", bed.vms[3].port, "affinity=alone")
    prometheus.wait_for_scrapes(2)
    since_s = time.time()

    @contextlib.contextmanager
    def moving(*reasons: Reason) -> Iterator[None]:
        """VM ports move in this block, for the reason given, and all have when it ends."""
        before, from_s = service.bindings(bed), time.time()
        yield
        after = service.bindings(bed)
        for port in sorted(port for port in after if after[port] != before[port]):
            moves.extend(Mark(port, after[port], r, from_s, time.time()) for r in reasons)

    def on(uplink: Uplink) -> set[str]:
        return {port for port, name in service.bindings(bed).items() if name == uplink.name}

    with talking(bed):
        with moving(Reason.THRESHOLD):
            first = on(up0)
            wait_until(lambda: on(up0) < first, "a port has left the busy uplink")
        assert len(moves) == 1
        settled = functools.partial(service.metric, "ovslbt_settling_seconds_count")
        wait_until(lambda: settled(bridge=bed.bridge) >= 1, "no more is moved")
        bed.set("bridge", bed.bridge, window_s=LONG_WINDOW_S, threshold="high")
        prometheus.wait_for_scrapes(2)
        by_hand = next(vm for vm in bed.vms if vm.port in on(up1))
        with moving(Reason.MANUAL):
            service.move(by_hand, up0)
        prometheus.wait_for_scrapes(2)
        lost = on(up0)
        with moving(Reason.FAILOVER):
            bed.pull_cable(up0)
            wait_until(lambda: not on(up0), "all ports have failed over")
        assert service.command("move", by_hand.port, up0.name).returncode == 1
        prometheus.wait_for_scrapes(2)
        with moving(Reason.FAILBACK):
            bed.plug_cable(up0)
            wait_until(lambda: on(up0) == lost, "all ports have come back")
        until_s = prometheus.wait_for_scrapes(RATE_INTERVAL_SCRAPES)
        yield Story(prometheus, bed, service, since_s, until_s, moves)
    service.do("detach", bed.bridge)
    bed.ovs.vsctl("del-br", inner_bridge(bed))


def talking(bed: Bed) -> Stream:
    """Every VM sends to a host upstream, which sends as much to each of them."""
    host = bed.hosts[0]
    ways = [way for vm in bed.vms for way in ((vm, host), (host, vm))]
    flows = [
        (source.point, frames.udp(source.mac, target.mac, frame_bytes=FRAME_BYTES))
        for source, target in ways
    ]
    return Stream(flows, FRAMES_PER_S)


def numbers(found: Sequence[Series]) -> list[float]:
    points = [point for series in found for point in series.get("values", [series.get("value")])]
    return [float(value) for _, value in points if not math.isnan(float(value))]


@with_data
@each_query
def test_has_data_with_the_labels_it_is_shown_by(story: Story, query: Query) -> None:
    for text in story.fillings(query):
        found = story.ask(query, text)
        if query.place in NO_CAUSE:
            assert not numbers(found), f"nothing of that has happened: {text}"
            continue
        if query.place in BY_CHANCE and not found:
            continue
        assert numbers(found), f"no data: {text}"
        seen = story.over(text)
        labels = frozenset[str]().union(*(series["metric"] for series in seen))
        shown = frozenset() if query.place in SUMMED_UP else query.shown
        assert shown <= labels, f"shown by {query.shown}, has {labels}: {text}"


@with_data
@pytest.mark.parametrize("query", VALUE_QUERIES, ids=str)
def test_variables_have_what_there_is_to_choose(story: Story, query: Query) -> None:
    asked = LABEL_VALUES.fullmatch(story.fill(query))
    assert asked, query
    selector, label = asked.groups()
    found = story.prometheus.get(f"label/{label}/values", **{"match[]": selector})
    there = {
        "job": {JOB},
        "instance": {story.prometheus.target},
        "bridge": {story.bed.bridge},
        "uplink": {uplink.name for uplink in story.bed.uplinks},
    }
    assert there[label] <= set(found)


@with_data
@pytest.mark.parametrize("dashboard", [d for d in ALL if d.annotations], ids=str)
def test_marks_every_move_when_it_was_made_and_nothing_else(
    story: Story, dashboard: Dashboard
) -> None:
    marked = [
        (at_ms, series["metric"])
        for query in dashboard.marks.values()
        for series in story.ask(query, story.fill(query))
        for at_ms in _marks(series)
        if series["metric"]["bridge"] == story.bed.bridge
    ]
    made = sorted((move.port, move.uplink, move.reason.value) for move in story.moves)
    assert sorted((m["port"], m["uplink"], m["reason"]) for _, m in marked) == made
    for at_ms, labels in marked:
        (move,) = [
            m for m in story.moves if (m.port, m.reason) == (labels["port"], labels["reason"])
        ]
        # A mark is cut to the millisecond before.
        assert int(move.from_s * 1000) <= at_ms <= move.to_s * 1000, move


def _marks(series: Series) -> list[int]:
    """When Grafana draws marks for a series whose values are times."""
    times = [int(float(value)) for _, value in series["values"]]
    first = times[:1]
    return first + [
        late for early, late in itertools.pairwise(times) if late - early > MARKS_APART_MS
    ]


@with_data
def test_rules_are_evaluated_and_ask_for_what_there_is(story: Story) -> None:
    rules = story.prometheus.rules()
    assert rules
    exported = exported_by(story.service)
    alerting = set()
    for rule in rules:
        assert rule["health"] == "ok", rule
        assert not rule.get("lastError"), rule
        query = Query("rules", rule["name"], rule["query"])
        assert not unknown(query, exported)
        found = story.over(rule["query"])
        if rule["type"] == "alerting" and found:
            alerting.add(rule["name"])
        assert found or rule["type"] == "alerting", f"no data: {rule['name']}: {rule['query']}"
    # The alert looks back at scrapes before the service ran, and on a machine with too much to do,
    # at some that came too late.
    missed = 0 in numbers(story.over(f'min_over_time(up{{job="{JOB}"}}[5m])'))
    assert alerting - ({"OvsLbtServiceDown"} if missed else set()) == ALERTING


@with_data
def test_shows_all_that_is_exported_and_nothing_else(story: Story) -> None:
    exported = exported_by(story.service)
    assert not [told for query in QUERIES for told in unknown(query, exported)]
    assert not unused(exported)


def exported_by(service: Service) -> dict[str, frozenset[str]]:
    """The labels of every sample of the service, as Prometheus keeps them, by its name."""
    families = text_string_to_metric_families(_exposition(service))
    samples = [sample for family in families for sample in family.samples]
    found = {s.name: frozenset(s.labels) | {"job", "instance"} for s in samples}
    return {name: EXPORTED[name] for name in WITHOUT_CAUSE} | found


@with_data
def test_metrics_are_as_prometheus_wants_them(story: Story) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=_exposition(story.service),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def _exposition(service: Service) -> str:
    url = f"http://127.0.0.1:{service.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())
