"""The only module that talks to Open vSwitch's database."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ovsdbapp.backend.ovs_idl import connection, idlutils
from ovsdbapp.schema.open_vswitch import impl_idl

from controller.database import BridgeRow, InterfaceRow, PortRow
from controller.events import DatabaseRead, Event, Setting, Write, Written

LOG = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_S = 10

# Only what is read: statistics alone would wake us every five seconds.
COLUMNS = {
    "Open_vSwitch": ["bridges", "cur_cfg", "next_cfg"],
    "Bridge": ["name", "ports", "fail_mode", "external_ids"],
    "Port": ["name", "interfaces", "tag", "lacp", "bond_mode", "qos"],
    "Interface": ["name", "ofport", "link_speed", "external_ids"],
    "QoS": ["other_config"],
}


class DatabaseAway(Exception):
    """The database cannot be reached."""


class _Idl(connection.OvsdbIdl):  # type: ignore[misc]
    """A replica of the database that says when it has changed."""

    changed: Callable[[], None] | None = None
    _seen = -1

    def run(self) -> Any:
        result = super().run()
        if self.changed is not None and self.change_seqno != self._seen:
            self._seen = self.change_seqno
            self.changed()
        return result


class Database:
    """Follows the database at `remote` and writes settings to it.

    Every state of it is submitted as a `DatabaseRead`; writes are done in order on a thread
    of their own and, where a request waits for them, answered by `Written`.

    Raises:
        DatabaseAway: it does not answer at the start. Later, it is dialled again for ever.
    """

    def __init__(self, remote: str, submit: Callable[[Event], None]) -> None:
        self._submit = submit
        self._writes: queue.SimpleQueue[Write] = queue.SimpleQueue()
        self._last: tuple[BridgeRow, ...] | None = None
        try:
            helper = idlutils.get_schema_helper(remote, "Open_vSwitch")
        except Exception as error:
            raise DatabaseAway(f"{remote}: no answer ({error}) -> an ovsdb-server") from error
        for table, columns in COLUMNS.items():
            helper.register_columns(table, columns)
        self._idl = _Idl(remote, helper)
        link = connection.Connection(self._idl, timeout=TRANSACTION_TIMEOUT_S)
        self._api = impl_idl.OvsdbIdl(link)
        with link.lock:
            self._changed()
            self._idl.changed = self._changed
        threading.Thread(target=self._write_forever, name="ovsdb writes", daemon=True).start()

    def write(self, write: Write) -> None:
        """Write later, after everything asked for before."""
        self._writes.put(write)

    def _changed(self) -> None:
        """Much that changes is not what we read, such as the switch's own progress."""
        bridges = _bridges(self._idl.tables["Bridge"].rows.values())
        if bridges != self._last:
            self._last = bridges
            self._submit(DatabaseRead(bridges))

    def _write_forever(self) -> None:
        while True:
            write = self._writes.get()
            error = self._commit(write.settings)
            if write.request_id is not None:
                self._submit(Written(write.request_id, error))
            elif error is not None:
                self._write_each(write.settings)

    def _write_each(self, settings: Iterable[Setting]) -> None:
        """One record may be gone by now; the others' settings are still wanted."""
        for setting in settings:
            if (error := self._commit((setting,))) is not None:
                LOG.warning("%s %s: %s", setting.record, setting.key, error)

    def _commit(self, settings: Iterable[Setting]) -> str | None:
        try:
            with self._api.transaction(check_error=True, log_errors=False) as txn:
                for setting in settings:
                    txn.add(self._command(setting))
        except Exception as error:
            return str(error) or type(error).__name__
        return None

    def _command(self, setting: Setting) -> Any:
        record = (setting.table, setting.record)
        if setting.column != "external_ids":
            if setting.value is None:
                return self._api.db_clear(*record, setting.column)
            return self._api.db_set(*record, (setting.column, setting.value))
        if setting.value is None:
            return self._api.db_remove(*record, setting.column, setting.key, if_exists=True)
        return self._api.db_set(*record, (setting.column, {setting.key: setting.value}))


def _bridges(rows: Iterable[Any]) -> tuple[BridgeRow, ...]:
    return tuple(sorted(map(_bridge, rows), key=lambda bridge: bridge.name))


def _bridge(row: Any) -> BridgeRow:
    return BridgeRow(
        name=row.name,
        ports=tuple(sorted(map(_port, row.ports), key=lambda port: port.name)),
        fail_mode=_first(row.fail_mode),
        external_ids=dict(row.external_ids),
    )


def _port(row: Any) -> PortRow:
    qos = _first(row.qos)
    max_rate_bps = qos.other_config.get("max-rate", "") if qos else ""
    return PortRow(
        name=row.name,
        interfaces=tuple(sorted(map(_interface, row.interfaces), key=lambda i: i.name)),
        tag=_first(row.tag),
        lacp=_first(row.lacp),
        bond_mode=_first(row.bond_mode),
        qos_max_rate_bps=float(max_rate_bps) if max_rate_bps.isdigit() else None,
    )


def _interface(row: Any) -> InterfaceRow:
    link_speed = _first(row.link_speed)
    return InterfaceRow(
        name=row.name,
        ofport=_first(row.ofport),
        link_speed_bps=float(link_speed) if link_speed else None,
        external_ids=dict(row.external_ids),
    )


def _first(optional: Any) -> Any:
    """An optional column's value, which the replica gives as a list of none or one."""
    return optional[0] if optional else None
