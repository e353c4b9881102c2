"""Memory pre-copy: how much it copies again, when the VM stops, and that everything arrives."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.unit.topologies.loads.running import running_server
from topologies.loads import memory_copy
from topologies.loads.memory_copy import PAGE_BYTES, Migrations, copier, written_pages

Connect = Callable[[int], socket.socket]


def test_a_vm_stops_when_the_remaining_bytes_fit_the_allowed_blackout() -> None:
    # 1 MB/s in 0.3 s.
    assert memory_copy.may_stop(300_000, 8e6)
    assert not memory_copy.may_stop(300_001, 8e6)
    assert memory_copy.may_stop(0, 0.0)


def test_written_pages_are_those_that_random_writes_meet() -> None:
    chance = random.Random(1)
    for count in (0, 100, 1000, 5000):
        drawn = [len(set(chance.choices(range(1000), k=count))) for _ in range(20)]
        assert written_pages(1000, count) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to a running source."""
    with running_server() as address:
        yield lambda _number: socket.create_connection(address)


MIGRATIONS = Migrations(256 * PAGE_BYTES, dirty_bps=0.0, at_once=2, connections=2)
VMS = ["vm1", "vm2", "vm3"]


@pytest.mark.parametrize("connections", [1, 3])
def test_all_pages_arrive_over_all_connections(connect: Connect, connections: int) -> None:
    with copier(connections, connect) as copy:
        assert copy(200)["copied_bytes"] == 200 * PAGE_BYTES
        assert copy(0)["copied_bytes"] == 0
        assert copy(7)["copied_bytes"] == 7 * PAGE_BYTES


def test_a_migration_fails_if_the_source_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def closed(_number: int) -> socket.socket:
            connection = socket.create_connection(listener.getsockname())
            listener.accept()[0].close()
            return connection

        with copier(1, closed) as copy, pytest.raises(OSError, match=r"clos|reset|Broken"):
            copy(50)


def test_every_vm_migrates_with_its_port(connect: Connect) -> None:
    moved: list[str] = []

    def move(vm: str) -> tuple[float, float]:
        moved.append(vm)
        return 1.0, 2.0

    migrated = memory_copy.migrate_all(VMS, MIGRATIONS, connect, move)
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
        memory_copy.migrate_all(VMS[:1], MIGRATIONS, connect, refuse)
