"""The web load: the number of sessions, their starts, and the steps of a session."""

from __future__ import annotations

import contextlib
import select
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from topologies.loads import web_load
from topologies.loads.traffic import KEEP, REQUEST, Download, Session

SERVERS = ["a", "b", "c", "d"]


def test_sessions_offer_the_load_and_ramp_linearly_and_equally_on_all_servers() -> None:
    sessions = web_load.plan_sessions(SERVERS, 130e6, ramp_s=40.0, seed=1)
    assert len(sessions) * web_load.wire_bps_per_session() == pytest.approx(130e6, rel=0.02)
    assert len(set(Counter(session.server for session in sessions).values())) == 1
    begun = [sum(s.begin_s < at_s for s in sessions) for at_s in (10, 20, 30, 40)]
    quarter = len(sessions) / 4
    assert begun == pytest.approx([quarter, 2 * quarter, 3 * quarter, len(sessions)], abs=1)
    for at_s in (7.0, 19.0, 33.0):
        by_server = Counter(s.server for s in sessions if s.begin_s < at_s)
        assert max(by_server.values()) - min(by_server.values()) <= 1


SIZE_BYTES = 10_000
LINE_BPS = 80_000  # the file takes one second


@contextlib.contextmanager
def _requested() -> Iterator[tuple[Session, socket.socket, list[Download]]]:
    """A session that sent its request at time 0, the server's connection, and what it reports."""
    reports: list[Download] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        plan = {
            "port": listener.getsockname()[1],
            "line_bps": LINE_BPS,
            "file_bytes": [SIZE_BYTES],
            "think_mean_s": 1.0,
        }
        session = Session(plan, "127.0.0.1", 1, socket.socket, reports.append)
        session.step(0.0)
        connection, _ = listener.accept()
        with connection:
            # The request follows once the session has seen that it is connected.
            for _ in range(500):
                if select.select([connection], [], [], 0.01)[0]:
                    break
                session.step(0.0)
            connection.settimeout(5)
            assert connection.recv(4096) == REQUEST.pack(SIZE_BYTES | KEEP)
            yield session, connection, reports
        session.close(0.0)


def test_a_session_reads_no_faster_than_its_line() -> None:
    with _requested() as (session, connection, reports):
        connection.sendall(bytes(SIZE_BYTES))
        session.step(0.5)
        assert not reports, "the session has read the whole file in half the time"
        next_s = session.step(1.0)
        assert [(one.complete, one.received_bytes) for one in reports] == [(True, SIZE_BYTES)]
        assert reports[0].end_s - reports[0].start_s == 1.0
        assert 1.5 <= next_s <= 2.5, "the think time is 0.5 to 1.5 times its mean"


def test_a_closed_connection_is_an_incomplete_download() -> None:
    with _requested() as (session, connection, reports):
        connection.close()
        session.step(0.5)
        assert [one.complete for one in reports] == [False]
        assert session.step(2.0) > 2.0, "the session continues"
