"""A Prometheus of our own, with the configuration and the rules that the project ships."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.switch.service import free_tcp_port
from tests.switch.waiting import wait_until
from tests.unit.dashboards import dashboards

CONFIGURATION = dashboards.DIRECTORY / "provisioning" / "prometheus.yml"
RULES = dashboards.DIRECTORY / "rules"
JOB = "ovs-lbt"
INTERVAL_MS = 500
# As Grafana takes it from the scrape interval.
RATE_INTERVAL_SCRAPES = 4
RATE_INTERVAL = f"{RATE_INTERVAL_SCRAPES * INTERVAL_MS}ms"
STEP = f"{INTERVAL_MS}ms"
# After so many intervals, a scrape between two others is missing.
LATEST_SCRAPE = 1.5
# What the configuration says, and what it says here.
CHANGES = {
    "scrape_interval: 5s": f"scrape_interval: {INTERVAL_MS}ms",
    "evaluation_interval: 15s": f"evaluation_interval: {INTERVAL_MS}ms",
}

Series = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running one; every answer of it must be without error and warning."""

    url: str
    target: str

    def get(self, endpoint: str, **fields: str) -> Any:
        url = f"{self.url}/api/v1/{endpoint}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{fields}: {error.read().decode()}") from None
        assert told["status"] == "success", told
        assert not told.get("warnings"), told
        return told["data"]

    def at(self, query: str, at_s: float) -> list[Series]:
        return list(self.get("query", query=query, time=f"{at_s}")["result"])

    def over(self, query: str, since_s: float, until_s: float) -> list[Series]:
        """What a graph of this time gets."""
        span = {"start": f"{since_s}", "end": f"{until_s}", "step": STEP}
        return list(self.get("query_range", query=query, **span)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with how it fared when it was last evaluated."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def wait_for_scrapes(self, count: int) -> float:
        """Wait until what is so now has been scraped so often, and every rule has seen it.

        The scrapes follow one another without a failed one, which would leave a gap. Returns when
        the last of them was made: at that time, every series has a sample.
        """
        since_s, scraped_s = time.time(), math.inf

        def scraped() -> bool:
            nonlocal scraped_s
            now_s = time.time()
            span_ms = max(1, int(1000 * (now_s - since_s)))
            found = self.at(f'up{{instance="{self.target}"}}[{span_ms}ms]', now_s)
            made = [(float(at_s), float(up)) for one in found for at_s, up in one["values"]]
            scraped_s = made[-1][0] if made else math.inf
            return in_a_row(made) >= count

        wait_until(scraped, f"{count} scrapes in a row", interval_s=0.1)

        def evaluated() -> bool:
            times = [group["lastEvaluation"] for group in self.get("rules")["groups"]]
            return all(datetime.fromisoformat(at).timestamp() > scraped_s for at in times)

        wait_until(evaluated, "every rule has been evaluated", interval_s=0.1)
        return scraped_s


def in_a_row(made: Sequence[tuple[float, float]]) -> int:
    """How many of the last scrapes succeeded, with none left out between them.

    `made`: the time of each scrape, and whether it succeeded, as Prometheus has it in `up`. It has a
    sample of a scrape that failed, too, and none of one that it had no time for.
    """
    count, late_s = 0, math.inf
    for at_s, up in reversed(made):
        if not up or (count and late_s - at_s > LATEST_SCRAPE * INTERVAL_MS / 1000):
            break
        count, late_s = count + 1, at_s
    return count


@contextlib.contextmanager
def scraping(target: str, directory: Path) -> Iterator[Prometheus]:
    """Prometheus as it is provisioned, of this target and at a pace for tests."""
    config = CONFIGURATION.read_text()
    for written, wanted in (CHANGES | {"- 127.0.0.1:9476": f"- {target}"}).items():
        assert config.count(written) == 1, f"not once in {CONFIGURATION.name}: {written}"
        config = config.replace(written, wanted)
    # Where it looks for rules is beside the configuration's directory.
    (directory / "provisioning").mkdir()
    (directory / "provisioning" / "prometheus.yml").write_text(config)
    (directory / "rules").symlink_to(RULES)
    with running(directory / "provisioning" / "prometheus.yml", target, directory) as prometheus:
        yield prometheus


@contextlib.contextmanager
def running(config: Path, target: str, directory: Path) -> Iterator[Prometheus]:
    """Prometheus with this configuration; its data and its log are in the directory."""
    program = shutil.which("prometheus")
    assert program, "found no prometheus on PATH, expected Debian's: run make setup"
    address = f"127.0.0.1:{free_tcp_port()}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={address}",
    ]
    with ready(command, address, directory / "log"):
        yield Prometheus(f"http://{address}", target)


@contextlib.contextmanager
def ready(command: Sequence[str], address: str, log: Path) -> Iterator[None]:
    """Prometheus or Alertmanager by this command, once it is ready at an address."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def is_ready() -> bool:
        assert process.poll() is None, f"{command[0]} ended: {log.read_text()[-1000:]}"
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"http://{address}/-/ready", timeout=5))
        return False

    try:
        wait_until(is_ready, f"{command[0]} is ready")
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
