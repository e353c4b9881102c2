"""Who may dial `--listen`: nobody replaces a connection, and many callers keep nobody out."""

from __future__ import annotations

from typing import Any

import pytest

from controller.openflow.connections import MOST_UNIDENTIFIED, Call
from controller.openflow.framework import MOST_WARNINGS, UNIDENTIFIED_BYTES
from tests.wire.test_disconnect import run


def call(scenario: str) -> dict[str, Any]:
    return run(scenario, "tests.wire.calling")


def test_a_caller_never_replaces_a_connection_that_the_service_made() -> None:
    seen = call("own-connection")
    (at_start,) = seen["at_start"]
    assert "without TLS" in at_start and "can pretend to be a switch" in at_start
    assert (seen["live"], seen["refused"], seen["stays"]) == (True, [True] * 3, True)
    assert seen["events"] == ["SwitchConnected"]
    assert seen["log"] == [
        "127.0.0.1: bridge br0 is connected already -> one connection; closing the connection"
    ]


def test_a_caller_stands_until_the_service_reaches_the_bridge_and_no_other_one_replaces_it() -> (
    None
):
    seen = call("no-connection")
    assert (seen["called"], seen["refused"], seen["stays"], seen["own"]) == (True,) * 4
    assert seen["events"] == ["SwitchConnected", "SwitchGone", "SwitchConnected"]


def test_a_caller_is_a_bridge_only_if_the_listener_is_its_controller() -> None:
    assert call("tcp:localhost:{}")["live"]
    seen = call("tcp:127.0.0.1:1")
    assert not seen["live"] and not seen["events"]
    found = (
        "127.0.0.1: bridge br0 controller: tcp:127.0.0.1:1 -> the address that was dialled, tcp:"
    )
    assert any(line.startswith(found) for line in seen["log"])


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


def test_strangers_are_logged_but_not_without_end() -> None:
    seen = call("strangers")
    assert seen["refused"]
    assert len(seen["log"]) <= MOST_WARNINGS + 1


def test_callers_that_say_nothing_keep_no_bridge_out() -> None:
    seen = call("silent-callers")
    assert seen["called"]
    assert seen["calls"] > MOST_UNIDENTIFIED
    assert seen["threads"] <= MOST_UNIDENTIFIED + 5


def test_a_caller_has_little_time_and_little_to_say_before_its_datapath_id() -> None:
    seen = call("slow-caller")
    assert seen["slow_s"] < 5
    # Also what the sockets take before the connection is closed.
    assert seen["sent"] < UNIDENTIFIED_BYTES + (1 << 23)
