"""The counters of interfaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of an interface."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


def interface_counters() -> dict[str, Counters]:
    """The counters of every interface of this thread's network namespace.

    They come from the kernel, so that they do not depend on a service under test. /sys would show
    the namespace in which it was mounted; /proc shows the thread's.
    """
    found = {}
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, _, fields = line.partition(":")
        numbers = [int(field) for field in fields.split()]
        found[name.strip()] = Counters(numbers[8], numbers[0], numbers[9], numbers[1])
    return found
