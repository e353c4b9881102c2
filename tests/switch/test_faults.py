"""A fault in a part of the service: nobody blames the switch, and what has failed is told.

The history, metrics, queues, port flags and the copy of the database: tests/unit/controller/host/test_faults.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switch.adopting import refused
from tests.switch.bed import Bed
from tests.switch.service import Service, free_tcp_port
from tests.switch.waiting import wait_until

FAULTY = Path(__file__).with_name("faulty.py")
INJECTED = "AttributeError: injected"
LOG = "see the ovs-lbt log (journalctl -u ovs-lbt)"
# Faults that end the process, with the part that each is of.
ENDING = {
    "engine": "engine",
    "commands": "commands",
    "writes": "database",
    "handler": "openflow",
    "library": "other",
    "poll": "engine",
}
# Those by which an attach is not done, though the service goes on.
REFUSING = {
    "one-write": "database",
    "reply": "openflow",
    "handshake": "openflow",
    "sender": "openflow",
    "line": "lines",
}


@pytest.fixture
def sick(own: Service, bed: Bed, request: pytest.FixtureRequest) -> Iterator[Service]:
    """The service with the fault that the test is parametrized with; nothing is attached yet."""
    own.kill()
    (own.ovs.rundir / "ovs-lbt.faults").unlink(missing_ok=True)
    own.log.unlink(missing_ok=True)
    own.launcher = [sys.executable, str(FAULTY), request.param]
    own.variables = {"PYTHONPATH": str(Path(__file__).parents[2])}
    own.start()
    yield own
    own.kill()
    own.launcher, own.variables, own.options = [], {}, []
    own.start()
    # Whatever of ours is left on the bridge goes with a detach; it may be attached already.
    own.command("attach", bed.bridge)
    own.wait_ready(bed)
    own.do("detach", bed.bridge)
    own.kill()


def told(service: Service, part: str) -> None:
    """`show` in both forms, metrics and the log tell of a fault of this part."""

    def faults() -> list[dict[str, object]]:
        found = json.loads(service.ask("show", "--json")).get("faults", [])
        return [fault for fault in found if fault["part"] == part]

    (fault,) = wait_until(faults, f"show tells of {part}")
    assert INJECTED in str(fault["found"])
    shown = service.do("show")
    assert f"ovs-lbt fault  {fault['found']}" in shown and LOG in shown
    assert service.metric("ovslbt_faults_total", part=part) >= 1
    log = service.log.read_text()
    assert re.search(f"a bug in ovs-lbt, not in the switch: .*{INJECTED}", log)
    assert f"\n{INJECTED}\n" in log, "no stack"


def refusal(service: Service, *words: str) -> str:
    """What a command says that is refused for a fault of ours: nobody else is blamed."""
    error = refused(service, *words)
    assert "journalctl -u ovs-lbt" in error and "the switch did not answer" not in error, error
    return error


@pytest.mark.parametrize(("sick", "part"), ENDING.items(), indirect=["sick"])
def test_what_ends_the_service_is_told_by_the_next_one(sick: Service, bed: Bed, part: str) -> None:
    if sick.launcher[-1] == "poll":
        # A moment later, when the attach may have been done.
        sick.command("attach", bed.bridge)
    else:
        error = refusal(sick, "attach", bed.bridge)
        assert error.startswith("ovs-lbt: the service closed the connection: ")
    assert sick.ended() == 1
    sick.launcher = []
    sick.start()
    told(sick, part)


@pytest.mark.parametrize(("sick", "part"), REFUSING.items(), indirect=["sick"])
def test_an_attach_that_is_not_done_for_it_says_so(sick: Service, bed: Bed, part: str) -> None:
    assert INJECTED in refusal(sick, "attach", bed.bridge)
    told(sick, part)
    assert sick.alive


@pytest.mark.parametrize(
    ("sick", "part"),
    [(fault, fault) for fault in ("forwarding", "echoes")],
    indirect=["sick"],
)
def test_an_attach_is_done_all_the_same(sick: Service, bed: Bed, part: str) -> None:
    """Without what a switch need not tell, and with what is started anew."""
    sick.do("attach", bed.bridge)
    told(sick, part)
    assert sick.show_json(bed.bridge)["connected"]


@pytest.mark.parametrize("sick", ["listener"], indirect=True)
def test_what_takes_calls_starts_anew(sick: Service, bed: Bed) -> None:
    sick.kill()
    port = free_tcp_port()
    sick.options = ["--listen", f"127.0.0.1:{port}"]
    sick.start()
    told(sick, "listener")
    bed.ovs.vsctl("set-controller", bed.bridge, f"tcp:127.0.0.1:{port}")
    caller = f"127.0.0.1: no attached bridge has datapath id {'[0-9a-f]' * 16}"
    wait_until(lambda: re.search(caller, sick.log.read_text()), "a call is taken")
    bed.ovs.vsctl("del-controller", bed.bridge)
