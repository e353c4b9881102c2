"""What the dashboards say of a story on a real service and a real switch, as JSON.

As root, for about four minutes: `python -m tests.switch.story_on_a_service` writes
docs/results/dashboards/story_on_a_service.json. Nothing here is compared: it shows what a real
service makes of the dashboards, and docs/results/dashboards/README.md tells it to people.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import documents
from tests.switch import prometheus as scraped
from tests.switch.bed import Bed, BedSpec, Uplink, upstream_ovs
from tests.switch.service import Service
from tests.switch.test_dashboards import (
    CAPACITY_MBPS,
    LONG_WINDOW_S,
    THRESHOLD_PERCENT,
    WINDOW_S,
    talking,
)
from tests.switch.waiting import wait_until
from tests.switch.wire import OwnNetwork
from tests.unit.dashboards import recorded
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.viewing import Look
from topologies.network.private_ovs import PrivateOvs

RESULT = documents.ROOT / "docs" / "results" / "dashboards" / "story_on_a_service.json"
SEEN = ("fleet", "bridge", "decisions", "controller")
# How long something lasts before somebody looks: longer than a poll, a scrape and a rule take.
SHOWS_AFTER_S, DEAD_S, BACK_S = 8.0, 120.0, 20.0
SPEC = BedSpec(vm_vlans=(None,) * 4)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story is played, from when on it is shown."""

    bed: Bed
    service: Service
    prometheus: scraped.Prometheus
    since_s: float

    def on(self, uplink: Uplink) -> set[str]:
        """The VM ports that use an uplink."""
        return {p for p, name in self.service.bindings(self.bed).items() if name == uplink.name}

    def look(self, step: str, happened: str, after_s: float = SHOWS_AFTER_S) -> dict[str, Any]:
        """The first screens, some time after something happened."""
        time.sleep(after_s)
        # Prometheus takes whole seconds only, if they are written as seconds.
        at_s = math.floor(time.time())
        # A new connection: Prometheus closes one that nobody has used for minutes.
        asked = recorded.Prometheus(int(urllib.parse.urlsplit(self.prometheus.url).port or 0))
        here = {
            "job": scraped.JOB,
            "instance": self.prometheus.target,
            "bridge": self.bed.bridge,
        }
        tiles: dict[str, str] = {}
        tables: dict[str, list[dict[str, str]]] = {}
        for name in SEEN:
            chosen = here if name == "bridge" else {}
            seen = Look(asked, BY_NAME[name], at_s, at_s - self.since_s, chosen)
            for panel in seen.first_screen():
                title = f"{name}: {panel['title']}"
                if panel["type"] == "stat":
                    tiles[title] = ", ".join(map(str, seen.tiles(panel)))
                elif panel["type"] == "table":
                    rows = seen.table(panel)
                    tables[title] = [{c: str(cell) for c, cell in row.items()} for row in rows]
        return {"step": step, "happened": happened, "tiles": tiles, "tables": tables}


def played(stage: Stage) -> Iterator[dict[str, Any]]:
    """The story, with what is seen after each step."""
    bed, service, on, look = stage.bed, stage.service, stage.on, stage.look
    up0, up1 = bed.uplinks
    yield look("quiet", "attached, no traffic; all VM ports on the first uplink by hand")
    with talking(bed):
        yield look("full", "four VMs send a quarter each over one uplink of two")
        bed.set("bridge", bed.bridge, window_s=WINDOW_S)
        wait_until(lambda: len(on(up1)) == 2, "two VM ports have moved")
        bed.set("bridge", bed.bridge, window_s=LONG_WINDOW_S)
        yield look("moved", "load-based moved two VM ports")
        left = on(up0)
        bed.pull_cable(up0)
        wait_until(lambda: not on(up0), "all VM ports have failed over")
        yield look("failover", "the first uplink lost its link")
        bed.plug_cable(up0)
        wait_until(lambda: on(up0) == left, "the VM ports are back")
        yield look("failback", "the first uplink is up again")
        service.do("drain", up1.name)
        wait_until(lambda: not on(up1), "no VM port uses the second uplink")
        yield look("drain", "the second uplink is drained")
        service.do("undrain", up1.name)
        wait_until(lambda: bool(on(up1)), "VM ports use the second uplink again")
        bed.set("bridge", bed.bridge, threshold="high")
        yield look("bad value", "the drain is over; somebody set threshold=high")
        with service.dead():
            yield look("dead", f"the service was killed {DEAD_S:g} s ago", DEAD_S)
        bed.set("bridge", bed.bridge, threshold=THRESHOLD_PERCENT)
        yield look("back", f"it runs again for {BACK_S:g} s, and the value is mended", BACK_S)


def made() -> dict[str, Any]:
    """Play the story on switches of its own, and tell it."""
    with ExitStack() as running:
        running.enter_context(OwnNetwork().entered())
        ovs = running.enter_context(PrivateOvs(prefix="ovs-lbt-story-"))
        bed = running.enter_context(Bed(ovs, running.enter_context(upstream_ovs()), SPEC))
        service = Service(ovs)
        running.callback(service.kill)
        service.start()
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        target = f"127.0.0.1:{service.metrics_port}"
        asked = running.enter_context(scraped.scraping(target, directory))
        keys = {"threshold": THRESHOLD_PERCENT, "window_s": LONG_WINDOW_S}
        bed.set("bridge", bed.bridge, poll_interval_ms=200, failback_delay_s=1, **keys)
        for uplink in bed.uplinks:
            bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
        service.attach(bed, "--policy", "load-based")
        service.place(bed, 0, 0, 0, 0)
        asked.wait_for_scrapes(2)
        steps = list(played(Stage(bed, service, asked, math.floor(time.time()))))
    return {
        "commit": _said("git", "rev-parse", "--short", "HEAD"),
        "date": time.strftime("%Y-%m-%d"),
        "open_vswitch": _said("ovs-vswitchd", "--version").split()[-1],
        "prometheus": _said("prometheus", "--version").split()[2],
        "scrape_interval_s": scraped.INTERVAL_MS / 1000,
        "steps": steps,
    }


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=documents.ROOT)
    return done.stdout.splitlines()[0]


if __name__ == "__main__":
    RESULT.write_text(json.dumps(made(), indent=1) + "\n")
