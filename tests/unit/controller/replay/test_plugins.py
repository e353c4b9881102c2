"""Policies of other packages: replay runs them, and nothing else loads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from controller.config.keys import BRIDGE_KEYS
from controller.replay import command, run
from controller.text.wording import Refused
from policies.classifiers import Classifier
from policies.presets import PRESETS, Preset

LATE = Preset(Classifier.VM_PORT)
HASHED = Preset(Classifier.TRANSPORT)
NO_PRESET = "a text"
TRACE = """time_s,host,port,tx_bps,rx_bps,uplink_capacity_bps
0,h,a,1e7,0,1e8
300,h,a,1e7,0,1e8
"""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entry points to the values of this module, and one to a package that does not exist."""
    values = {"late": "LATE", "hashed": "HASHED", "no-preset": "NO_PRESET", "load-based": "LATE"}
    module = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "plugged_in", module)
    found = [EntryPoint(name, f"plugged_in:{value}", run.GROUP) for name, value in values.items()]
    found.append(EntryPoint("missing", "no_such_package:PRESET", run.GROUP))
    monkeypatch.setattr(run, "entry_points", lambda **wanted: EntryPoints(found).select(**wanted))
    before = dict(PRESETS)
    yield
    for name in PRESETS.keys() - before.keys():
        del PRESETS[name]


def test_a_policy_that_is_installed_is_offered_and_not_loaded() -> None:
    assert run.installed_policies() == ["hashed", "late", "missing", "no-preset"]
    assert "late" not in PRESETS
    with pytest.raises(ValueError, match="late"):
        BRIDGE_KEYS["policy"].parse("late")


def test_replay_runs_it_beside_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    ours = ("--policy", "originating-port", "--processes", "1")
    assert command.main([str(trace), "--policy", "late", *ours]) == 0
    lines = capsys.readouterr().out.splitlines()
    late, static = (line.split()[1:] for line in lines if line.startswith(("late", "originating")))
    assert late == static, "both place by number and move nothing"


def test_a_policy_of_ours_is_not_replaced() -> None:
    ours = PRESETS["load-based"]
    run.load_policy("load-based")
    assert PRESETS["load-based"] is ours


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "policy missing: no_such_package:PRESET cannot be loaded: ModuleNotFound"),
        ("no-preset", "policy no-preset: plugged_in:NO_PRESET must be a policies.presets.Preset"),
        ("hashed", "policy hashed: only policies that place whole VM ports"),
    ],
)
def test_what_replay_cannot_run_is_refused(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused, match=said):
        run.load_policy(name)
    assert name not in PRESETS
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    assert command.main([str(trace), "--policy", name]) == 1
    assert said in capsys.readouterr().err
