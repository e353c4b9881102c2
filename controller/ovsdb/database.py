"""The only module that talks to Open vSwitch's database."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ovs import stream
from ovsdbapp.backend.ovs_idl import connection, idlutils, transaction
from ovsdbapp.schema.open_vswitch import impl_idl

from controller.api.events import Challenged, DatabaseRead, Event, Leading, Setting, Write, Written
from controller.config.membership import VIRTUAL_DRIVERS
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, MirrorRow, Ovn, PortRow, Tunnel
from controller.host import devices, faults
from controller.host.client import STARTED
from controller.host.devices import Role
from controller.host.programs import Refused
from controller.host.sockets import TLS_OPTIONS, TlsFiles, reason, refuse_plain
from controller.ovsdb.replica import CONFIRM_TIMEOUT_S, Replica, Then

LOG = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_S = 10
# How long a write waits for ovs-vswitchd to apply it. After that, ovs-vswitchd is down or hangs.
APPLIED_TIMEOUT_S = 3
# How long to look for the reason why a TLS connection to the database fails.
REFUSAL_TIMEOUT_S = 5.0
# While the database is unreachable: pauses between attempts to connect, and to write what is kept.
# Bridges are not dialled meanwhile, and an attempt on this host costs next to nothing.
RECONNECT_MS = (200, 1000)
RECONNECT_LOCAL_MS = (50, 200)
RETRY_WRITES_S = 0.5
# While the rows of the database arrive at the start.
ROWS_PAUSE_S = 0.005
# The most digits of a rate: as many as a 64-bit counter has.
MAX_DIGITS = 19
STANDS_BY = "another service leads -> ask that service"
SCHEMA = "Open_vSwitch"

# Only the columns that are read: the statistics column alone would wake the service every 5 s.
COLUMNS = {
    "Open_vSwitch": [
        "bridges",
        "cur_cfg",
        "next_cfg",
        "external_ids",
        "ovs_version",
        "other_config",
    ],
    "Bridge": [
        "name",
        "ports",
        "fail_mode",
        "external_ids",
        "controller",
        "protocols",
        "datapath_id",
        "datapath_type",
        "stp_enable",
        "rstp_enable",
        "mcast_snooping_enable",
        "other_config",
        "flood_vlans",
        "mirrors",
    ],
    "Controller": ["target"],
    "Port": [
        "name",
        "interfaces",
        "tag",
        "trunks",
        "vlan_mode",
        "lacp",
        "qos",
        "protected",
        "status",
        "rstp_status",
        "bond_mode",
        "bond_active_slave",
        "other_config",
        "external_ids",
    ],
    "Interface": [
        "name",
        "ofport",
        "link_speed",
        "mtu",
        "external_ids",
        "mac_in_use",
        "lacp_current",
        "bfd",
        "cfm_mpid",
        "type",
        "status",
        "options",
    ],
    "QoS": ["other_config"],
    "Mirror": ["name", "output_port", "output_vlan"],
}

# The states in which RSTP and STP keep a port from forwarding.
BLOCKED = frozenset(("Discarding", "Learning", "listening", "learning", "blocking"))

# Tables whose rows any bridge may refer to. They seldom change.
SHARED = ("Controller", "QoS", "Mirror")


# The types of tunnel interfaces.
TUNNELS = frozenset(
    ("geneve", "vxlan", "gre", "ip6gre", "stt", "lisp", "erspan", "ip6erspan", "gtpu", "srv6")
)

# Older kernels give representors of ConnectX cards a driver of their own.
REPRESENTOR_DRIVERS = ("mlx5e_rep",)


class Devices(NamedTuple):
    """What is asked about devices, by name: nothing is known of those of another host.

    `role`: what a device stands for; None if that is not known. `offloads`: whether it, with its
    driver, can take over flows of tc; None likewise.
    """

    role: Callable[[str], Role | None] = lambda _device: None
    offloads: Callable[[str, str | None], bool | None] = lambda _device, _driver: None


NOT_HERE = Devices()
OF_THIS_HOST = Devices(devices.role, devices.offloads)


class _OtherConfig(NamedTuple):
    """`hw-offload`, `tc-policy` and `flow-restore-wait`, which concern all bridges."""

    hw_offload: bool = False
    tc_policy: str = "none"
    restores_flows: bool = False


DEFAULTS = _OtherConfig()


class _Bridges:
    """The records of all bridges. Only the records that have changed are read again."""

    def __init__(self, asked: Devices = NOT_HERE) -> None:
        self._devices = asked
        self._other_config = DEFAULTS
        self._made: dict[Any, BridgeRow] = {}
        # By bridge: the ids of the rows of its ports and interfaces.
        self._parts: dict[Any, set[Any]] = {}

    def read(
        self,
        rows: Mapping[Any, Any],
        touched: set[tuple[str, Any]],
        other_config: _OtherConfig = DEFAULTS,
    ) -> tuple[BridgeRow, ...]:
        """All bridges, sorted by name. `rows`: the rows of the table Bridge, by id."""
        if other_config != self._other_config:
            self._other_config, self._made = other_config, {}
        for gone in self._made.keys() - rows.keys():
            del self._made[gone], self._parts[gone]
        stale = rows.keys() - self._made.keys() | self._touched(touched)
        for uuid in stale & rows.keys():
            self._made[uuid] = _bridge(rows[uuid], self._other_config, self._devices)
            self._parts[uuid] = {part.uuid for port in rows[uuid].ports for part in _parts(port)}
        return tuple(sorted(self._made.values(), key=lambda bridge: bridge.name))

    def _touched(self, touched: set[tuple[str, Any]]) -> set[Any]:
        if any(table in SHARED for table, _ in touched):
            return set(self._made)
        uuids = {uuid for table, uuid in touched if table != "Open_vSwitch"}
        owners = {bridge for bridge, parts in self._parts.items() if not parts.isdisjoint(uuids)}
        return uuids | owners


class _Applied(impl_idl.OvsVsctlTransaction):  # type: ignore[misc]
    """A transaction that waits for ovs-vswitchd, but not as long as for the database."""

    def time_remaining(self) -> float:
        return APPLIED_TIMEOUT_S - float(self.elapsed_time())

    def timeout_exceeded(self) -> bool:
        return self.time_remaining() < 0


class _Api(impl_idl.OvsdbIdl):  # type: ignore[misc]
    """Transactions that wait for ovs-vswitchd only if asked to."""

    # One for each instance. The library keeps one per process, and a second would wait for it for ever.
    ovsdb_connection: Any = None

    def create_transaction(
        self, check_error: bool = False, log_errors: bool = True, applied: bool = False
    ) -> Any:
        kind = _Applied if applied else transaction.Transaction
        return kind(self, self.ovsdb_connection, check_error=check_error, log_errors=log_errors)


class Database:
    """Follows the database at `remote` and writes settings to it.

    Each state of the database is submitted as a `DatabaseRead`. A thread of its own does the
    writes in order, and submits `Written` for a write that a request waits for. While the
    database is unreachable, writes of requests are refused at once, and all others are kept
    until it is back. `tls` is needed for a remote `ssl:HOST:PORT`. After `contend`, only the
    leader writes.

    Raises:
        Refused: the database does not answer at the start. Later, the connection is tried
            again for ever.
        ValueError: the remote is malformed, or a TLS file cannot be used.
    """

    def __init__(
        self, remote: str, submit: Callable[[Event], None], tls: TlsFiles | None = None
    ) -> None:
        self._remote = remote
        self._submit = submit
        self._writes: queue.SimpleQueue[Write] = queue.SimpleQueue()
        self._kept: dict[tuple[str, str, str, str], Setting] = {}
        self._last: DatabaseRead | None = None
        self._known = threading.Event()
        # Only the devices of this host can be looked at.
        self._bridges = _Bridges(OF_THIS_HOST if remote.startswith("unix:") else NOT_HERE)
        _check_remote(remote, tls)
        if remote.startswith("unix:") and not os.path.exists(remote.removeprefix("unix:")):
            path = remote.removeprefix("unix:")
            raise Refused(f"Open vSwitch is not running: {path} does not exist -> {STARTED}")
        try:
            helper = idlutils.get_schema_helper(remote, SCHEMA)
        except Exception as error:
            _refuse_ours(error)
            why = reason(_refusal(remote, tls) or error)
            raise Refused(f"{remote}: no answer ({why}) -> a running ovsdb-server") from error
        for table, columns in COLUMNS.items():
            helper.register_columns(table, columns)
        self._idl = Replica(remote, helper, SCHEMA)
        local = remote.startswith("unix:")
        self._idl._session.reconnect.set_backoff(*(RECONNECT_LOCAL_MS if local else RECONNECT_MS))
        self._link = connection.Connection(self._idl, timeout=TRANSACTION_TIMEOUT_S)
        try:
            self._api = _Api(self._link)
        except Exception as error:
            _refuse_ours(error)
            raise Refused(
                f"{remote}: not Open vSwitch's database -> the database of an ovsdb-server"
            ) from error
        self._await_all_rows()
        with self._link.lock:
            self._changed()
            self._idl.changed = self._changed
        faults.vital("database", "ovsdb writes", self._write_forever)

    def _await_all_rows(self) -> None:
        """Wait until the server has sent all rows. A request must not find a database without bridges.

        Raises:
            Refused: it has not sent them in time.
        """
        deadline_s = time.monotonic() + TRANSACTION_TIMEOUT_S
        while not self._idl.is_current:
            if time.monotonic() > deadline_s:
                raise Refused(f"{self._remote}: no rows -> a running ovsdb-server")
            time.sleep(ROWS_PAUSE_S)

    def contend(self) -> None:
        """Compete with other services for the lead. `Leading` reports who has it, now and later.

        Raises:
            Refused: the database does not tell who leads.
        """
        self._idl.led = self._led
        self._idl.challenged = lambda: self._submit(Challenged())
        with self._link.lock:
            self._idl.contend()
        if not self._known.wait(TRANSACTION_TIMEOUT_S):
            raise Refused(
                "ovsdb-server does not say which service leads -> an answer from ovsdb-server"
            )

    def _led(self, leads: bool) -> None:
        self._submit(Leading(leads))
        self._known.set()

    def answer(self) -> None:
        """Answer a `Challenged`: this service is alive."""
        self._idl.answer()

    def confirm(self, then: Then) -> None:
        """Ask the database whether this service leads now. `then` gets None if there is no answer."""
        self._idl.confirm(then)

    def confirmed(self) -> bool:
        """False if the database says that another service leads. Waits for the answer."""
        answers: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self.confirm(answers.put)
        with contextlib.suppress(queue.Empty):
            return answers.get(timeout=2 * CONFIRM_TIMEOUT_S) is not False
        return True

    def write(self, write: Write) -> None:
        """Queue a write behind all earlier ones."""
        self._writes.put(write)

    def _changed(self) -> None:
        """Submit the records if they differ: many changes concern columns that are not in them."""
        touched, self._idl.touched = self._idl.touched, set()
        other_config, read = _root(self._idl.tables["Open_vSwitch"].rows.values())
        rows = self._idl.tables["Bridge"].rows
        read = replace(read, bridges=self._bridges.read(rows, touched, other_config))
        if read != self._last:
            self._last = read
            self._submit(read)

    def row(self, bridge: str) -> BridgeRow | None:
        """A bridge's record as last read. May be called on any thread."""
        rows = self._last.bridges if self._last is not None else ()
        return next((row for row in rows if row.name == bridge), None)

    @property
    def is_current(self) -> bool:
        """Whether what was read last is in the database now. May be called on any thread."""
        return self._idl.is_current and not self._away

    @property
    def _away(self) -> bool:
        return not self._idl._session.is_connected()

    @property
    def _stands_by(self) -> bool:
        return self._idl.contends and not self._idl.leads

    def _write_forever(self) -> None:
        while True:
            try:
                write = self._writes.get(timeout=RETRY_WRITES_S if self._kept else None)
            except queue.Empty:
                self._write_kept()
                continue
            self._write_kept()
            if write.request_id is not None:
                error = self._commit(write.settings, write.applied)
                self._submit(Written(write.request_id, error))
            elif self._stands_by:
                continue
            elif self._away:
                self._keep(write.settings)
            elif self._commit(write.settings) is not None:
                self._write_each(write.settings)

    def _keep(self, settings: Iterable[Setting]) -> None:
        """Keep settings until the database is back. Of several values for a key, keep the last."""
        for setting in settings:
            self._kept[setting.table, setting.record, setting.column, setting.key] = setting

    def _write_kept(self) -> None:
        if self._kept and not self._away:
            kept, self._kept = tuple(self._kept.values()), {}
            self._write_each(kept)

    def _write_each(self, settings: Iterable[Setting]) -> None:
        """Write each setting by itself: one record may be gone, and the others must be written."""
        for setting in settings:
            if (error := self._commit((setting,))) is not None:
                if self._stands_by:
                    return
                if self._away:
                    self._keep((setting,))
                    continue
                LOG.warning("%s %s: %s", setting.record, setting.key, error)

    def _commit(self, settings: Iterable[Setting], applied: bool = False) -> str | None:
        if self._away:
            return f"ovsdb-server is unreachable at {self._remote} -> a running ovsdb-server"
        if self._stands_by:
            return STANDS_BY
        try:
            with self._api.transaction(check_error=True, log_errors=False, applied=applied) as txn:
                for setting in _removals_last(settings):
                    txn.add(self._command(setting))
        except Exception as error:
            if self._idl.contends and not self._idl.has_lock:
                return STANDS_BY
            if faults.is_ours(error):
                return faults.report("database", error, "ovsdb writes")
            return str(error) or type(error).__name__
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


def _removals_last(settings: Iterable[Setting]) -> list[Setting]:
    """The settings of a transaction, of several values for a key the last one.

    The library writes a whole column where a key of it gets a value, and forgets what was to be removed
    from that column before.
    """
    last = {(one.table, one.record, one.column, one.key): one for one in settings}
    return sorted(last.values(), key=lambda one: one.value is None)


def _refuse_ours(error: Exception) -> None:
    """Raise Refused if a fault of ovs-lbt kept it from reaching the database."""
    if faults.is_ours(error):
        raise Refused(faults.report("database", error, "replica")) from error


def _check_remote(remote: str, tls: TlsFiles | None) -> None:
    """Check that a remote can be dialled, and give its TLS files to the library.

    Raises:
        ValueError: it cannot be dialled.
    """
    kind, _, place = remote.partition(":")
    host, _, port = place.rpartition(":")
    if kind not in ("unix", "tcp", "ssl") or not place or (kind != "unix" and not (host and port)):
        raise ValueError(f"--ovsdb: {remote} -> unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")
    if kind == "tcp":
        refuse_plain(f"--ovsdb: {remote}", host.strip("[]"), "ssl:HOST:PORT")
    if kind == "ssl":
        if tls is None:
            raise ValueError(f"--ovsdb: {remote} without a certificate -> {TLS_OPTIONS}")
        tls.context(server_side=False)
        stream.Stream.ssl_set_private_key_file(tls.private_key)
        stream.Stream.ssl_set_certificate_file(tls.certificate)
        stream.Stream.ssl_set_ca_cert_file(tls.ca_cert)


def _refusal(remote: str, tls: TlsFiles | None) -> ssl.SSLError | None:
    """Why the TLS connection fails. Newer releases of the library do not report it."""
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


def _parts(port: Any) -> Iterable[Any]:
    return (port, *port.interfaces)


def _root(rows: Iterable[Any]) -> tuple[_OtherConfig, DatabaseRead]:
    """What the only row of the table Open_vSwitch has; by default, as if it were not there yet."""
    row = next(iter(rows), None)
    if row is None:
        return DEFAULTS, DatabaseRead(())
    return _other_config(row.other_config), DatabaseRead(
        (),
        row.external_ids.get(PREFIX + "leader"),
        _first(row.ovs_version),
        _ovn(row.external_ids),
        row.external_ids.get(PREFIX + "key-loss-grace-s"),
    )


def _other_config(record: Mapping[str, str]) -> _OtherConfig:
    """As ovs-vswitchd reads it: in lower or upper case, and anything else is false."""

    def is_true(key: str) -> bool:
        return record.get(key, "").lower() == "true"

    return _OtherConfig(
        hw_offload=is_true("hw-offload"),
        tc_policy=record.get("tc-policy", DEFAULTS.tc_policy),
        restores_flows=is_true("flow-restore-wait"),
    )


def _bridge(
    row: Any, other_config: _OtherConfig = DEFAULTS, asked: Devices = NOT_HERE
) -> BridgeRow:
    # Whether a device offloads matters only where it is asked to.
    asked = asked if other_config.hw_offload else asked._replace(offloads=NOT_HERE.offloads)
    ports = (_port(port, asked) for port in row.ports)
    return BridgeRow(
        name=row.name,
        ports=tuple(sorted(ports, key=lambda port: port.name)),
        fail_mode=_first(row.fail_mode),
        external_ids=dict(row.external_ids),
        stp_enable=row.stp_enable,
        rstp_enable=row.rstp_enable,
        mcast_snooping_enable=row.mcast_snooping_enable,
        forwards_bpdu=row.other_config.get("forward-bpdu") == "true",
        flood_vlans=tuple(sorted(row.flood_vlans)),
        mirrors=tuple(sorted(map(_mirror, row.mirrors), key=lambda mirror: mirror.name)),
        controllers=tuple(sorted(controller.target for controller in row.controller)),
        protocols=tuple(sorted(row.protocols)),
        datapath_id=_first(row.datapath_id),
        in_userspace=row.datapath_type == "netdev",
        hw_offload=other_config.hw_offload,
        tc_policy=other_config.tc_policy,
        restores_flows=other_config.restores_flows,
    )


def _mirror(row: Any) -> MirrorRow:
    port = _first(row.output_port)
    return MirrorRow(row.name, port and port.name, _first(row.output_vlan))


def _port(row: Any, asked: Devices = NOT_HERE) -> PortRow:
    qos = _first(row.qos)
    max_rate_bps = qos.other_config.get("max-rate", "") if qos else ""
    is_rate = max_rate_bps.isascii() and max_rate_bps.isdigit() and len(max_rate_bps) <= MAX_DIGITS
    interfaces = (_interface(interface, asked) for interface in row.interfaces)
    return PortRow(
        name=row.name,
        interfaces=tuple(sorted(interfaces, key=lambda i: i.name)),
        tag=_first(row.tag),
        lacp=_first(row.lacp),
        bond_mode=_first(row.bond_mode),
        qos_max_rate_bps=float(max_rate_bps) if is_rate else None,
        vlan_mode=_first(row.vlan_mode),
        trunks=tuple(sorted(row.trunks)),
        protected=row.protected,
        blocked=_is_blocked(row),
        active_mac=_first(row.bond_active_slave) if _backs_up(row) else None,
        lacp_fallback=row.other_config.get("lacp-fallback-ab") == "true",
        external_ids=dict(row.external_ids),
    )


def _is_blocked(port: Any) -> bool:
    """Whether spanning tree keeps a port from forwarding. Open vSwitch gives no state where it is off."""
    states = port.rstp_status.get("rstp_port_state"), port.status.get("stp_state")
    return any(state in BLOCKED for state in states)


def _interface(row: Any, asked: Devices = NOT_HERE) -> InterfaceRow:
    link_speed = _first(row.link_speed)
    driver = row.status.get("driver_name")
    is_device = row.type in ("", "system")
    return InterfaceRow(
        name=row.name,
        ofport=_first(row.ofport),
        link_speed_bps=float(link_speed) if link_speed else None,
        external_ids=dict(row.external_ids),
        mac=_first(row.mac_in_use),
        lacp_current=_first(row.lacp_current),
        bfd=row.bfd.get("enable") == "true",
        cfm=bool(row.cfm_mpid),
        kind=row.type,
        driver=driver,
        represents=_represents(row, asked.role),
        offloads=asked.offloads(row.name, driver) if is_device else None,
        mtu=_first(row.mtu),
        tunnel=_tunnel(row),
        peer=row.options.get("peer") if row.type == "patch" else None,
    )


def _tunnel(row: Any) -> Tunnel | None:
    if row.type not in TUNNELS:
        return None
    own, remote = (row.options.get(key) for key in ("local_ip", "remote_ip"))
    return Tunnel(own, row.status.get("tunnel_egress_iface"), remote)


def _ovn(external_ids: Mapping[str, str]) -> Ovn | None:
    """From where ovn-controller sends tunnels, if it is configured on this host.

    `ovn-encap-ip-HOST` and so on are for several ovn-controllers on one Open vSwitch.
    """
    addresses, kinds = (_listed(external_ids, f"ovn-encap-{what}") for what in ("ip", "type"))
    bridge = external_ids.get("ovn-bridge", "br-int")
    pairs = (pair.partition(":") for pair in _listed(external_ids, "ovn-bridge-mappings"))
    mapped = tuple(sorted({name for _, _, name in pairs if name}))
    return Ovn(addresses, kinds, bridge, mapped) if addresses and kinds else None


def _listed(external_ids: Mapping[str, str], key: str) -> tuple[str, ...]:
    values = (v for k, v in external_ids.items() if k == key or k.startswith(f"{key}-"))
    return tuple(sorted({one.strip() for value in values for one in value.split(",")} - {""}))


def _represents(row: Any, role: Callable[[str], Role | None]) -> bool:
    """Whether an interface is a representor: by its DPDK options, its device, or its driver."""
    if row.type == "dpdk":
        return "representor=" in row.options.get("dpdk-devargs", "")
    driver = row.status.get("driver_name")
    if row.type not in ("", "system") or driver is None or driver in VIRTUAL_DRIVERS:
        return False
    found = role(row.name)
    return driver in REPRESENTOR_DRIVERS if found is None else found is Role.REPRESENTOR


def _backs_up(row: Any) -> bool:
    """Whether a port is a bond whose members but one stand idle: its mode when none is set."""
    return len(row.interfaces) > 1 and _first(row.bond_mode) in (None, "active-backup")


def _first(optional: Any) -> Any:
    """An optional column's value, which the replica gives as a list of none or one."""
    return optional[0] if optional else None
