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


def test_what_is_not_there_yet_is_waited_for() -> None:
    left = [1, 1, 0]

    def found() -> str:
        if left.pop(0):
            raise waiting.NotThere("port v3 is not shown")
        return "v3"

    assert waiting.wait_until(found, "v3 is back", timeout_s=waiting.HANG_S, interval_s=0) == "v3"


def test_what_never_comes_is_told_with_what_was_missing() -> None:
    def missing() -> str:
        raise waiting.NotThere("port v3 is not shown")

    told = r"not within 0 s: v3 is back \(port v3 is not shown\)"
    with pytest.raises(AssertionError, match=told):
        waiting.wait_until(missing, "v3 is back", timeout_s=0, interval_s=0)


def test_other_errors_are_not_waited_out() -> None:
    with pytest.raises(ZeroDivisionError):
        waiting.wait_until(lambda: 1 / 0, "never", timeout_s=waiting.HANG_S)
