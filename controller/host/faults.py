"""Starts the service's threads, and records their failures for the log, `show` and metrics.

This module starts every thread of the service, so that no failure goes unnoticed. There are three
kinds of threads, which differ in the effect of an unexpected exception:

- `vital`: the engine may be inconsistent, or may no longer receive events. The process ends with
  status 1, and the supervisor restarts it. The switch continues with the installed flows.
- `lasting`: the thread does not hold state of the engine. It is restarted, each time after a longer
  pause.
- `once`: the thread carries out one command. The answer to this command reports the fault.

A thread that was started elsewhere, for example by a library, counts as vital.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from controller.api.events import Faulted
from controller.text.wording import OUR_LOG, Refused, because, one_line

LOG = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# The parts of the service that can fail, as metrics name them.
PARTS = (
    *("engine", "bridge", "commands", "database", "openflow", "lines", "listener", "echoes"),
    *("port-flags", "select-group", "forwarding", "shaping", "history", "metrics", "addresses"),
    "other",
)
# Pauses before a thread starts again; the last pause repeats. After a thread has run for longer than
# the last pause, its next pause is the first one again.
PAUSES_S = (0.1, 1.0, 5.0, 30.0)


# Exceptions that point to a bug in the program rather than to bad input.
OURS = (AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)


NOT_HERE = "the switch is on another host; run a service on that host"
ANOTHER_LEADS = "another service leads"


class Ledger:
    """The faults since this host booted, by part of the service. All methods are thread-safe.

    Faults are saved in a file, because a service that ends due to a fault can report it only
    after its next start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, Faulted] = {}
        self._path: Path | None = None
        self._tell: Callable[[Faulted], None] = lambda _: None
        self._end: Callable[[], None] = lambda: None

    def open(self, path: Path, tell: Callable[[Faulted], None], end: Callable[[], None]) -> None:
        """Load saved faults, and pass them and later faults to `tell`. `end` ends the process."""
        with self._lock:
            self._path, self._tell, self._end = path, tell, end
            self._last = _read(path)
            saved = tuple(self._last.values())
        for fault in saved:
            tell(fault)

    def counts(self) -> Mapping[str, int]:
        """Return the number of faults of each part of the service."""
        with self._lock:
            return {part: self._last[part].count if part in self._last else 0 for part in PARTS}

    def report(
        self,
        part: str,
        error: BaseException,
        name: str = "",
        ends: bool = False,
        again: bool = False,
    ) -> str:
        """Record and log a fault. Return the answer to requests that wait for this part.

        `ends`: the fault ends the process. `again`: the same fault has been logged already.
        """
        found = one_line(f"{name or part}: {type(error).__name__}: {error}")
        becomes = "the process ends and is restarted" if ends else "ovs-lbt continues without it"
        LOG.log(
            logging.CRITICAL if ends else logging.DEBUG if again else logging.ERROR,
            "a bug in ovs-lbt, not in the switch: %s; %s",
            found,
            becomes,
            exc_info=(type(error), error, error.__traceback__),
        )
        with self._lock:
            before = self._last.get(part)
            fault = Faulted(part, found, time.time(), before.count + 1 if before else 1)
            self._last[part] = fault
            self._write()
        self._tell(fault)
        if ends:
            self._end()
        return f"{found}, a bug in ovs-lbt; {OUR_LOG}"

    def _write(self) -> None:
        if self._path is None:
            return
        kept = {f.part: [f.count, f.at_s, f.text] for f in self._last.values()}
        try:
            aside = self._path.with_name(f"{self._path.name}.new")
            aside.write_text(json.dumps(kept))
            aside.replace(self._path)
        except OSError as error:
            LOG.warning("faults cannot be saved: %s: %s", self._path, error.strerror)


def _read(path: Path) -> dict[str, Faulted]:
    """Read the saved faults, by part; empty if the file does not exist or is damaged."""
    try:
        kept = json.loads(path.read_text())
        read = [Faulted(part, str(kept[part][2]), *_times(kept[part])) for part in kept]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError) as error:
        LOG.warning(
            "saved faults cannot be read, so they are ignored: %s: %s", path, one_line(str(error))
        )
        return {}
    return {fault.part: fault for fault in read if fault.part in PARTS}


def _times(entry: list[object]) -> tuple[float, int]:
    count, at_s = entry[0], entry[1]
    if not isinstance(count, int) or not isinstance(at_s, int | float) or count < 1:
        raise ValueError(f"{entry} is invalid; expected a count and a time")
    return float(at_s), count


LEDGER = Ledger()
report = LEDGER.report


def vital(part: str, name: str, run: Callable[[], None]) -> threading.Thread:
    """Start a thread whose failure ends the process."""
    return _start(name, functools.partial(guarded, part, name, run))


def guarded(part: str, name: str, run: Callable[[], None]) -> None:
    """Run a function whose failure ends the process."""
    try:
        run()
    except Exception as error:
        report(part, error, name, ends=True)


def lasting(part: str, name: str, run: Callable[[], None]) -> threading.Thread:
    """Start a thread that calls `run`, again after each failure, until `run` returns."""
    return _start(name, functools.partial(_again, part, name, run))


def once(
    part: str, name: str, run: Callable[[], None], failed: Callable[[str], None]
) -> threading.Thread:
    """Start a thread for one command. If `run` fails, `failed` is called with the answer to report."""

    def guard() -> None:
        try:
            run()
        except Exception as error:
            failed(report(part, error, name))

    return _start(name, guard)


def answered(
    part: str,
    name: str,
    carry_out: Callable[[], Answer],
    failed: Callable[[str], Answer],
    submit: Callable[[Answer], None],
) -> None:
    """Run `carry_out` on a thread. Submit its answer, or that of `failed` if `carry_out` fails."""

    def run() -> None:
        try:
            answer = carry_out()
        except (OSError, Refused, ValueError) as error:
            answer = failed(one_line(because(error)) or type(error).__name__)
        submit(answer)

    once(part, name, run, lambda found: submit(failed(found)))


def _start(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _again(part: str, name: str, run: Callable[[], None]) -> None:
    failures = 0
    while True:
        began_s = time.monotonic()
        try:
            return run()
        except Exception as error:
            report(part, error, name)
        lasted = time.monotonic() - began_s > PAUSES_S[-1]
        failures = 0 if lasted else failures
        time.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
        failures += 1


def uncaught(died: threading.ExceptHookArgs) -> None:
    """Treat the failure of a thread that this module did not start as that of a vital thread."""
    if issubclass(died.exc_type, SystemExit):
        return
    name = died.thread.name if died.thread is not None else "a thread"
    report("other", died.exc_value or died.exc_type(), name, ends=True)
