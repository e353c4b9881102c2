"""Experiments of a few lines: the layout, what is refused, and what a run shows."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from topologies import layouts
from topologies.compare import running
from topologies.compare.figures import Result
from topologies.compare.run import Scenario
from topologies.experiment import Stream, compare, one_server

LAYOUT = one_server(uplinks_mbps=[100, 50, 50], vms=4)


def test_a_failed_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Result(Scenario("", "", LAYOUT, Mock(), ()), {}, {}, failures=["slb: no switch"])
    monkeypatch.setattr(running, "compare", lambda *_args, **_more: failed)
    with pytest.raises(RuntimeError, match="slb: no switch"):
        compare(LAYOUT, [Stream("vm1")], ["load-based"])


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (Stream("vm5"), r"sender vm5 .*; expected vm1 \| vm2"),
        (Stream("client1"), "sender client1 .*; expected vm1"),
        (Stream("vm1", receiver="client2"), r"receiver client2 .*; expected client1 \| vm1"),
        (Stream("vm1", begin_s=20), "stream from vm1 .* 20 to 20 s; .* 0 to 20 s"),
        (Stream("vm1", end_s=21), "stream from vm1 .* 0 to 21 s; .* 0 to 20 s"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(stream: Stream, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        compare(LAYOUT, [stream], ["load-based"], seconds=20)


def test_a_contender_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"contender fastest .*; expected manual"):
        compare(LAYOUT, [Stream("vm1")], ["fastest"])
    with pytest.raises(ValueError, match="balance-tcp on two_switches: a LAG must end"):
        compare(layouts.two_switches(), [Stream("vm1")], ["balance-tcp"])
