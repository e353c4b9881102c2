"""`ovs-lbt bench` as a process of its own, what it writes, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OVS_LBT = Path(sys.executable).with_name("ovs-lbt")
MARK = "BENCH_TEST_MARK"
# Figures that every load has.
EVERYWHERE = {
    *("throughput_bps", "share_of_limit", "spread_cv", "moves", "loss_ratio"),
    *("cpu_s", "cpu_s_per_gbit", "runs"),
}


class Bench:
    """One bench under way; marked, so that its processes can be told from others'.

    `out` are the words before the name of what it writes, and that name.
    """

    def __init__(
        self,
        directory: Path,
        *words: str,
        command: Sequence[str] = (str(OVS_LBT), "bench"),
        pace: Sequence[str] = ("--quick",),
        out: Sequence[str] = ("--out", "out"),
        **more: str,
    ) -> None:
        assert OVS_LBT.exists(), f"{OVS_LBT} is not installed: run make setup"
        assert os.geteuid() == 0, f"user id {os.geteuid()} may not create namespaces; run as root"
        self._mark = uuid.uuid4().hex
        self.out = directory / out[-1]
        self._log = directory / "bench.log"
        # Not below `directory`: a path must be short enough for the sockets in it.
        self._temporary = Path(tempfile.mkdtemp(prefix="lb-"))
        self._before = _interfaces(), _namespaces()
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *words, *pace, *out[:-1], str(self.out)],
                cwd=directory,
                env={**os.environ, MARK: self._mark, "TMPDIR": str(self._temporary), **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def said(self) -> str:
        return self._log.read_text()

    def programs(self) -> list[str]:
        """The command lines of its processes."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._mark.encode() in environ.read_bytes():
                    command = environ.with_name("cmdline").read_bytes()
                    found.append(command.replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    def require_nothing_left(self) -> None:
        """Its processes, directories, interfaces and namespaces are gone."""
        assert not (running := self.programs()), f"still running: {running}"
        files = sorted(str(path) for path in self._temporary.rglob("*"))
        assert not files, f"left in its temporary directory: {files}"
        now = _interfaces(), _namespaces()
        assert now == self._before, f"interfaces and namespaces are {now}; expected {self._before}"

    def close(self) -> None:
        """End it, if it still runs, and whatever it has left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        subprocess.run(["rm", "-rf", str(self._temporary)], check=False)


@contextmanager
def benching(directory: Path, *words: str) -> Iterator[Bench]:
    """A bench that does not outlive its test."""
    bench = Bench(directory, *words)
    try:
        yield bench
    finally:
        bench.close()


def interrupt(bench: Bench, begun: Callable[[], bool], number: signal.Signals) -> None:
    """Interrupt a bench as soon as a condition holds: it ends at once and leaves nothing."""
    deadline_s = time.monotonic() + 180
    while not begun():
        assert bench.process.poll() is None and time.monotonic() < deadline_s, bench.said()
        time.sleep(0.1)
    assert bench.programs(), "the bench cannot be told from others"
    bench.process.send_signal(number)
    assert bench.process.wait(timeout=60) == 1, bench.said()
    assert "interrupted" in bench.said()
    bench.require_nothing_left()


def report_of(directory: Path, layout: str, *words: str, timeout_s: float = 400) -> dict[str, Any]:
    """The report of a quick bench, which has the contract's form; the bench has left nothing."""
    with benching(directory, layout, *words) as bench:
        status = bench.process.wait(timeout=timeout_s)
        said = bench.said()
        # 1: an expectation missed, which so short a run on a busy machine may do; not a failure.
        assert status in (0, 1), said[-2000:]
        assert ("FAIL  " in said) == (status == 1), said[-2000:]
        bench.require_nothing_left()
        report: dict[str, Any] = json.loads((bench.out / layout / "report.json").read_text())
        _require_contract(report, layout)
        _require_samples(report, bench.out / layout / "samples.jsonl")
        summary = (bench.out / layout / "report.md").read_text()
        for scenario in report["scenarios"]:
            for name in scenario["contenders"]:
                assert f"|`{name}`|" in summary
    return report


def _require_contract(report: dict[str, Any], layout: str) -> None:
    assert report["layout"] == layout
    assert report["environment"]["pace"]["name"] == "quick"
    assert report["scenarios"][0]["contenders"] == report["contenders"]
    assert report["scenarios"][0]["limit_bps"] == report["limit_bps"]
    for scenario in report["scenarios"]:
        assert {"name", "what", "limit_bps", "uplinks", "published", "contenders"} == set(scenario)
        assert all(capacity_bps > 0 for capacity_bps in scenario["uplinks"].values())
        for name, one in scenario["contenders"].items():
            assert set(one) >= EVERYWHERE, name
            assert 0 < one["throughput_bps"] <= scenario["limit_bps"], name
            assert 0 <= one["loss_ratio"] < 1 and one["cpu_s"] > 0, name
            assert ("cpu_ratio" in one) == ("manual" in scenario["contenders"])
            assert len(one["runs"]) == 1
            assert set(scenario["published"].get(name, {})) <= set(one), f"{name}: not measured"
    for one in report["expectations"]:
        assert set(one) == {"condition", "found", "met"}


def _require_samples(report: dict[str, Any], path: Path) -> None:
    """A line for each run, whose samples go from the start of the load to its end."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["scenario"], one["contender"]) for one in lines] == [
        (scenario["name"], name)
        for scenario in report["scenarios"]
        for name in scenario["contenders"]
    ]
    for one in lines:
        uplinks = next(s["uplinks"] for s in report["scenarios"] if s["name"] == one["scenario"])
        assert set(one["samples"][0]["sent_bytes"]) == set(uplinks)
        assert one["samples"][-1]["at_s"] >= one["load_s"] - 0.5
        assert one["outcome"]["received_bytes"] > 0


def _interfaces() -> set[str]:
    """Those that a bench would make here, were it not in a network of its own."""
    listed = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    names = (line.split(":")[1].strip() for line in listed.stdout.splitlines())
    return {name for name in names if name.startswith("lbt-")}


def _namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line for line in listed.stdout.splitlines() if "lbt-" in line}
