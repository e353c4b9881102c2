"""Ten wrong calls as programs on a real switch; all other calls: tests/unit/controller/bad_calls.py.

br0 has bond0 (eth0, eth1) and vnet0 to vnet2, br1 the plain uplinks eth2 to eth4 and web0 and web1; both are
attached. br2 is not: eth5, eth6 and the tap device tap0.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.said import DONE, REFUSED, USAGE, is_answer, says
from tests.switch import datapath
from tests.switch.bed import run
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

DEVICES = [f"eth{number}" for number in range(7)] + ["vnet0", "vnet1", "vnet2", "web0", "web1"]
PREFIX = "external_ids:ovs-lbt-"
BRIDGE_FIELDS = ("policy", "teaming", "mode", "threshold_ratio", "connected")
POSTRM = Path(__file__).parents[2] / "controller/debian/postrm"
# The words of a call, its exit status, and its last line without `ovs-lbt: `, in full or up to `…`.
CALLS = (
    ("show '\udcff'", USAGE, "'\\udcff' is invalid; expected text in UTF-8"),
    ("-t ovs-lbt-b show", REFUSED, "no service is running; start it with: ovs-lbt run --name…"),
    ("top", REFUSED, "top: input or output is not a terminal; use a terminal, or:…"),
    ("attach br2 --uplink eth5 --uplink tap0", REFUSED, "…: tap0 is a tap device, …; …"),
    # The database or `ip` is asked, or a process begins that is to be the service.
    ("attach br2 --from-bond bond7", REFUSED, "bond7 is not a Linux bond; …"),
    ("rescue br0", REFUSED, "the service is running; …"),
    ("run", REFUSED, "a service is already running as process …"),
)
# A service of another name that does not start, by a variable.
VARIABLES = (("OVS_LBT_PRIVATE_KEY", "/no/key.pem", "…OVS_LBT_PRIVATE_KEY…"),)
# Calls that begin a service or look themselves where Open vSwitch is not running, and whether its
# directory is there.
WITHOUT_OVS = (("run", False), ("detach br0", True))


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

    def in_force(self) -> dict[str, dict[str, Any]]:
        """What the service goes by, by bridge, and where VM ports are."""
        shown = json.loads(self.service.ask("show", "--json"))["bridges"]
        return {
            bridge["name"]: {
                **{key: bridge[key] for key in BRIDGE_FIELDS},
                "uplinks": [(u["name"], u["role"], u["capacity_bps"]) for u in bridge["uplinks"]],
                "ports": {port["name"]: port["uplink"] for port in bridge["ports"]},
            }
            for bridge in shown
        }

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
    for number in range(3):
        words += ["--", "add-br", f"br{number}"]
        words += ["--", "set", "bridge", f"br{number}", datapath.SETTING]
    words += ["--", "add-bond", "br0", "bond0", "eth0", "eth1", "bond_mode=balance-slb"]
    ports = {"br0": ["vnet0", "vnet1", "vnet2"], "br1": ["eth2", "eth3", "eth4", "web0", "web1"]}
    ports["br2"] = ["eth5", "eth6"]
    for bridge, names in ports.items():
        for name in names:
            words += ["--", "add-port", bridge, name]
    for bridge in ("br1", "br2"):
        words += ["--", "set-fail-mode", bridge, "secure"]
    words += ["--", "set", "interface", "vnet2", "external_ids:iface-id=9c5e"]
    ovs.vsctl(*words[1:])


def _attach(service: Service) -> None:
    """With settings that are none of the defaults, so that it shows when one is lost."""
    uplinks = [word for name in ("eth2", "eth3", "eth4") for word in ("--uplink", name)]
    service.do("attach", "br0")
    service.do("attach", "br1", *uplinks, "--policy", "originating-port")
    service.do("set", "bridge", "br0", "threshold=60", "uplinks=eth1,eth0", "window-s=600")
    assert service.do("get", "bridge", "br0", "threshold") == "60\n"
    service.do("set", "interface", "eth0", "capacity-mbps=1000")
    service.do("set", "interface", "eth1", "capacity-mbps=2000", "role=active")
    service.do("set", "interface", "eth4", "role=standby")
    service.do("set", "interface", "vnet0", "pin=eth1", "affinity=db", "shares=70")
    service.do("set", "interface", "vnet1", "prefer=eth0")
    service.do("set", "interface", "vnet2", "pin=eth0")
    service.do("set", "interface", "web0", "allow=eth2,eth4")
    service.do("set", "interface", "web1", "pin=eth3")

    def at_rest() -> bool:
        shown = Bench(service.ovs, service).in_force().values()
        at = {name: uplink for bridge in shown for name, uplink in bridge["ports"].items()}
        wanted = {"vnet0": "eth1", "vnet1": "eth0", "vnet2": "eth0", "web1": "eth3"}
        return wanted.items() <= at.items() and at["web0"] in ("eth2", "eth4")

    wait_until(at_rest, "what was set is in force")


# ---- calls ------------------------------------------------------------------------------


def test_calls_of_the_command(bench: Bench) -> None:
    records, in_force = bench.records(), bench.in_force()
    for words, status, expected in CALLS:
        assert_says(bench.called(words), status, expected)
    for name, value, expected in VARIABLES:
        done = bench.called("run --name ovs-lbt-c --metrics none", **{name: value})
        assert_says(done, REFUSED, expected)
    assert bench.in_force() == in_force
    assert bench.records() == records
    assert bench.errors() == []


@pytest.mark.parametrize(("words", "is_there"), WITHOUT_OVS)
def test_an_open_vswitch_that_is_not_started_is_told(
    bench: Bench, words: str, is_there: bool, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    if is_there:
        directory.mkdir()
    missing = directory / "db.sock" if is_there else directory
    expected = f"…Open vSwitch is …running: {missing} does not exist; …"
    assert_says(bench.called(words, OVS_RUNDIR=str(directory)), REFUSED, expected)
    assert [*tmp_path.rglob("*")] == [directory] * is_there, "nothing is left there"


def assert_says(done: subprocess.CompletedProcess[str], status: int, expected: str) -> None:
    assert is_answer(done.returncode, done.stdout, done.stderr, status, expected), (done, expected)


# ---- the database -----------------------------------------------------------------------


def test_an_uplink_that_was_left_out_does_not_become_a_vm_port_by_a_restart(bench: Bench) -> None:
    """Bindings tell which it was."""
    uplinks = bench.ovs.vsctl("get", "bridge", "br1", PREFIX + "uplinks")
    bench.service.kill()
    bench.ovs.vsctl("set", "bridge", "br1", f'{PREFIX}uplinks="eth2,eth4"')
    bench.service.start()
    wait_until(
        lambda: any("is missing from the uplinks; add eth3 " in error for error in bench.errors()),
        "it is told",
    )
    assert "eth3" not in bench.in_force()["br1"]["ports"]
    bench.ovs.vsctl("set", "bridge", "br1", f"{PREFIX}uplinks={uplinks}")
    wait_until(lambda: bench.errors() == [], "put right")


# ---- what stays, and what does not -------------------------------------------------------


def test_a_detach_says_what_stays_and_a_purge_takes_it_away(bench: Bench) -> None:
    """With the service, and without; the last."""
    told = bench.service.do("detach", "br0")
    kept = "eth0 capacity-mbps; eth1 capacity-mbps, role; vnet0 affinity, pin, shares; vnet1 prefer"
    assert says(told, "br0: ", f"{kept}; ", "ovs-lbt detach br0 --purge\n")
    bench.ovs.vsctl("set", "port", "bond0", f"{PREFIX}left=1", "external_ids:others=1")
    bench.ovs.vsctl("set", "open_vswitch", ".", f"{PREFIX}leader=ovs-lbt@nowhere")
    assert bench.service.do("detach", "br0", "--purge") == "br0: ovs-lbt keys removed\n"
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
    purge = f"set -- none; . {shlex.quote(str(POSTRM))}; forget_settings"
    done = subprocess.run(["sh", "-ec", purge], env=bench.ovs.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done
    assert says(
        done.stderr, "ovs-lbt: ", "still attached", ": br1; ", "ovs-lbt detach BRIDGE --purge"
    )
    assert bench.ovs.vsctl("get", "bridge", "br2", "external_ids") == '{others="ovs-lbt-z=1"}'
    bench.ovs.vsctl("remove", "bridge", "br2", "external_ids", "others")
    assert bench.ovs.vsctl("get", "interface", "eth5", "external_ids") == "{}"
    assert "ovs-lbt-leader" in bench.ovs.vsctl("get", "open_vswitch", ".", "external_ids")
    assert (
        bench.ovs.vsctl("get", "bridge", "br1", "external_ids"),
        bench.ovs.vsctl("get", "interface", "web0", "external_ids"),
    ) == attached
