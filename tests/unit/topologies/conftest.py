"""The bench's command on a machine that has everything, with fake runs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.topologies import bench_runs
from topologies import bench
from topologies.compare import run
from topologies.compare.contenders import Contender
from topologies.compare.run import Observed, Scenario
from topologies.loads.pace import Pace

# Figures that meet the expectations of the benches that are run.
GOOD = {
    "stream_cv": 0.02,
    "probe_duplicated": 0,
    "failover_ms": 12.0,
    "loss_ratio": 0.0,
    "highest_ratio": 0.8,
    "moves": 2.0,
    "unsent_ratio": 0.0,
    "strangers": 0.0,
}


class Bench:
    """Call it with what is typed behind `ovs-lbt bench`; it returns the exit status.

    Attributes:
        directory: the bench writes its reports below it.
        made: the runs, as `SCENARIO CONTENDER REPETITION`. They use each sending uplink by half.
        failing: runs that have this text fail.
        most: the command is interrupted after so many runs.
        out, err: what the last command wrote.
    """

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self._capsys = directory, capsys
        self.made: list[str] = []
        self.failing = "no run"
        self.most = 99
        self.out = self.err = ""

    def __call__(self, words: str) -> int:
        self.made.clear()
        self._capsys.readouterr()
        status = bench.main([*shlex.split(words), "--out", str(self.directory)])
        self.out, self.err = self._capsys.readouterr()
        return status

    def observe(
        self, scenario: Scenario, contender: Contender, _: Pace, repetition: int
    ) -> Observed:
        if len(self.made) == self.most:
            raise KeyboardInterrupt
        self.made.append(f"{scenario.name} {contender.name} {repetition}")
        if self.failing in self.made[-1]:
            raise RuntimeError("vm1: no answer")
        return bench_runs.observed(
            scenario.layout,
            contender.name,
            dict.fromkeys(scenario.layout.sending_uplinks(), 0.5),
            scenario=scenario.name,
            throughput_bps=92.5e6,
            measured=GOOD,
        )

    def report(self, layout: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / layout / "report.json").read_text())
        return found


@pytest.fixture
def fake_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bench:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    made = Bench(tmp_path, capsys)
    monkeypatch.setattr(run, "run", made.observe)
    return made
