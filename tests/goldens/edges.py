"""The outer edges besides the engine: what goes to switches, the database, programs and people.

Knows names of `controller`, as `adapter` does.
"""

# ruff: noqa: PT008, B023
from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import platform
import random
import shlex
import socket
import struct
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ovs.daemon
import ovs.dirs

from controller import announce_endpoints, from_linux_bond, inbox, rescue, reversal, service
from controller.api.engine_commands import Reply, Setting, Shape
from controller.api.events import (
    AddressesRead,
    BundleDone,
    DatabaseRead,
    PortChanged,
    PortState,
    PortStatsRead,
    Request,
    Shaped,
    UnitCountersRead,
)
from controller.config.rows import Ovn
from controller.dataplane import htb
from controller.dataplane.tables import Kind, cookie
from controller.host import (
    addresses,
    arming,
    client,
    control,
    devices,
    faults,
    forwarding,
    notify,
    qdisc,
)
from controller.host.sockets import is_loopback
from controller.metrics import scrapes
from controller.openflow.commands import encode
from controller.openflow.framework import serialized
from controller.openflow.messages import Asked
from controller.ovsdb import database
from controller.ovsdb import records as rows_read
from controller.ovsdb.leadership import Watch
from controller.replay.host import Host, Options
from controller.replay.switch import Switch
from controller.replay.trace import read as read_trace
from controller.text.wording import Refused
from tests.goldens.adapter import Here, row_of, run_command
from tests.goldens.rendering import digest, indented, told
from tests.goldens.steps import Played
from tests.unit.controller.openflow import switch_bytes
from tests.unit.controller.operations.test_linux_bond import ACTIVE_BACKUP, LACP
from tests.unit.controller.test_from_linux_bond import Pretended
from tests.unit.fuzz import rig, session

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "docs" / "examples" / "replay-trace.csv.gz"


# ---- switches ------------------------------------------------------------------------------


def messages(text: str, most: int = 5) -> Iterator[str]:
    """What a scenario sends to its switch: of each kind of command some, as bytes."""
    here = Played(text)
    here.play()
    sent: dict[str, int] = {}
    for _, command in here.log:
        name = type(command).__name__
        if sent.get(name, 0) >= most:
            continue
        try:
            made = encode(switch_bytes.DATAPATH, command)
        except TypeError:
            continue
        sent[name] = sent.get(name, 0) + 1
        yield name
        for message in made:
            if message.xid is None:
                message.set_xid(1)
        for data in switch_bytes.split(serialized(made)):
            yield f"  {data.hex()}" if len(data) < 160 else f"  {len(data)} {digest(data)}"


class Wire(rig.Rig):
    """A service that notes what its app makes of a switch's bytes, and what it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        put = self._events.put

        def noted(event: Any) -> None:
            if getattr(event, "bridge", "br0") == "br0":
                self.lines.append(f"> {told(event)}")
            put(event)

        self._events.put = noted  # type: ignore[method-assign,assignment]


def heard(texts: Sequence[str]) -> Iterator[str]:
    """What is made of a session with a switch on which these scenarios have left flows and groups."""
    wire = Wire()

    class Connection(rig._Connection):
        def send(self, buf: bytes, close_socket: bool = False) -> bool:
            for data in switch_bytes.split(bytes(buf)):
                # Without the number that the framework chooses at random.
                wire.lines.append(f"< {data[1]} {len(data)} {digest(data[:4] + data[8:])}")
            return super().send(buf, close_socket)

    told_of: list[bytes] = []
    for text in texts:
        played = Played(text)
        played.play()
        switch = played.switch
        flows = map(session.flow_stats, switch.flows.values())
        groups = map(session.group_description, switch.groups.values())
        told_of += session.multipart(Asked.FLOWS, 1, flows)
        told_of += session.multipart(Asked.GROUPS, 7, groups)
        for asked in (Asked.TO_VM, Asked.BUCKETS, Asked.TO_ADDRESS, Asked.FROM_ADDRESS):
            counted = [session.flow_stats(f, 4000 + n) for n, f in enumerate(switch.flows.values())]
            told_of += session.multipart(asked, 1, counted)
        told_of += session.multipart(Asked.FROM_VM, 1, counted)
        told_of += session.multipart(Asked.INBOUND, 1, counted)
    moments = itertools.count(1e9, 0.001)
    with (
        mock.patch.object(rig, "_Connection", Connection),
        # Otherwise a thread encodes them.
        mock.patch.object(service, "LARGE_CHANGES", 1 << 30),
        mock.patch("time.monotonic", lambda: next(moments)),
    ):
        wire.hear([*session.handshake(), *told_of, *session.answers()])
        yield from wire.lines
        wire.lines.clear()
        yield "once more, not dialled"
        wire.hear([*session.handshake(), *session.answers()], dialled=False)
        yield from wire.lines
        wire.lines.clear()
        yield "counters that the switch does not have, then a frame of path checks that came by no port"
        wire.hear([*session.handshake(), *_odd(), session.answers()[0]])
        yield from wire.lines


def _odd() -> Iterator[bytes]:
    uncounted = struct.pack("!I4x12QII", 1, *[2**64 - 1] * 12, 100, 0)
    yield from session.multipart(Asked.PORTS, 4, [uncounted])
    head = struct.pack("!IHBBQHH4x2x", 1, 60, 0, 0, cookie(Kind.PROBE, 0), 1, 4)
    yield switch_bytes.message(10, 0, head + bytes(60))
    yield switch_bytes.message(12, 0, struct.pack("!B7x", 2) + session.port(1, "eth1", 1))


def in_turn() -> Iterator[str]:
    """The order in which the inbox gives out what waits."""
    box, chance = inbox.Inbox(), random.Random("inbox")
    made: tuple[Callable[[str, int], Any], ...] = (
        lambda bridge, n: PortStatsRead(bridge, ()),
        lambda bridge, n: UnitCountersRead(bridge, (), tuple(((n, k), None) for k in range(n))),  # type: ignore[misc]
        lambda bridge, n: BundleDone(bridge, n),
        lambda bridge, n: PortChanged(bridge, PortState(n, "eth1", True, 0.0)),
        lambda bridge, n: Request(n, ("show",)),
    )
    for n in range(400):
        if chance.random() < 0.6:
            event = chance.choice(made)(chance.choice(("br0", "br0", "br0", "br1", "br2")), n)
            yield f"put {n} {type(event).__name__} {getattr(event, 'bridge', '')} {box.is_full_of(event)}"
            box.put(event)
        elif len(box):
            due = chance.random() < 0.5
            taken = box.next_item(time.monotonic() + (-1.0 if due else 1000.0))
            text = told(taken) if not isinstance(taken, UnitCountersRead) else taken.bridge
            yield f"take {due}: {text} {len(box)}"


# ---- the database --------------------------------------------------------------------------


def _columns(**columns: Any) -> SimpleNamespace:
    unset = dict.fromkeys(
        ("stp_enable", "rstp_enable", "mcast_snooping_enable", "protected"), False
    )
    maps = (
        "external_ids",
        "other_config",
        "flow_tables",
        "status",
        "rstp_status",
        "bfd",
        "options",
    )
    lists = (
        *("interfaces", "ports", "qos", "tag", "lacp", "bond_mode", "vlan_mode", "trunks", "mtu"),
        *("bond_active_slave", "ofport", "link_speed", "mac_in_use", "lacp_current", "cfm_mpid"),
        *("fail_mode", "flood_vlans", "mirrors", "controller", "protocols", "datapath_id"),
        *("output_port", "output_vlan"),
    )
    made = {**unset, **{name: {} for name in maps}, **{name: [] for name in lists}}
    other = {"type": "", "datapath_type": "", "bond_updelay": 0, "bond_downdelay": 0}
    return SimpleNamespace(**{**made, **other, **columns})


def _replica(name: str, **columns: Any) -> SimpleNamespace:
    return _columns(uuid=name, name=name, **columns)


def records() -> Iterator[str]:
    """Records as the library has them, as values; and settings as the library is told them."""
    interfaces = [
        _replica(
            "eth1", ofport=[1], link_speed=[10**9], mtu=[1500], mac_in_use=["02:00:00:00:00:01"]
        ),
        _replica("eth2", ofport=[2], lacp_current=[True], bfd={"enable": "true"}, cfm_mpid=[5]),
        _replica(
            "g0",
            type="geneve",
            options={"local_ip": "192.0.2.1", "remote_ip": "192.0.2.9"},
            status={"tunnel_egress_iface": "eth0"},
        ),
        _replica("p0", type="patch", options={"peer": "p1"}, ofport=[-1], link_speed=[0]),
        _replica("d0", type="dpdk", options={"dpdk-devargs": "0000:01:00.0,representor=[1]"}),
        _replica("r0", status={"driver_name": "mlx5e_rep"}, external_ids={"vm-id": "web"}),
        _replica("t0", status={"driver_name": "tun"}),
        _replica("c0", status={"driver_name": "mlx5_core"}),
    ]
    rate = _columns(other_config={"max-rate": "900000000"})
    words = _columns(other_config={"max-rate": "9e8"})
    trunk: dict[str, Any] = {"trunks": [9, 7], "vlan_mode": ["trunk"], "qos": [words]}
    trunk["status"] = {"stp_state": "listening"}
    rstp = {"rstp_port_state": "Discarding"}
    discarding: dict[str, Any] = {"rstp_status": rstp, "protected": True}
    ports = [
        _replica(
            "bond0",
            interfaces=interfaces[1::-1],
            bond_mode=["active-backup"],
            lacp=["active"],
            bond_active_slave=["02:00:00:00:00:01"],
            other_config={"lacp-fallback-ab": "true"},
        ),
        *(_replica(one.name, interfaces=[one], tag=[7], qos=[rate]) for one in interfaces[2:4]),
        *(_replica(one.name, interfaces=[one], **trunk) for one in interfaces[4:6]),
        *(_replica(one.name, interfaces=[one], **discarding) for one in interfaces[6:]),
    ]
    mirror = _replica("m0", output_port=[ports[1]], output_vlan=[20])
    rows = {
        "br1": _replica("br1", ports=ports[3:], datapath_type="netdev"),
        "br0": _replica("br0", ports=ports[2::-1], fail_mode=["secure"], flood_vlans=[20, 9],
                        mirrors=[mirror], controller=[_columns(target="tcp:192.0.2.7:6653")],
                        protocols=["OpenFlow13", "OpenFlow10"], datapath_id=["00000000000000ab"],
                        other_config={"forward-bpdu": "true"}, external_ids={"ovs-lbt-policy": "slb"},
                        stp_enable=True),
    }  # fmt: skip
    root = _columns(
        ovs_version=["3.1.0"],
        other_config={"hw-offload": "TRUE", "tc-policy": "skip_sw", "flow-restore-wait": "true"},
        external_ids={"ovs-lbt-leader": "a@b", "ovn-encap-ip": "192.0.2.1,192.0.2.2",
                      "ovn-encap-type": "geneve,vxlan", "ovn-bridge-mappings": "net:br0,x:br1",
                      "ovn-bridge": "br-own", "ovs-lbt-key-loss-grace-s": "7"},
    )  # fmt: skip
    for one in (None, root):
        other, read = rows_read.root([one] if one else [])
        yield told(other)
        yield told(read)

    def is_representor(name: str) -> bool:
        return name != "c0"

    def offloads(name: str, driver: str | None) -> bool | None:
        return None if driver is None else name == "c0"

    with mock.patch.multiple(devices, is_representor=is_representor, offloads=offloads):
        for local in (False, True):
            bridges = rows_read.Bridges(local)
            for of in ("", "Interface eth1", "QoS x", "Open_vSwitch ."):
                touched: set[Any] = {tuple(of.split())} if of else set()
                before = bridges.read_records(rows, set(), other)
                after = bridges.read_records(rows, touched, other)
                again = [a.name for a, b in zip(before, after, strict=True) if a is not b]
                yield f"touched {sorted(touched)}: {again}"
            for row in after:
                yield f"bridge {told(replace(row, ports=()))}"
                yield from (f"  {told(port)}" for port in row.ports)
    yield from _written()


def _written() -> Iterator[str]:
    said: list[str] = []

    class Library:
        @contextlib.contextmanager
        def transaction(self, **options: Any) -> Iterator[Any]:
            said.append(f"transaction {told(options)}")
            yield SimpleNamespace(add=said.append)

        def __getattr__(self, name: str) -> Callable[..., str]:
            return lambda *words, **options: f"  {name} {told(words)} {told(options)}"

    made: Any = object.__new__(database.Database)
    connected = SimpleNamespace(is_connected=lambda: True)
    idl: Any = SimpleNamespace(
        _session=connected,
        is_current=True,
        lacking="",
        contends=False,
        leads=False,
        has_lock=False,
    )
    made.replica, made._api, made._remote, made._kept = idl, Library(), "unix:x", {}
    settings = (
        Setting("Bridge", "br0", "ovs-lbt-policy", None),
        Setting("Bridge", "br0", "ovs-lbt-mode", "observe"),
        Setting("Port", "eth1", "protected", "true", column="protected"),
        Setting("Bridge", "br0", "fail_mode", None, column="fail_mode"),
        Setting("Bridge", "br0", "fail_mode", "secure", column="fail_mode"),
        Setting("Interface", "vnet0", "ovs-lbt-binding", "eth1"),
    )
    for applied in (False, True):
        said.append(f"error {made._commit(settings, applied)}")

    class Refusing(Library):
        @contextlib.contextmanager
        def transaction(self, **_: Any) -> Iterator[Any]:
            yield SimpleNamespace(add=lambda _: None)
            raise ValueError("constraint violation")

    made._api = Refusing()
    for idl.contends, idl.leads, idl.has_lock in itertools.product((False, True), repeat=3):
        said.append(f"{idl.contends} {idl.leads} {idl.has_lock} error {made._commit(settings)}")
    made._api = Library()
    idl.contends = idl.leads = idl.has_lock = False
    made._kept = {setting.place: setting for setting in (*settings, *settings[:1])}
    made._write_kept()
    idl.contends = True
    said.append(f"error {made._commit(settings)}")
    idl.contends, connected.is_connected = False, lambda: False
    said.append(f"error {made._commit(settings)}")
    yield from said


def election() -> Iterator[str]:
    """Three services elect who leads, while one after another hangs, or the database is away."""
    chance, now_s = random.Random("election"), 0.0
    watch = Watch()
    for step in range(160):
        now_s += chance.choice((0.05, 0.25, 0.3))
        match chance.randrange(6):
            case 0:
                leads = chance.random() < 0.4
                yield f"{now_s:.2f} begin {leads}: {told(watch.begin(leads, now_s))}"
            case 1:
                lock = chance.choice(("ovs_lbt", "ovs_lbt_pulse", "ovs_lbt_watch"))
                ours = step % 2 > 0
                yield f"{now_s:.2f} lock {lock} {ours}: {watch.lock_changed(lock, ours)}"
            case 2:
                yield f"{now_s:.2f} answer: {told(watch.answer())}"
            case _:
                asked = watch.tick(now_s)
                yield f"{now_s:.2f} tick: {told(asked)} next {told(watch.due_s)}"
                for one in asked if chance.random() < 0.8 else ():
                    watch.replied(one, chance.random() < 0.9)


# ---- programs of the host ------------------------------------------------------------------


class Programs:
    """Stands in for all programs that are run: notes them, and answers those that it knows.

    Of several answers to one command, each is given once, the last one again and again.
    """

    def __init__(self, **answers: str | list[str]) -> None:
        self.answers = dict(answers)
        self.lines: list[str] = []

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.lines.append(f"run {shlex.join(command)}")
        self.lines += indented(options.get("input") or "")
        line = " ".join(word for word in command if not word.startswith("--timeout"))
        known = [name for name in self.answers if name in line]
        if not known:
            return subprocess.CompletedProcess(command, 1, "", "no answer\n")
        said = self.answers[max(known, key=len)]
        if isinstance(said, list):
            said = said.pop(0) if len(said) > 1 else said[0]
        return subprocess.CompletedProcess(command, 0, said, "")


@contextlib.contextmanager
def _host(programs: Programs, *sockets: str) -> Iterator[Path]:
    """A run directory of its own with these sockets, in which time passes only while somebody sleeps."""
    clock = [1000.0]

    def sleep(seconds: float) -> None:
        programs.lines.append(f"sleep {seconds:.3g}")
        clock[0] += seconds

    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="goldens")))
        for name in sockets:
            wire = stack.enter_context(socket.socket(socket.AF_UNIX))
            wire.bind(str(directory / name))
        stack.enter_context(mock.patch.object(ovs.dirs, "RUNDIR", str(directory)))
        stack.enter_context(mock.patch.object(ovs.dirs, "LOGDIR", str(directory)))
        stack.enter_context(mock.patch("subprocess.run", programs.run))
        stack.enter_context(mock.patch("time.sleep", sleep))
        stack.enter_context(mock.patch("time.monotonic", lambda: clock[0]))
        yield directory


def _typed(programs: Programs, directory: Path, *lines: str) -> Iterator[str]:
    for line in lines:
        yield f"$ ovs-lbt {line}"
        yield from _anywhere([*run_command(line.split()), *programs.lines], directory)
        programs.lines.clear()


def _anywhere(lines: Iterable[str], directory: Path) -> Iterator[str]:
    """Lines without the name of the run directory."""
    return (line.replace(str(directory), "RUNDIR") for line in lines)


def _three_seconds(team: str) -> Here:
    """What has become of a team after its first three seconds."""
    here = Played(team)
    here.start()
    here.run_for(3.0)
    return here


def rescued() -> Iterator[str]:
    plain = ("plain", "uplinks=3", "vms=1", "eth1.role=standby", "vnet0@mac='02:00:00:00:00:0a'")
    others = (("bond",), ("plain", "unattached"), ("plain", "policy=dynamic"))
    rows = row_of(plain), *(row_of(team, f"br{n}") for n, team in enumerate(others, 1))
    read = DatabaseRead(rows, ovn=Ovn(("192.0.2.1",)))
    up: dict[str, Any] = {"get interface": ["down\n", "down\n", "up\n"]}
    flows = "cookie=0x6c627400, actions=drop\n"
    down = {"get interface": "down\n"}
    answered: tuple[dict[str, Any], ...] = ({**up}, down, {**up, "dump-flows": flows}, {})
    here = AddressesRead({"vnet0": ("192.0.2.1", "fd00::1")})
    for number, answers in enumerate(answered):
        known = {"ovs-ofctl": "", "ovs-appctl": "", "protocols": "[OpenFlow13]", "ovs-vsctl": ""}
        programs = Programs(**(known if number < 3 else {}), **answers)
        with (
            _host(programs, "br0.mgmt", "br3.mgmt") as directory,
            mock.patch.object(rescue, "read", lambda _: read),
            mock.patch("controller.announce_endpoints.read", lambda _: read),
            mock.patch.object(addresses, "read_addresses", lambda: here),
        ):
            yield from _typed(programs, directory, "rescue br0", "rescue br1", "rescue br9")
            yield from _typed(programs, directory, "rescue br2", "rescue --all")


def completed(lines: Iterable[str]) -> Iterator[str]:
    """The words that are offered, with the names that ovs-vsctl knows."""

    def table(*rows: Sequence[Any], headings: str) -> str:
        return json.dumps({"headings": headings.split(","), "data": rows})

    def ids(*names: str) -> list[Any]:
        return ["set", [["uuid", name] for name in names]]

    def one(name: str, *ports: str, **keys: str) -> list[Any]:
        ours = [[f"ovs-lbt-{key}", text] for key, text in keys.items()]
        return [name, ids(*ports), ["map", ours]]

    ports = [[["uuid", f"p{n}"], f"p{n}", ["uuid", f"i{n}"]] for n in range(2, 6)]
    ports.append([["uuid", "pb"], "bond0", ids("i0", "i1")])
    names = ("eth0", "eth1", "vnet0", "vnet1", "eth2", "tap7")
    interfaces: list[list[Any]] = [
        [["uuid", f"i{n}"], name, ["map", [["vm-id", "web"]] if name == "vnet0" else []]]
        for n, name in enumerate(names)
    ]
    printed = (
        table(
            one("br0", "pb", "p2", policy="slb"),
            one("br1", "p3", "p4", policy="slb", uplinks="eth2"),
            one("free", "p5"),
            headings="name,ports,external_ids",
        ),
        table(*ports, headings="_uuid,name,interfaces"),
        table(*interfaces, headings="_uuid,name,external_ids"),
    )
    for programs in (Programs(**{"ovs-vsctl": "\n".join(printed)}), Programs()):
        with _host(programs) as directory:
            yield f"with {len(programs.answers)} answers"
            for line in lines:
                yield f"{line}|"
                yield from run_command(["__complete", *line.split(" ")])
                yield from _anywhere(programs.lines, directory)
                programs.lines.clear()


def upstream() -> Iterator[str]:
    """What `check` adds of counters of the network."""
    cookie = "cookie=0x6c62740000000000, duration=9.1s, "
    flow = cookie + "table={}, n_packets={}, n_bytes=9, priority={},{} actions=drop\n"
    multicast = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"
    for counts in ((500, 0, 900, 0), (500, 300, 900, 900), (5, 0, 2, 0), (900, 0, 3000, 1000)):
        sent, back, first, second = counts
        dumped = "".join(
            flow.format(table, count, 10, match)
            for table in range(26)
            for count, match in (
                (sent, multicast), (back, f"reg4=0x1,reg5=0x1,reg6=0x1,{multicast}"),
                (first, "reg1=0x1,reg2=0"), (second, "reg1=0x2,reg2=0"), (second, "reg1=0x2,reg2=0x1007"),
                (first, "reg1=0x1,reg2=0x1007"),
            )
        )  # fmt: skip
        listed = {
            "headings": ["name", "mtu", "link_speed", "statistics"],
            "data": [
                ["eth1", 1500, 10**9, ["map", [["rx_packets", 5000]]]],
                ["eth2", 9000, 10**10, ["map", [["rx_packets", 0]]]],
            ],
        }
        for team in ("bond policy=load-based", "static policy=load-based"):
            here = _three_seconds(team)
            here.lines.clear()
            programs = Programs(**{"dump-flows": dumped, "ovs-vsctl": json.dumps(listed)})
            with _host(programs, "br0.mgmt"):
                here.quiet = True
                here.do_cli("check")
                here.do_cli("check", "--json")
            yield f"{team} {counts}"
            yield from here.lines
            yield from programs.lines


def planned_endpoints() -> Iterator[str]:
    rows = [
        row_of(("bond", "policy=dynamic", "vnet0@mac='02:00:00:00:00:01'")),
        row_of(
            (
                *("plain", "unattached", "vms=4", "vnet0-br-int@kind='geneve'"),
                *("vnet0-br-int@tunnel=192.0.2.1,vnet0,192.0.2.9", "vnet1-br-int!iface-id=a"),
                *("vnet2-br-int!iface-id=b", "vnet3-br-int!iface-id=c"),
            ),
            "br-int",
        ),
    ]
    names = [f"vnet{n}-br-int" for n in range(4)] + ["vnet0", "vnet1"]

    def listed(scale: int) -> str:
        data = [
            [name, ["map", [["rx_bytes", 10**8 * n * scale], ["tx_bytes", 10**7 * scale]]]]
            for n, name in enumerate(names)
        ]
        return json.dumps({"headings": ["name", "statistics"], "data": data})

    encaps = ("192.0.2.1", "192.0.2.2")
    for ovn in (None, Ovn(encaps), Ovn(encaps, bridge="br-x")):
        answers: dict[str, Any] = {"list Interface": [listed(1), listed(4)]}
        programs = Programs(**answers, **{"get Open_vSwitch": '"7000"\n'})
        read = DatabaseRead(tuple(rows), ovn=ovn)
        devices_of = {"vnet0": ("192.0.2.1",), "vnet1": ("192.0.2.2",)}
        with (
            _host(programs) as directory,
            mock.patch.object(announce_endpoints, "read", lambda _, read=read: read),
            mock.patch.object(addresses, "read_addresses", lambda: AddressesRead(devices_of)),
        ):
            yield from _typed(programs, directory, "plan --endpoints", "plan --endpoints --json")


def bundled() -> Iterator[str]:
    """What is in a support bundle, and what had to be run for it."""
    keys = ["map", [["ovs-lbt-policy", "slb"], ["password", "secret"]]]
    row = json.dumps({"headings": ["name", "external_ids"], "data": [["br0", keys]]})
    line = "2026-01-0{0}T00:00:00Z host ovs-vswitchd[1]: line {0} password=x\n"
    log = "".join(map(line.format, range(1, 9)))
    answers = {"find Bridge": "br0 br1\n", "list ": row, "journalctl": log, "ps -eo": log}
    programs = Programs(**answers)
    # Python runs `uname -p` once in a process, and keeps the answer.
    platform.processor()
    with _host(programs) as directory:
        (directory / "ovs-vswitchd.log").write_text(log)
        yield f"$ ovs-lbt support-bundle --out {directory.name[:0]}FILE"
        out = directory / "bundle.tar.gz"
        said = list(run_command(["support-bundle", "--out", str(out)]))
        yield from _anywhere((line for line in said if "/proc" not in line), directory)
        with tarfile.open(out) as archive:
            for member in archive.getmembers():
                part = member.name.partition("/")[2]
                yield f"{part} {member.mode:o}"
                if part not in ("versions", "README", "options"):
                    content = archive.extractfile(member)
                    yield from indented(content.read().decode() if content else "")
        yield from _anywhere(programs.lines, directory)


def moved_bonds() -> Iterator[str]:
    """A bond of Linux becomes one of Open vSwitch, and back, with what fails in between."""
    fails = ("", "ip link set eth0", "ovs-vsctl --id", "link set eth1", "addr replace", "ping")
    for data in (ACTIVE_BACKUP, LACP):
        for failing in fails:
            host = Pretended(data=dict(data), fails=failing)
            programs = Programs()
            quick = ("GATEWAY_PATIENCE_S", "LINK_PATIENCE_S", "LACP_PATIENCE_S", "CHECK_INTERVAL_S")
            no_waits: dict[str, Any] = dict.fromkeys(quick, 0.0)
            with (
                _host(programs) as directory,
                mock.patch.object(from_linux_bond, "run", host.run),
                mock.patch("shutil.which", lambda tool: tool),
                mock.patch.object(client, "running", lambda: True),
                mock.patch.object(client, "ask", lambda method, words, *_: f"{method} {words}\n"),
                mock.patch.multiple(from_linux_bond, **no_waits),
            ):
                yield f"fails: {failing}"
                for line in (
                    "attach br0 --from-bond bond0",
                    "attach br0 --from-bond bond0 --yes",
                    "detach br0 --to-bond bond0",
                    "detach br0 --to-bond bond0 --yes",
                ):
                    yield from _typed(programs, directory, line)
                    yield from (f"said {one}" for one in host.said)
                    host.said.clear()
                yield told(host.state())


def reverted() -> Iterator[str]:
    """Confirm and rollback without a service."""
    record = {
        "what": "attach",
        "until": 1_800_000_050.0,
        "seconds": 60,
        "back": [["Bridge", "br0", "ovs-lbt-policy", None, "external_ids"]],
    }
    for text in (json.dumps(record), '{"what": 1}', ""):
        keys = [["ovs-lbt-policy", "slb"], *([["ovs-lbt-unconfirmed", text]] if text else [])]
        row = {"headings": ["external_ids"], "data": [[["map", keys]]]}
        programs = Programs(**{"list bridge": json.dumps(row), "ovs-vsctl": ""})

        def once(_: str, programs: Programs = programs) -> int:
            programs.lines.append("once")
            return 0

        with (
            _host(programs) as directory,
            mock.patch.object(reversal, "once", once),
            mock.patch("time.time", lambda: 1_800_000_000.0),
        ):
            yield from _typed(programs, directory, "confirm br0", "rollback br0", "show", "history")
    with mock.patch.dict(os.environ, {"PATH": "/bin", "OVS_RUNDIR": "/run"}, clear=True):
        for wait_s in (0.0, 60.0):
            words = arming.systemd_run("unit", "br0", wait_s, "ovs-lbt-b")
            yield shlex.join(words[: words.index("--")]) + " " + shlex.join(words[-4:])


def queued(texts: Sequence[str]) -> Iterator[str]:
    """What `tc` is told for the queues of these scenarios, and what is made of its answers."""
    handle = f"{htb.HANDLE:x}:"
    ours = [
        {"kind": "htb", "handle": handle, "root": True},
        {"kind": "fq_codel", "handle": "8001:", "parent": f"{handle}a"},
        {"kind": "pfifo", "handle": "0:", "parent": f"{handle}b"},
    ]
    classes = f"class htb {handle}a root prio 0\n Sent 5 bytes 1 pkt (dropped 7, overlimits 0)\n"
    mark = {"bytecode": {"insns": [{"code": 6, "jt": 1, "jf": 2, "k": 77}]}, "handle": "0x2"}
    foreign = [{"kind": "cake", "handle": "8002:", "root": True}]
    shapes: dict[str, Shape] = {}
    for text in texts:
        played = Played(text)
        played.play()
        made = (c for _, c in played.log if isinstance(c, Shape))
        shapes |= {told(command): command for command in made}
    for qdiscs in ([], ours, foreign):
        answers = {"class show": classes, "filter show": json.dumps([{"options": mark}])}
        programs = Programs(**answers, **{"qdisc show": json.dumps(qdiscs), "tc -batch": ""})
        for here in (True, False):
            with _host(programs), mock.patch.object(qdisc, "_host", lambda _: htb.Host()):
                shaping = qdisc.Qdiscs(lambda _: None, here)
                for command in shapes.values():
                    done: Shaped = shaping.carry_out(command)
                    yield told(done)
                    yield from programs.lines
                    programs.lines.clear()


ROLES = {True: "Role.REPRESENTOR", False: "Role.PORT", None: "None"}


def of_the_host() -> Iterator[str]:
    """Small things: addresses, devices, learned addresses, a supervisor, faults that are kept."""
    programs = Programs(**{"protocols": '["OpenFlow13"]', "ovs-": ""})
    with _host(programs) as directory:
        forwarding.forward("br0", "eth1", ("eth2", "eth3"))
        yield from programs.lines
        for name in ("p0", "pf0vf1", "c1pf0sf2", "pf0hpf", "p0s1", "x"):
            (directory / name).mkdir()
            (directory / name / "phys_port_name").write_text(f"{name}\n")
            yield f"{name} {ROLES[devices.is_representor(name, directory)]}"
        none, beyond = (devices.is_representor(name, directory) for name in ("none", "../x"))
        yield f"{none} {beyond} {devices.offloads('lo', None)}"
        yield from _ethtool()
        kept = directory / "faults"
        ledger, said = faults.Ledger(), list[Any]()
        ledger.open(kept, said.append, lambda: said.append("end"))
        with mock.patch("time.time", lambda: 1_800_000_000.0):
            told_of = ("lines", False, False), ("lines", False, True), ("engine", True, False)
            for part, ends, again in told_of:
                yield ledger.report(part, ValueError("x\ny"), "line br0", ends, again)
        second = faults.Ledger()
        second.open(kept, said.append, lambda: None)
        yield from (told(one) for one in said)
        yield f"{told(ledger.counts())} {told(second.counts())}"
        yield kept.read_text()
        kept.write_text('{"lines": [1, "x", 3], "engine": [2, 5.0, "text"], "odd": 4}')
        second.open(kept, lambda fault: said.append(told(fault)), lambda: None)
        yield said[-1]
    yield from map(str, forwarding.parse_forwarding(
        " port  VLAN  MAC                Age\n    1    0  52:54:00:00:00:01   12\nLOCAL 7  02:00:00:00:00:02 3\nodd line\n"))  # fmt: skip
    for family, scope, of in ((2, 0, 1), (2, 253, 1), (10, 0, 2), (2, 0, 2), (7, 0, 1)):
        packed = bytes([192, 0, 2, of]) if family == 2 else bytes(15) + bytes([of])
        body = struct.pack("=BBBBI", family, 24, 0, scope, 3)
        for kind in (1, 2):
            body += struct.pack("=HH", 4 + len(packed), kind) + packed
            packed = packed[:-1] + b"\x09"
        message = struct.pack("=IHHII", 16 + len(body), 20, 0, 1, 0) + body
        found = list(addresses.parts(message * 2 + b"rest", addresses.MESSAGE))
        yield f"{len(found)} {found[0][0]} {addresses.address(found[0][1])}"
    hosts = ("127.0.0.1", "::1", "192.0.2.1", "localhost", "x")
    yield " ".join(f"{host} {is_loopback(host)}" for host in hosts)
    yield from _supervised()


def _ethtool() -> Iterator[str]:
    """What the kernel is asked about a device, as a kernel that knows three features answers."""
    said: list[str] = []

    def ioctl(_socket: object, request: int, named: bytes) -> None:
        name, address = struct.unpack_from("16sP", named)
        asked = ctypes.string_at(address, 24)
        said.append(f"{request:#x} {name.decode()} {asked[:4].hex()}")
        number = int.from_bytes(asked[:4], "little")
        if number == 0x37:
            ctypes.memmove(address + 16, struct.pack("=I", 3), 4)
        elif number == 0x1B:
            names = (b"tx-checksum", b"hw-tc-offload", b"x")
            ctypes.memmove(address + 12, b"".join(one.ljust(32, b"\0") for one in names), 96)
        elif number == 0x3A:
            ctypes.memmove(address + 8, struct.pack("=IIII", 2, 0, 0, 0), 16)

    with mock.patch("fcntl.ioctl", ioctl):
        devices._feature.cache_clear()
        said.append(f"{devices.offloads('eth1', 'mlx5_core')} {devices.offloads('b', 'bonding')}")
    devices._feature.cache_clear()
    yield from said


def _supervised() -> Iterator[str]:
    usec = {"WATCHDOG_USEC": "4000000"}
    for watchdog in (usec, {**usec, "WATCHDOG_PID": "1"}, {}):
        with (
            tempfile.TemporaryDirectory() as directory,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire,
        ):
            wire.bind(f"{directory}/notify")
            wire.setblocking(False)
            told_to = notify.Supervisor({"NOTIFY_SOCKET": f"{directory}/notify", **watchdog})
            for at_s in (0.0, 1.0, 2.0, 3.9, 4.0, 9.0):
                told_to.feed(at_s)
                yield f"{at_s} {told_to.feed_due_s}"
            for _ in range(2):
                told_to.ready()
                told_to.status("1 of 2\nbridges")
            told_to.stopping()
            with contextlib.suppress(BlockingIOError):
                while True:
                    yield wire.recv(999).decode()


def sockets() -> Iterator[str]:
    """Requests over the control socket, and scrapes over HTTP."""
    with tempfile.TemporaryDirectory(prefix="goldens") as directory:
        with (
            mock.patch.object(ovs.dirs, "RUNDIR", directory),
            mock.patch.object(ovs.util, "PROGRAM_NAME", "ovs-lbt"),
        ):
            seen: list[str] = []
            server: Any = None

            def submit(request: Request) -> None:
                seen.append(told(replace(request, request_id=0)))
                server.reply(
                    Reply(request.request_id, f"{request.words[0]}\a é", request.words[-1] == "no")
                )

            server = control.Server(submit, "1.2.3")
            Path(directory, "ovs-lbt.pid").write_text(f"{os.getpid()}\n")
            over = threading.Event()

            def call() -> None:
                calls = "lbt/show --json|lbt/move vnet0 no|lbt/move vnet0|lbt/none|version"
                calls += "|list-commands|lbt/history 1 2 3 4 5 6|help"
                for method, *words in map(str.split, calls.split("|")):
                    try:
                        seen.append(f"{method} {client.ask(method, words)}")
                    except client.Unanswered as error:
                        seen.append(f"{method} Unanswered {error}")
                    except Refused as error:
                        seen.append(f"{method} Refusal {error}")
                seen.append(f"running {client.running()} another {client.another()}")
                over.set()
                server.wake()

            caller = threading.Thread(target=call, daemon=True)
            caller.start()
            server.serve(lambda: not over.is_set())
            caller.join(5)
            server._server.close()
        yield from (
            line.replace(directory, "RUNDIR").replace(str(os.getpid()), "PID") for line in seen
        )
    application = _three_seconds("bond policy=load-based").exporter.application
    served = scrapes.serve(application, "127.0.0.1", 0, None)
    port = served.server_address[1]
    for path in ("/metrics", "/", "/metrics?name[]=ovslbt_leader", "/none"):
        for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
            url, headers = f"http://127.0.0.1:{port}{path}", {"Accept": accept}
            asked = urllib.request.Request(url, headers=headers)
            with urllib.request.urlopen(asked, timeout=5) as answer:
                lines = answer.read().decode().splitlines()
                kept = [line for line in lines if "_created" not in line]
                yield f"{path} {answer.status} {answer.headers['Content-Type']} {len(kept)} {digest(told(kept))}"
    served.shutdown()
    served.server_close()


# ---- people --------------------------------------------------------------------------------


def helped(commands: Sequence[str]) -> Iterator[str]:
    """Help, the scripts of shells, wrong usage, and the man page."""
    with _host(Programs()) as directory:
        for line in commands:
            yield f"$ ovs-lbt {line}"
            yield from _anywhere(run_command(line.split()), directory)
    yield from (ROOT / "docs" / "ovs-lbt.8").read_text().splitlines()


def replayed(policy: str, samples: int, **settings: str) -> Iterator[str]:
    """Moves with times, and figures, of recorded traffic."""
    (host, *_) = read_trace(TRACE)
    host.samples = {
        at_s: loads for n, (at_s, loads) in enumerate(host.samples.items()) if n < samples
    }
    lines: list[str] = []
    commit = Switch.commit

    def noted(switch: Switch, changes: Any, now_s: float) -> None:
        before: Any = dict(switch.routes), dict(switch.bucket_uplinks)
        commit(switch, changes, now_s)
        after: Any = dict(switch.routes), dict(switch.bucket_uplinks)
        for was, is_now in zip(before, after, strict=True):
            moved = {key: at for key, at in is_now.items() if was.get(key) != at}
            lines.extend(
                f"{now_s:.3f} {told(key)}: {told(at)}" for key, at in sorted(moved.items())
            )

    with mock.patch.object(Switch, "commit", noted):
        figures = Host(
            host, policy, Options(settings=settings, uplinks=3 if settings else 2)
        ).replay()
    yield from lines
    yield told(figures.as_json())


def commands_of(parser_help: Iterable[str]) -> list[str]:
    """The commands that the help of all lists."""
    found = (
        line.split() for line in parser_help if line.startswith("    |     ") and line[10] != " "
    )
    return [words[0] for words in found if len(words) > 1 and words[0].isascii()]
