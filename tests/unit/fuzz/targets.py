"""What is fuzzed: for each way in from outside, the cases and what must hold of each."""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import json
import os
import socket
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ovs.unixctl.server
from hypothesis import strategies as st

from controller.api import requests
from controller.api.commands import REQUESTS as OF_SERVICE
from controller.api.engine_commands import DeliverFrame, Reply, SendFrame
from controller.api.events import (
    BundleDone,
    Event,
    FrameHeard,
    InboundRead,
    LearnedRead,
    PortChanged,
    PortCounters,
    PortFlagsSet,
    PortRemoved,
    PortState,
    PortStatsRead,
    Request,
    Sample,
    SelectGroupAdded,
    SwitchConnected,
    UnitCountersRead,
)
from controller.api.history import Names
from controller.cli import answers, arguments, completion, run
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_KEYS
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.dataplane import frames
from controller.dataplane.tables import ETH_ARP, ETH_IPV6
from controller.host import control, journal
from controller.operations import linux_bond, unconfirmed
from controller.ovsdb import records
from controller.replay import command as replay_command
from controller.replay.figures import fluid_bound
from controller.replay.host import Options
from controller.replay.prometheus import fetch
from controller.replay.run import replay
from controller.replay.switch import Mix
from controller.replay.trace import COLUMNS, BadTrace, HostTrace, read
from controller.teaming import own_addresses
from controller.text.wording import Refused
from policies.presets import PRESETS
from tests.unit.fake_switch import World, world
from tests.unit.fuzz import session
from tests.unit.fuzz.rig import Rig
from tests.unit.rows import bond, bridge, host, interface, port

# Longer than any case takes on a machine that has other things to do.
CASE_TIMEOUT_S = 20.0
SHORT_REPLAY = 40


# For how long `make fuzz` searches.
LONG_S, SHORT_S = 600, 60


@dataclass(frozen=True)
class Target:
    """`weight`: how many cases the short run has, among those of others. `seconds`: how long the search is."""

    cases: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    weight: int
    seconds: int = SHORT_S


# ---- what is strange ---------------------------------------------------------------------

STRANGE_TEXTS = st.sampled_from(
    [
        *("", " ", "\n", "\0", "\x1b[2J", "\u2028", "\u202e", "\ud800", "é" * 300, "a" * 100_000),
        *("²", "٣", "1e999", "-0", "nan", "inf", "-1", "1_0", "0x10", "9" * 5000, "1:9999"),
        *("nan:1", "1:-1", "0:99999999999999", "!", "!!", ",", "!eth1,!eth2", "eth1,eth1"),
        *("--json", "=", "__proto__", "../../etc/passwd", "%s%n", "{}", "[]", "null", "true"),
        *("True", "TRUE"),
    ]
)
TEXTS = (
    STRANGE_TEXTS | st.text(max_size=20) | st.sampled_from(["eth1", "eth2", "vnet0", "br0", "5"])
)
NUMBERS = st.sampled_from([0, 1, 2, 0xFFFE, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1, -1]) | (
    st.integers(0, 20)
)
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["byte", "u16", "cut", "drop", "insert", "double"]),
        st.integers(0, 65535),
        st.sampled_from([0, 1, 4, 7, 8, 16, 255, 256, 65535]) | st.integers(0, 65535),
    ),
    max_size=4,
)


def mutated(data: bytes, mutations: list[tuple[str, int, int]]) -> bytes:
    """Good bytes, made bad in these ways one after another."""
    for how, where, value in mutations:
        at = where % (len(data) + 1)
        match how:
            case "byte":
                data = data[:at] + bytes([value & 0xFF]) + data[at + 1 :]
            case "u16":
                at &= ~1
                data = data[:at] + value.to_bytes(2, "big") + data[at + 2 :]
            case "cut":
                data = data[:at]
            case "drop":
                data = data[:at] + data[at + value % 64 :]
            case "insert":
                data = data[:at] + bytes([value & 0xFF]) * (value % 64) + data[at:]
            case "double":
                data = data[:at] + data[at : at + value % 256] * 2 + data[at + value % 256 :]
    return data


# ---- OpenFlow ----------------------------------------------------------------------------

MESSAGES = st.tuples(st.sampled_from(range(len(session.answers()))), MUTATIONS)


def _openflow(case: tuple[bool, list[Any], list[Any], bytes]) -> None:
    """A hostile switch, beside a good one."""
    dialled, shaken, said, rest = case
    rig = Rig()
    hands = session.handshake()
    for number, mutations in shaken:
        hands[number] = mutated(hands[number], mutations)
    answers = session.answers()
    rig.hear([*hands, *(mutated(answers[n], how) for n, how in said), rest], dialled)
    rig.check()


OPENFLOW = st.tuples(
    st.sampled_from([True, True, True, False]),
    st.lists(st.tuples(st.integers(0, 4), MUTATIONS), max_size=1) | st.just([]),
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.binary(max_size=40),
)

OFPORTS = st.sampled_from([0, 1, 2, 10, 11, 0xFFFE, 0xFFFF, 2**32 - 1])
CLOCKS = st.sampled_from([0.0, 1e-9, 1.0, 4294967295.999, 1e12])
SAMPLES = st.builds(Sample, CLOCKS, NUMBERS, NUMBERS)
STATES = st.builds(
    PortState,
    OFPORTS,
    st.sampled_from(["eth1", "eth2", "vnet0", "", "\n"]) | st.text(max_size=16),
    st.booleans(),
    st.sampled_from([0.0, 1e3, 1e10, 4.3e12]),
)
HERE = st.sampled_from(["br0", "br7"])
EVENTS = st.one_of(
    st.builds(PortChanged, HERE, STATES),
    st.builds(PortRemoved, HERE, OFPORTS),
    st.builds(SwitchConnected, st.just("br0"), st.lists(STATES, max_size=4).map(tuple)),
    st.builds(BundleDone, HERE, NUMBERS, st.none() | TEXTS),
    st.builds(
        PortStatsRead,
        HERE,
        st.lists(
            st.builds(PortCounters, OFPORTS, CLOCKS, NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=4
        ).map(tuple),
    ),
    st.builds(
        UnitCountersRead,
        HERE,
        st.lists(st.tuples(OFPORTS, SAMPLES), max_size=4).map(tuple),
        st.lists(st.tuples(st.tuples(NUMBERS, NUMBERS), SAMPLES), max_size=4).map(tuple),
        st.lists(st.tuples(NUMBERS, SAMPLES), max_size=4).map(tuple),
    ),
    st.builds(
        InboundRead, HERE, st.lists(st.tuples(OFPORTS, OFPORTS, NUMBERS), max_size=4).map(tuple)
    ),
    st.builds(
        LearnedRead,
        HERE,
        st.lists(
            st.tuples(OFPORTS, st.just("52:54:00:00:00:01"), st.integers(0, 4095)), max_size=4
        ).map(tuple),
    ),
    st.builds(
        PortFlagsSet,
        HERE,
        NUMBERS,
        st.frozensets(OFPORTS),
        st.none() | TEXTS,
        st.frozensets(OFPORTS),
    ),
    st.builds(SelectGroupAdded, HERE, NUMBERS, st.none() | TEXTS),
)


def _events(case: tuple[str, list[tuple[Event, float]]]) -> None:
    """A switch whose messages can be read, and make no sense."""
    policy, events = case
    here = world(host(policy, uplinks=2)).start().run_for(3)
    # A bundle that was reported done may be outstanding all the same.
    here.outstanding = _Never()
    for event, seconds in events:
        here.say(event)
        here.run_for(seconds)
    here.run_for(3)
    assert here.engine.fleet.bridges["br0"].config.errors == ()
    # The switch comes to its senses.
    here.disconnect()
    here.connect()
    here.run_for(90)
    assert here.switches["br0"].installed == here.engine.fleet.bridges["br0"].installation.desired()
    assert len(here.bindings()) == 4


class _Never(set[str]):
    """Holds nothing."""

    def add(self, _: str) -> None: ...


SENSELESS = st.tuples(
    st.sampled_from(["load-based", "dynamic", "adaptive", "originating-port"]),
    st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 0.0, 1.0, 35.0])), min_size=1, max_size=8),
)


# ---- frames from the network -----------------------------------------------------------------

CHECKED = host(
    "originating-port", uplinks=3, path_check="on", path_check_targets="192.0.2.1,2001:db8::1"
)
STRANGER, MULTICAST = "02:00:00:00:00:99", "01:80:c2:00:00:0e"


def _others(target: str) -> list[bytes]:
    """What hosts and switches send: answers to ARP and neighbor solicitations, announcements, LLDP."""
    ours, theirs = frames.octets(target), frames.octets(STRANGER)
    reply = frames.ARP.pack(1, 0x0800, 6, 4, 2, theirs, bytes([192, 0, 2, 1]), ours, bytes(4))
    advertised = b"\x60" + bytes(3) + b"\0\x18\x3a\xff" + bytes(32) + b"\x88" + bytes(7)
    tlvs = b"\x02\x07\x04" + theirs + b"\x04\x03\x05eth\x06\x02\0\x78\0\0"
    return [
        frames.frame(ours, theirs, 0, ETH_ARP, reply),
        frames.frame(frames.BROADCAST, theirs, 7, ETH_ARP, reply),
        frames.frame(ours, theirs, 0, ETH_IPV6, advertised + bytes(16)),
        frames.frame(frames.octets(MULTICAST), theirs, 0, 0x88CC, tlvs),
        frames.frame(frames.BROADCAST, theirs, 0, 0x8035, reply),
    ]


FRAMES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 4), MUTATIONS, st.sampled_from([0.0, 0.0, 1.0])),
    max_size=12,
)


def _frames(case: list[tuple[int, int, Any, float]]) -> None:
    """Path checks whose frames all arrive: what others send besides moves nothing, and is no fault."""
    here = world(CHECKED)
    here.switches["br0"].learned = [(10, "52:54:00:00:00:01", 0)]
    bridge, delivered = here.start().engine.fleet.bridges["br0"], 0
    macs = {mac: int(ofport) for ofport, mac in own_addresses.probe_macs(bridge.config).items()}

    def run(seconds: float) -> list[bytes]:
        """As the network delivers them; all that was sent so far."""
        nonlocal delivered
        while True:
            sent = [c for _, c in here.log if isinstance(c, DeliverFrame | SendFrame)]
            for one in sent[delivered:]:
                if (ofport := macs.get(one.frame[:6].hex(":"))) is not None:
                    here.say(FrameHeard("br0", ofport, one.frame))
            delivered = len(sent)
            if seconds <= 0:
                return [one.frame for one in sent]
            here.run_for(min(seconds, 0.5))
            seconds -= 0.5

    run(2)
    before = here.bindings()
    for number, uplink, mutations, seconds in case:
        heard = [*_others(next(iter(macs))), *run(0)]
        here.say(FrameHeard("br0", uplink, mutated(heard[number % len(heard)], mutations)))
        run(seconds)
    # Four losses in a row would be a fault.
    run(2.5)
    assert here.bindings() == before and len(before) == 4
    assert delivered and not bridge.paths.since_s


# ---- the database --------------------------------------------------------------------------

VM_IDS = st.sampled_from(["vm-id", "iface-id", "vm-uuid", "attached-mac"])


def _ids(*keys: str) -> st.SearchStrategy[dict[str, str]]:
    known = st.sampled_from([PREFIX + key for key in keys]) | VM_IDS
    values = TEXTS | st.sampled_from(["eth1,eth2", "true", "adaptive", "static", "50", "drained"])
    return st.dictionaries(known | TEXTS.map(PREFIX.__add__), values, max_size=5)


OF_BRIDGE = _ids(*BRIDGE_KEYS, "before", "vm-web-pin", "vm-eth1-pin")
TAGS = st.sampled_from([None, 0, 1, 7, 4095])
VLAN_MODES = st.sampled_from([None, "access", "trunk", "native-tagged", "dot1q-tunnel"])


@st.composite
def _rows(draw: st.DrawFn) -> BridgeRow:
    names = st.sampled_from(["vnet0", "vnet1", "eth1", "br0"]) | TEXTS
    vms = [
        replace(
            port(draw(names), draw(st.none() | NUMBERS), draw(_ids(*VM_KEYS)), draw(TAGS)),
            vlan_mode=draw(VLAN_MODES),
            trunks=tuple(draw(st.lists(st.integers(0, 4095), max_size=2))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    members = [
        replace(
            interface(
                name, draw(st.sampled_from([number, number, None])), draw(_ids(*UPLINK_KEYS))
            ),
            mac=draw(st.none() | TEXTS),
            link_speed_bps=draw(st.sampled_from([None, 1.0, 1e10])),
        )
        for number, name in ((1, "eth1"), (2, "eth2"))
    ]
    team = replace(
        bond(*members),
        lacp=draw(st.sampled_from([None, "active", "off"])),
        active_mac=draw(st.none() | TEXTS),
        other_config=draw(
            st.dictionaries(st.just("lacp-fallback-ab") | TEXTS, st.just("true") | TEXTS)
        ),
    )
    ids = {PREFIX + "policy": draw(st.sampled_from(list(PRESETS)) | TEXTS), **draw(OF_BRIDGE)}
    return bridge(*([team] if draw(st.booleans()) else []), *vms, ids=ids)


def _database(row: BridgeRow) -> None:
    """Whatever stands there: the last good values stay, and the good ones come back."""
    good = host(mode="enforce", threshold="60", poll_interval_ms="10000")
    here = world(good).start().run_for(3)
    before = here.bindings()
    here.write(row)
    here.run_for(3)
    now = here.engine.fleet.bridges["br0"].config
    assert 0.1 <= now.threshold_ratio <= 1
    texts = [str(error) for error in read_bridge(row, now).errors]
    assert all("; " in text and text.isprintable() for text in texts), texts
    here.write(good)
    here.run_for(90)
    assert here.engine.fleet.bridges["br0"].config.errors == ()
    assert here.engine.fleet.bridges["br0"].config.threshold_ratio == 0.6
    assert here.bindings().keys() == before.keys()
    assert here.switches["br0"].installed == here.engine.fleet.bridges["br0"].installation.desired()


# All that the schema lets through: columns of which every row has a value, and keys that are read of maps.
VLANS = st.integers(0, 4095)
FILLED = {
    *("name", "type", "target", "datapath_type", "is_connected", "protected"),
    *("stp_enable", "rstp_enable", "mcast_snooping_enable", "bond_updelay", "bond_downdelay"),
}
READ_KEYS = st.sampled_from(
    [
        *("max-rate", "enable", "driver_name", "dpdk-devargs", "ovs-lbt-pin", "stp_state"),
        *("rstp_port_state", "forward-bpdu", "disable-in-band"),
    ]
)
OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "map": st.dictionaries(READ_KEYS | TEXTS, st.just("true") | TEXTS, max_size=2),
    "integer": NUMBERS,
    "boolean": st.booleans(),
    "string": TEXTS,
}


def _rows_of(table: str, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Rows of a table as the library has them, with these columns and whatever else."""
    columns: dict[str, st.SearchStrategy[Any]] = {"uuid": st.uuids()}
    for name in records.COLUMNS[table].split():
        kind = records.KIND_OF.get(name, "string")
        if kind in OF_KIND:
            one = OF_KIND[kind]
            columns[name] = one if kind == "map" or name in FILLED else st.lists(one, max_size=1)
    return st.builds(SimpleNamespace, **columns | given)


PORT_ROWS = _rows_of(
    "Port",
    interfaces=st.lists(_rows_of("Interface"), max_size=2),
    qos=st.lists(_rows_of("QoS"), max_size=1),
    tag=st.lists(VLANS, max_size=1),
    trunks=st.lists(VLANS, max_size=2),
    bond_updelay=st.integers(0, 9),
)
CONTROLLER_ROWS = _rows_of(
    "Controller", connection_mode=st.sampled_from([[], ["in-band"], ["out-of-band"]])
)


def _has_each_interface_once(bridge: Any) -> bool:
    """As ovsdb-server ensures it by an index."""
    names = [interface.name for port in bridge.ports for interface in port.interfaces]
    return len({*names}) == len(names)


REPLICAS = _rows_of(
    "Bridge",
    ports=st.lists(PORT_ROWS, max_size=2),
    controller=st.lists(CONTROLLER_ROWS, max_size=1),
    protocols=st.sampled_from([(), ("OpenFlow10",), ("OpenFlow10", "OpenFlow13")]),
    flood_vlans=st.lists(VLANS, max_size=2),
    flow_tables=st.just({}),
    mirrors=st.just([]),
).filter(_has_each_interface_once)


def _replica(row: Any) -> None:
    read_back = records._bridge(row)
    for one in read_back.ports:
        assert one.qos_max_rate_bps is None or 0 <= one.qos_max_rate_bps < 1e20
    policy = {PREFIX + "policy": "load-based", **read_back.external_ids}
    World(replace(read_back, external_ids=policy)).start()


# ---- commands --------------------------------------------------------------------------------

WORDS = (
    TEXTS
    | st.sampled_from(["br0", "br9", "vnet0", "vnet1", "eth1", "eth2", "bridge", "interface"])
    | st.sampled_from(["--json", "--port", "--last", "policy=", "role=drained", "pin=eth2"])
    | st.tuples(
        st.sampled_from([*BRIDGE_KEYS, *UPLINK_KEYS, *VM_KEYS, ""]), TEXTS | st.just("adaptive")
    ).map("=".join)
)
KNOWN = st.sampled_from(sorted(set(OF_SERVICE) - {"history"}))
SET = st.tuples(
    st.just("set"),
    st.sampled_from(["bridge", "interface"]),
    st.sampled_from(["br0", "eth1", "vnet0"]),
    WORDS,
)
COMMANDS = SET.map(list) | st.tuples(KNOWN, st.lists(WORDS, max_size=4)).map(
    lambda c: [c[0], *c[1]]
)


def _commands(case: list[list[str]]) -> None:
    """Every request is answered, and nothing that is refused changes anything."""
    here = world(host(poll_interval_ms="10000")).start().run_for(3)
    for command, *words in case:
        _, least, most = requests.form(OF_SERVICE[command])
        if not least <= len(words) <= most:
            continue
        row, bound = (
            here.rows.get("br0"),
            here.bindings() if "br0" in here.engine.fleet.bridges else {},
        )
        reply = here.ask(command, *words)
        if reply is None:
            here.run_for(20)
            reply = here.replies[here.asked]
        if reply.refused:
            assert reply.text.isprintable() and " " in reply.text, reply
            assert here.rows.get("br0") == row or command in ("attach", "detach", "drain")
            if "br0" in here.engine.fleet.bridges:
                assert here.bindings() == bound or here.asked > 1 or command == "attach"
    here.run_for(90)
    if "br0" in here.engine.fleet.bridges:
        assert len(here.bindings()) == 4


JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
METHODS = st.sampled_from([control.PREFIX + name for name in OF_SERVICE])
REQUESTS = st.fixed_dictionaries(
    {
        "id": st.just(0) | st.just(1) | JSON,
        "method": METHODS | METHODS | JSON,
        "params": st.lists(TEXTS, max_size=3) | JSON,
    },
    optional={"result": JSON, "error": JSON, "extra": JSON},
)


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


REQUEST_BYTES = st.one_of(
    st.tuples((REQUESTS | JSON).map(_as_json), MUTATIONS).map(lambda case: mutated(*case)),
    REQUESTS.map(_as_json),
    st.integers(1, 3000).map(lambda deep: b'{"id":0,"method":"lbt/show","params":' + b"[" * deep),
    st.binary(max_size=40),
)


class _Served(control.Server):
    """A control server at a socket of its own, whose requests are answered a round later."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.taken: list[Request] = []
        # The first one to register a command keeps it.
        for name in OF_SERVICE:
            ovs.unixctl.commands.pop(control.PREFIX + name, None)
        super().__init__(self.take, "1.2.3")

    def _listen(self) -> Any:
        error, server = ovs.unixctl.server.UnixctlServer.create(self._path, self._version)
        assert not error
        return server

    def take(self, request: Request) -> None:
        assert all(isinstance(word, str) for word in request.words)
        self.taken.append(request)

    def turn(self) -> None:
        self._server.run()
        self._answer()
        self._expire()

    def answer_all(self) -> None:
        for request in self.taken:
            self.reply(Reply(request.request_id, "so be it", refused=request.request_id % 2 == 0))
        self.taken.clear()

    def close(self) -> None:
        self._server.close()
        self._wakened.close()
        self._waken.close()


def _control(case: list[tuple[bytes, bool]]) -> None:
    """Whatever somebody sends and then leaves or stays silent: the next one is answered."""
    with tempfile.TemporaryDirectory(prefix="ovs-lbt-fuzz") as directory:
        path = f"{directory}/ctl"
        served = _Served(path)
        callers = []
        try:
            for data, stays in case:
                caller = _call(path)
                callers.append(caller)
                caller.sendall(data[:60_000])
                served.turn()
                if not stays:
                    caller.close()
                    served.turn()
                served.answer_all()
                served.turn()
            last = _call(path)
            callers.append(last)
            last.sendall(b'{"id":0,"method":"lbt/show","params":[]}')
            served.turn()
            served.answer_all()
            served.turn()
            assert b"so be it" in last.recv(4096)
        finally:
            for caller in callers:
                caller.close()
            served.close()


def _call(path: str) -> socket.socket:
    caller = socket.socket(socket.AF_UNIX)
    caller.settimeout(5)
    caller.connect(path)
    return caller


PARSER = arguments.parser()
(BY_COMMAND,) = (one for one in PARSER._actions if isinstance(one, argparse._SubParsersAction))
PARSERS = {**BY_COMMAND.choices, "replay": replay_command._parser()}
VALUES = st.sampled_from(["br0", "vnet0", "eth1", "60", "[::1]:6653", "ssl:h:1", "bash"]) | WORDS
REPLAY_SETTING = st.tuples(st.sampled_from([*replay_command.SETTINGS, ""]) | TEXTS, TEXTS)


@st.composite
def _arguments(draw: st.DrawFn) -> list[str]:
    """A command, and words that it takes, or does not."""
    name = draw(st.sampled_from(sorted(PARSERS)))
    options = st.sampled_from(sorted(PARSERS[name]._option_string_actions))
    if name == "replay":
        settings = REPLAY_SETTING.map(lambda pair: f"--set={'='.join(pair)}")
        options = settings | st.tuples(options, TEXTS).map("=".join)
    return [name, *draw(st.lists(options | VALUES, max_size=5))]


TEAM = completion.Team(True, {"eth1": "uplink", "vnet0": "web", "$(x)": "\x1b"}, ("eth1",))
KNOWN_NAMES = completion.Names({"br0": TEAM, "`x`": TEAM})


def _command_line(given: list[str]) -> None:
    """Wrong usage ends with 2, and nothing else does; what is taken becomes words for the service."""
    said = io.StringIO()
    with mock.patch("sys.stderr", said), mock.patch("sys.stdout", io.StringIO()):
        try:
            status = _used(given)
        except SystemExit as ended:
            status = int(ended.code or 0)
    assert status in (0, 1, 2), said.getvalue()
    with (
        mock.patch.object(completion, "read", return_value=KNOWN_NAMES),
        mock.patch.object(arguments, "parser", return_value=PARSER),
    ):
        completion.answer(given)


def _used(given: list[str]) -> int:
    if given[0] == "replay":
        return replay_command.main(["/nonexistent.csv", "--policy", "load-based", *given[1:]])
    options = PARSER.parse_args([word.encode(errors="ignore").decode() for word in given])
    options.service = arguments.service_asked(PARSER, options.service)
    if options.command == "set":
        arguments.check_keys(PARSER, options.table, options.settings)
    if options.command in OF_SERVICE:
        assert all(
            isinstance(word, str)
            for word in requests.words(OF_SERVICE[options.command], vars(options))
        )
    for text in (options.metrics, options.listen) if options.command == "run" else ():
        with contextlib.suppress(ValueError):
            run.address("--listen", text or "none", "ADDR:PORT")
    return 0


# ---- plans -----------------------------------------------------------------------------------

LOADS = st.lists(st.sampled_from([0.0, 1e8, 9e8, 5e9, 1e13]), min_size=4, max_size=4)
VM_PORTS = (10, 11, 12, 13)
STEPS = st.one_of(
    st.sampled_from([["plan"], ["plan", "--json"], ["apply"], ["apply", "br0"]]),
    st.sampled_from([["plan"], ["apply", "br0"]]),
    st.tuples(st.sampled_from(["plan", "apply"]), TEXTS).map(list),
    SET.map(list),
    st.tuples(st.just("move"), st.sampled_from(["vnet0", "vnet3"]), st.just("eth2")).map(list),
    st.tuples(EVENTS),
    LOADS,
)
RECORDS = JSON | st.fixed_dictionaries(
    {
        "what": st.sampled_from([one.value for one in unconfirmed.What]) | JSON,
        "until": NUMBERS | JSON,
        "seconds": st.just(60) | JSON,
        "back": st.lists(st.lists(st.just("Bridge") | TEXTS, max_size=4), max_size=2) | JSON,
    },
    optional={"linked": JSON, "begun": JSON},
)
BONDS = st.dictionaries(
    st.sampled_from([*linux_bond.LinuxBond.__dataclass_fields__, "made_bridge"]), JSON
)


def _steady(bps: float) -> Callable[[float], float]:
    return lambda _: bps


def _plans(case: tuple[list[Any], Any, Any, int]) -> None:
    """A plan is applied as it was shown, or refused; a record of one that the service did not write, too."""
    steps, record, bond_record, deep = case
    here = world(host("load-based", uplinks=2, window_s="5")).start().run_for(3)
    here.outstanding = _Never()
    for step in steps:
        if isinstance(step, tuple):
            here.say(*step)
        elif isinstance(step[0], float):
            for ofport, bps in zip(VM_PORTS, step, strict=True):
                here.switches["br0"].offered_bps[ofport] = _steady(bps)
            here.run_for(12)
        elif (reply := here.ask(*step)) is not None and reply.refused:
            assert reply.text.isprintable() and " " in reply.text, reply
    here.write(host("load-based", uplinks=2)).disconnect().connect().run_for(5)
    assert here.switches["br0"].installed == here.engine.fleet.bridges["br0"].installation.desired()
    assert len(here.bindings()) == 4
    for text in (json.dumps(record), json.dumps(bond_record), '{"back":' + "[" * deep):
        with contextlib.suppress(ValueError):
            change = unconfirmed.parse(text)
            assert unconfirmed.parse(unconfirmed.as_text(change)) == change
        with contextlib.suppress(Refused):
            bond, _ = linux_bond.recorded(text)
            lines = linux_bond.made_anew(bond, linux_bond.essential(bond))
            assert all("\n" not in line for line in lines)


PLANS = st.tuples(st.lists(STEPS, max_size=6), RECORDS, BONDS, st.integers(0, 3000))


# ---- recorded traffic ------------------------------------------------------------------------

FIELDS = st.sampled_from(
    [
        *("0", "1", "300", "1e3", "-1", "nan", "inf", "1e999", "1e15", "1e300", "2.5e11", "", "x"),
        *("é", "0.1", "1e-300", "1_0", "1e10", "99999999999", "5e-324"),
    ]
)
GOOD_ROW = st.tuples(
    st.sampled_from(["0", "300", "600", "900"]),
    st.sampled_from(["h1", "h2"]),
    st.sampled_from(["a", "b", "uplink1"]),
    st.sampled_from(["0", "1e6", "9e8"]),
    st.sampled_from(["0", "1e6"]),
    st.just("1e9"),
)
BAD_ROW = st.tuples(FIELDS, TEXTS, TEXTS, FIELDS, FIELDS, FIELDS | st.just("1e9"))
TRACES = st.tuples(
    st.lists(GOOD_ROW | GOOD_ROW | BAD_ROW, max_size=5),
    st.booleans(),
    MUTATIONS | st.just([]),
    st.sampled_from(sorted(PRESETS)),
)


def _trace(case: Any) -> None:
    """A file is replayed, or refused by one line."""
    rows, zipped, mutations, policy = case
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    data = text.getvalue().encode(errors="surrogatepass")
    data = mutated(gzip.compress(data, 1, mtime=0) if zipped else data, mutations)
    with tempfile.NamedTemporaryFile(suffix=".csv.gz" if zipped else ".csv") as file:
        file.write(data)
        file.flush()
        try:
            hosts = read(Path(file.name))
        except (BadTrace, OSError) as error:
            refused = str(error)
        else:
            _replay(hosts, policy)
            return
    assert refused.isprintable()


def _replay(hosts: list[HostTrace], policy: str) -> None:
    if sum(len(one.samples) for one in hosts) > SHORT_REPLAY:
        return
    try:
        options = Options(mix=Mix(flows=2))
        found = replay(hosts, [policy], options, processes=1)
    except Refused as refusal:
        said = str(refusal)
    else:
        (figures,) = found.values()
        bound = fluid_bound(hosts, options.uplinks)
        json.dumps(figures.as_json(bound), allow_nan=False)
        return
    assert " " in said and said.isprintable()


SERIES = st.fixed_dictionaries(
    {
        "metric": st.fixed_dictionaries(
            {"instance": st.just("h1") | JSON, "port": st.sampled_from(["a", "b"]) | JSON}
        )
        | JSON,
        "values": st.lists(
            st.tuples(
                st.sampled_from([300, 600, 900]) | NUMBERS | st.floats(),
                st.sampled_from(["1e6", "0", "1.25e8"]) | FIELDS | JSON,
            ),
            max_size=3,
        )
        | JSON,
    }
)
ANSWERS = st.builds(
    lambda series: {"status": "success", "data": {"resultType": "matrix", "result": series}},
    st.lists(SERIES, max_size=3) | JSON,
)
GOOD_ANSWER = ANSWERS.map(_as_json)
PROMETHEUS = st.tuples(
    st.lists(
        st.one_of(
            GOOD_ANSWER,
            (JSON | ANSWERS).map(_as_json),
            st.tuples(GOOD_ANSWER, MUTATIONS).map(lambda case: mutated(*case)),
            st.integers(1, 100_000).map(lambda deep: b"[" * deep),
        ),
        min_size=3,
        max_size=3,
    ),
    st.sampled_from(["http://prometheus:9090"] * 6 + ["http://[::1", "file:///etc/passwd", "x"])
    | TEXTS,
    st.sampled_from(sorted(PRESETS)),
)


def _prometheus(case: tuple[list[bytes], str, str]) -> None:
    answers, url, policy = case
    left = list(answers)

    def answer(address: str, timeout: float) -> io.BytesIO:
        assert address.startswith(("http://", "https://")) and timeout
        return io.BytesIO(left.pop(0))

    with mock.patch.object(urllib.request, "urlopen", answer):
        try:
            hosts = fetch(url, "br0", 7 * 86400, 1_800_000_000.0)
        except BadTrace as error:
            refused = str(error)
        else:
            _replay(hosts, policy)
            return
    assert " " in refused and refused.isprintable()


# ---- the history -----------------------------------------------------------------------------

ENTRY = {
    "at": 1_800_000_000.5,
    "bridge": "br0",
    "event": "moved",
    "moves": [
        {"port": "vnet0", "vm": "web", "source": "eth1", "target": "eth2", "reason": "threshold"}
    ],
    "why": "eth1 at 80 % -> 75 %",
    "before": {"eth1": {"transmit_ratio": 0.8, "receive_ratio": 0.1}},
    "expected": {"eth1": {"transmit_ratio": 0.5, "receive_ratio": 0.1}},
}


@st.composite
def _entries(draw: st.DrawFn) -> bytes:
    entry: dict[str, Any] = json.loads(json.dumps(ENTRY))
    for _ in range(draw(st.integers(0, 2))):
        key = draw(st.sampled_from([*ENTRY, "after", "port", "uplink"]))
        entry[key] = draw(JSON)
    if draw(st.booleans()) and isinstance(entry["moves"], list) and entry["moves"]:
        entry["moves"][0] = draw(
            st.dictionaries(st.sampled_from(["port", "target", "reason"]), JSON)
        )
    return mutated(_as_json(entry), draw(MUTATIONS | st.just([])))


HISTORY = st.tuples(
    st.lists(
        _entries() | st.binary(max_size=30) | st.integers(1, 99999).map(lambda n: b"[" * n),
        max_size=4,
    ),
    st.lists(WORDS | st.sampled_from(["--json", "--last", "--port", "20", "web"]), max_size=4),
)


class _OfFile(journal.Journal):
    """Answers from a file, with no thread."""

    def __init__(self, path: Path) -> None:
        self._path = path


def _history(case: tuple[list[bytes], list[str]]) -> None:
    """A file that was damaged: the rest of it is told, by the service and without one."""
    lines, words = case
    good = _as_json(ENTRY)
    with tempfile.TemporaryDirectory(prefix="ovs-lbt-fuzz") as directory:
        path = Path(directory) / "history.jsonl"
        path.write_bytes(b"\n".join([good, *lines, b"", good, b""]))
        assert journal.answer(path, ()).count("vnet0 [web]: eth1 -> eth2 (threshold)") >= 2
        request = Request(1, ("history", *words))
        reply = journal.Journal._answer(_OfFile(path), request, Names())
        assert not reply.refused or (" " in reply.text and reply.text.isprintable())
        with (
            mock.patch.dict(os.environ, {"OVS_LBT_HISTORY": str(path)}),
            mock.patch("controller.host.client.running", return_value=False),
            mock.patch("sys.stdout", io.TextIOWrapper(io.BytesIO(), "utf-8")),
            mock.patch("sys.stderr", io.StringIO()),
        ):
            assert answers.history("ovs-lbt", words) in (0, 1)


TARGETS = {
    "openflow": Target(OPENFLOW, _openflow, 26, LONG_S),
    "frames": Target(FRAMES, _frames, 2, LONG_S),
    "switch events": Target(SENSELESS, _events, 1),
    "database": Target(_rows(), _database, 2, LONG_S),
    "replica": Target(REPLICAS, _replica, 4),
    "command line": Target(_arguments(), _command_line, 18, LONG_S),
    "commands": Target(st.lists(COMMANDS, min_size=1, max_size=3), _commands, 4),
    "control socket": Target(
        st.lists(st.tuples(REQUEST_BYTES, st.booleans()), min_size=1, max_size=3), _control, 15
    ),
    "plans": Target(PLANS, _plans, 1, LONG_S),
    "trace": Target(TRACES, _trace, 12, LONG_S),
    "prometheus": Target(PROMETHEUS, _prometheus, 15),
    "history": Target(HISTORY, _history, 14),
}
