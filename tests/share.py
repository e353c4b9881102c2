"""The part of the processors that a session of processes gets.

Linux shares them out among sessions first (`sched_autogroup`), and only then among the processes of each.
Every ovs-vswitchd of the tests has a session of its own, so the niceness of a process says nothing of its
part beside that of other sessions. A measurement gives its own session and those of its switches the same.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

# As much as nine sessions of niceness 0 together.
OF_TESTS = -10
OWN = Path("/proc/self/autogroup")


def give(pid: int, niceness: int) -> None:
    """Give the session of another process a niceness, where the system has one for sessions."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def take(niceness: int) -> int | None:
    """Give the session of this process a niceness. Returns that before; None if the system has none."""
    with contextlib.suppress(OSError):
        before = int(OWN.read_text().rpartition(" ")[2])
        OWN.write_text(str(niceness))
        return before
    return None
