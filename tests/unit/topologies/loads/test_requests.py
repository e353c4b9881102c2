"""Transfers over the loopback: all bytes arrive, and what does not end does not look fast."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from topologies.loads import traffic
from topologies.loads.traffic import CHUNK_BYTES, NOT_STARTED


def _plan(port: int, sizes_bytes: list[int], longest_s: float = 20.0) -> dict[str, Any]:
    start_s = time.monotonic() + 0.05
    return {
        "start_s": start_s,
        "end_s": start_s + longest_s,
        "measured_s": [0.0, longest_s],
        "port": port,
        "clients": [{"pid": 1, "address": "127.0.0.1"}],
        "flows": [
            {
                "start_s": 0.01 * number,
                "client": 0,
                "port": 0,  # any free one
                "server": "127.0.0.1",
                "size_bytes": size_bytes,
            }
            for number, size_bytes in enumerate(sizes_bytes)
        ],
    }


def _run(plan: dict[str, Any]) -> dict[str, Any]:
    def opened(_pid: int, kind: socket.SocketKind) -> socket.socket:
        made = socket.socket(socket.AF_INET, kind)
        made.setblocking(False)
        return made

    return traffic.request(plan, opened)


def test_every_flow_gets_its_size(server: tuple[str, int]) -> None:
    sizes_bytes = [1, 8, 1448, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5_000_000]
    found = _run(_plan(server[1], sizes_bytes))
    assert [received for _, _, received in found["rows"]] == sizes_bytes
    assert found["received_bytes"] == found["measured_bytes"] == sum(sizes_bytes)
    for late_s, duration_s, _ in found["rows"]:
        assert late_s >= 0
        assert 0 < duration_s < 10


def test_flow_without_an_answer_takes_until_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = _run(_plan(silent.getsockname()[1], [1000], longest_s=0.4))
    ((late_s, duration_s, received_bytes),) = found["rows"]
    assert received_bytes == 0
    assert late_s + duration_s >= 0.39


def test_refused_connection_takes_until_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    begin_s = time.monotonic()
    found = _run(_plan(port, [1000], longest_s=30.0))
    assert time.monotonic() - begin_s < 10, "nobody waits for it"
    ((_, duration_s, received_bytes),) = found["rows"]
    assert received_bytes == 0
    assert duration_s == pytest.approx(30, abs=1)


def test_only_the_measured_part_is_measured_and_nothing_starts_after_the_end(
    server: tuple[str, int],
) -> None:
    plan = _plan(server[1], [1000, 1000, 1000], longest_s=1.0)
    plan["flows"][1]["start_s"], plan["flows"][2]["start_s"] = 0.6, 1.2
    plan["measured_s"] = [0.5, 1.0]
    found = _run(plan)
    assert [late_s == NOT_STARTED for late_s, _, _ in found["rows"]] == [False, False, True]
    assert (found["received_bytes"], found["measured_bytes"]) == (2000, 1000)
