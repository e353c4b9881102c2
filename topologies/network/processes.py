"""Starts and stops child processes, which end when this process ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

# The kernel stops the child if its parent is killed and cannot clean up.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM", "--")
END_TIMEOUT_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def run(*command: str, env: Mapping[str, str] | None = None, timeout_s: float = 30.0) -> str:
    """Run a command and return its standard output.

    Raises:
        RuntimeError: it exited non-zero; the message has its standard error.
    """
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def wait_until(
    holds: Callable[[], object],
    timeout_s: float,
    problem: Callable[[], str],
    interval_s: float = 0.1,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until a condition holds.

    Raises:
        RuntimeError: it did not in time, with `problem` as message.
    """
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise RuntimeError(problem())
        sleep(interval_s)


def start(
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    *,
    output: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a command in its own session, which Ctrl-C does not reach.

    The log also has its standard output, unless `output` is the file for that.
    """
    with log.open("ab") as errors, output.open("wb") if output else log.open("ab") as results:
        return subprocess.Popen(
            [*DIES_WITH_PARENT, *command],
            env=env,
            stdin=stdin,
            stdout=results,
            stderr=errors,
            start_new_session=True,
        )


def start_in(
    namespace_pid: int, command: Sequence[str], log: Path, *, output: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a command in the network namespace of another process (a Mininet host).

    The command's temporary files are in the directory of its log, so they are removed with the log even
    if the command was interrupted: iperf3 creates a file and then unlinks it.
    """
    entering = ("nsenter", f"--net=/proc/{namespace_pid}/ns/net", "--")
    env = {**os.environ, "TMPDIR": str(log.parent)}
    return start([*entering, *command], log, env, output=output)


def end(process: subprocess.Popen[bytes], signal_number: int = signal.SIGTERM) -> None:
    """Send a signal to a child and wait for its end; kill it after a timeout."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal_number)
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def set_realtime_priority(pid: int, priority: int) -> None:
    """Schedule all threads of a process in real time (SCHED_FIFO) with this priority, where permitted."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may have ended. Threads that the process starts later inherit the priority.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(priority))


def set_session_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process's session relative to other sessions, where permitted.

    Linux divides the CPU among sessions first (`sched_autogroup`). The niceness of a process counts
    only within its session.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process, user and system."""
    # The name in parentheses may contain spaces and parentheses.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return (user_ticks + system_ticks) / _TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(found) * 1024


def children() -> set[int]:
    """The process IDs of all children, including zombies."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, after = path.read_text(errors="replace").rpartition(")")
            if int(after.split()[1]) == os.getpid():
                found.add(int(before.partition(" ")[0]))
    return found


def kill(pids: Iterable[int]) -> None:
    """Kill children and reap them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
