"""Every layout under `mn`, started from a directory of its own, on a real Open vSwitch."""

from __future__ import annotations

import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.switch.judging import at_least, at_most, judges_time
from topologies.graph.layout import Layout, Role
from topologies.layouts import LAYOUTS
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs

TOPOLOGIES = Path(__file__).resolve().parents[2] / "topologies"
MARK = "LAYOUT_TEST_MARK"
FEW_VMS = {
    "vmware_lbt": 2,
    "live_migration": 2,
    "two_switches": 2,
    "spine_leaf": 2,
    "mixed_speed": 2,
    "shift": 2,
    "flows": 2,
    "overlay": 2,
}

pytestmark = pytest.mark.mininet


@pytest.fixture
def ovs() -> Iterator[PrivateOvs]:
    """An Open vSwitch that is nobody else's, in a network that is nobody else's."""
    assert os.geteuid() == 0, f"user id {os.geteuid()} may not create namespaces; run as root"
    with private_network(), PrivateOvs() as private:
        yield private


def _mn(ovs: PrivateOvs, directory: Path, topo: str, *commands: str) -> str:
    """What `mn` prints of a layout after the commands, or after a ping between all."""
    name, mark = topo.partition(",")[0], uuid.uuid4().hex
    script = directory / "commands"
    script.write_text("".join(f"{command}\n" for command in commands))
    test = ["--post", str(script), "--test", "none"] if commands else ["--test", "pingall"]
    done = subprocess.run(
        ["mn", "--custom", str(TOPOLOGIES / f"{name}.py"), "--topo", topo, *test],
        cwd=directory,
        env={**ovs.env, MARK: mark},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Error:" not in said, said[-2000:]
    assert _remains(ovs, mark) == []
    return said


def _remains(ovs: PrivateOvs, mark: str) -> list[str]:
    """Everything of a run that is still there."""
    found = [f"bridge {name}" for name in ovs.vsctl("list-br").split()]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    interfaces = {line.split(":")[1].strip() for line in links.splitlines()}
    # What Open vSwitch makes for its userspace datapath, and what is in every namespace.
    found += [f"interface {one}" for one in interfaces - {"lo", "ovs-netdev"}]
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in environ.read_bytes():
                found.append(f"process {environ.with_name('cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


def _pings(layout: Layout) -> int:
    """How many pings are answered if everybody reaches those on the same network."""
    owners = [*layout.nodes(Role.VM), *layout.nodes(Role.HOST)]
    first = [layout.address(layout.vnics_of(owner)[0]) for owner in owners]
    first += [layout.address(client) for client in layout.nodes(Role.CLIENT)]
    return sum(one.split(".")[:2] == other.split(".")[:2] for one, other in permutations(first, 2))


@judges_time
@pytest.mark.parametrize("name", LAYOUTS)
def test_mn_runs_every_layout_and_leaves_nothing(
    name: str, ovs: PrivateOvs, tmp_path: Path
) -> None:
    few = {"vms": FEW_VMS[name]} if name in FEW_VMS else {}
    expected = _pings(LAYOUTS[name](**few))
    assert expected >= 2
    topo = ",".join([name, "team=bond", *(f"{key}={value}" for key, value in few.items())])
    begun_s = time.monotonic()
    said = _mn(ovs, tmp_path, topo)
    took_s = time.monotonic() - begun_s
    assert f"({expected}/" in said, said[-2000:]
    at_most("a layout of a few nodes, s", took_s, 20, 300)


@pytest.mark.parametrize(
    ("topo", "pings"),
    [("vmware_lbt,uplinks=3,vms=2,vnics_per_vm=1,prefix=x-", 12), ("vmware_lbt,team=split", 30)],
)
def test_mn_takes_the_parameters_of_a_layout(
    topo: str, pings: int, ovs: PrivateOvs, tmp_path: Path
) -> None:
    assert f"0% dropped ({pings}/{pings} received)" in _mn(ovs, tmp_path, topo)


@judges_time
def test_tcp_gets_an_uplink_s_speed_and_the_team_is_a_bond(ovs: PrivateOvs, tmp_path: Path) -> None:
    said = _mn(
        ovs,
        tmp_path,
        "vmware_lbt",
        "sh ovs-appctl bond/show",
        "sh tc qdisc show dev lbt-up1",
        "sh tc qdisc show dev lbt-sw-up2",
        "client1 timeout 60 iperf3 -s -1 > /dev/null 2>&1 &",
        "client1 for i in $(seq 300); do ss -ltn | grep -q :5201 && break; sleep 0.1; done",
        "vm4 timeout 30 iperf3 -c 10.1.1.1 -O 1 -t 3 -f m",
    )
    assert "bond_mode: active-backup" in said
    assert said.count("qdisc htb") == 2, "an uplink is not shaped"
    rate = re.search(r"([\d.]+) Mbits/sec\s+receiver", said)
    assert rate, said[-2000:]
    at_least("Mbit/s over an uplink of 100", float(rate[1]), 80, 20)
    at_most("Mbit/s over an uplink of 100", float(rate[1]), 101, 110)


@pytest.mark.parametrize(
    ("topo", "lags"), [("set_vs_lbfo", 4), ("quad_gbe_team,virtual_switches=2", 2)]
)
def test_a_lag_is_negotiated_at_both_ends_and_carries_traffic(
    topo: str, lags: int, ovs: PrivateOvs, tmp_path: Path
) -> None:
    ping = "vm1 ping -c 1 -w 10 10.1.1.1"
    said = _mn(ovs, tmp_path, f"{topo},team=lacp", ping, "sh ovs-appctl lacp/show")
    assert _passes(said) == [True], said[-2000:]
    assert said.count("status: active negotiated") == lags, said[-3000:]


def _passes(said: str) -> list[bool]:
    return ["1 received" in line for line in said.splitlines() if "packets transmitted" in line]


@pytest.mark.parametrize(
    ("fault", "passing"),
    [
        ("mtu=9000", [True, True]),
        ("mtu=9000,odd_mtu=1500", [True, False]),
        ("odd_vlan=99", [False, False]),
    ],
)
def test_a_member_that_is_set_up_differently_loses_what_it_should(
    fault: str, passing: list[bool], ovs: PrivateOvs, tmp_path: Path
) -> None:
    # What passes may take its time; what does not pass is not waited for.
    small, large = (
        f"vm1 ping -c 1 -W {10 if passes else 1} -M do -s {size} 10.3.2.1"
        for size, passes in zip((56, 8972), passing, strict=True)
    )
    said = _mn(ovs, tmp_path, f"converged,{fault}", small, large)
    assert _passes(said) == passing, said[-2000:]


def test_a_vm_migrates_with_its_port(ovs: PrivateOvs, tmp_path: Path) -> None:
    to_vm, from_vm = "client1 ping -c 1 -w 5 10.100.0.1", "vm1 ping -c 1 -w 5 10.100.1.1"
    move = "sh ovs-vsctl del-port mig-server1 mig-vm1-1 -- add-port mig-server2 mig-vm1-1"
    listed = "sh ovs-vsctl iface-to-br mig-vm1-1"
    commands = [to_vm, listed, move, from_vm, to_vm, listed]
    said = _mn(ovs, tmp_path, "live_migration,vms=1", *commands)
    assert _passes(said) == [True, True, True], said[-2000:]
    places = [line for line in said.splitlines() if line in ("mig-server1", "mig-server2")]
    assert places == ["mig-server1", "mig-server2"]
