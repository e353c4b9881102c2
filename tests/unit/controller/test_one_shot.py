"""A detach without the service has as much time as a bridge with many VM ports needs."""

from __future__ import annotations

from typing import Any

import pytest

from controller import one_shot
from controller.api.engine_commands import Reply, Write
from controller.api.events import DatabaseRead, Request, Tick, Written
from controller.engine import Engine
from tests.unit.rows import bond, bridge, interface, port


def test_it_waits_until_a_large_bridge_is_detached_while_the_switch_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    class Service:
        def __init__(self, _options: object, answers: Any) -> None:
            made.append(answers(lambda _: None, ""))

        def request(self, request: Request) -> None:
            made.append(request)

    monkeypatch.setattr(one_shot, "Service", Service)
    one_shot.detach("unix:/run/db.sock", "br0")
    answers, request = made
    uplinks = bond(interface("eth1", 1), interface("eth2", 2))
    engine = Engine()
    engine.handle(
        DatabaseRead((bridge(uplinks, *(port(f"vnet{n}", n) for n in range(10, 2010))),)), 0.0
    )
    engine.handle(request, 0.0)
    due_s = engine.deadline_s()
    while not (written := [c for c in engine.handle(Tick(), due_s) if isinstance(c, Write)]):
        due_s = engine.deadline_s()
    assert written[0].request_id is not None
    (reply,) = (c for c in engine.handle(Written(1, None), due_s) if isinstance(c, Reply))
    assert reply.text.startswith("bridge br0: the switch is not connected, so only")
    assert due_s < answers._limit_s
