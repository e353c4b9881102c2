"""The examples for experimenters do what they say, on a real switch."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.mininet.bench import Bench
from topologies.examples import compare_two_uplinks

pytestmark = [pytest.mark.mininet, pytest.mark.slow]

CHECKOUT = Path(__file__).parents[2]
SECONDS = 6
DELIVERED = re.compile(r"^(?P<name>\S+): (?P<mbps>[\d.]+) Mbit/s, (?P<moves>\d+) moves$", re.M)
PNG = b"\x89PNG\r\n"


def test_two_contenders_deliver_and_are_drawn(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        *("--seconds", str(SECONDS)),
        command=[sys.executable, "-m", "topologies.examples.compare_two_uplinks"],
        pace=(),
        PYTHONPATH=str(CHECKOUT),
    )
    with closing(bench):
        status = bench.process.wait(timeout=300)
        said = bench.said()
        assert status == 0, said[-2000:]
        bench.require_nothing_left()
    delivered_mbps = {found["name"]: float(found["mbps"]) for found in DELIVERED.finditer(said)}
    assert tuple(delivered_mbps) == compare_two_uplinks.CONTENDERS, said
    offered_mbps = sum(compare_two_uplinks.RATES_BPS.values()) / 1e6
    for name, mbps in delivered_mbps.items():
        # A busy machine sends less. A queue that empties adds to what is sent meanwhile.
        assert offered_mbps / 2 < mbps <= 2 * compare_two_uplinks.UPLINK_MBPS, name
    assert (bench.out / "uplinks.png").read_bytes().startswith(PNG)
    assert "</svg>" in (bench.out / "uplinks.svg").read_text()
