"""Memory pre-copy: what is copied again, when the VM stops, and that all of it arrives."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.loads import memory_copy
from topologies.loads.memory_copy import EXTENT_PAGES, PAGE_BYTES, Memory, Outgoing, Plan, Receiver


@given(st.sets(st.integers(0, 500)))
def test_extents_are_the_pages_in_order_and_no_longer_than_they_may_be(pages: set[int]) -> None:
    found = list(memory_copy.extents(sorted(pages)))
    assert [first + i for first, count in found for i in range(count)] == sorted(pages)
    assert all(1 <= count <= EXTENT_PAGES for _, count in found)


def test_neighbouring_pages_go_together() -> None:
    assert list(memory_copy.extents([3, 4, 5, 9])) == [(3, 3), (9, 1)]
    whole = list(memory_copy.extents(range(3 * EXTENT_PAGES + 1)))
    assert [count for _, count in whole] == [EXTENT_PAGES] * 3 + [1]


def test_a_vm_stops_when_what_is_left_fits_the_allowed_blackout() -> None:
    # 1 MB/s for 0.3 s.
    assert memory_copy.may_stop(300_000, 8e6, 0.3)
    assert not memory_copy.may_stop(300_001, 8e6, 0.3)
    assert memory_copy.may_stop(0, 0.0, 0.3)


def test_a_memory_knows_what_was_written_since_it_was_asked() -> None:
    memory = Memory(100 * PAGE_BYTES, seed=1)
    before = [memory.read(page, 1) for page in range(100)]
    assert memory.take_written() == []
    memory.write(30)
    written = memory.written_bytes
    changed = [page for page in range(100) if memory.read(page, 1) != before[page]]
    assert memory.take_written() == changed
    assert written == len(changed) * PAGE_BYTES
    assert memory.take_written() == []


@contextlib.contextmanager
def _receiver() -> Iterator[int]:
    """A receiver that listens; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=Receiver(listener).run, daemon=True)
        receiver.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        receiver.join(5)


@pytest.mark.parametrize("connections", [1, 3])
def test_all_pages_arrive_over_all_connections(connections: int) -> None:
    memory = Memory(200 * PAGE_BYTES, seed=1)
    with _receiver() as port:
        outgoing = Outgoing("vm1", memory, port, ["127.0.0.1", "127.0.0.1"], connections)
        with contextlib.closing(outgoing):
            first = outgoing.copy(range(memory.pages))
            memory.write(20)
            written = memory.take_written()
            second = outgoing.copy(written)
            assert first.copied_bytes == 200 * PAGE_BYTES
            assert second.copied_bytes == len(written) * PAGE_BYTES
            outgoing.verify(first.copied_bytes + second.copied_bytes)


def test_a_memory_that_is_not_the_source_s_is_no_migration() -> None:
    memory = Memory(50 * PAGE_BYTES, seed=1)
    with _receiver() as port:
        outgoing = Outgoing("vm1", memory, port, ["127.0.0.1"], 1)
        with contextlib.closing(outgoing):
            copied = outgoing.copy(range(memory.pages))
            memory.write(1)  # and never sent
            with pytest.raises(RuntimeError, match="digest"):
                outgoing.verify(copied.copied_bytes)


def test_bytes_that_are_missing_are_noticed() -> None:
    memory = Memory(50 * PAGE_BYTES, seed=1)
    with _receiver() as port:
        outgoing = Outgoing("vm1", memory, port, ["127.0.0.1"], 1)
        with contextlib.closing(outgoing):
            outgoing.copy(range(40))
            with pytest.raises(RuntimeError, match=f"{40 * PAGE_BYTES} bytes -> 204800"):
                outgoing.verify(50 * PAGE_BYTES)


@contextlib.contextmanager
def _mover(path: Path, asked: list[str], answer: bytes = b"+") -> Iterator[None]:
    """Somebody who moves ports, and notes whose."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(100).decode())
                    connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        server.join(5)


PLAN = Plan(
    networks=["127.0.0.1"],
    port=0,
    vms=["vm1", "vm2", "vm3"],
    at_once=2,
    connections=2,
    memory_bytes=256 * PAGE_BYTES,
    dirty_bps=0.0,
    allowed_blackout_s=0.3,
    most_rounds=30,
    mover="",
    start_s=0.0,
)


def test_every_vm_migrates_and_has_its_port_moved(tmp_path: Path) -> None:
    asked: list[str] = []
    with _receiver() as port, _mover(tmp_path / "mover", asked):
        migrated = memory_copy.send(replace(PLAN, port=port, mover=str(tmp_path / "mover")))
    assert [one.vm for one in migrated] == ["vm1", "vm2", "vm3"]
    assert sorted(asked) == ["vm1\n", "vm2\n", "vm3\n"]
    for one in migrated:
        # Nothing was written: one round while it ran, and nothing left for its stop.
        assert [part.copied_bytes for part in one.rounds] == [256 * PAGE_BYTES, 0]
        assert one.start_s <= one.stopped_s <= one.copied_s <= one.moved_s
    # Two at once: the third began when one of the others' ports had moved.
    assert migrated[2].start_s >= min(migrated[0].moved_s, migrated[1].moved_s)


def test_a_vm_with_too_much_left_is_stopped_when_rounds_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_copy, "may_stop", lambda *_: False)
    with _receiver() as port, _mover(tmp_path / "mover", []):
        plan = replace(PLAN, vms=["vm1"], most_rounds=3, port=port, mover=str(tmp_path / "mover"))
        (one,) = memory_copy.send(plan)
    assert [part.copied_bytes for part in one.rounds] == [256 * PAGE_BYTES, 0, 0, 0]
    assert one.rounds[2].end_s <= one.stopped_s <= one.rounds[3].start_s


def test_a_port_that_was_not_moved_is_no_migration(tmp_path: Path) -> None:
    with _receiver() as port, _mover(tmp_path / "mover", [], answer=b""):
        plan = replace(PLAN, vms=["vm1"], port=port, mover=str(tmp_path / "mover"))
        with pytest.raises(RuntimeError, match="port of vm1: no answer -> moved"):
            memory_copy.send(plan)


def test_the_vm_writes_as_much_as_it_should() -> None:
    memory = Memory(4096 * PAGE_BYTES, seed=1)
    start_s = time.monotonic()
    with memory_copy.writing(memory, dirty_bps=8e6):
        while memory.written_bytes < 200_000:
            assert time.monotonic() < start_s + 10
            time.sleep(0.01)
    # 1 MB/s; few of the pages were written twice.
    assert time.monotonic() - start_s >= 0.19
