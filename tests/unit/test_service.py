"""The service's shell, where no switch is needed to see it."""

from __future__ import annotations

import pytest

from controller import service
from controller.engine import Engine


@pytest.mark.parametrize(
    ("epoch_s", "told_s"),
    [
        pytest.param(1000.4, 1000.0, id="drift is not followed"),
        pytest.param(50_000.0, 50_000.0, id="set forwards"),
        pytest.param(900.0, 900.0, id="set backwards"),
    ],
)
def test_times_follow_a_wall_clock_that_is_set(
    monkeypatch: pytest.MonkeyPatch, epoch_s: float, told_s: float
) -> None:
    running = object.__new__(service.Service)
    running._engine = Engine(epoch_s=1000.0)
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    monkeypatch.setattr("time.time", lambda: epoch_s + 7.0)
    running._follow_clock()
    assert running._engine.fleet.epoch_s == told_s
