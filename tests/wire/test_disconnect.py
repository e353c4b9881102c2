"""A connection that ends is noticed, leaves nothing behind, and is dialled again.

The framework's own connections never end: see `controller.openflow.framework.Connection`.
"""

from __future__ import annotations

import pytest

from tests.wire import alone, connecting


@pytest.mark.parametrize(
    "scenario",
    [*connecting.FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in connecting.SLOW)],
    ids=lambda scenario: scenario.__name__,
)
def test_of_connections(scenario: alone.Scenario) -> None:
    alone.start(scenario)
