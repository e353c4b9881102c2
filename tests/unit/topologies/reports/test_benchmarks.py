"""The documents and reports: they match the stored figures, and list what differs and where a peer is better."""

from __future__ import annotations

import copy
import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import documents
from tests.unit.topologies import bench_reports as bench
from topologies.layouts import LAYOUTS
from topologies.reports import benchmarks
from topologies.reports.comparison import PUBLISHED, against_peers, published, repeated
from topologies.reports.markdown import described, report_name
from topologies.reports.table import MOST_COLUMNS

DOCS = documents.ROOT / "docs"
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


@functools.cache
def stored() -> dict[str, str]:
    """The generated documents of the stored reports."""
    return benchmarks.pages(DOCS / "results")


def made(tmp_path: Path, *reports: dict[str, Any], notes: str = "") -> dict[str, str]:
    """The generated documents of these reports."""
    for report in reports:
        (tmp_path / f"{report_name(report)}.json").write_text(json.dumps(report))
    (tmp_path / "notes.md").write_text(notes)
    return benchmarks.pages(tmp_path)


def test_documents_are_those_of_the_stored_reports() -> None:
    again = "python -m topologies.reports.benchmarks docs/results"
    kept = [DOCS / "benchmarks.md", *(DOCS / "benchmarks").iterdir()]
    assert {str(path.relative_to(DOCS)): path.read_text() for path in kept} == stored(), again


def test_documents_are_short() -> None:
    found = stored()
    assert sum(len(text.split()) for text in found.values()) <= 9000
    heads = [one.partition("\n")[0] for text in found.values() for one in TABLE.findall(text)]
    assert len(heads) > 50
    assert max(head.count("|") - 1 for head in heads) <= MOST_COLUMNS


def test_every_layout_is_measured_and_every_claim_is_made() -> None:
    found = stored()
    assert {f"benchmarks/{name}.md" for name in LAYOUTS} <= found.keys()
    assert all(claim.setting in found["benchmarks.md"] for claim in benchmarks.CLAIMS)
    images = re.findall(r"!\[[^]]*\]\(\.\./([^)]*)\)", "".join(found.values()))
    assert len(images) >= len(LAYOUTS) and all((DOCS / image).is_file() for image in images)


def test_notes_belong_to_known_pages() -> None:
    notes = benchmarks.read_notes((DOCS / "results" / "notes.md").read_text())
    pages = {f"benchmarks/{name}.md" for name in notes if name != benchmarks.FRONT_PAGE}
    assert pages <= stored().keys()
    assert all(notes.values())


def test_report_of_a_bench_has_all_columns() -> None:
    text = benchmarks.of_bench(bench.report(), pictures=["uplinks.png"])
    assert len(TABLE.findall(text)) == 2
    assert "|n = 3|throughput, Mbit/s|share of the limit / published, %|uplinks’ CV|" in text
    assert "1 of 2 expectations are met. Not met:\n\n- no duplicates: 3\n" in text
    assert "- team to team: uplinks’ CV: `manual` 0.010, `dynamic` 0.012\n" in text
    assert "![uplinks.png](uplinks.png)\n" in text
    assert "- commit: not recorded\n" in text


@pytest.mark.slow
def test_report_of_a_bench_needs_no_matplotlib() -> None:
    program = "import sys; sys.modules['matplotlib'] = None; import topologies.reports.benchmarks"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=DOCS.parent)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_a_description(name: str) -> None:
    headline, reproduces = described(name)
    assert headline[0].isupper() and headline.endswith(".")
    assert reproduces.endswith(".")
    assert "mn --custom" not in reproduces


def test_who_carries_nothing_divides_nothing_evenly() -> None:
    nothing = bench.figures(0.0, spread_cv=0.0) | {"stream_cv": 0.0}
    some = bench.contender(bench.figures(0.5, spread_cv=0.3) | {"stream_cv": 0.2})
    contenders = {"balance-slb": bench.contender(nothing), "dynamic": some}
    found = against_peers(bench.report(bench.scenario(contenders)))
    assert found and not any(one.other_is_better for one in found)
    assert against_peers(bench.report(bench.scenario({"dynamic": some}))) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "differs"),
    [
        ((0.01, 0.02, 0.03), (0.03, 0.04, 0.05), False),
        ((0.01, 0.02, 0.029), (0.03, 0.04, 0.05), True),
        ((0.001, 0.02, 0.2), (0.03, 0.04, 0.05), False),
        ((0.02,), (0.04,), True),
        ((0.0,), (0.00004,), False),  # equal texts
    ],
)
def test_overlapping_ranges_are_no_difference(
    theirs: tuple[float, ...], ours: tuple[float, ...], differs: bool
) -> None:
    both = {"balance-slb": sorted(theirs), "dynamic": sorted(ours)}
    contenders = {
        name: bench.contender(*({**bench.figures(0.5), "loss_ratio": one} for one in values))
        for name, values in both.items()
    }
    report = bench.report(bench.scenario(contenders))
    (found,) = (one for one in against_peers(report) if one.figure.name == "loss_ratio")
    assert found.differs == found.other_is_better == differs
    assert (found.other.count, found.here.count) == (len(theirs), len(ours))
    assert found.has_ranges == (len(ours) > 1)


def test_command_writes_the_documents_and_reports_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "results"
    assert benchmarks.main([str(directory)]) == 1
    assert "results is not a directory; expected " in capsys.readouterr().err
    directory.mkdir()
    found = made(directory, bench.report())
    assert benchmarks.main([str(directory)]) == 0
    assert {name: (tmp_path / name).read_text() for name in found} == found
    (directory / "a.json").write_text("not JSON")
    assert benchmarks.main([str(directory)]) == 1
    assert benchmarks.main([]) == 2


def _report(*shares: float, contender: str = "dynamic", name: str = "here") -> dict[str, Any]:
    runs = [bench.figures(share) for share in sorted(shares)]
    return bench.report(bench.scenario({contender: bench.contender(*runs)}, name=name))


def _different(here: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The labels of the figures that differ."""
    return [one.split(": ")[1] for one in repeated(here, before) if "; published " in one]


def _missing(here: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [one for one in repeated(here, before) if one.startswith("Not among")]


def test_disjoint_ranges_differ() -> None:
    before = _report(0.5, 0.52, 0.54)
    assert _different(_report(0.6, 0.62, 0.64), before) == ["throughput", "share of the limit"]
    assert _different(_report(0.53, 0.62, 0.64), before) == []
    assert _different(_report(0.55), before) == ["throughput", "share of the limit"]
    assert _different(_report(0.53), before) == []


def test_what_was_not_published_is_named() -> None:
    before = _report(0.5, 0.6)
    assert _missing(_report(0.5, name="there"), before) == ["Not among the published runs: there."]
    assert _missing(_report(0.5, contender="set"), before) == [
        "Not among the published runs: here, set."
    ]
    other = copy.deepcopy(before)
    other["scenarios"][0]["limit_bps"] *= 2
    assert _missing(_report(0.5), other) == ["Not among the published runs: here."]


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ({"pace": {"name": "quick", "window_s": 1}}, "pace accelerated, published quick"),
        ({"pace": {"name": "accelerated", "window_s": 1}}, "window_s 3, published 1"),
        ({"direction": "receive"}, "direction send, published receive"),
    ],
)
def test_other_settings_are_not_compared(change: dict[str, Any], obstacle: str) -> None:
    here, before = _report(0.5), _report(0.5, 0.6)
    same: dict[str, Any] = {"pace": {"name": "accelerated", "window_s": 3}, "direction": "send"}
    here["environment"] = {**same, "pace": {**same["pace"], "flows_s": [1.0]}}  # a new setting
    before["environment"] = same
    assert "Not comparable" not in "".join(repeated(here, before))
    before["environment"] = same | change
    assert [*repeated(here, before)] == [f"Not comparable with the published runs: {obstacle}."]


def test_published_reports_differ_from_themselves_in_nothing() -> None:
    measured = [name for name in LAYOUTS if (PUBLISHED / f"{name}.json").exists()]
    assert len(measured) >= 9
    compared = 0
    for name in measured:
        report = published({"layout": name})
        assert report is not None
        first, *others = repeated(report, report)
        assert first.startswith("0 of ")
        assert all("published from one run" in one for one in others)
        compared += int(first.split()[2])
    assert compared > 500
