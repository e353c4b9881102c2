"""Records of the database, as the library has them, to values of ours."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ovsdbapp.exceptions import TimeoutException

from controller.api.engine_commands import Setting
from controller.api.events import Event, Unstored
from controller.config.rows import Ovn, Tunnel
from controller.host import devices
from controller.ovsdb import database, records
from controller.ovsdb.database import Database
from controller.text.wording import Refused
from tests.said import says


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("1000000", 1e6),
        ("", None),
        ("fast", None),
        ("-1", None),
        ("²", None),
        ("٣", None),
        ("9" * 400, None),
    ],
)
def test_a_rate_that_is_no_number_is_none(text: str, rate_bps: float | None) -> None:
    qos = SimpleNamespace(other_config={"max-rate": text})
    row = _row("Port", "eth1", qos=[qos])
    assert records._port(row).qos_max_rate_bps == rate_bps


# Columns that have a value in every row. A delay of 0 is none.
FILLED = {
    **dict.fromkeys(("stp_enable", "rstp_enable", "mcast_snooping_enable", "protected"), False),
    "bond_updelay": 0,
    "bond_downdelay": 0,
    "type": "",
    "datapath_type": "netdev",
}


def _row(table: str, uuid: str, **columns: Any) -> SimpleNamespace:
    """A row of which nothing is set but these columns, and which is called after its ID."""
    names = records.COLUMNS[table].split()
    unset: dict[str, Any] = {n: {} if records.KIND_OF.get(n) == "map" else [] for n in names}
    return SimpleNamespace(**unset | FILLED | {"uuid": uuid, "name": uuid} | columns)


def _replica(name: str) -> SimpleNamespace:
    """A bridge with one port of one interface, whose rows are called after it."""
    interface = _row("Interface", f"{name}-interface", ofport=[1])
    return _row("Bridge", name, ports=[_row("Port", f"{name}-port", interfaces=[interface])])


@pytest.mark.parametrize(
    ("touched", "read_again"),
    [
        (("Open_vSwitch", "the one"), []),
        (("Bridge", "br1"), ["br1"]),
        (("Port", "br1-port"), ["br1"]),
        (("Interface", "br0-interface"), ["br0"]),
        (("Interface", "of nobody"), []),
        (("QoS", "any"), ["br0", "br1"]),
    ],
)
def test_only_bridges_of_which_something_has_changed_are_read_again(
    touched: tuple[str, str], read_again: list[str]
) -> None:
    rows = {name: _replica(name) for name in ("br1", "br0")}
    bridges = records.Bridges()
    before = bridges.read_records(rows, set())
    assert [bridge.name for bridge in before] == ["br0", "br1"]

    after = bridges.read_records(rows, {touched})

    assert after == before
    anew = [b.name for b, a in zip(before, after, strict=True) if a is not b]
    assert anew == read_again


def test_bridges_and_ports_come_and_go() -> None:
    rows = {"br0": _replica("br0")}
    bridges = records.Bridges()
    bridges.read_records(rows, set())
    rows["br1"] = _replica("br1")
    rows["br0"].ports = []
    read = bridges.read_records(rows, {("Bridge", "br0"), ("Bridge", "br1"), ("Port", "br0-port")})
    assert [(bridge.name, len(bridge.ports)) for bridge in read] == [("br0", 0), ("br1", 1)]

    del rows["br0"]
    (left,) = bridges.read_records(rows, {("Bridge", "br0")})
    assert left.name == "br1"


@pytest.mark.parametrize(("written", "version"), [([["3.5.0"]], "3.5.0"), ([[]], None), ([], None)])
def test_the_version_is_what_ovs_ctl_has_written(
    written: list[list[str]], version: str | None
) -> None:
    rows = [_row("Open_vSwitch", "the one", ovs_version=one) for one in written]
    assert records.root(rows)[1].ovs_version == version


# ---- other_config -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other_config", "found"),
    [
        ({}, (False, "none", False)),
        ({"hw-offload": "true"}, (True, "none", False)),
        ({"hw-offload": "TRUE", "tc-policy": "skip_sw"}, (True, "skip_sw", False)),
        ({"hw-offload": "yes"}, (False, "none", False)),
        ({"flow-restore-wait": "true"}, (False, "none", True)),
        ({"flow-restore-wait": "false"}, (False, "none", False)),
    ],
)
def test_other_config_is_read_as_open_vswitch_reads_it(
    other_config: dict[str, str], found: tuple[bool, str, bool]
) -> None:
    row = records._bridge(_replica("br0"), other_config)
    assert (row.hw_offload, row.tc_policy, row.restores_flows) == found


@pytest.mark.parametrize("enable", ["true", "TRUE", "yes"])
def test_bfd_is_on_where_open_vswitch_reads_true(enable: str) -> None:
    row = _replica("br0").ports[0].interfaces[0]
    row.bfd = {"enable": enable}
    assert records._interface(row).bfd is (enable != "yes")


@pytest.mark.parametrize(
    ("target", "mode", "other_config", "found"),
    [
        ("tcp:192.0.2.9:6653", [], {}, (True, True)),
        ("ssl:192.0.2.9:6653", ["in-band"], {}, (True, True)),
        ("tcp:192.0.2.9:6653", ["out-of-band"], {}, (False, True)),
        ("tcp:192.0.2.9:6653", [], {"disable-in-band": "true"}, (False, True)),
        ("ptcp:6653", [], {}, (False, False)),
    ],
)
def test_controllers_for_which_open_vswitch_has_flows_of_its_own(
    target: str, mode: list[str], other_config: dict[str, str], found: tuple[bool, bool]
) -> None:
    row = _replica("br0")
    row.other_config = other_config
    controller = _row("Controller", "c", target=target, connection_mode=mode, is_connected=False)
    row.controller = [controller]
    read = records._bridge(row)
    assert (read.in_band, read.unanswered) == found
    controller.is_connected = True
    assert not records._bridge(row).unanswered


def test_a_change_of_offload_concerns_every_bridge() -> None:
    rows = {name: _replica(name) for name in ("br1", "br0")}
    bridges = records.Bridges()
    bridges.read_records(rows, set())
    read = bridges.read_records(rows, {("Open_vSwitch", "the one")}, {"hw-offload": "true"})
    assert [bridge.hw_offload for bridge in read] == [True, True]


REPRESENTORS = {
    "a VF by its device": ("", "mlx5_core", {}, True, True),
    "a VF of an older kernel, on another host": ("", "mlx5e_rep", {}, None, True),
    "a card's port with the driver of representors": ("", "mlx5e_rep", {}, False, False),
    "a card's port": ("", "ice", {}, False, False),
    "a card that is not in switchdev mode": ("", "ixgbe", {}, None, False),
    "a driver that is not known yet": ("", None, {}, True, False),
    "a tap": ("", "tun", {}, None, False),
    "an internal port": ("internal", "openvswitch", {}, None, False),
    "a DPDK port": ("dpdk", "net_mlx5", {"dpdk-devargs": "0000:01:00.0"}, None, False),
    "a VF of DPDK": (
        *("dpdk", "net_mlx5", {"dpdk-devargs": "0000:01:00.0,representor=[0]"}, None, True),
    ),
}


@pytest.mark.parametrize(
    ("kind", "driver", "options", "by_device", "represents"),
    REPRESENTORS.values(),
    ids=REPRESENTORS,
)
def test_representors_are_recognized(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    driver: str | None,
    options: dict[str, str],
    by_device: bool | None,
    represents: bool,
) -> None:
    monkeypatch.setattr(devices, "is_representor", lambda _: by_device)
    row = _replica("br0").ports[0].interfaces[0]
    row.type, row.options = kind, options
    row.status = {"driver_name": driver} if driver else {}
    assert records._interface(row, local=True).represents is represents


@pytest.mark.parametrize(("hw_offload", "found"), [(True, False), (False, None)])
def test_devices_are_asked_whether_they_offload_only_where_they_should(
    monkeypatch: pytest.MonkeyPatch, hw_offload: bool, found: bool | None
) -> None:
    monkeypatch.setattr(devices, "offloads", lambda _name, _driver: False)
    row = records._bridge(_replica("br0"), {"hw-offload": str(hw_offload)}, local=True)
    assert {interface.offloads for interface in row.interfaces} == {found}


# ---- tunnels -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "status", "found"),
    [
        ("geneve", {"local_ip": "192.0.2.1", "key": "flow"}, {}, Tunnel("192.0.2.1")),
        ("vxlan", {"remote_ip": "flow"}, {}, Tunnel(remote_ip="flow")),
        ("gre", {}, {"tunnel_egress_iface": "br-ex"}, Tunnel(None, "br-ex")),
        ("patch", {"peer": "patch1"}, {}, None),
        ("", {"local_ip": "192.0.2.1"}, {"tunnel_egress_iface": "br-ex"}, None),
    ],
)
def test_from_where_a_tunnel_sends(
    kind: str, options: dict[str, str], status: dict[str, str], found: Tunnel | None
) -> None:
    row = _replica("br0").ports[0].interfaces[0]
    row.type, row.options, row.status = kind, options, status
    assert records._interface(row).tunnel == found


@pytest.mark.parametrize(
    ("external_ids", "found"),
    [
        ({}, None),
        ({"ovn-encap-type": "geneve"}, None),
        ({"ovn-encap-ip": "192.0.2.1"}, None),
        (
            {"ovn-encap-type": "geneve", "ovn-encap-ip": "192.0.2.2,192.0.2.1"},
            Ovn(("192.0.2.1", "192.0.2.2"), ("geneve",), "br-int"),
        ),
        (
            {
                "ovn-encap-type-here": "geneve,vxlan",
                "ovn-encap-ip-here": "192.0.2.1",
                "ovn-encap-ip-default": "192.0.2.1",
                "ovn-bridge": "br-ovn",
            },
            Ovn(("192.0.2.1",), ("geneve", "vxlan"), "br-ovn"),
        ),
    ],
)
def test_from_where_ovn_sends(external_ids: dict[str, str], found: Ovn | None) -> None:
    assert records._ovn(external_ids) == found


def test_in_a_transaction_removals_come_last_and_the_last_value_of_a_key_counts() -> None:
    def setting(key: str, value: str | None) -> Setting:
        return Setting("Bridge", "br0", key, value)

    given = [setting("a", None), setting("b", "1"), setting("c", "1"), setting("c", None)]
    given += [setting("d", None), setting("d", "2")]
    found = [(one.key, one.value) for one in database._removals_last(given)]
    assert found == [("b", "1"), ("d", "2"), ("a", None), ("c", None)]


# ---- the schema ---------------------------------------------------------------------------------


FULL = 'OVSDB Error: {"details":"conf.db: write failed","error":"I/O error","io-error":"No space left on device"}'


class Server:
    """Stands in for the library: it refuses transactions with `error`, or those of records that are gone."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, ...], str | None] = {}
        self.error: Exception | None = None

    @contextlib.contextmanager
    def transaction(self, **_: bool) -> Iterator[SimpleNamespace]:
        txn = list[Setting]()
        yield SimpleNamespace(add=txn.append)
        if self.error is not None:
            raise self.error
        if any(setting.record == "gone" for setting in txn):
            raise RuntimeError("Cannot find Interface with name=gone")
        self.stored |= {setting.place: setting.value for setting in txn}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError(FULL), "settings: conf.db: write failed: No space left on device; this is"),
        (
            TimeoutException(commands=[], timeout=10, cause="busy"),
            "it did not answer in time; this",
        ),
    ],
)
def test_what_the_service_writes_survives_a_full_disk(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, server = Database.__new__(Database), Server()
    session = SimpleNamespace(is_connected=lambda: True)
    here.replica = SimpleNamespace(is_current=True, contends=False, _session=session)  # type: ignore[assignment]
    here._api = server  # type: ignore[assignment]
    submitted = list[Event]()
    here._unstored, here._submit, server.error = "", submitted.append, error
    monkeypatch.setattr(Database, "_command", lambda _, setting: setting)
    settings = [
        Setting("Interface", name, "binding", "eth0") for name in ("vnet0", "gone", "vnet1")
    ]
    here._kept = {setting.place: setting for setting in settings}
    for _ in range(3):
        here._write_kept()
    assert len(here._kept) == 3 and not server.stored
    (line,) = caplog.messages
    (unstored,) = submitted
    assert told in line and isinstance(unstored, Unstored) and line.startswith(unstored.why)
    server.error = None
    here._write_kept()
    assert not here._kept, "a record that is gone is not waited for"
    assert submitted == [unstored, Unstored("")]
    assert [place[1] for place in server.stored] == ["vnet0", "vnet1"]


def test_what_a_schema_lacks_is_named_and_nothing_else() -> None:
    def column(name: str) -> dict[str, Any]:
        kind = records.KIND_OF.get(name, "string")
        if kind == "map":
            return {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}
        return {"type": kind}

    tables = {
        name: {"columns": {one: column(one) for one in columns.split()}}
        for name, columns in records.COLUMNS.items()
    }
    schema = {"name": "Open_vSwitch", "version": "7.0.0", "tables": tables}
    assert records.lacking(schema) == ""
    del tables["Mirror"], tables["Interface"]["columns"]["mtu"]
    found = "the database lacks table Mirror, column Interface.mtu (integer)"
    assert records.lacking(schema) == f"{found}; {records.UPGRADE}"
    tables["Interface"]["columns"]["mtu"] = {"type": "string"}
    assert records.lacking(schema) == f"{found}; {records.UPGRADE}"


# ---- servers that are no ovsdb-server --------------------------------------------------------


def refusal_of(server: socket.socket) -> str:
    """What is said about a server when the service starts."""
    with pytest.raises(Refused) as refused:
        database.Database(f"tcp:127.0.0.1:{server.getsockname()[1]}", lambda _: None)
    return str(refused.value)


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "TRANSACTION_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert says(refusal_of(server), "cannot be reached: no answer within 0.2 s; ")


def test_a_server_with_a_schema_that_is_none_is_refused() -> None:
    def answer() -> None:
        caller, _ = server.accept()
        with caller:
            asked = json.loads(caller.recv(4096))
            caller.sendall(json.dumps({"id": asked["id"], "result": [1], "error": None}).encode())
            caller.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        expected = "this is not Open vSwitch's database"
        assert refusal_of(server).endswith(f": {expected}")
