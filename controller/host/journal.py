"""Writes and reads the history of decisions on disk: rotated files with one JSON line per entry."""

from __future__ import annotations

import logging
import logging.handlers
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import ovs.dirs

from controller.api import history
from controller.api.commands import REQUESTS
from controller.api.engine_commands import Reply
from controller.api.events import Request
from controller.api.requests import parse
from controller.config.kinds import DURATION
from controller.host import faults
from controller.text.wording import Refused, because, in_words, one_line, unknown

LOG = logging.getLogger(__name__)

FILE_BYTES = 10_000_000
OLDER_FILES = 5
BLOCK_BYTES = 1 << 16
FLUSH_TIMEOUT_S = 1.0


def default_path(service: str) -> Path:
    """Return the history file: `OVS_LBT_HISTORY` if set, else a file in Open vSwitch's log directory."""
    where = os.environ.get("OVS_LBT_HISTORY")
    return Path(where or f"{ovs.dirs.LOGDIR}/{service}-history.jsonl")


class Journal:
    """Writes and reads the history on a separate thread, so that decisions never wait for a disk.

    If the file cannot be written, entries are lost, and one error is logged.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        if path is not None:
            self._file = _File(path)
        faults.lasting("history", "journal", self._run)

    def write(self, line: str) -> None:
        if self._path is not None:
            self._work.put(lambda: self._file.emit(logging.makeLogRecord({"msg": line})))

    def flush(self) -> None:
        """Wait until all entries are written, but no longer than `FLUSH_TIMEOUT_S`."""
        written = threading.Event()
        self._work.put(written.set)
        written.wait(FLUSH_TIMEOUT_S)

    def ask(self, request: Request, names: history.Names, reply: Callable[[Reply], None]) -> None:
        """Answer a `history` request after pending writes. `names`: existing bridges and ports."""
        self._work.put(lambda: reply(self._answer(request, names)))

    def _answer(self, request: Request, names: history.Names) -> Reply:
        try:
            if self._path is None:
                raise ValueError("no history is recorded; start the service with --history FILE")
            return Reply(request.request_id, answer(self._path, request.words[1:], names))
        except (Refused, ValueError, OSError) as error:
            found = one_line(because(error))
        except Exception as error:
            found = faults.report("history", error)
        return Reply(request.request_id, found, refused=True)

    def _run(self) -> None:
        while True:
            self._work.get()()


class _File(logging.handlers.RotatingFileHandler):
    """A rotated file that logs only the first of several write errors in a row."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=OLDER_FILES, delay=True)
        self._failed = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failing = False
        super().emit(record)
        self._failed = self._failing

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        self._failing = True
        error = sys.exc_info()[1]
        if not self._failed:
            found = in_words(error) if isinstance(error, OSError) else error
            LOG.error("the history file cannot be written: %s: %s", self.baseFilename, found)


def append(path: Path, line: str) -> None:
    """Append an entry while no service is running. If writing fails, the entry is lost."""
    _File(path).emit(logging.makeLogRecord({"msg": line}))


def answer(path: Path, words: tuple[str, ...], names: history.Names | None = None) -> str:
    """Return the entries that the words of a `history` command select. The newest file is read first.

    `names`: the bridges and ports that exist now; None if unknown.

    Raises:
        Refused: the words are not a valid query.
        ValueError: a name in the query neither exists nor is in the history.
        OSError: a file cannot be read.
    """
    asked = parse("history", REQUESTS["history"], words)
    since = asked.options.get("--since")
    query = history.Query(
        bridge=next(iter(asked.names), None),
        port=asked.options.get("--port"),
        last=int(asked.options.get("--last", history.MOST if since else history.LAST)),
        since_s=time.time() - DURATION.parse(since) if since else 0.0,
    )
    found = _found(path, query)
    if not found:
        _refuse_unknown(path, query, names or history.Names())
    return history.render(found, asked.as_json, in_utc)


def _refuse_unknown(path: Path, query: history.Query, names: history.Names) -> None:
    """Refuse names that neither exist now nor are in the history."""
    bridge, port = query.bridge, query.port
    known = bridge is None or bridge in names.bridges
    if not known and not _found(path, history.Query(bridge, last=1)):
        raise ValueError(_unknown("bridge", bridge or "", names.bridges))
    # The name of an address behind a VM port begins with the port's name.
    if port is not None and names.ports.isdisjoint((port, port.rpartition("/")[0])):
        raise ValueError(_unknown("VM port", port, names.ports))


def _unknown(what: str, name: str, names: Collection[str]) -> str:
    """Return the error text for an unknown name. `names`: the existing names; empty if not known."""
    if not names:
        return unknown(f"{what} in the history", name, (), "ovs-lbt history")
    return f"{unknown(what, name, names, 'ovs-lbt show')}, or ovs-lbt history"


def _found(path: Path, query: history.Query) -> list[dict[str, object]]:
    """Return the last matching entries. Each file is read backwards, and only as far as needed."""
    found: list[dict[str, object]] = []
    for number in range(OLDER_FILES + 1):
        older = Path(f"{path}.{number}") if number else path
        if not older.exists():
            break
        with older.open("rb") as file:
            for line in _backwards(file):
                if len(found) == query.last:
                    return found[::-1]
                entry = history.read(line.decode(errors="replace"))
                if entry is not None and query.matches(entry):
                    found.append(entry)
    return found[::-1]


def _backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file in reverse order."""
    at, rest = file.seek(0, os.SEEK_END), b""
    while at > 0:
        start = max(0, at - BLOCK_BYTES)
        file.seek(start)
        first, *whole = (file.read(at - start) + rest).split(b"\n")
        yield from filter(None, reversed(whole))
        at, rest = start, first
    if rest:
        yield rest


def in_utc(at_s: float) -> str:
    """Return the date and time in UTC for a time since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))
