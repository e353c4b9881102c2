"""Live migration: what it copies again, when a VM stops, its handover, and the figures."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Any

import pytest

from topologies.loads import migration_load
from topologies.loads.migration_load import PAGE_BYTES, Migrations, copy, written_pages
from topologies.loads.probing import Flow, FlowResult

Connect = Callable[[int], socket.socket]


def test_a_vm_stops_when_the_remaining_bytes_fit_the_allowed_blackout() -> None:
    # 1 MB/s in 0.3 s.
    assert migration_load.may_stop(300_000, 8e6)
    assert not migration_load.may_stop(300_001, 8e6)
    assert migration_load.may_stop(0, 0.0)


def test_written_pages_are_those_that_random_writes_meet() -> None:
    chance = random.Random(1)
    for count in (0, 100, 1000, 5000):
        drawn = [len(set(chance.choices(range(1000), k=count))) for _ in range(20)]
        assert written_pages(1000, count) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


@pytest.fixture
def connect(server: tuple[str, int]) -> Connect:
    """Connects to a running source."""
    return lambda _number: socket.create_connection(server)


MIGRATIONS = Migrations(256 * PAGE_BYTES, dirty_bps=0.0, at_once=2, connections=2)
VMS = ["vm1", "vm2", "vm3"]


@pytest.mark.parametrize("connections", [1, 3])
def test_all_pages_arrive_over_all_connections(connect: Connect, connections: int) -> None:
    opened = [connect(number) for number in range(connections)]
    for pages in (200, 0, 7, 32):
        assert copy(opened, pages)["copied_bytes"] == pages * PAGE_BYTES
    for one in opened:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)  # all that was requested has been read
        one.close()


def test_a_migration_fails_if_the_source_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        listener.accept()[0].close()
        with connection, pytest.raises(OSError, match=r"clos|reset|Broken"):
            copy([connection], 50)


def test_every_vm_migrates_with_its_port(connect: Connect) -> None:
    moved: list[str] = []

    def move(vm: str) -> tuple[float, float]:
        moved.append(vm)
        return 1.0, 2.0

    migrated = migration_load.migrate_all(VMS, MIGRATIONS, connect, move)
    assert [one["vm"] for one in migrated] == VMS
    assert sorted(moved) == VMS
    for one in migrated:
        # Without writes, one round copies all pages, and none is left after the stop.
        assert [part["copied_bytes"] for part in one["rounds"]] == [256 * PAGE_BYTES, 0]
        assert one["start_s"] <= one["stopped_s"] <= one["copied_s"] <= one["moved_s"]
        assert (one["port_left_s"], one["port_arrived_s"]) == (1.0, 2.0)
    # The third VM had to wait until the port of another VM had moved.
    assert migrated[2]["start_s"] >= min(migrated[0]["moved_s"], migrated[1]["moved_s"])


def test_a_migration_fails_if_the_port_does_not_move(connect: Connect) -> None:
    def refuse(vm: str) -> tuple[float, float]:
        raise RuntimeError(f"{vm} stays")

    with pytest.raises(RuntimeError, match="vm1 stays"):
        migration_load.migrate_all(VMS[:1], MIGRATIONS, connect, refuse)


MAC = bytes.fromhex("02aabbccddee")


def _migration(vm: str, start_s: float, copied_s: float, left_s: float) -> dict[str, Any]:
    rounds = [
        {"copied_bytes": 900, "start_s": start_s, "end_s": copied_s - 1},
        {"copied_bytes": 100, "start_s": copied_s - 0.25, "end_s": copied_s},
    ]
    stopped_s = copied_s - 0.25
    return {
        "vm": vm,
        "start_s": start_s,
        "stopped_s": stopped_s,
        "copied_s": copied_s,
        "port_left_s": left_s,
        "port_arrived_s": left_s + 0.1,
        "moved_s": copied_s + 0.5,
        "rounds": rounds,
    }


def _flow(start_s: float, end_s: float, silent: tuple[float, float]) -> FlowResult:
    """A flow of a datagram every 0.1 s, which loses the datagrams of a span."""
    times_s = [start_s + n / 10 for n in range(round((end_s - start_s) * 10) + 1)]
    arrivals = [(n, at) for n, at in enumerate(times_s) if not silent[0] < at < silent[1]]
    return FlowResult(len(times_s), start_s, end_s, arrivals)


def test_figures_of_migrations() -> None:
    migrations = [_migration("vm1", 100.0, 104.0, 104.1), _migration("vm2", 101.0, 110.0, 110.1)]
    to_vm1, from_vm1 = Flow("client1", "vm1", "10.0.0.1"), Flow("vm1", "client1", "10.0.0.9")
    to_vm2, from_vm2 = Flow("client1", "vm2", "10.0.0.2"), Flow("vm2", "client1", "10.0.0.9")
    probes = {
        to_vm1: _flow(100.0, 115.0, (104.05, 104.55)),
        from_vm1: _flow(100.0, 115.0, (104.05, 104.25)),
        # This gap ends long before the handover, so it does not count.
        to_vm2: _flow(100.0, 115.0, (102.05, 104.95)),
        from_vm2: _flow(100.0, 115.0, (110.05, 110.95)),
    }
    found = migration_load.outcome(migrations, probes)
    assert found.received_bytes == 2000
    assert found.throughput_bps == pytest.approx(2000 * 8 / 10)
    assert found.figures["migration_s"] == pytest.approx((4.5 + 9.5) / 2)
    assert found.figures["total_s"] == pytest.approx(10.5)
    assert found.figures["precopy_rounds"] == 1
    assert found.figures["stopped_ms"] == pytest.approx(250)
    assert found.figures["blackout_ms"] == pytest.approx((600 + 1000) / 2)
    assert found.figures["worst_blackout_ms"] == pytest.approx(1000)
    assert found.figures["longest_gap_ms"] == pytest.approx(3000)
    first = found.details[0]
    assert first["vm"] == "vm1"
    assert first["blackout_ms"] == {"to": pytest.approx(600), "from": pytest.approx(300)}
