"""What a hostile switch may say: its connection ends, and nothing else does."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest

from controller.api.events import DatabaseRead, SwitchConnected
from controller.dataplane.specs import flow
from controller.dataplane.tables import Kind, Table, cookie
from controller.openflow import replies
from controller.openflow.messages import Asked
from tests.unit.controller.openflow import switch_bytes
from tests.unit.fuzz import session
from tests.unit.fuzz.rig import Rig

PORT_STATS, FLOWS, GROUPS = 4, 1, 7
MASKED = flow(
    Table.LOCATION,
    10,
    {"eth_dst": ("52:54:00:00:00:01", "ff:ff:ff:00:00:00")},
    cookie=cookie(Kind.LEARNED, 10),
)


def hostile(*said: bytes, dialled: bool = True) -> Rig:
    rig = Rig()
    rig.hear([*session.handshake(), *said], dialled)
    rig.check()
    return rig


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "controller.openflow.framework"]


def test_a_good_session_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    hostile(*session.answers())
    assert refused(caplog) == []


@pytest.mark.parametrize(
    "said",
    [
        session.multipart(Asked.PORTS, PORT_STATS, [session.port_stats(1, 5)]),
        [m for a in (Asked.TO_VM, Asked.FROM_VM) for m in session.multipart(a, FLOWS, [])],
    ],
    ids=["ports", "units"],
)
def test_counters_that_nobody_asked_for_do_no_harm(said: list[bytes]) -> None:
    hostile(*said)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(
            session.multipart(Asked.PORTS, FLOWS, [session.flow_stats(MASKED)]),
            "statistics of type 1; expected type 4",
            id="flows in answer to what ports counted",
        ),
        pytest.param(
            session.multipart(Asked.LEARNED, FLOWS, [session.flow_stats(MASKED)]),
            "statistics cannot be read: ValueError(",
            id="half an address learned",
        ),
        pytest.param(
            session.multipart(Asked.GROUPS, GROUPS, [bytes(8)]),
            "a structure of 0 bytes; expected 8 to 8",
            id="a group of nothing, which would be read for ever",
        ),
        pytest.param(
            [switch_bytes.message(12, 0, bytes(72), version=1)],
            "OpenFlow version 1; expected 4",
            id="a port status of OpenFlow 1.0",
        ),
    ],
)
def test_what_cannot_be_read_ends_its_connection(
    said: Iterable[bytes], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    hostile(*said)
    (line,) = refused(caplog)
    assert line.startswith(f"br0: {why}")


def test_a_stranger_who_dials_has_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    hostile(*session.answers(), dialled=False)
    assert refused(caplog) == []


def test_an_answer_that_never_ends_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replies, "MOST_BYTES", 5000)
    body = struct.pack("!HH4x", PORT_STATS, 1) + session.port_stats(1, 5) * 6
    part = switch_bytes.message(19, Asked.PORTS, body)
    hostile(*[part] * 9)
    (line,) = refused(caplog)
    assert "the reply has more than 5000 bytes" in line


def test_the_rig_notices_what_it_should() -> None:
    rig = Rig()
    rig.good.flows.popitem()
    with pytest.raises(AssertionError):
        rig.check()
    rig = Rig()
    rig._events.put(DatabaseRead(()))
    rig._events.put(SwitchConnected("br1", ()))
    rig.proceed()
    with pytest.raises(AssertionError):
        rig.check()
