"""Every query of the dashboards, on a real Prometheus that scrapes the service under traffic.

With GRAFANA_URL set (http://user:password@host:3000) a Grafana loads the dashboards too.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from policies.model import Reason
from tests.switch.bench import Bed, BedSpec, Service, wait_until

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
FILES = sorted(DASHBOARDS.glob("*.json"))
PROVISIONING = DASHBOARDS / "provisioning"
GRID_COLUMNS = 24
SCRAPE_INTERVAL_S = 1
RATE_INTERVAL_S = 5 * SCRAPE_INTERVAL_S
# The annotation compares who is bound where with ten seconds before.
SCRAPES_BEFORE_MOVE = 12
SCRAPES_AFTER_MOVE = 6
# What the graphs' names in a query look like, beside those that rates of histograms add.
METRIC = re.compile(r"\bovslbt_\w+")
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|sum|count)$")

BEDS = [BedSpec(vm_vlans=(None,) * 4, addresses=True)]
pytestmark = pytest.mark.slow
with_data = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a dashboard, and where it stands there."""

    place: str
    text: str
    instant: bool = False

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class Scraped:
    """A Prometheus with the story of one move in it."""

    url: str
    bed: Bed
    service: Service
    since_s: float

    @property
    def instance(self) -> str:
        return f"127.0.0.1:{self.service.metrics_port}"

    def fill(self, text: str, **variables: str) -> str:
        """A query as Grafana sends it: its variables filled in."""
        values = {
            "instance": self.instance,
            "bridge": self.bed.bridge,
            "__rate_interval": f"{RATE_INTERVAL_S}s",
            "__range": "60s",
            **variables,
        }
        filled = re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), text)
        assert "$" not in filled, f"a variable that the dashboard does not have: {filled}"
        return filled

    def samples(self, query: Query, **variables: str) -> list[float]:
        """All numbers a query gives: now, or from the first scrape until now."""
        asked = {"query": self.fill(query.text, **variables)}
        if query.instant:
            found = ask(self.url, "query", **asked)
        else:
            span = {"start": f"{self.since_s}", "end": f"{time.time()}", "step": "1"}
            found = ask(self.url, "query_range", **asked, **span)
        points = [p for r in found["result"] for p in r.get("values", [r.get("value")])]
        return [float(value) for _, value in points if not math.isnan(float(value))]


def load(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, also those in collapsed rows."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries(dashboard: Mapping[str, Any]) -> list[Query]:
    """Every query of a panel or an annotation."""
    found = [
        Query(f"{panel['title']}: {target['refId']}", target["expr"], target.get("instant", False))
        for panel in panels(dashboard)
        for target in panel.get("targets", [])
    ]
    marks = dashboard["annotations"]["list"]
    return found + [Query(f"annotation {mark['name']}", mark["expr"]) for mark in marks]


def variables(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """The queries of the template variables, by the variable's name."""
    listed = dashboard["templating"]["list"]
    return {v["name"]: v["query"]["query"] for v in listed if v["type"] == "query"}


def ask(prometheus: str, endpoint: str, **fields: str) -> Any:
    """What Prometheus answers; it must answer without error or warning."""
    url = f"{prometheus}/api/v1/{endpoint}?{urllib.parse.urlencode(fields)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{fields}: {error.read().decode()}") from None
    assert told["status"] == "success", told
    assert not told.get("warnings"), told
    return told["data"]


ALL_QUERIES = [query for path in FILES for query in queries(load(path))]
ALL_VARIABLES = [item for path in FILES for item in variables(load(path)).items()]


@pytest.fixture(scope="module")
def prometheus(session_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with the provisioned configuration, at a port and a pace of its own."""
    program = shutil.which("prometheus")
    assert program, "found no prometheus on PATH, expected Debian's: run make setup"
    config = (PROVISIONING / "prometheus.yml").read_text()
    for written, wanted in (
        ("- 127.0.0.1:9476", f"- 127.0.0.1:{session_service.metrics_port}"),
        ("scrape_interval: 5s", f"scrape_interval: {SCRAPE_INTERVAL_S}s"),
    ):
        assert config.count(written) == 1, f"not once in prometheus.yml: {written}"
        config = config.replace(written, wanted)
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "prometheus.yml").write_text(config)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={address}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    def ready() -> bool:
        assert process.poll() is None, f"prometheus ended: {log.read_text()[-1000:]}"
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"http://{address}/-/ready", timeout=5))
        return False

    try:
        wait_until(ready, "Prometheus is ready", 30.0)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def scraped(bed: Bed, session_service: Service, prometheus: str) -> Iterator[Scraped]:
    """Four VMs on two uplinks, all of them talking, and one of them moved by hand."""
    session_service.start()
    session_service.attach(bed, "--policy", "originating-port")
    session_service.place(bed, 0, 0, 0, 1)
    told = Scraped(prometheus, bed, session_service, time.time())

    def scrapes(since_s: float) -> int:
        span = max(1, round(time.time() - since_s))
        selector = told.fill('ovslbt_port_binding{instance="$instance", bridge="$bridge"}')
        found = ask(prometheus, "query", query=f"max(count_over_time({selector}[{span}s]))")
        return int(found["result"][0]["value"][1]) if found["result"] else 0

    with talking(bed):
        wait_until(lambda: scrapes(told.since_s) >= SCRAPES_BEFORE_MOVE, "scraped", 60.0, 0.5)
        session_service.move(bed.vms[1], bed.uplinks[1])
        moved_s = time.time()
        wait_until(lambda: scrapes(moved_s) >= SCRAPES_AFTER_MOVE, "scraped on", 60.0, 0.5)
        yield told
    session_service.do("detach", bed.bridge)


@contextlib.contextmanager
def talking(bed: Bed) -> Iterator[None]:
    """Every VM sends to a host upstream, which answers."""
    pings = [
        subprocess.Popen(
            [
                *("ip", "netns", "exec", str(vm.point.netns)),
                *("ping", "-q", "-i", "0.02", "-s", "1200", bed.hosts[0].ip),
            ],
            stdout=subprocess.DEVNULL,
        )
        for vm in bed.vms
    ]
    try:
        yield
    finally:
        for ping in pings:
            ping.terminate()
            ping.wait()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_is_a_dashboard_that_grafana_can_load(path: Path) -> None:
    dashboard = load(path)
    assert dashboard["uid"]
    assert dashboard["title"]
    everything = list(panels(dashboard))
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids)), f"panel ids twice: {ids}"
    taken: dict[tuple[int, int], str] = {}
    for panel in everything:
        grid = panel["gridPos"]
        assert grid["x"] >= 0, panel["title"]
        assert grid["x"] + grid["w"] <= GRID_COLUMNS, panel["title"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{other} and {panel['title']} overlap"
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    repeated = {panel["repeat"] for panel in everything if "repeat" in panel}
    assert repeated <= names, f"repeated by a variable that there is not: {repeated - names}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_asks_the_chosen_data_source_about_the_chosen_bridge(path: Path) -> None:
    dashboard = load(path)
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(dashboard):
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == chosen, panel["title"]
        assert panel["targets"], f"{panel['title']} asks for nothing"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), f"{panel['title']}: {refs}"
        assert all(target["datasource"] == chosen for target in panel["targets"]), panel["title"]
    for listed in ("annotations", "templating"):
        for item in dashboard[listed]["list"]:
            assert item.get("type") == "datasource" or item["datasource"] == chosen, item["name"]
    for query in queries(dashboard):
        selected = re.findall(r"ovslbt_\w+(\{[^}]*\})?", query.text)
        assert selected, f"{query} asks for no metric of ours"
        for selector in selected:
            assert 'instance="$instance"' in selector, f"{query} is not of the chosen host"
            if "build_info" not in query.text:
                assert 'bridge="$bridge"' in selector, f"{query} is not of the chosen bridge"


@with_data
@pytest.mark.parametrize("query", ALL_QUERIES, ids=str)
def test_has_data(scraped: Scraped, query: Query) -> None:
    for uplink in scraped.bed.uplinks if "$uplink" in query.text else [""]:
        assert scraped.samples(query, uplink=str(uplink)), f"no data: {query.text}"


@with_data
@pytest.mark.parametrize(("name", "query"), ALL_VARIABLES, ids=lambda value: str(value)[:20])
def test_variable_has_its_values(scraped: Scraped, name: str, query: str) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found, f"not a query for the values of a label: {query}"
    selector, label = scraped.fill(found[1]), found[2]
    values = ask(scraped.url, f"label/{label}/values", **{"match[]": selector})
    expected = {
        "instance": [scraped.instance],
        "bridge": [scraped.bed.bridge],
        "uplink": sorted(uplink.name for uplink in scraped.bed.uplinks),
    }
    assert set(expected[name]) <= set(values)


@with_data
def test_marks_the_move_and_nothing_else(scraped: Scraped) -> None:
    marks = [query for query in ALL_QUERIES if query.place == "annotation Moves"]
    assert marks
    for query in marks:
        span = {"start": f"{scraped.since_s}", "end": f"{time.time()}", "step": "1"}
        found = ask(scraped.url, "query_range", query=scraped.fill(query.text), **span)
        labels = [(r["metric"]["port"], r["metric"]["uplink"]) for r in found["result"]]
        assert labels == [(scraped.bed.vms[1].port, scraped.bed.uplinks[1].name)]


@with_data
def test_shows_every_metric_and_no_other(scraped: Scraped) -> None:
    exposed = _exposition(scraped.service)
    exported = {f"{m}" for m in re.findall(r"^# TYPE (ovslbt_\w+) ", exposed, re.MULTILINE)}
    exported = {name for name in exported if not name.endswith("_created")}
    texts = [query.text for query in ALL_QUERIES] + [query for _, query in ALL_VARIABLES]
    shown = {HISTOGRAM_SUFFIX.sub("", name) for text in texts for name in METRIC.findall(text)}
    assert shown == exported


@with_data
def test_counts_moves_by_every_reason_from_the_start(scraped: Scraped) -> None:
    exposed = _exposition(scraped.service)
    for counter in ("planned", "applied", "refused"):
        samples = re.findall(rf"^ovslbt_moves_{counter}_total\{{(.*)\}} ", exposed, re.MULTILINE)
        ours = [labels for labels in samples if f'bridge="{scraped.bed.bridge}"' in labels]
        reasons = {found[1] for labels in ours if (found := re.search(r'reason="(\w+)"', labels))}
        assert reasons == {reason.value for reason in Reason}


@with_data
def test_metrics_are_as_prometheus_wants_them(scraped: Scraped) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=_exposition(scraped.service),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif("GRAFANA_URL" not in os.environ, reason="GRAFANA_URL names no Grafana")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_grafana_loads_it(path: Path) -> None:
    """From the host's own network, which these tests are not in."""
    body = json.dumps({"dashboard": {**load(path), "id": None}, "overwrite": True})
    url = urllib.parse.urlsplit(os.environ["GRAFANA_URL"])
    netloc = url.netloc.rpartition("@")[2]
    headers = {"Content-Type": "application/json"}
    if url.username:
        credentials = f"{url.username}:{url.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
    post = (
        "import sys, json, urllib.request as r; url, headers = json.loads(sys.argv[1]);"
        "print(r.urlopen(r.Request(url, sys.stdin.buffer.read(), headers), timeout=20).status)"
    )
    where = f"{url.scheme}://{netloc}{url.path.rstrip('/')}/api/dashboards/db"
    load_it = [sys.executable, "-c", post, json.dumps([where, headers])]
    done = subprocess.run(
        ["nsenter", "--net=/proc/1/ns/net", *load_it],
        input=body,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-1000:]


def _exposition(service: Service) -> str:
    url = f"http://127.0.0.1:{service.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())
