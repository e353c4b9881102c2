"""A Prometheus that scrapes nothing: it answers from series that were recorded before."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.switch import prometheus
from tests.switch.service import free_tcp_port
from tests.unit.dashboards.simulated import Recorded

# The series of a target end with the target. A recording cannot say so: a sample is valid no longer
# than until the next scrape.
LOOKBACK_S = 6

# One series of an answer: its labels, and its values by the time in seconds.
Found = tuple[dict[str, str], dict[float, float]]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running one, with its answers by time."""

    running: prometheus.Prometheus

    def at(self, query: str, at_s: float) -> list[Found]:
        found = self.running.at(query, at_s)
        return [(one["metric"], {at_s: float(one["value"][1])}) for one in found]

    def over(self, query: str, from_s: float, to_s: float, step_s: float) -> list[Found]:
        span = {"start": f"{from_s}", "end": f"{to_s}", "step": f"{step_s}"}
        found = self.running.get("query_range", query=query, **span)["result"]
        return [(one["metric"], {s: float(value) for s, value in one["values"]}) for one in found]

    def values(self, selector: str, label: str, from_s: float, to_s: float) -> list[str]:
        """The values of a label in a time span, as variables have them."""
        span = {"match[]": selector, "start": f"{from_s}", "end": f"{to_s}"}
        found = self.running.get("series", **span)
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
    config, address = directory / "prometheus.yml", f"127.0.0.1:{free_tcp_port()}"
    config.write_text("{}\n")
    command = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data"),
        *("--storage.tsdb.retention.time=100y", f"--query.lookback-delta={LOOKBACK_S}s"),
        f"--web.listen-address={address}",
    ]
    with prometheus.ready(command, address, directory / "log"):
        yield Prometheus(prometheus.Prometheus(f"http://{address}", target=""))
