"""The web load: the number of sessions, their starts, and the steps of a session."""

from __future__ import annotations

from collections import Counter

import pytest

from topologies.loads import web_load

SERVERS = 4


def test_sessions_offer_the_load_and_ramp_linearly_and_equally_on_all_servers() -> None:
    sessions = web_load.plan_sessions([1.0] * SERVERS, 130e6, ramp_s=40.0, seed=1)
    assert len(sessions) * web_load.wire_bps_per_session() == pytest.approx(130e6, rel=0.02)
    assert len(set(Counter(server for server, _ in sessions).values())) == 1
    begun = [sum(s["begin_s"] < at_s for _, s in sessions) for at_s in (10, 20, 30, 40)]
    quarter = len(sessions) / 4
    assert begun == pytest.approx([quarter, 2 * quarter, 3 * quarter, len(sessions)], abs=1)
    for at_s in (7.0, 19.0, 33.0):
        by_server = Counter(server for server, s in sessions if s["begin_s"] < at_s)
        assert max(by_server.values()) - min(by_server.values()) <= 1
