"""The simulated switch of a replay: the connections of a VM port."""

from __future__ import annotations

import time

import pytest

from controller.replay.switch import Mix


def test_the_shares_of_many_connections_take_no_long_time() -> None:
    begun_s = time.process_time()
    shares = Mix(flows=50_000).shares()
    assert time.process_time() - begun_s < 2.0
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == pytest.approx(50 * shares[49])
