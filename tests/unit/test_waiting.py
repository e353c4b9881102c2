"""Limits that tell a hang grow with the time that a machine takes, and never shrink."""

from __future__ import annotations

import pytest

from tests.switch import waiting


@pytest.mark.parametrize(("took_s", "ratio"), [(waiting.WORK_S / 3, 1), (5 * waiting.WORK_S, 5)])
def test_a_machine_is_as_slow_as_it_is_at_work(
    took_s: float, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_s = iter([1.0, 1.0 + took_s])
    monkeypatch.setattr("time.process_time", lambda: next(times_s))
    assert waiting._slowness_ratio() == pytest.approx(ratio)


def test_what_hangs_is_told_by_how_slow_the_machine_is() -> None:
    assert pytest.approx(60 * waiting.SLOWNESS_RATIO) == waiting.HANG_S
