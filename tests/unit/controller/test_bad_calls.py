"""What operators get wrong: exit status and words of each call, and that nothing changes.

The command runs in this process and asks over a real socket; behind it is the engine.
"""

from __future__ import annotations

import contextlib
import io
import json
import queue
import re
import shlex
import socketserver
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ovs.dirs
import pytest

from controller import cli
from controller.api.commands import BY_NAME
from controller.api.engine_commands import Reply
from controller.api.events import PortState, Request
from controller.cli import run
from controller.config.rows import PREFIX, BridgeRow, PortRow
from controller.host import client
from controller.host.journal import Journal
from tests.reference.json_fields import kinds_of_findings
from tests.said import DONE, REFUSED, USAGE, is_answer, pattern
from tests.unit import rows
from tests.unit.controller import bad_calls
from tests.unit.fake_switch import FakeSwitch, World, done

LOCAL = 65534
# Of what `explain --json` says of a VM port: the rules in force, and where it is.
RULES = (
    *("policy", "uplink", "pin", "excluded", "shares", "reserve_bps", "limit_bps", "allowed"),
    *("prefer", "avoid", "affinity", "anti_affinity"),
)
ASKED_OF = ("vnet0", "vnet1", "vnet2", "web0", "web1")
BRIDGE_FIELDS = ("name", "policy", "teaming", "mode", "threshold_ratio", "connected")
ATTACHED = """
attach br0
attach br1 policy=originating-port uplinks=eth2,eth3,eth4
set bridge br0 threshold=60 uplinks=eth1,eth0 window-s=600
set interface eth0 capacity-mbps=1000
set interface eth1 capacity-mbps=2000 role=active
set interface eth4 role=standby
set interface vnet0 pin=eth1 affinity=db shares=70
set interface vnet1 prefer=eth0
set interface vnet2 pin=eth0
set interface web0 allow=eth2,eth4
set interface web1 pin=eth3
"""


def bridge(name: str, *ports: PortRow) -> BridgeRow:
    """A bridge that is not attached, with its own port."""
    own = replace(rows.interface(name, LOCAL), kind="internal")
    all_ports = sorted((PortRow(name, (own,)), *ports), key=lambda port: port.name)
    return BridgeRow(name, tuple(all_ports))


def bond(name: str, *members: str) -> PortRow:
    return PortRow(name, tuple(rows.interface(member, _ofport(member)) for member in members))


def port(name: str) -> PortRow:
    return rows.port(name, _ofport(name))


def _ofport(name: str) -> int:
    """Uplinks first, as `eth0`; then VM ports, each with a number of its own."""
    others = ("vnet0", "vnet1", "vnet2", "vnet5", "web0", "web1")
    return 20 + others.index(name) if name in others else 1 + int(name.removeprefix("eth"))


VM_9C5E = rows.port("vnet2", _ofport("vnet2"), {"iface-id": "9c5e"})
BRIDGES = (
    bridge("br0", bond("bond0", "eth0", "eth1"), *map(port, ("vnet0", "vnet1")), VM_9C5E),
    bridge("br1", *map(port, ("eth2", "eth3", "eth4", "web0", "web1"))),
    bridge("br2", *map(port, ("eth5", "eth6", "vnet5"))),
    bridge("br3", bond("bond1", "eth7", "eth8"), bond("bond2", "eth10", "eth9")),
    bridge("br4"),
)


@dataclass
class Host:
    """A host whose engine answers the command. `journal`: the history, which is empty."""

    world: World
    journal: Journal

    def answer(self, words: list[str]) -> Reply:
        if words[0] == "history":
            answers = queue.SimpleQueue[Reply]()
            names = self.world.engine.fleet.names()
            self.journal.ask(Request(0, tuple(words)), names, answers.put)
            return answers.get(timeout=60)
        if words[0] == "version":
            return Reply(0, "ovs-lbt 0")
        reply = self.world.ask(*words)
        assert reply is not None, words
        return reply

    def asked(self, *words: str) -> Any:
        return json.loads(done(self.world.ask(*words, "--json")))

    def in_force(self) -> dict[str, Any]:
        """The configuration that the service goes by, and where VM ports are."""
        shown = self.asked("show")["bridges"]
        explained = {name: self.asked("explain", name) for name in ASKED_OF}
        return {
            "bridges": [[of[key] for key in BRIDGE_FIELDS] for of in shown],
            "uplinks": [
                [(up["name"], up["role"], up["capacity_bps"]) for up in of["uplinks"]]
                for of in shown
            ],
            "ports": [[one["name"] for one in of["ports"]] for of in shown],
            "rules": {name: [of[key] for key in RULES] for name, of in explained.items()},
        }

    def errors(self) -> list[str]:
        return [error for of in self.asked("show")["bridges"] for error in of["config_errors"]]

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Nothing in the database changes, and nothing that is in force."""
        records, in_force = dict(self.world.rows), self.in_force()
        yield
        assert self.world.rows == records
        assert self.in_force() == in_force
        assert self.errors() == []


def served(host: Host) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            # The command may only look whether somebody is there.
            if received := self.request.recv(1 << 20):
                request = json.loads(received)
                command = request["method"].removeprefix("lbt/")
                reply = host.answer([command, *request["params"]])
                key = "error" if reply.refused else "result"
                self.request.sendall(json.dumps({"id": 0, key: reply.text}).encode())

    return Handler


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """With settings that are none of the defaults, so that it shows when one is lost."""
    world = World(*BRIDGES)
    for row in BRIDGES:
        states = [PortState(i.ofport or 0, i.name, up=True, speed_bps=1e9) for i in row.interfaces]
        world.switches[row.name] = FakeSwitch({state.ofport: state for state in states})
    world.start()
    for line in ATTACHED.split("\n")[1:-1]:
        done(world.ask(*line.split()))
        world.run_for(10)
    found = Host(world, Journal(tmp_path / "history"))
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path))
    monkeypatch.setattr(run, "log", lambda *_: None)
    for name in (*run.RUN_VARIABLES.values(), "OVS_LBT_NAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "db.sock").touch()
    (tmp_path / "ovs-lbt.pid").write_text("1")
    with socketserver.UnixStreamServer(str(tmp_path / "ovs-lbt.1.ctl"), served(found)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()
    client.call(client.NAME)


def call(words: str) -> tuple[int, str, str]:
    """`ovs-lbt WORDS…`, as a shell takes them: status, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: object = cli.main(shlex.split(words))
        except SystemExit as ended:
            status = ended.code
    assert isinstance(status, int)
    return status, out.getvalue(), err.getvalue()


def wrong(words: str, status: int, expected: str) -> list[str]:
    """What is wrong with a call's answer."""
    found, out, err = call(words)
    if is_answer(found, out, err, status, expected):
        return []
    return [f"{words[:80]}: {found} {out[:80]} {err.splitlines()[-3:]} -> {status} {expected}"]


def none_wrong(calls: Mapping[str, str], status: int) -> None:
    found = [why for words, expected in calls.items() for why in wrong(words, status, expected)]
    assert not found, f"{len(found)} wrong:\n" + "\n".join(found)


@pytest.mark.slow
def test_a_call_that_is_refused_changes_nothing(host: Host) -> None:
    with host.untouched():
        none_wrong(bad_calls.REFUSED, REFUSED)


@pytest.mark.slow
def test_a_dry_run_is_refused_as_the_call_is(host: Host) -> None:
    changing = {name for name, row in BY_NAME.items() if row.changes}
    calls = {w: why for w, why in bad_calls.REFUSED.items() if changing & {*w.split()[:1]}}
    commands = {words.split()[0] for words in calls}
    assert commands >= {"attach", "detach", "set", "pin", "drain", "apply"}
    with host.untouched():
        none_wrong({f"{words} --dry-run": why for words, why in calls.items()}, REFUSED)


@pytest.mark.slow
def test_wrong_usage_does_not_reach_the_service(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = host.world.asked
    none_wrong(bad_calls.WRONG_USAGE, USAGE)
    for (name, value, words), expected in bad_calls.VARIABLES.items():
        with monkeypatch.context() as set_up:
            set_up.setenv(name, value)
            none_wrong({words: expected}, USAGE)
    assert host.world.asked == asked


def test_a_check_that_fails_prints_json_with_the_kind(host: Host, tmp_path: Path) -> None:
    status, out, err = call("check nobr --json")
    (finding,) = json.loads(out)["findings"]
    assert (status, json.loads(out)["well"], finding["check"]) == (2, False, "refused")
    assert finding["text"] == err.removeprefix("ovs-lbt: ").rstrip()
    (tmp_path / "ovs-lbt.pid").unlink()
    status, out, _ = call("check --json")
    assert (status, json.loads(out)["findings"][0]["check"]) == (2, "unanswered")
    assert {"refused", "unanswered"} <= {*kinds_of_findings()}, "docs/reference/json.md has both"


def test_a_history_without_entries_is_an_answer(host: Host) -> None:
    assert call("history br4") == (DONE, "no matching entries\n", "")


def test_another_service_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVS_LBT_NAME", "ovs-lbt-c")
    with host.untouched():
        none_wrong(bad_calls.OTHER_NAME, REFUSED)


def test_an_open_vswitch_that_is_not_started_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = tmp_path / "absent"
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(absent))
    expected = f"Open vSwitch is not running: {absent} does not exist; start Open vSwitch: …"
    none_wrong(dict.fromkeys(bad_calls.NEED_OVS, expected), REFUSED)
    assert not absent.exists()
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path))
    expected = f"…Open vSwitch is …running: {tmp_path}/db.sock does not exist; …"
    asking = [w for w in bad_calls.NEED_OVS if w.split()[0] not in bad_calls.DO_IT_THEMSELVES]
    none_wrong(dict.fromkeys(asking, expected), REFUSED)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_a_bad_value_in_the_database_is_told_and_leaves_in_force_what_was(host: Host) -> None:
    world, found = host.world, list[str]()
    for record, key, value, expected in bad_calls.WRITES:
        table = "Bridge" if record in world.rows else "Interface"
        told = pattern(f"{table} {record} ovs-lbt-{key}: …{expected}")
        with host.untouched():
            records = dict(world.rows)
            name = next(n for n, row in records.items() if record in _records(row))
            world.write(_with(records[name], record, PREFIX + key, value))
            if not any(re.fullmatch(told, error) for error in host.errors()):
                found.append(f"{record} {key}={value[:40]}: {host.errors()} -> {told}")
            in_force = host.in_force()
            world.write(records[name])
        assert host.in_force() == in_force, f"{record} {key}={value[:40]}"
    assert not found, "\n".join(found)


def _records(row: BridgeRow) -> list[str]:
    return [row.name, *(i.name for i in row.interfaces if i.name != row.name)]


def _with(row: BridgeRow, record: str, key: str, value: str) -> BridgeRow:
    """The same bridge after the operator wrote this key to a record of it."""
    if record == row.name:
        return replace(row, external_ids={**row.external_ids, key: value})
    return row.with_interfaces(
        lambda one: (
            replace(one, external_ids={**one.external_ids, key: value})
            if one.name == record
            else one
        )
    )
