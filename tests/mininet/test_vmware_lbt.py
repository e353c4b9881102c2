"""The layout under `mn`, and a quick form of its bench, on a real Open vSwitch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mininet.bench import benching, interrupt, report_of
from tests.switch.judging import at_least, at_most, judges_time
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs

LAYOUT_FILE = Path(__file__).resolve().parents[2] / "topologies" / "vmware_lbt.py"

pytestmark = pytest.mark.mininet


@pytest.fixture(autouse=True)
def _root() -> None:
    assert os.geteuid() == 0, f"user id {os.geteuid()} may not create namespaces; run as root"


@pytest.fixture
def ovs() -> Iterator[PrivateOvs]:
    """An Open vSwitch that is nobody else's, in a network that is nobody else's."""
    with private_network(), PrivateOvs() as private:
        yield private


def _mn(ovs: PrivateOvs, directory: Path, *arguments: str) -> str:
    """What `mn` with the layout's file prints, started from a directory of its own."""
    done = subprocess.run(
        ["mn", "--custom", str(LAYOUT_FILE), *arguments],
        cwd=directory,
        env=ovs.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # `mn` writes what it has to say to standard error, what a node prints to standard output.
    return done.stdout + done.stderr


def test_mn_runs_the_layout_from_any_directory(ovs: PrivateOvs, tmp_path: Path) -> None:
    said = _mn(ovs, tmp_path, "--topo", "vmware_lbt", "--test", "pingall")
    assert "0% dropped (30/30 received)" in said
    assert ovs.vsctl("list-br") == "", "bridges were left behind"


@pytest.mark.parametrize(
    ("topo", "pings"),
    [("vmware_lbt,uplinks=3,vms=2,vnics_per_vm=1,prefix=x-", 12), ("vmware_lbt,team=split", 30)],
)
def test_mn_takes_the_layout_s_parameters(
    ovs: PrivateOvs, tmp_path: Path, topo: str, pings: int
) -> None:
    said = _mn(ovs, tmp_path, "--topo", topo, "--test", "pingall")
    assert f"0% dropped ({pings}/{pings} received)" in said


@judges_time
def test_tcp_gets_an_uplink_s_speed_and_the_team_is_a_bond(ovs: PrivateOvs, tmp_path: Path) -> None:
    script = tmp_path / "commands"
    script.write_text(
        "sh ovs-appctl bond/show\n"
        "sh tc qdisc show dev lbt-up1\n"
        "sh tc qdisc show dev lbt-sw-up2\n"
        "client1 timeout 60 iperf3 -s -1 > /dev/null 2>&1 &\n"
        "client1 for i in $(seq 300); do ss -ltn | grep -q :5201 && break; sleep 0.1; done\n"
        "vm4 timeout 30 iperf3 -c 10.1.1.1 -O 1 -t 3 -f m\n"
    )
    said = _mn(ovs, tmp_path, "--topo", "vmware_lbt", "--post", str(script), "--test", "none")
    assert "bond_mode: active-backup" in said
    assert said.count("qdisc htb") == 2, "an uplink is not shaped"
    rate = re.search(r"([\d.]+) Mbits/sec\s+receiver", said)
    assert rate, said[-2000:]
    at_least("Mbit/s over an uplink of 100", float(rate[1]), 80, 20)
    at_most("Mbit/s over an uplink of 100", float(rate[1]), 101, 110)


TWO = ("--policy", "originating-port", "load-based", "--against", "none", "--scenario", "web users")


@judges_time
def test_a_quick_bench_reports_by_the_contract_and_leaves_nothing(tmp_path: Path) -> None:
    report = report_of(tmp_path, "vmware_lbt", *TWO)
    assert report["limit_bps"] == 200_000_000
    assert report["published"]["uplink_share"] == 0.65
    assert list(report["contenders"]) == ["originating-port", "load-based"]
    for one in report["contenders"].values():
        assert one["throughput_bps"] < report["limit_bps"]
        assert 0 <= one["qos_ratio"] <= 1
        assert one["downloads"] > 0
        assert 0 < one["steady_share_of_limit"] < 1
    static, ours = report["contenders"].values()
    assert static["moves"] == 0
    assert static["spread_cv"] > 0.9, "not everything was on one uplink"
    at_least("moves", ours["moves"], 2, 1)
    at_most("moves", ours["moves"], 2, 6)
    at_most("spread of the uplinks (CV)", ours["spread_cv"], 0.1, 0.7)
    gain = ours["throughput_bps"] / static["throughput_bps"]
    at_least("throughput over originating-port's", gain, 1.0, 0.5)
    assert [phase["name"] for phase in report["phases"]] == [f"phase {n}" for n in (1, 2, 3, 4)]
    directory = tmp_path / "out" / "vmware_lbt"
    assert (directory / "uplinks.png").stat().st_size > 10_000
    assert (directory / "uplinks.svg").read_text().rstrip().endswith("</svg>")
    assert (directory / "samples.jsonl").read_text().count("\n") == 2


def test_a_bench_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    """By Ctrl-C: test_benches."""
    with benching(tmp_path, "vmware_lbt", *TWO) as bench:
        # It shows progress once it is under load, when everything is up.
        interrupt(bench, lambda: "1/2 originating-port" in bench.said(), signal.SIGTERM)
