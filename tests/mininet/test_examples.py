"""The example for experimenters does what it says, on a real switch."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.mininet.bench import Bench
from topologies.examples import compare_two_uplinks as example

pytestmark = pytest.mark.mininet

CHECKOUT = Path(__file__).parents[2]
SAID = re.compile(r"^(?P<name>\S+): (?P<mbps>[\d.]+) Mbit/s received, (?P<moves>\d+) moves$", re.M)
PNG = b"\x89PNG\r\n"


def test_contenders_deliver_and_are_drawn(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        command=[sys.executable, "-m", "topologies.examples.compare_two_uplinks"],
        pace=(),
        out=("two_uplinks.png",),
        PYTHONPATH=str(CHECKOUT),
    )
    with closing(bench):
        status = bench.process.wait(timeout=500)
        said = bench.said()
        assert status == 0, said[-2000:]
        bench.require_nothing_left()
    runs = {found["name"]: found for found in SAID.finditer(said)}
    assert (*runs,) == example.CONTENDERS, said
    offered_mbps = sum(mbps for mbps, _ in example.LOAD.values())
    for name, found in runs.items():
        # A busy machine sends less. No sender is faster than its rate.
        assert offered_mbps / 2 < float(found["mbps"]) <= 1.05 * offered_mbps, name
    # The VMs start where they do not fit.
    assert sum(int(found["moves"]) for found in runs.values()) > 0, said
    assert bench.out.read_bytes().startswith(PNG)
