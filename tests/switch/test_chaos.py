"""Whatever happens, one after another: nothing is lost, doubled or left behind.

`make soak` is the same for hours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.switch.bench import Upstream
from tests.switch.chaos import model, run

EVENTS_MAX = 100
FOR_S = 20.0
# One on plain uplinks, one on a bond.
SEEDS = (3, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_chaos(seed: int, tor: Upstream, tmp_path: Path) -> None:
    events = run.events_of(seed, EVENTS_MAX)
    report = run.carry_out(seed, events, tor, for_s=FOR_S)
    if report.violations:
        replay = tmp_path / f"seed-{seed}.replay"
        replay.write_text(model.as_text(report.events))
        pytest.fail("\n".join([*run.lines(report), str(replay)]))
