"""What operators get wrong: exit status and words of each call, and what stays in force."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.switch import bad_calls, datapath
from tests.switch.bad_calls import DONE, REFUSED
from tests.switch.bed import run
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

DEVICES = [f"eth{number}" for number in range(11)] + ["vnet0", "vnet1", "vnet2", "web0", "web1"]
DEVICES += ["vnet5", "db0"]
PREFIX = "external_ids:ovs-lbt-"
CALLS_AT_ONCE = 3
POSTRM = Path(__file__).parents[2] / "controller/debian/postrm"
# Of what `explain --json` says of a VM port: the rules in force, and where it is.
RULES = (
    *("policy", "uplink", "pin", "excluded", "shares", "reserve_bps", "limit_bps", "allowed"),
    *("prefer", "avoid", "affinity", "anti_affinity"),
)
ASKED_OF = ("vnet0", "vnet1", "vnet2", "web0", "web1")
BRIDGE_FIELDS = ("name", "policy", "teaming", "mode", "threshold_ratio", "connected")


@dataclass(frozen=True)
class Bench:
    ovs: PrivateOvs
    service: Service

    def called(self, words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`ovs-lbt WORDS…`, as a shell takes them."""
        typed = [os.fsencode(word) for word in shlex.split(words)]
        command = [os.fsencode(self.service.executable), *typed]
        env = {**self.ovs.env, **variables}
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )

    def in_force(self) -> dict[str, Any]:
        """The configuration that the service goes by, and where VM ports are."""
        shown = json.loads(self.service.ask("show", "--json"))["bridges"]
        return {
            "bridges": [{key: bridge[key] for key in BRIDGE_FIELDS} for bridge in shown],
            "uplinks": [
                (bridge["name"], uplink["name"], uplink["role"], uplink["capacity_bps"])
                for bridge in shown
                for uplink in bridge["uplinks"]
            ],
            "ports": [
                (bridge["name"], port["name"]) for bridge in shown for port in bridge["ports"]
            ],
            "rules": [self._rules(port) for port in ASKED_OF],
        }

    def _rules(self, port: str) -> dict[str, Any]:
        told = json.loads(self.service.ask("explain", port, "--json"))
        return {key: told[key] for key in RULES}

    def errors(self) -> list[str]:
        shown = json.loads(self.service.ask("show", "--json"))["bridges"]
        return [error for bridge in shown for error in bridge["config_errors"]]

    def records(self) -> str:
        """All that is ours to change."""
        tables = ("open_vswitch", "bridge", "port", "interface")
        columns = [f"--columns=name,external_ids{',fail_mode' * (t == 'bridge')}" for t in tables]
        columns[0] = "--columns=external_ids"
        words = [w for c, t in zip(columns, tables, strict=True) for w in ("--", c, "list", t)]
        return self.ovs.vsctl(*words[1:])


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    for name in DEVICES:
        run("ip", "link", "add", name, "type", "veth", "peer", f"{name}x")
        run("ip", "link", "set", name, "up")
        run("ip", "link", "set", f"{name}x", "up")
    with PrivateOvs(prefix="ovs-lbt-bad-") as ovs:
        service = Service(ovs)
        try:
            _build(ovs)
            run("ip", "tuntap", "add", "tap0", "mode", "tap")
            ovs.vsctl("add-port", "br2", "tap0")
            service.start()
            _attach(service)
            yield Bench(ovs, service)
        finally:
            service.kill()
    for name in (*DEVICES, "tap0"):
        run("ip", "link", "del", name)


def _build(ovs: PrivateOvs) -> None:
    words: list[str] = []
    for number in range(5):
        words += ["--", "add-br", f"br{number}"]
        words += ["--", "set", "bridge", f"br{number}", datapath.SETTING]
    for bond, bridge, members in (
        ("bond0", "br0", ["eth0", "eth1"]),
        ("bond1", "br3", ["eth7", "eth8"]),
        ("bond2", "br3", ["eth9", "eth10"]),
    ):
        words += ["--", "add-bond", bridge, bond, *members, "bond_mode=balance-slb"]
    ports = {"br0": ["vnet0", "vnet1", "vnet2"], "br1": ["eth2", "eth3", "eth4", "web0", "web1"]}
    ports["br2"] = ["eth5", "eth6", "db0", "vnet5"]
    for bridge, names in ports.items():
        for name in names:
            words += ["--", "add-port", bridge, name]
    words += ["--", "add-port", "br2", "int0", "--", "set", "interface", "int0", "type=internal"]
    words += ["--", "add-port", "br2", "patch0", "--", "set", "interface", "patch0", "type=patch"]
    words += ["options:peer=nowhere"]
    for bridge in ("br1", "br2", "br3"):
        words += ["--", "set-fail-mode", bridge, "secure"]
    for name, key, value in (("db0", "iface-id", "db"), ("vnet2", "iface-id", "9c5e")):
        words += ["--", "set", "interface", name, f"external_ids:{key}={value}"]
    ovs.vsctl(*words[1:])


def _attach(service: Service) -> None:
    """With settings that are none of the defaults, so that it shows when one is lost."""
    uplinks = [word for name in ("eth2", "eth3", "eth4") for word in ("--uplink", name)]
    service.do("attach", "br0")
    service.do("attach", "br1", *uplinks, "--policy", "originating-port")
    service.do("set", "bridge", "br0", "threshold=60", "uplinks=eth1,eth0", "window-s=600")
    service.do("set", "interface", "eth0", "capacity-mbps=1000")
    service.do("set", "interface", "eth1", "capacity-mbps=2000", "role=active")
    service.do("set", "interface", "eth4", "role=standby")
    service.do("set", "interface", "vnet0", "pin=eth1", "affinity=db", "shares=70")
    service.do("set", "interface", "vnet1", "prefer=eth0")
    service.do("set", "interface", "vnet2", "pin=eth0")
    service.do("set", "interface", "web0", "allow=eth2,eth4")
    service.do("set", "interface", "web1", "pin=eth3")

    def at_rest() -> bool:
        told = {port: json.loads(service.ask("explain", port, "--json")) for port in ASKED_OF}
        at = {port: told[port]["uplink"] for port in ASKED_OF}
        wanted = {"vnet0": "eth1", "vnet1": "eth0", "vnet2": "eth0", "web1": "eth3"}
        return wanted.items() <= at.items() and at["web0"] in ("eth2", "eth4")

    wait_until(at_rest, "what was set is in force")


# ---- calls ------------------------------------------------------------------------------


def test_calls_of_the_command(bench: Bench) -> None:
    records, in_force = bench.records(), bench.in_force()

    def call(case: tuple[str, int, str]) -> str | None:
        words, status, expected = case
        return _wrong(bench.called(words), status, expected, words)

    _none(_at_once(call, bad_calls.CALLS))
    assert bench.in_force() == in_force
    assert bench.records() == records
    assert bench.errors() == []


def test_variables_that_stand_for_options(bench: Bench) -> None:
    records = bench.records()

    def call(case: tuple[str, str, str, int, str]) -> str | None:
        name, value, words, status, expected = case
        done = bench.called(words, **{name: value})
        return _wrong(done, status, expected, f"{name}={value} {words}")

    _none(_at_once(call, bad_calls.VARIABLES))
    assert bench.records() == records


def test_an_open_vswitch_that_is_not_started_is_told(bench: Bench, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    expected = f"Open vSwitch is not running: {absent} does not exist -> a running Open vSwitch: …"

    def call(case: tuple[Path, str]) -> str | None:
        directory, words = case
        done = bench.called(words, OVS_RUNDIR=str(directory))
        empty = f"…Open vSwitch is …running: {directory}/db.sock does not exist -> …"
        return _wrong(done, REFUSED, expected if directory == absent else empty, words)

    # Each call in a directory of its own: `detach` and `run` keep others of the same one out.
    places = [tmp_path / str(number) for number in range(len(bad_calls.WITHOUT_OVS))]
    for place in places:
        place.mkdir()
    cases = [(absent, words) for words in bad_calls.WITHOUT_OVS]
    _none(_at_once(call, cases + list(zip(places, bad_calls.WITHOUT_OVS, strict=True))))
    assert [file for place in places for file in place.iterdir()] == [], "nothing is left there"
    assert not absent.exists()


# ---- the database -----------------------------------------------------------------------


def test_writes_to_the_database(bench: Bench) -> None:
    in_force, wrong = bench.in_force(), []
    for record, key, value, where, expected in bad_calls.WRITES:
        table = "bridge" if record.startswith("br") else "interface"
        column = PREFIX + key
        before = bench.ovs.vsctl("--if-exists", "get", table, record, column)
        bench.ovs.vsctl(
            "--no-wait", "set", table, record, f"{column}={json.dumps(value, ensure_ascii=False)}"
        )
        pattern = _pattern(f"{where} ovs-lbt-{key}: … -> {expected}")
        story = f"{record} {key}={value[:40]}"

        def is_told(pattern: str = pattern) -> bool:
            return any(re.fullmatch(pattern, error) for error in bench.errors())

        try:
            wait_until(is_told, story)
        except AssertionError:
            wrong.append(f"{story}: found {bench.errors()} -> {pattern}")
        if (now := bench.in_force()) != in_force:
            wrong.append(f"{story}: in force {_different(in_force, now)}")
        if before:
            bench.ovs.vsctl("--no-wait", "set", table, record, f"{column}={before}")
        else:
            bench.ovs.vsctl("--no-wait", "remove", table, record, *column.split(":"))
        try:
            wait_until(lambda: bench.errors() == [], "put right")
        except AssertionError:
            wrong.append(f"{story}: not put right: {bench.errors()}")
    _none(wrong)
    assert bench.in_force() == in_force


def test_a_list_that_is_taken_away_changes_nothing(bench: Bench) -> None:
    in_force, column = bench.in_force(), "external_ids"
    uplinks = bench.ovs.vsctl("get", "bridge", "br1", PREFIX + "uplinks")
    bench.ovs.vsctl("remove", "bridge", "br1", column, "ovs-lbt-uplinks")
    wait_until(bench.errors, "it is told")
    assert bench.errors()[0].startswith("Bridge br1 ovs-lbt-uplinks: nothing -> two or more")
    assert bench.in_force() == in_force
    bench.ovs.vsctl("set", "bridge", "br1", f"{PREFIX}uplinks={uplinks}")
    wait_until(lambda: bench.errors() == [], "put right")
    assert bench.in_force() == in_force


def test_an_uplink_that_was_left_out_does_not_become_a_vm_port_by_a_restart(bench: Bench) -> None:
    """Bindings tell which it was."""
    uplinks = bench.ovs.vsctl("get", "bridge", "br1", PREFIX + "uplinks")
    bench.service.kill()
    bench.ovs.vsctl("set", "bridge", "br1", f'{PREFIX}uplinks="eth2,eth4"')
    bench.service.start()
    wait_until(
        lambda: any("is missing -> eth3 " in error for error in bench.errors()),
        "it is told",
    )
    assert ("br1", "eth3") not in bench.in_force()["ports"]
    bench.ovs.vsctl("set", "bridge", "br1", f"{PREFIX}uplinks={uplinks}")
    wait_until(lambda: bench.errors() == [], "put right")


# ---- what stays, and what does not -------------------------------------------------------


def test_a_detach_says_what_stays_and_a_purge_takes_it_away(bench: Bench) -> None:
    """With the service, and without; the last."""
    told = bench.service.do("detach", "br0")
    assert told == (
        "br0: settings stay for the next attach: eth0 capacity-mbps; eth1 capacity-mbps, role;"
        " vnet0 affinity, pin, shares; vnet1 prefer -> to remove them: ovs-lbt detach br0 --purge\n"
    )
    bench.ovs.vsctl("set", "port", "bond0", f"{PREFIX}left=1", "external_ids:others=1")
    bench.ovs.vsctl("set", "open_vswitch", ".", f"{PREFIX}leader=ovs-lbt@nowhere")
    assert bench.service.do("detach", "br0", "--purge") == ""
    left = bench.records()
    assert "ovs-lbt-policy" in left and "ovs-lbt-leader" in left, "br1 is attached still"
    of_br0 = [
        line
        for line in left.split("\n\n")
        if re.search(r'name +: "?(eth[01]|vnet|br0|bond0)', line)
    ]
    assert of_br0 and not any("ovs-lbt-" in record for record in of_br0)
    by_the_package(bench)
    bench.service.kill()
    done = bench.called("detach br1 --purge")
    assert (done.returncode, done.stdout, done.stderr) == (DONE, "", "")
    left = bench.records()
    assert "ovs-lbt-" not in left
    assert "others=" in left and "iface-id=" in left, "what is others' stays"
    assert "0x6c6274" not in bench.ovs.run("ovs-ofctl", "-OOpenFlow13", "dump-flows", "br1")


def by_the_package(bench: Bench) -> None:
    """A purge of the Debian package takes away what stays of bridges that are not attached."""
    odd = 'external_ids:"ovs-lbt-vm-a b, c-pin"="x, ovs-lbt-y=1"'
    bench.ovs.vsctl("set", "bridge", "br2", odd, "external_ids:others=ovs-lbt-z=1")
    bench.ovs.vsctl("set", "interface", "eth5", f"{PREFIX}capacity-mbps=5")
    attached = (
        bench.ovs.vsctl("get", "bridge", "br1", "external_ids"),
        bench.ovs.vsctl("get", "interface", "web0", "external_ids"),
    )
    purge = f"set -- none; . {POSTRM}; forget_settings"
    done = subprocess.run(["sh", "-ec", purge], env=bench.ovs.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done
    expected = "ovs-lbt: still attached, so their settings stay: br1 -> run ovs-lbt detach BRIDGE --purge first\n"
    assert done.stderr == expected
    assert bench.ovs.vsctl("get", "bridge", "br2", "external_ids") == '{others="ovs-lbt-z=1"}'
    bench.ovs.vsctl("remove", "bridge", "br2", "external_ids", "others")
    assert bench.ovs.vsctl("get", "interface", "eth5", "external_ids") == "{}"
    assert "ovs-lbt-leader" in bench.ovs.vsctl("get", "open_vswitch", ".", "external_ids")
    assert (
        bench.ovs.vsctl("get", "bridge", "br1", "external_ids"),
        bench.ovs.vsctl("get", "interface", "web0", "external_ids"),
    ) == attached


# ---- the table ---------------------------------------------------------------------------


def test_there_are_enough_of_them() -> None:
    calls = [words for words, _, _ in bad_calls.CALLS]
    assert len(set(calls)) == len(calls) and len(calls) + len(bad_calls.WRITES) > 250


def _at_once(call: Any, cases: Sequence[Any]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        return [wrong for wrong in pool.map(call, cases) if wrong is not None]


def _wrong(
    done: subprocess.CompletedProcess[str], status: int, expected: str, story: str
) -> str | None:
    """What is wrong with an answer; None if nothing is."""
    lines = (done.stdout if status == DONE else done.stderr).splitlines()
    said = re.sub(r"^ovs-lbt( \w+)*: (error: )?", "", lines[-1] if lines else "")
    right = done.returncode == status and re.fullmatch(_pattern(expected), said)
    one_line = len(lines) == 1 or status == bad_calls.USAGE
    if right and one_line and (status == DONE or done.stdout == ""):
        return None
    return f"{story[:80]}: {done.returncode} {lines[-3:]} -> {status} {expected}"


def _pattern(text: str) -> str:
    return re.escape(text).replace("…", ".*")


def _different(before: dict[str, Any], now: dict[str, Any]) -> str:
    return "; ".join(
        f"{key}: {before[key]} -> {now[key]}" for key in before if before[key] != now[key]
    )


def _none(wrong: Sequence[str]) -> None:
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong)
