"""A Prometheus that scrapes nothing: it answers from series that were recorded before."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.unit.dashboards.dashboards import DIRECTORY
from tests.unit.dashboards.story import SCRAPE_S, Points, Series

RULES = sorted((DIRECTORY / "rules").glob("*.yml"))
EVALUATED_S = 15.0
# A target that ends takes its series with it at once. What is recorded cannot say so, so a sample
# is believed no longer than until the next scrape.
LOOKBACK_S = 6
ATTEMPTS = 5
READY_S = 60.0
DURATION = re.compile(r"(\d+)([smh])")
UNITS_S = {"s": 1, "m": 60, "h": 3600}
RECORDED = re.compile(r"\b[a-z_]+:\w+:\w+\b")


@dataclass(frozen=True, slots=True)
class Found:
    """One series of an answer: its labels without the metric's name, and its points."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        return self.points[-1][1]

    @property
    def numbers(self) -> list[float]:
        return [value for _, value in self.points if not math.isnan(value)]


@dataclass
class Prometheus:
    """A running one. Every answer of it must be without error and warning."""

    port: int
    _line: http.client.HTTPConnection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, endpoint: str, **fields: str) -> Any:
        self._line.request("GET", f"/api/v1/{endpoint}?{urllib.parse.urlencode(fields)}")
        told = json.load(self._line.getresponse())
        assert told["status"] == "success", f"{told['error']}: {fields}"
        assert not told.get("warnings"), f"{told['warnings']}: {fields}"
        return told["data"]

    def at(self, query: str, at_s: float) -> list[Found]:
        found = self.get("query", query=query, time=f"{at_s}")["result"]
        return [_found(one["metric"], [one["value"]]) for one in found]

    def over(self, query: str, from_s: float, to_s: float, step_s: float) -> list[Found]:
        span = {"start": f"{from_s}", "end": f"{to_s}", "step": f"{step_s}"}
        found = self.get("query_range", query=query, **span)["result"]
        return [_found(one["metric"], one["values"]) for one in found]

    def values(self, selector: str, label: str, from_s: float, to_s: float) -> list[str]:
        """The values of a label that there are in a range of time, as variables have them."""
        span = {"match[]": selector, "start": f"{from_s}", "end": f"{to_s}"}
        found = self.get("series", **span)
        return sorted({series[label] for series in found if label in series})


def _found(labels: Mapping[str, str], points: Iterable[tuple[float, str]]) -> Found:
    return Found(labels, tuple((at_s, float(value)) for at_s, value in points))


def text_of(series: Mapping[Series, Points]) -> Iterator[str]:
    """The series as OpenMetrics, with timestamps."""
    for (name, labels), points in series.items():
        inside = ",".join(f'{label}="{value}"' for label, value in labels)
        head = f"{name}{{{inside}}}"
        for at_s, value in points:
            yield f"{head} {value!r} {at_s}\n"
    yield "# EOF\n"


def store(series: Mapping[Series, Points], directory: Path) -> None:
    """Make blocks of a Prometheus's data of these series."""
    text = directory / "series.txt"
    with text.open("w") as file:
        file.writelines(text_of(series))
    promtool = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    made = subprocess.run(
        [*promtool, str(text), str(directory / "data")], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stdout + made.stderr
    text.unlink()


@contextlib.contextmanager
def answering(directory: Path) -> Iterator[Prometheus]:
    """A Prometheus of the blocks in this directory."""
    program = shutil.which("prometheus")
    assert program, "found no prometheus on PATH, expected Debian's: run make setup"
    (directory / "prometheus.yml").write_text("{}\n")
    for _ in range(ATTEMPTS):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={directory}/prometheus.yml",
                    f"--storage.tsdb.path={directory}/data",
                    "--storage.tsdb.retention.time=100y",
                    f"--query.lookback-delta={LOOKBACK_S}s",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            if _is_ready(process, port):
                yield Prometheus(port)
                return
        finally:
            process.terminate()
            process.wait(timeout=30)
        # Somebody else has taken the port meanwhile.
        said = (directory / "log").read_text()
        assert "address already in use" in said, said[-2000:]
    raise AssertionError(f"no free port in {ATTEMPTS} attempts")


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it answers; False if it has ended."""
    until_s = time.monotonic() + READY_S
    while process.poll() is None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            line.request("GET", "/-/ready")
            if line.getresponse().status == http.client.OK:
                return True
        assert time.monotonic() < until_s, "Prometheus does not answer"
        time.sleep(0.02)
    return False


# ---- alerts ----------------------------------------------------------------------------


def alerts(prometheus: Prometheus, from_s: float, to_s: float) -> dict[Series, Points]:
    """The series ALERTS, as Prometheus would have made them of the project's rules.

    Prometheus fills in no alerts of the past. So recording rules are put into what asks for them,
    and what each alert's expression found is followed from evaluation to evaluation.
    """
    rules = [
        rule
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]
    made: dict[Series, Points] = {}
    for rule in rules:
        if "alert" in rule:
            found = prometheus.over(_inlined(rule["expr"], rules), from_s, to_s, EVALUATED_S)
            for series in found:
                _follow(made, rule, series, to_s)
    return made


def _inlined(expr: str, rules: list[dict[str, Any]]) -> str:
    def meant(name: str) -> str:
        own = [rule for rule in rules if rule.get("record") == name]
        parts = []
        for rule in own:
            text = f"({_inlined(rule['expr'], rules)})"
            for label, value in rule.get("labels", {}).items():
                text = f'label_replace({text}, "{label}", "{value}", "", "")'
            parts.append(text)
        return f"({' or '.join(parts)})"

    return RECORDED.sub(lambda found: meant(found[0]), expr)


def _follow(
    made: dict[Series, Points], rule: Mapping[str, Any], series: Found, to_s: float
) -> None:
    """Pending first, and firing once it has been there for long enough without a gap."""
    waits_s = sum(int(n) * UNITS_S[unit] for n, unit in DURATION.findall(rule.get("for", "0s")))
    labels = {k: v for k, v in series.labels.items() if k != "__name__"} | rule["labels"]
    since_s = last_s = -math.inf
    for at_s, _ in series.points:
        if at_s - last_s > EVALUATED_S:
            since_s = at_s
        last_s = at_s
        state = "firing" if at_s - since_s >= waits_s else "pending"
        full = labels | {"alertname": rule["alert"], "alertstate": state}
        points = made.setdefault(("ALERTS", tuple(sorted(full.items()))), [])
        # Until the next evaluation, it is as it was.
        points += [
            (then_s, 1.0)
            for then_s in itertools.takewhile(
                lambda then_s: then_s <= to_s,
                (at_s + SCRAPE_S * n for n in range(int(EVALUATED_S / SCRAPE_S))),
            )
        ]
