"""The layout under `mn`, and a quick form of its bench, on a real Open vSwitch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from topologies.private_network import private_network
from topologies.private_ovs import PrivateOvs

LAYOUT_FILE = Path(__file__).resolve().parents[2] / "topologies" / "vmware_lbt.py"
OVS_LBT = Path(sys.executable).with_name("ovs-lbt")
MARK = "BENCH_TEST_MARK"

pytestmark = [pytest.mark.mininet, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _root() -> None:
    assert os.geteuid() == 0, f"user id {os.geteuid()} -> root: namespaces and Open vSwitch"


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
        timeout=90,
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


def test_tcp_gets_an_uplink_s_speed_and_the_team_is_a_bond(ovs: PrivateOvs, tmp_path: Path) -> None:
    script = tmp_path / "commands"
    script.write_text(
        "sh ovs-appctl bond/show\n"
        "sh tc qdisc show dev lbt-up1\n"
        "sh tc qdisc show dev lbt-sw-up2\n"
        "client1 timeout 20 iperf3 -s -1 > /dev/null 2>&1 &\n"
        "vm4 sleep 1; timeout 15 iperf3 -c 10.1.1.1 -t 3 -f m\n"
    )
    said = _mn(ovs, tmp_path, "--topo", "vmware_lbt", "--post", str(script), "--test", "none")
    assert "bond_mode: active-backup" in said
    assert said.count("qdisc htb") == 2, "an uplink is not shaped"
    rate = re.search(r"([\d.]+) Mbits/sec\s+receiver", said)
    assert rate, said[-2000:]
    assert 80 <= float(rate[1]) <= 101


class Bench:
    """`ovs-lbt bench` as a process of its own, and what it has left behind."""

    def __init__(self, directory: Path) -> None:
        assert OVS_LBT.exists(), f"{OVS_LBT} is not installed: run make setup"
        self.mark = uuid.uuid4().hex
        self.out = directory / "out"
        self.log = directory / "bench.log"
        # Not below `directory`: a path must be short enough for the sockets in it.
        self.temporary = Path(tempfile.mkdtemp(prefix="lb-"))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [OVS_LBT, "bench", "vmware_lbt", "--quick", "--out", str(self.out)],
                cwd=directory,
                env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def said(self) -> str:
        return self.log.read_text()

    def remains(self) -> list[str]:
        """Everything of this bench that is still there."""
        found = [f"directory {path}" for path in self.temporary.glob("*")]
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in environ.read_bytes():
                    command = environ.with_name("cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"process {command.decode()}")
            except OSError:
                continue
        return found


def _interfaces() -> set[str]:
    listed = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    names = (line.split(":")[1].strip() for line in listed.stdout.splitlines())
    return {name for name in names if name.startswith("lbt-")}


def _namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line for line in listed.stdout.splitlines() if "lbt-" in line}


def test_a_quick_bench_reports_by_the_contract_and_leaves_nothing(tmp_path: Path) -> None:
    before = _interfaces(), _namespaces()
    bench = Bench(tmp_path)
    assert (_interfaces(), _namespaces()) == before
    status = bench.process.wait(timeout=150)
    said = bench.said()
    # 1: an expectation missed, which so short a run on a busy machine may do; not a failure.
    assert status in (0, 1), said[-2000:]
    assert ("FAIL  " in said) == (status == 1), said[-2000:]
    assert bench.remains() == []
    bench.temporary.rmdir()
    assert (_interfaces(), _namespaces()) == before

    directory = bench.out / "vmware_lbt"
    report = json.loads((directory / "report.json").read_text())
    assert report["layout"] == "vmware_lbt"
    assert report["limit_bps"] == 200_000_000
    assert report["published"]["uplink_share"] == 0.65
    assert list(report["contenders"]) == ["manual", "originating-port", "load-based"]
    for one in report["contenders"].values():
        assert 0 < one["throughput_bps"] < report["limit_bps"]
        assert 0 <= one["qos_ratio"] <= 1
        assert one["cpu_ratio"] > 0
        assert len(one["runs"]) == 1
    manual, static, ours = report["contenders"].values()
    assert manual["cpu_ratio"] == 1.0
    assert manual["moves"] == static["moves"] == 0
    assert static["spread_cv"] > 0.9, "not everything was on one uplink"
    assert ours["moves"] == 2
    assert ours["spread_cv"] < 0.1
    assert ours["throughput_bps"] > static["throughput_bps"]
    assert [phase["name"] for phase in report["phases"]] == [f"phase {n}" for n in (1, 2, 3, 4)]
    assert (directory / "uplinks.png").stat().st_size > 10_000
    assert (directory / "uplinks.svg").read_text().rstrip().endswith("</svg>")
    assert (directory / "samples.jsonl").read_text().count("\n") == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    bench = Bench(tmp_path)
    deadline_s = time.monotonic() + 40
    while "1/3 manual" not in bench.said():  # under load, so everything is up
        assert bench.process.poll() is None and time.monotonic() < deadline_s, bench.said()
        time.sleep(0.2)
    assert bench.remains(), "the bench cannot be told from others"
    bench.process.send_signal(number)
    assert bench.process.wait(timeout=20) == 1
    assert "interrupted" in bench.said()
    assert bench.remains() == []
    bench.temporary.rmdir()
