"""Asks Prometheus; and one that scrapes nothing, but answers from series that were recorded before."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.switch.prometheus import running
from tests.unit.dashboards.hosts import Recorded

# The series of a target end with the target. A recording cannot say so: a sample is valid no longer
# than until the next scrape.
LOOKBACK_S = 6

# One series of an answer: its labels, and its values by the time in seconds.
Found = tuple[dict[str, str], dict[float, float]]


@dataclass
class Prometheus:
    """A running one. Every answer of it must be without error and warning."""

    port: int
    _connection: http.client.HTTPConnection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, endpoint: str, **fields: str) -> Any:
        self._connection.request("GET", f"/api/v1/{endpoint}?{urllib.parse.urlencode(fields)}")
        told = json.load(self._connection.getresponse())
        assert told["status"] == "success", f"{told['error']}: {fields}"
        assert not told.get("warnings"), f"{told['warnings']}: {fields}"
        return told["data"]

    def at(self, query: str, at_s: float) -> list[Found]:
        found = self.get("query", query=query, time=f"{at_s}")["result"]
        return [(one["metric"], {at_s: float(one["value"][1])}) for one in found]

    def over(self, query: str, from_s: float, to_s: float, step_s: float) -> list[Found]:
        span = {"start": f"{from_s}", "end": f"{to_s}", "step": f"{step_s}"}
        found = self.get("query_range", query=query, **span)["result"]
        return [(one["metric"], {s: float(value) for s, value in one["values"]}) for one in found]

    def values(self, selector: str, label: str, from_s: float, to_s: float) -> list[str]:
        """The values of a label in a time span, as variables have them."""
        span = {"match[]": selector, "start": f"{from_s}", "end": f"{to_s}"}
        found = self.get("series", **span)
        return sorted({series[label] for series in found if label in series})


def store(series: Recorded, directory: Path) -> None:
    """Make blocks of Prometheus's data of these series, by way of OpenMetrics with timestamps."""
    text = directory / "series.txt"
    with text.open("w") as file:
        for (name, labels), points in series.items():
            inside = ",".join(f'{label}="{value}"' for label, value in labels)
            file.writelines(f"{name}{{{inside}}} {value!r} {at_s}\n" for at_s, value in points)
        file.write("# EOF\n")
    promtool = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    made = subprocess.run(
        [*promtool, str(text), str(directory / "data")], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stdout + made.stderr


@contextlib.contextmanager
def answering(directory: Path) -> Iterator[Prometheus]:
    """A Prometheus of the blocks in this directory."""
    config = directory / "prometheus.yml"
    config.write_text("{}\n")
    options = "--storage.tsdb.retention.time=100y", f"--query.lookback-delta={LOOKBACK_S}s"
    with running(config, directory, *options) as port:
        yield Prometheus(port)
