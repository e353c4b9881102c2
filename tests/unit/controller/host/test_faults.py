"""What becomes of a part of the service that fails, and who is told."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ovs.db import idl
from ovsdbapp.backend.ovs_idl import idlutils

import controller
from controller import one_shot
from controller.api.engine_commands import AddSelectGroup, Reply, SetPortFlags, Shape
from controller.api.events import (
    Event,
    Faulted,
    ForwardingRead,
    PortFlagsSet,
    Request,
    SelectGroupAdded,
    Shaped,
)
from controller.api.history import Names
from controller.cli.top import feed
from controller.host import client, control, faults, forwarding, journal, qdisc
from controller.host.faults import Ledger
from controller.metrics import scrapes
from controller.openflow import framework, side_connection
from controller.openflow.connections import Dialer
from controller.openflow.framing import HEADER
from controller.ovsdb import database
from controller.ovsdb.replica import Replica
from controller.text.wording import OUR_LOG, Refused
from tests.unit.fuzz.targets import _call, _Served

WAIT_S = 5.0


class Told:
    """What a ledger tells, and whether it has ended the process."""

    def __init__(self) -> None:
        self.faults: list[Faulted] = []
        self.ended = threading.Event()

    def counts(self) -> list[tuple[str, int]]:
        return [(fault.part, fault.count) for fault in self.faults]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """The process's own ledger, empty, and threads that start anew at once."""
    monkeypatch.setattr(faults, "PAUSES_S", (0.0,))
    seen = Told()
    faults.LEDGER.open(tmp_path / "faults", seen.faults.append, seen.ended.set)
    yield seen
    faults.LEDGER.__init__()  # type: ignore[misc]


def broken(*_: object, **__: object) -> None:
    raise AttributeError("module 'ovs' has no attribute 'x'")


FOUND = "AttributeError: module 'ovs' has no attribute 'x'"
ANSWER = f"{FOUND}, a bug in ovs-lbt; {OUR_LOG}"


# ---- the three kinds of threads --------------------------------------------------------


def test_what_is_vital_ends_the_process_and_is_logged_with_its_stack(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    faults.vital("engine", "engine", broken).join(WAIT_S)
    assert told.ended.is_set() and told.counts() == [("engine", 1)]
    (line,) = caplog.records
    assert line.levelno == logging.CRITICAL and line.exc_info
    assert line.getMessage().startswith(f"a bug in ovs-lbt, not in the switch: engine: {FOUND}")


def test_what_lasts_starts_anew_until_it_returns(told: Told) -> None:
    runs: list[int] = []

    def run() -> None:
        runs.append(len(runs))
        if len(runs) < 4:
            broken()

    faults.lasting("lines", "line br0", run).join(WAIT_S)
    assert runs == [0, 1, 2, 3] and not told.ended.is_set()
    assert told.counts() == [("lines", 1), ("lines", 2), ("lines", 3)]
    assert told.faults[0].text == f"line br0: {FOUND}"


@pytest.mark.parametrize(
    ("each_took_s", "pauses_s"), [(0.0, [0.1, 1.0, 30.0, 30.0]), (100.0, [0.1, 0.1, 0.1, 0.1])]
)
def test_what_fails_again_and_again_starts_anew_later_each_time_but_not_after_it_has_run_long(
    told: Told, monkeypatch: pytest.MonkeyPatch, each_took_s: float, pauses_s: list[float]
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(faults, "PAUSES_S", (0.1, 1.0, 30.0))
    now_s = count(step=each_took_s)
    clock = SimpleNamespace(time=lambda: 0.0, monotonic=lambda: next(now_s), sleep=paused.append)
    monkeypatch.setattr(faults, "time", clock)
    runs = iter([broken, broken, broken, broken, lambda: None])
    faults._again("echoes", "echoes", lambda: next(runs)())
    assert paused == pauses_s


def test_one_command_that_fails_is_answered(told: Told) -> None:
    answers: list[str] = []
    faults.once("shaping", "shape br0", broken, answers.append).join(WAIT_S)
    assert answers == [f"shape br0: {ANSWER}"]
    assert told.counts() == [("shaping", 1)] and not told.ended.is_set()


def test_a_thread_that_nobody_watches_ends_the_process(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    threading.excepthook = faults.uncaught
    library = threading.Thread(target=broken, name="a library's")
    library.start()
    library.join(WAIT_S)
    assert told.ended.is_set() and told.counts() == [("other", 1)]
    assert told.faults[0].text == f"a library's: {FOUND}"


def test_every_thread_of_the_service_is_made_in_one_place() -> None:
    """`top` is no part of it: it asks the service."""
    package = Path(controller.__file__).parent
    made = {path for path in package.rglob("*.py") if "threading.Thread(" in path.read_text()}
    assert made == {Path(faults.__file__), package / "cli/top/feed.py"}


# ---- the ledger ------------------------------------------------------------------------


def test_a_service_tells_of_what_ended_the_one_before(tmp_path: Path) -> None:
    before, after = Told(), Told()
    ledger = Ledger()
    ledger.open(tmp_path / "faults", before.faults.append, before.ended.set)
    ledger.report("engine", ValueError("x"), ends=True)
    anew = Ledger()
    anew.open(tmp_path / "faults", after.faults.append, after.ended.set)
    assert before.ended.is_set() and after.faults == before.faults
    assert anew.counts()["engine"] == 1 and not after.ended.is_set()
    anew.report("engine", ValueError("y"))
    assert anew.counts()["engine"] == 2 and set(anew.counts()) == set(faults.PARTS)


@pytest.mark.parametrize(
    "damaged", ["", "[]", "7", '{"engine": 1}', '{"engine": ["x", 1, ""]}', '{"engine": [1, 2]}']
)
def test_a_file_that_is_damaged_is_no_reason_not_to_start(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "faults"
    path.write_text(damaged)
    ledger = Ledger()
    ledger.open(path, lambda _: None, lambda: None)
    assert not any(ledger.counts().values())
    ledger.report("engine", ValueError("x"))
    assert ledger.counts()["engine"] == 1


def test_what_cannot_be_kept_is_told_all_the_same(tmp_path: Path) -> None:
    told, ledger = Told(), Ledger()
    ledger.open(tmp_path / "none" / "faults", told.faults.append, told.ended.set)
    ledger.report("metrics", ValueError("x\ny"))
    assert [fault.text for fault in told.faults] == [r"metrics: ValueError: x\ny"]


# ---- each part of one command ----------------------------------------------------------


def answered(begin: Callable[[Callable[[Event], None]], None]) -> Event:
    """What a part submits in the end."""
    there, found = threading.Event(), list[Event]()

    def submit(event: Event) -> None:
        found.append(event)
        there.set()

    begin(submit)
    assert there.wait(WAIT_S), "no answer"
    return found[0]


def test_who_waits_for_what_normal_has_learned_is_answered(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_fdb", broken)
    read = answered(lambda submit: forwarding.read_forwarding("br0", submit))
    assert read == ForwardingRead("br0", (), f"forwarding br0: {ANSWER}")
    assert told.counts() == [("forwarding", 1)]


@pytest.mark.parametrize(
    ("part", "exchange", "command", "answer"),
    [
        (
            *("port-flags", "set_port_flags", SetPortFlags("br0", 7, frozenset({1}), frozenset())),
            PortFlagsSet("br0", 7, frozenset(), error=f"port flags br0: {ANSWER}"),
        ),
        (
            *("select-group", "add_select_group", AddSelectGroup("br0", 7)),
            SelectGroupAdded("br0", 7, f"select group br0: {ANSWER}"),
        ),
    ],
    ids=["port-flags", "select-group"],
)
def test_who_waits_for_a_side_connection_is_answered(
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    exchange: str,
    command: SetPortFlags | AddSelectGroup,
    answer: Event,
) -> None:
    monkeypatch.setattr(side_connection, exchange, broken)
    wire: Any = SimpleNamespace(close=lambda: None)
    assert answered(lambda submit: side_connection.start(lambda: wire, command, submit)) == answer
    assert told.counts() == [(part, 1)]


def test_who_waits_for_queues_is_answered(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdisc, "read", broken)
    command = Shape("br0", (("eth1", None),), frozenset())
    read = answered(lambda submit: qdisc.Qdiscs(submit, beside_the_switch=True).start(command))
    assert isinstance(read, Shaped)
    assert [device.error for device in read.devices] == [f"shape br0: {ANSWER}"]


def test_who_asks_for_the_history_is_answered_and_so_is_the_next(
    told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = journal.Journal(tmp_path / "history")
    replies: list[Reply] = []
    there = threading.Semaphore(0)

    def reply(answer: Reply) -> None:
        replies.append(answer)
        there.release()

    monkeypatch.setattr(journal, "answer", broken)
    kept.ask(Request(1, ("history",)), Names(), reply)
    assert there.acquire(timeout=WAIT_S)
    monkeypatch.setattr(kept._file, "emit", broken)
    kept.write("{}")
    monkeypatch.setattr(journal, "answer", lambda *_: "all")
    kept.ask(Request(2, ("history",)), Names(), reply)
    assert there.acquire(timeout=WAIT_S)
    assert replies == [Reply(1, f"history: {ANSWER}", refused=True), Reply(2, "all")]
    assert told.counts() == [("history", 1), ("history", 2)]


def test_a_line_that_fails_dials_again(told: Told) -> None:
    dialled = threading.Semaphore(0)

    def dial() -> None:
        dialled.release()
        broken()

    line = Dialer("br0", dial)  # type: ignore[arg-type]
    assert all(dialled.acquire(timeout=WAIT_S) for _ in range(3))
    line.stop()
    line._thread.join(WAIT_S)
    assert ("lines", 2) in told.counts() and not told.ended.is_set()


# ---- the framework, and scrapes --------------------------------------------------------


def test_a_handler_that_fails_ends_its_connection(told: Told) -> None:
    refused: list[str] = []
    brick = SimpleNamespace(
        send_event_to_observers=lambda *_: None, get_handlers=lambda *_: [broken]
    )
    switch: Any = SimpleNamespace(
        bridge="br0", refused=False, refuse=refused.append, state=None, ofp_brick=brick
    )
    for name in ("takes", "refuse_unread", "_parsed"):
        setattr(switch, name, getattr(framework.Connection, name).__get__(switch))
    switch.takes = lambda *_: True
    barrier = framework.ofproto.OFPT_BARRIER_REPLY
    framework.Connection._handle(switch, 4, barrier, 1, HEADER.pack(4, barrier, 8, 1))
    assert refused == [f"message of type {barrier} of br0: {ANSWER}"]
    assert told.counts() == [("openflow", 1)]


def test_a_switch_is_not_blamed_for_what_we_cannot_read(told: Told) -> None:
    refused: list[str] = []
    switch: Any = SimpleNamespace(bridge="br0", refused=False, refuse=refused.append)
    framework.Connection.refuse_unread(switch, "port_stats", AttributeError("x"))
    framework.Connection.refuse_unread(switch, "port_stats", ValueError("7"))
    assert refused == [
        f"port_stats of br0: AttributeError: x, a bug in ovs-lbt; {OUR_LOG}",
        "port_stats cannot be read: ValueError('7')",
    ]
    assert told.counts() == [("openflow", 1)]


@pytest.mark.parametrize(
    ("error", "status", "counted"),
    [
        pytest.param(AttributeError("x"), "500 ", [("metrics", 1)], id="fault"),
        pytest.param(TimeoutError("no picture in 5 s"), "503 ", [], id="busy"),
    ],
)
def test_a_scrape_that_fails_says_why(
    told: Told, error: Exception, status: str, counted: list[tuple[str, int]]
) -> None:
    started: list[str] = []

    def application(*_: object) -> list[bytes]:
        raise error

    said = scrapes._watched(application)({}, lambda line, _: started.append(line))
    assert started[0].startswith(status) and str(error) in said[0].decode()
    assert told.counts() == counted


# ---- who asks the service --------------------------------------------------------------


def test_a_look_of_tops_that_fails_is_told_and_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[feed.News] = []
    answers = feed.Feed(told.append, 1.0)
    monkeypatch.setattr(feed, "read", broken_otherwise)
    assert answers._news() == "ZeroDivisionError: x, a bug in top"
    monkeypatch.setattr(client, "ask", broken_otherwise)
    answers._carry_out(("move", "vnet0", "eth1"))
    (answer,) = told
    assert isinstance(answer, feed.Answer) and answer.refused
    assert answer.text == "ZeroDivisionError: x, a bug in top"


def broken_otherwise(*_: object, **__: object) -> None:
    raise ZeroDivisionError("x")


@pytest.mark.parametrize(
    ("going_on", "said"),
    [
        (False, "ovs-lbt: ovs-lbt itself failed; see the error above"),
        (True, "ovs-lbt: the switch or the database did not answer within 0 s"),
    ],
)
def test_a_request_without_a_service_says_whose_fault_it_is(
    capsys: pytest.CaptureFixture[str], going_on: bool, said: str
) -> None:
    assert one_shot.OneAnswer(lambda _: None, "", 0.0).serve(lambda: going_on) == 1
    assert capsys.readouterr().err.startswith(said)


def test_a_request_that_nobody_answers_is_not_put_down_to_the_switch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.0)
    served = _Served(str(tmp_path / "ctl"))
    caller = _call(str(tmp_path / "ctl"))
    caller.sendall(b'{"id":0,"method":"lbt/history","params":[]}')
    served.turn()
    served._expire()
    served.turn()
    answer = caller.recv(4096).decode()
    caller.close()
    served.close()
    assert "not completed within 0 s; " in answer and "journalctl -u ovs-lbt" in answer
    assert "a switch that answers" not in answer


# ---- the database ----------------------------------------------------------------------


def test_a_database_is_not_away_when_we_fail_to_reach_it(
    told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "db.sock").touch()
    monkeypatch.setattr(idlutils, "get_schema_helper", broken)
    with pytest.raises(Refused, match=re.escape(f"replica: {ANSWER}")):
        database.Database(f"unix:{tmp_path}/db.sock", lambda _: None)
    assert told.counts() == [("database", 1)]


def test_a_message_that_the_library_cannot_take_has_the_copy_read_anew(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconnects: list[Replica] = []
    monkeypatch.setattr(Replica, "force_reconnect", lambda made: reconnects.append(made))
    monkeypatch.setattr(idl.Idl, "run", broken)
    made = object.__new__(Replica)
    assert made._follow_server() is False
    assert reconnects == [made] and told.counts() == [("database", 1)]
    assert not told.ended.is_set()


@pytest.mark.parametrize("call", [lambda made: made.run(), lambda made: made.wait(None)])
def test_what_fails_of_our_copy_ends_the_process_and_its_thread(
    told: Told, call: Callable[[Replica], None]
) -> None:
    """The library would log an exception, and go on without what was to be told."""
    with pytest.raises(SystemExit):
        # It has no attributes.
        call(object.__new__(Replica))
    assert told.ended.is_set() and told.counts() == [("database", 1)]
