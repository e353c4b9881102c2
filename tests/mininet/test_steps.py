"""A bench that cannot go on ends, says why, and leaves nothing."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.mininet.bench import Bench

pytestmark = pytest.mark.mininet

CHECKOUT = Path(__file__).parents[2]
# `ovs-lbt bench` with less patience.
IMPATIENT = """
import sys
from topologies import bench
from topologies.compare import run
run.BUILD_LIMIT_S = 2.0
sys.exit(bench.main(sys.argv[1:]))
"""


def test_network_that_hangs_ends_the_bench_with_a_description(tmp_path: Path) -> None:
    """A fake `mnexec` hangs, so that Mininet's hosts never start."""
    dead = tmp_path / "bin" / "mnexec"
    dead.parent.mkdir()
    dead.write_text("#!/bin/sh\nexec sleep 1000\n")
    dead.chmod(0o755)
    words = ["vmware_lbt", "--policy", "load-based", "--against", "manual"]
    bench = Bench(
        tmp_path,
        *words,
        command=[sys.executable, "-c", IMPATIENT],
        PATH=f"{dead.parent}:{os.environ['PATH']}",
        PYTHONPATH=str(CHECKOUT),
    )
    with closing(bench):
        status = bench.process.wait(timeout=180)
        said = bench.said()
        assert status == 1, said
        for name in ("manual", "load-based"):
            assert f"{name}: build the network: not done after 2.0 s, over the limit of 2 s" in said
        assert "check: whether mnexec works" in said
        assert "Traceback" not in said
        bench.require_nothing_left()
