"""Child processes that end when we do, and not before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

# A parent that is killed outright cannot clean up: the kernel then ends the child.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM", "--")
END_TIMEOUT_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def start(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command; a Ctrl-C at our terminal does not reach it."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [*DIES_WITH_PARENT, *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def start_in(namespace_pid: int, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command in the network namespace of another process (a Mininet host)."""
    return start(["nsenter", f"--net=/proc/{namespace_pid}/ns/net", "--", *command], log)


def end(process: subprocess.Popen[bytes], signal_number: int = signal.SIGTERM) -> None:
    """End a child and wait until it is gone, by force if it must be."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal_number)
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def undisturb(pid: int, priority: int) -> bool:
    """Let a process, all its threads, run before everything that is not in real time.

    Those of a higher priority come first. False: the machine does not permit it.
    """
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            # Threads that it starts later inherit it.
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(priority))
        except PermissionError:
            return False
        except ProcessLookupError:  # it has ended meanwhile
            continue
    return True


def cpu_s(pid: int) -> float:
    """The CPU time a process has used, all its threads, user and system."""
    # The name is in parentheses and may hold anything; the fields follow it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return (user_ticks + system_ticks) / _TICKS_PER_S


def children() -> set[int]:
    """The processes that are ours, those that have ended and were not reaped included."""
    return {pid for pid, parent, _, _ in _all() if parent == os.getpid()}


def states() -> dict[str, str]:
    """What each child does, by `NAME PID`: the letter that `ps` has for it."""
    return {f"{name} {pid}": state for pid, parent, name, state in _all() if parent == os.getpid()}


def kill(pids: Iterable[int]) -> None:
    """End children by force, and reap them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _all() -> Iterator[tuple[int, int, str, str]]:
    """(process, its parent, its name, its state) of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, after = path.read_text(errors="replace").rpartition(")")
            pid, _, name = before.partition(" (")
            state, parent = after.split()[:2]
            yield int(pid), int(parent), name, state
