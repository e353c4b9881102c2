"""The part of the processors that a session of processes gets.

Linux shares them out among sessions first (`sched_autogroup`), and only then among the processes of each.
Every ovs-vswitchd of the tests has a session of its own, so the niceness of a process says nothing of its
part beside that of other sessions. A measurement gives its own session and those of its switches the same.
"""

from __future__ import annotations

from topologies.network import processes

# As much as nine sessions of niceness 0 together.
OF_MEASUREMENTS = -10


def give(pid: int, niceness: int = OF_MEASUREMENTS) -> None:
    """Give the session of a process a niceness, where the system has one for sessions."""
    processes.set_session_niceness(pid, niceness)
