"""Who may dial `--listen`: nobody replaces a connection, and many callers keep nobody out."""

from __future__ import annotations

import pytest

from controller.openflow.connections import Call
from tests.wire import alone, calling


@pytest.mark.parametrize("scenario", calling.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_of_callers(scenario: alone.Scenario) -> None:
    alone.start(scenario)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("tcp:127.0.0.1:6653", True),
        ("tcp:127.0.0.1", True),
        ("tcp:localhost:6653", True),
        ("ssl:127.0.0.1:6653", False),
        ("tcp:127.0.0.2:6653", False),
        ("tcp:127.0.0.1:6633", False),
        ("ptcp:6653:127.0.0.1", False),
        ("punix:/run/br0.sock", False),
        ("tcp:[::1]:6653", False),
        ("tcp:no.such.host.invalid:6653", False),
        ("", False),
    ],
)
def test_which_targets_name_a_listener(target: str, names: bool) -> None:
    assert Call(1, "tcp", ("127.0.0.1", 6653)).is_to(target) is names


@pytest.mark.parametrize("target", ["ssl:[::1]:6653", "ssl:[::1]", "ssl:[0:0::1]:6653"])
def test_targets_with_ipv6_addresses(target: str) -> None:
    assert Call(1, "ssl", ("::1", 6653)).is_to(target)
