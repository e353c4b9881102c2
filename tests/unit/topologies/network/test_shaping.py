"""Queues of links: as long as on a switch, but within the buffer of the sending socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies.network import shaping

# The default of the kernel, and the frames of 2304 bytes in memory that fit into it.
DEFAULT_BYTES, DEFAULT_FRAMES = 212_992, 92


@pytest.mark.parametrize(
    ("buffer_bytes", "links", "frames"),
    [
        (DEFAULT_BYTES, 0, DEFAULT_FRAMES),
        (DEFAULT_BYTES, 1, DEFAULT_FRAMES),
        (DEFAULT_BYTES, 2, DEFAULT_FRAMES // 2),
        (DEFAULT_BYTES, 4, DEFAULT_FRAMES // 4),
        # No longer than on a switch.
        (64 * 2**20, 4, shaping.QUEUE_BYTES // 1514),
    ],
)
def test_queues_share_the_buffer(
    buffer_bytes: int, links: int, frames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shaping, "SEND_BUFFER", tmp_path / "wmem_default")
    shaping.SEND_BUFFER.write_text(f"{buffer_bytes}\n")
    assert shaping.queue_bytes(links) // 1514 == frames


def test_links_as_fast_as_the_machine_are_not_shaped() -> None:
    assert shaping.is_shaped(10**9)
    assert not shaping.is_shaped(10 * 10**9)
