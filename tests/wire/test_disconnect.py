"""A connection that ends is noticed, leaves nothing behind, and is dialled again.

The framework's own connections never end: see `controller.openflow.framework.Connection`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from controller.openflow.framework import UNSENT_BYTES
from tests.wire.connecting import RECONNECTS
from tests.wire.fake_switch import (
    ECHO_REQUEST,
    EXPERIMENTER,
    FEATURES_REQUEST,
    HELLO,
    MULTIPART_REQUEST,
    NO_GENERATION,
    NOCHANGE,
    ROLE_REQUEST,
    SET_ASYNC,
)

ROOT = Path(__file__).parents[2]


def run(scenario: str, module: str = "tests.wire.connecting") -> dict[str, Any]:
    """What a scenario saw; in a short path, as a socket's has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="ovs-lbt-") as directory:
        command = [sys.executable, "-m", module, scenario, directory]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert seen["crashes"] == []
    return seen


def test_every_disconnect_is_noticed_and_no_thread_is_left() -> None:
    seen = run("reconnects")
    assert seen["events"] == ["SwitchConnected", "SwitchGone"] * RECONNECTS
    assert seen["threads_left"] == 0
    assert seen["connections"] == 0


def test_a_switch_that_hangs_up_in_the_handshake_was_never_there() -> None:
    seen = run("half-a-handshake")
    assert seen["event"] == "SwitchConnected"
    assert seen["threads_left"] == 0


def test_a_switch_that_does_not_answer_is_found_out() -> None:
    seen = run("silence")
    assert seen["events"] == ["SwitchConnected", "SwitchGone"]
    assert seen["echoes"] == 3
    assert seen["threads_left"] == 0


@pytest.mark.slow
def test_a_switch_that_answers_stays() -> None:
    seen = run("answers")
    assert (seen["event"], seen["after"]) == ("SwitchConnected", "nothing")
    assert seen["connected"] == ["br0"]
    assert seen["threads_left"] == 0


@pytest.mark.slow
def test_a_switch_that_cannot_be_read_is_hung_up_on_and_dialled_again_later() -> None:
    seen = run("nonsense")
    assert seen["events"] == ["SwitchConnected", "SwitchGone"] * 3
    assert min(seen["pauses_s"]) >= 0.5
    assert seen["threads_left"] == 0


@pytest.mark.slow
def test_a_switch_is_ours_once_it_has_made_us_its_master() -> None:
    seen = run("master")
    assert seen["events"] == ["nothing", "SwitchConnected", "SwitchGone"] * 3
    assert seen["claimed"] == [0, NO_GENERATION, 42]
    asked = {HELLO, EXPERIMENTER, FEATURES_REQUEST, MULTIPART_REQUEST, ROLE_REQUEST, SET_ASYNC}
    assert set(seen["heard"]) - {ECHO_REQUEST} == asked
    assert seen["threads_left"] == 0


def test_nobody_becomes_master_who_does_not_lead() -> None:
    seen = run("not-leading")
    assert seen["roles"] == [[NOCHANGE], [NOCHANGE]]
    assert seen["events"] == ["SwitchConnected", "SwitchGone", "SwitchConnected"]
    assert seen["threads_left"] == 0


def test_a_switch_with_another_master_is_not_ours_any_more() -> None:
    seen = run("deposed")
    assert seen["events"] == ["SwitchConnected", "SwitchGone"] * 2
    assert seen["threads_left"] == 0


def test_nobody_waits_for_a_switch_that_does_not_read_and_it_gets_everything_in_order() -> None:
    seen = run("slow-reader")
    assert seen["took_s"] < 5
    assert (seen["in_order"], seen["again"]) == (True, "again")
    assert seen["threads_left"] == 0


def test_what_takes_long_to_make_keeps_its_place_and_the_connection() -> None:
    seen = run("made-later")
    assert (seen["event"], seen["after"]) == ("SwitchConnected", "nothing")
    assert seen["taken"] == [True, False]
    assert seen["in_order"]
    assert seen["threads_left"] == 0


def test_echo_requests_whose_replies_are_not_read_take_little_memory() -> None:
    seen = run("echo-flood")
    # One more message may be under way.
    assert seen["most"] <= UNSENT_BYTES + (1 << 17)
    assert seen["event"] == "SwitchGone"
    assert seen["threads_left"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["late-write", "late-write-here"])
def test_a_connection_is_not_closed_while_somebody_writes_to_it(ends: str) -> None:
    """The descriptor's number would be another connection's, which would get the message."""
    seen = run(ends)
    assert (seen["reached"], seen["open_meanwhile"], seen["open_at_the_end"]) == (True, True, False)
    assert seen["events"] == ["SwitchConnected", "SwitchGone"]
    assert seen["threads_left"] == 0


def test_a_failed_link_does_not_wait_for_the_counters_of_another_switch() -> None:
    seen = run("one-is-slow")
    assert seen["held"]
    assert seen["events"] == ["SwitchConnected", "SwitchConnected", "PortChanged", "PortStatsRead"]
    assert seen["threads_left"] == 0


def test_a_port_that_changes_or_goes_keeps_its_number() -> None:
    seen = run("ports-change")
    assert seen["told"] == [["PortChanged", "br0", 7], ["PortRemoved", "br0", 7]]
    assert seen["threads_left"] == 0


def test_a_switch_with_more_ports_than_any_bridge_has_is_hung_up_on() -> None:
    seen = run("many-ports")
    assert seen["events"] == ["PortChanged"] * 19 + ["SwitchGone"]
    assert seen["threads_left"] == 0
