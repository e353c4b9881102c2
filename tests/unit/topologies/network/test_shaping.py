"""Queues of links: as long as on a switch, but within the buffer of the sending socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topologies.network import shaping

# The default of the kernel.
DEFAULT_BYTES = 212_992
FRAME_BYTES, FRAME_FOOTPRINT_BYTES = 1514, 2304


@pytest.fixture
def send_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "wmem_default"
    path.write_text(f"{DEFAULT_BYTES}\n")
    monkeypatch.setattr(shaping, "SEND_BUFFER", path)
    return path


@pytest.mark.parametrize(("links", "frames"), [(0, 92), (1, 92), (2, 46), (4, 23)])
def test_queues_share_the_default_buffer(send_buffer: Path, links: int, frames: int) -> None:
    assert shaping.queue_bytes(links) // FRAME_BYTES == frames


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.integers(1, 64), buffer_bytes=st.integers(4096, 64 * 2**20))
def test_the_frames_of_all_queues_fit_into_the_buffer(
    send_buffer: Path, links: int, buffer_bytes: int
) -> None:
    send_buffer.write_text(f"{buffer_bytes}\n")
    queue_bytes = shaping.queue_bytes(links)
    assert queue_bytes <= shaping.QUEUE_BYTES, "the queue is longer than on a switch"
    assert links * (queue_bytes // FRAME_BYTES) * FRAME_FOOTPRINT_BYTES <= buffer_bytes
    # One more frame in each queue would not fit.
    one_more = links * (queue_bytes + FRAME_BYTES) / FRAME_BYTES * FRAME_FOOTPRINT_BYTES
    assert queue_bytes == shaping.QUEUE_BYTES or one_more > buffer_bytes


def test_links_as_fast_as_the_machine_are_not_shaped() -> None:
    assert shaping.is_shaped(100 * 10**6)
    assert shaping.is_shaped(10**9)
    assert not shaping.is_shaped(10 * 10**9)
