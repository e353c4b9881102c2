"""Reads Open vSwitch's database (OVSDB), follows changes, and writes settings to the database."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ovs import stream
from ovsdbapp.backend.ovs_idl import connection, idlutils, transaction
from ovsdbapp.exceptions import TimeoutException
from ovsdbapp.schema.open_vswitch import impl_idl

from controller.api.engine_commands import Setting, Write
from controller.api.events import Challenged, DatabaseRead, Event, Leading, Unstored, Written
from controller.config.rows import BridgeRow
from controller.host import faults
from controller.host.programs import wait_until
from controller.host.sockets import TLS_OPTIONS, TlsFiles, reason, refuse_plain
from controller.ovsdb import records
from controller.ovsdb.replica import CONFIRM_TIMEOUT_S, Replica
from controller.text.wording import STARTED, Refused, invalid

LOG = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_S = 10
# The most time that a write waits for ovs-vswitchd, which is down or hangs if it needs longer.
APPLIED_TIMEOUT_S = 3
# The most time for finding out why a TLS connection to the database fails.
REFUSAL_TIMEOUT_S = 5.0
# While the database is unreachable, the pauses between attempts to connect, and to write kept settings.
# They are short, because bridges are not dialled in this time, and an attempt on this host costs little.
RECONNECT_MS = (200, 1000)
RECONNECT_LOCAL_MS = (50, 200)
RETRY_WRITES_S = 0.5
# At the start, the interval between checks whether all rows have arrived.
ROWS_PAUSE_S = 0.005
SCHEMA = "Open_vSwitch"
# The start of the text of an error that may pass: the server's disk is full, or it is busy.
CANNOT_STORE = "ovsdb-server cannot store settings"


class _Applied(impl_idl.OvsVsctlTransaction):  # type: ignore[misc]
    """A transaction that waits at most `APPLIED_TIMEOUT_S` until ovs-vswitchd has applied the changes."""

    def time_remaining(self) -> float:
        return APPLIED_TIMEOUT_S - float(self.elapsed_time())

    def timeout_exceeded(self) -> bool:
        return self.time_remaining() < 0


class _Api(impl_idl.OvsdbIdl):  # type: ignore[misc]
    """Creates transactions that wait for ovs-vswitchd only if `applied` is set."""

    # One connection per instance. With the library's one per process, a second instance would hang.
    ovsdb_connection: Any = None

    def create_transaction(
        self, check_error: bool = False, log_errors: bool = True, applied: bool = False
    ) -> Any:
        kind = _Applied if applied else transaction.Transaction
        return kind(self, self.ovsdb_connection, check_error=check_error, log_errors=log_errors)


class Database:
    """Follows the database at `remote` and writes settings to it.

    Each state of the database is submitted as a `DatabaseRead`. A separate thread carries out
    writes in order. It submits `Written` after each write that has a request ID, because a request
    is waiting. While the database is unreachable, such writes are refused immediately, and other
    writes are kept until the database is reachable again. `tls` is needed for a remote
    `ssl:HOST:PORT`. After `contend`, the service writes only while it is the leader.

    Raises:
        Refused: the database does not answer at the start. Later, the service retries indefinitely.
        ValueError: the remote is malformed, or a TLS file cannot be used.
    """

    def __init__(
        self, remote: str, submit: Callable[[Event], None], tls: TlsFiles | None = None
    ) -> None:
        self._remote = remote
        self._submit = submit
        self._writes: queue.SimpleQueue[Write] = queue.SimpleQueue()
        self._kept: dict[tuple[str, str, str, str], Setting] = {}
        self._unstored = ""
        self._last: DatabaseRead | None = None
        self._known = threading.Event()
        local = remote.startswith("unix:")
        self._bridges = records.Bridges(local)
        _check_remote(remote, tls)
        if local and not os.path.exists(remote.removeprefix("unix:")):
            path = remote.removeprefix("unix:")
            raise Refused(f"Open vSwitch is not running: {path} does not exist; {STARTED}")
        try:
            helper = _schema(remote)
        except Exception as error:
            _refuse_ours(error)
            why = reason(_refusal(remote, tls) or error)
            raise Refused(
                f"ovsdb-server at {remote} cannot be reached: {why}; {STARTED}"
            ) from error
        if lacking := records.lacking(helper.schema_json):
            raise Refused(f"{remote}: {lacking}")
        try:
            for table, columns in records.COLUMNS.items():
                helper.register_columns(table, columns.split())
            self.replica = Replica(remote, helper, SCHEMA)
            backoff_ms = RECONNECT_LOCAL_MS if local else RECONNECT_MS
            self.replica._session.reconnect.set_backoff(*backoff_ms)
            self._link = connection.Connection(self.replica, timeout=TRANSACTION_TIMEOUT_S)
            self._api = _Api(self._link)
        except Exception as error:
            _refuse_ours(error)
            raise Refused(f"{remote}: {records.NOT_OURS}") from error
        # Wait until the server has sent all rows. Before that, requests would find no bridges.
        late = (
            f"ovsdb-server at {remote} did not send the database within {TRANSACTION_TIMEOUT_S} s"
        )
        wait_until(lambda: self.replica.is_current, TRANSACTION_TIMEOUT_S, ROWS_PAUSE_S, late)
        with self._link.lock:
            self._changed()
            self.replica.changed = self._changed
        faults.vital("database", "ovsdb writes", self._write_forever)

    def contend(self) -> None:
        """Take part in the election of the leading service, and submit the result as `Leading`.

        Raises:
            Refused: the database does not report the leader in time.
        """
        self.replica.led = self._led
        self.replica.challenged = lambda: self._submit(Challenged())
        with self._link.lock:
            self.replica.contend()
        if not self._known.wait(TRANSACTION_TIMEOUT_S):
            found = "ovsdb-server did not report which service leads"
            raise Refused(f"{found} within {TRANSACTION_TIMEOUT_S} s")

    def _led(self, leads: bool) -> None:
        self._submit(Leading(leads))
        self._known.set()

    def confirmed(self) -> bool:
        """Return False if the database reports that another service leads, otherwise True."""
        answers: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self.replica.confirm(answers.put)
        with contextlib.suppress(queue.Empty):
            return answers.get(timeout=2 * CONFIRM_TIMEOUT_S) is not False
        return True

    def write(self, write: Write) -> None:
        """Queue a write. Writes are carried out in order."""
        self._writes.put(write)

    def _changed(self) -> None:
        """Submit the records if they have changed. Many changed rows differ only in unused values."""
        touched, self.replica.touched = self.replica.touched, set()
        other_config, read = records.root(self.replica.tables["Open_vSwitch"].rows.values())
        rows = self.replica.tables["Bridge"].rows
        bridges = self._bridges.read_records(rows, touched, other_config)
        read = replace(read, bridges=bridges, lacking=self.replica.lacking)
        if read != self._last:
            self._last = read
            self._submit(read)

    def row(self, bridge: str) -> BridgeRow | None:
        """Return the last known record of a bridge; None if it does not exist. Thread-safe."""
        rows = self._last.bridges if self._last is not None else ()
        return next((row for row in rows if row.name == bridge), None)

    @property
    def is_current(self) -> bool:
        """Whether the most recently read records are up to date. Thread-safe."""
        return self.replica.is_current and bool(self.replica._session.is_connected())

    @property
    def _stands_by(self) -> bool:
        return self.replica.contends and not self.replica.leads

    def _write_forever(self) -> None:
        while True:
            write = None
            with contextlib.suppress(queue.Empty):
                write = self._writes.get(timeout=RETRY_WRITES_S if self._kept else None)
            if write is not None and write.request_id is None:
                # For each key, only the last value is kept.
                self._kept |= {setting.place: setting for setting in write.settings}
            self._write_kept()
            if write is not None and write.request_id is not None:
                error = self._commit(write.settings, write.applied)
                for place in (setting.place for setting in write.settings if error is None):
                    self._kept.pop(place, None)
                self._submit(Written(write.request_id, error))

    def _write_kept(self) -> None:
        """Write the kept settings, for which no request is waiting, if the database is reachable.

        If the transaction fails, write each setting separately: one setting's record may have been
        deleted, and the other settings must be written.
        """
        if self._stands_by:
            self._kept.clear()
        if not self._kept:
            self._tell("")
        if not (kept := self._kept if self.is_current else {}):
            return
        refused = self._commit(kept.values())
        self._tell(refused if refused and refused.startswith(CANNOT_STORE) else "")
        if self._unstored:
            return
        self._kept = {}
        for setting in kept.values() if refused is not None else ():
            if (error := self._commit((setting,))) is None or self._stands_by:
                continue
            if self.is_current and not error.startswith(CANNOT_STORE):
                LOG.warning("%s %s: %s", setting.record, setting.key, error)
            else:
                self._kept[setting.place] = setting

    def _tell(self, unstored: str) -> None:
        """Log and submit why the kept settings cannot be stored, if that has changed."""
        if unstored == self._unstored:
            return
        self._unstored = unstored
        if unstored:
            LOG.warning("%s; this is repeated until they are stored", unstored)
        self._submit(Unstored(unstored))

    def _commit(self, settings: Iterable[Setting], applied: bool = False) -> str | None:
        if not self.is_current:
            return (
                self.replica.lacking or f"ovsdb-server is unreachable at {self._remote}; {STARTED}"
            )
        if self._stands_by:
            return faults.ANOTHER_LEADS
        try:
            with self._api.transaction(check_error=True, log_errors=False, applied=applied) as txn:
                for setting in _removals_last(settings):
                    txn.add(self._command(setting))
        except Exception as error:
            if self.replica.contends and not self.replica.has_lock:
                return faults.ANOTHER_LEADS
            if isinstance(error, faults.OURS):
                return faults.report("database", error, "ovsdb writes")
            return _in_words(error)
        return None

    def _command(self, setting: Setting) -> Any:
        record = (setting.table, setting.record)
        if setting.column != "external_ids":
            if setting.value is None:
                return self._api.db_clear(*record, setting.column)
            value = True if setting.column == "protected" else setting.value
            return self._api.db_set(*record, (setting.column, value))
        if setting.value is None:
            return self._api.db_remove(*record, setting.column, setting.key, if_exists=True)
        return self._api.db_set(*record, (setting.column, {setting.key: setting.value}))


def _in_words(error: Exception) -> str:
    """Return why a transaction failed. The text begins with `CANNOT_STORE` if this may pass."""
    if isinstance(error, TimeoutException):
        return f"{CANNOT_STORE}: it did not answer in time"
    with contextlib.suppress(ValueError, LookupError, TypeError):
        found = json.loads(str(error).removeprefix("OVSDB Error: "))
        return f"{CANNOT_STORE}: {found['details']}: {found['io-error']}"
    return str(error) or type(error).__name__


def _removals_last(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings for a transaction: for each key only the last value, and removals last.

    To set a key, the library writes the whole column, and discards earlier removals from this column.
    """
    last = {(one.table, one.record, one.column, one.key): one for one in settings}
    return sorted(last.values(), key=lambda one: one.value is None)


def _schema(remote: str) -> Any:
    """Request the schema on a thread, because the library waits forever for a server that hangs.

    Raises:
        Refused: the server did not answer in time.
        Exception: the library failed. The library has no base class for exceptions.
    """
    answers = list[Any]()

    def ask() -> None:
        try:
            answers.append(idlutils.get_schema_helper(remote, SCHEMA))
        except Exception as error:
            answers.append(error)

    faults.once("database", "ovsdb schema", ask, lambda _: None)
    late = f"no answer within {TRANSACTION_TIMEOUT_S} s"
    wait_until(lambda: bool(answers), TRANSACTION_TIMEOUT_S, ROWS_PAUSE_S, late)
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    return answer


def _refuse_ours(error: Exception) -> None:
    """Raise Refused if `error` is a bug in ovs-lbt, and not an error of the database."""
    if isinstance(error, faults.OURS):
        raise Refused(faults.report("database", error, "replica")) from error


def _check_remote(remote: str, tls: TlsFiles | None) -> None:
    """Check that a remote is valid and allowed, and pass its TLS files to the library.

    Raises:
        ValueError: the remote is malformed or not allowed, or a TLS file cannot be used.
    """
    kind, _, place = remote.partition(":")
    host, _, port = place.rpartition(":")
    if kind not in ("unix", "tcp", "ssl") or not place or (kind != "unix" and not (host and port)):
        raise ValueError(f"--ovsdb: {invalid(remote, 'unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT')}")
    if kind == "tcp":
        refuse_plain(f"--ovsdb: {remote}", host.strip("[]"), "ssl:HOST:PORT")
    if kind == "ssl":
        if tls is None:
            raise ValueError(f"--ovsdb: {remote} needs a certificate; set {TLS_OPTIONS}")
        tls.context(server_side=False)
        stream.Stream.ssl_set_private_key_file(tls.private_key)
        stream.Stream.ssl_set_certificate_file(tls.certificate)
        stream.Stream.ssl_set_ca_cert_file(tls.ca_cert)


def _refusal(remote: str, tls: TlsFiles | None) -> ssl.SSLError | None:
    """Return the error of a test TLS connection, because newer libraries do not report such errors."""
    if tls is None or not remote.startswith("ssl:"):
        return None
    host, _, port = remote.removeprefix("ssl:").rpartition(":")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), REFUSAL_TIMEOUT_S) as plain,
            tls.context(server_side=False).wrap_socket(plain),
        ):
            return None
    except ssl.SSLError as error:
        return error
    except (OSError, ValueError):
        return None
