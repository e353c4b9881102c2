"""The part of the processors that a session of processes gets.

Linux shares them out among sessions first (`sched_autogroup`), and only then among the processes of each.
Every ovs-vswitchd of the tests has a session of its own, so a dozen of them would leave the tests, their
senders and the services under test a thirteenth part together, whatever their own niceness is.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

# As much as nine sessions of niceness 0 together.
OF_TESTS = -10
OWN = Path("/proc/self/autogroup")


def take(niceness: int) -> int | None:
    """Give the session of this process a niceness. Returns that before; None if the system has none."""
    with contextlib.suppress(OSError):
        before = int(OWN.read_text().rpartition(" ")[2])
        OWN.write_text(str(niceness))
        return before
    return None
