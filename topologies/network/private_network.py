"""A private network namespace for this process and everything it starts, and the counters of its interfaces.

Names of bridges and interfaces cannot clash with those of the machine or of another bench. However
the process ends, the kernel removes them when its last member is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def private_network() -> Iterator[None]:
    """Enter a new, empty network namespace during the context.

    The namespace applies to the calling thread and to the processes that it starts. Read interface
    counters from /proc/thread-self/net/dev, because /sys still shows the old namespace.

    Raises:
        OSError: not permitted, or not supported by this kernel.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_LIBC.unshare(CLONE_NEWNET))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _checked(_LIBC.setns(before, CLONE_NEWNET))
    finally:
        os.close(before)


@contextlib.contextmanager
def process_network(pid: int) -> Iterator[None]:
    """Enter another process's network namespace during the context.

    The namespace applies to the calling thread. Sockets stay in the namespace that they were
    created in.

    Raises:
        OSError: the process does not exist, or the change is not permitted.
    """
    with open("/proc/thread-self/ns/net") as before, open(f"/proc/{pid}/ns/net") as there:
        _checked(_LIBC.setns(there.fileno(), CLONE_NEWNET))
        try:
            yield
        finally:
            _checked(_LIBC.setns(before.fileno(), CLONE_NEWNET))


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of an interface."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


def interface_counters(process: int | str = "thread-self") -> dict[str, Counters]:
    """The counters of every interface of a network namespace: this thread's, or that of another process.

    They come from the kernel, so that they do not depend on a service under test. /sys would show
    the namespace in which it was mounted; /proc shows the thread's.
    """
    found = {}
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]:
        name, _, fields = line.partition(":")
        numbers = [int(field) for field in fields.split()]
        found[name.strip()] = Counters(numbers[8], numbers[0], numbers[9], numbers[1])
    return found
