"""Memory pre-copy: how much it copies again, when the VM stops, and that everything arrives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from topologies.loads import memory_copy
from topologies.loads.memory_copy import PAGE_BYTES, Plan, Receiver, Sender


def test_a_vm_stops_when_the_remaining_bytes_fit_the_allowed_blackout() -> None:
    # 1 MB/s in 0.3 s.
    assert memory_copy.may_stop(300_000, 8e6, 0.3)
    assert not memory_copy.may_stop(300_001, 8e6, 0.3)
    assert memory_copy.may_stop(0, 0.0, 0.3)


@contextlib.contextmanager
def _receiver() -> Iterator[int]:
    """Run a receiver. Yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=Receiver(listener).run, daemon=True)
        receiver.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        receiver.join(5)


PLAN = Plan(
    networks=["127.0.0.1"],
    port=0,
    vms=["vm1", "vm2", "vm3"],
    at_once=2,
    connections=2,
    memory_bytes=256 * PAGE_BYTES,
    dirty_bps=0.0,
    allowed_blackout_s=0.3,
    max_rounds=30,
    connect=socket.create_connection,
    move=lambda _vm: None,
)


@pytest.mark.parametrize("connections", [1, 3])
def test_all_pages_arrive_over_all_connections(connections: int) -> None:
    with _receiver() as port:
        plan = replace(PLAN, port=port, connections=connections)
        with contextlib.closing(Sender("vm1", plan)) as sender:
            assert sender.copy(200).copied_bytes == 200 * PAGE_BYTES
            assert sender.copy(0).copied_bytes == 0
            assert sender.copy(7).copied_bytes == 7 * PAGE_BYTES


def test_a_migration_fails_if_bytes_are_missing() -> None:
    with _receiver() as port:
        sender = Sender("vm1", replace(PLAN, port=port, connections=1))
        with contextlib.closing(sender), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sender, "_take", lambda: 0)
            with pytest.raises(RuntimeError, match=f"0 of {50 * PAGE_BYTES} bytes"):
                sender.copy(50)


def test_every_vm_migrates_with_its_port() -> None:
    moved: list[str] = []
    with _receiver() as port:
        migrated = memory_copy.migrate_all(replace(PLAN, port=port, move=moved.append))
    assert [one.vm for one in migrated] == ["vm1", "vm2", "vm3"]
    assert sorted(moved) == ["vm1", "vm2", "vm3"]
    for one in migrated:
        # Without writes, one round copies all pages, and none is left after the stop.
        assert [part.copied_bytes for part in one.rounds] == [256 * PAGE_BYTES, 0]
        assert one.start_s <= one.stopped_s <= one.copied_s <= one.moved_s
    # The third VM had to wait until the port of another VM had moved.
    assert migrated[2].start_s >= min(migrated[0].moved_s, migrated[1].moved_s)


def test_a_migration_fails_if_the_port_does_not_move() -> None:
    def refuse(vm: str) -> None:
        raise RuntimeError(f"{vm} stays")

    with _receiver() as port, pytest.raises(RuntimeError, match="vm1 stays"):
        memory_copy.migrate_all(replace(PLAN, vms=["vm1"], port=port, move=refuse))
