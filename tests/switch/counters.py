"""What interfaces have sent and received."""

from __future__ import annotations

from pathlib import Path

from tests.switch.wire import inside

RECEIVED_BYTES, RECEIVED, SENT_BYTES = 0, 1, 8


def counters(netns: str | None = None) -> dict[str, list[int]]:
    """What interfaces have sent and received, by their names and in the order of /proc/net/dev.

    /proc/self, and /sys, may show another network than that of this thread.
    """
    with inside(netns):
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    rows = (line.partition(":") for line in lines)
    return {name.strip(): list(map(int, counted.split())) for name, _, counted in rows}
