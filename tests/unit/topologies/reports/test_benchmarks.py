"""docs/benchmarks.md and docs/benchmarks: they match the stored reports and list where a peer is better."""

from __future__ import annotations

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
from topologies.reports import benchmarks, front_page
from topologies.reports.comparison import against_peers, matches_document
from topologies.reports.known_figures import is_ours, is_peer
from topologies.reports.markdown import report_name
from topologies.reports.table import MOST_COLUMNS, columns, figures_table

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


def page(tmp_path: Path, report: dict[str, Any], notes: str = "") -> str:
    """The generated page of one report."""
    return made(tmp_path, report, notes=notes)[f"benchmarks/{report_name(report)}.md"]


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
    assert all(claim.setting in found["benchmarks.md"] for claim in front_page.CLAIMS)
    images = re.findall(r"!\[[^]]*\]\(\.\./([^)]*)\)", "".join(found.values()))
    assert len(images) >= len(LAYOUTS) and all((DOCS / image).is_file() for image in images)


def test_notes_belong_to_known_pages() -> None:
    notes = benchmarks.read_notes((DOCS / "results" / "notes.md").read_text())
    assert {f"benchmarks/{name}.md" for name in notes} <= stored().keys()
    assert all(notes.values())


def test_notes_are_copied_unchanged(tmp_path: Path) -> None:
    notes = "About.\n\n## set_vs_lbfo\n\nIt is *so*.\n\n## other\n\nNo.\n"
    assert benchmarks.read_notes(notes) == {"set_vs_lbfo": "It is *so*.", "other": "No."}
    text = page(tmp_path, bench.report(), notes)
    assert "## Notes\n\nIt is *so*.\n" in text and "No." not in text


def test_a_page_has_one_section_of_notes() -> None:
    with pytest.raises(ValueError, match="two sections shift"):
        benchmarks.read_notes("## shift\n\nOne.\n\n## scale\n\nNo.\n\n## shift\n\nTwo.\n")


def test_other_settings_are_a_page_of_their_own(tmp_path: Path) -> None:
    usual, faithful = (bench.report(layout="vmware_lbt") for _ in range(2))
    faithful["environment"]["pace"]["name"] = "faithful"
    found = made(tmp_path, faithful, bench.report(layout="converged"), usual)
    listed = re.findall(r"^- \[(\w+)\].*expectations", found["benchmarks.md"], re.MULTILINE)
    assert listed == ["vmware_lbt", "vmware_lbt_faithful", "converged"], "the layouts' order"
    text = found["benchmarks/vmware_lbt_faithful.md"]
    assert "The layout [`vmware_lbt`](vmware_lbt.md) with the documented window of 30 s" in text


def test_expectations_and_published_figures_are_counted(tmp_path: Path) -> None:
    found = made(tmp_path, bench.report())
    text = found["benchmarks/set_vs_lbfo.md"]
    assert "1 of 2 expectations are met. Not met:\n\n- no duplicates: 3\n" in text
    assert "1 of 1 figures match the published ones." in text
    front = found["benchmarks.md"]
    assert "1 of 2 expectations. Not met:\n  - no duplicates\n" in front


def test_unmet_conditions_are_listed_once_with_their_scenarios(tmp_path: Path) -> None:
    report = bench.report()
    report["expectations"] = [
        {"condition": f"{where}: CPU <= 1", "found": found, "met": False}
        for where, found in (("one", "2"), ("two", "3"))
    ]
    found = made(tmp_path, report)
    assert r"- CPU \<= 1: one: 2; two: 3" in found["benchmarks/set_vs_lbfo.md"]
    assert r"  - CPU \<= 1 (one; two)" in found["benchmarks.md"]


def test_figures_in_which_a_peer_is_better_are_listed_and_counted(tmp_path: Path) -> None:
    found = made(tmp_path, bench.report())
    text = found["benchmarks/set_vs_lbfo.md"].split("## Where a peer is better")[1]
    assert "- team to team: uplinks’ CV: `manual` 0.010, `dynamic` 0.012\n" in text
    assert (
        "- fault: throughput: `manual` 100.0 Mbit/s, `dynamic/lacp` 60.0 Mbit/s (without a range)"
        in text
    )
    front = found["benchmarks.md"]
    pairs = [one for one in against_peers(bench.report()) if one.has_ranges]
    differ = [one for one in pairs if one.differs]
    peers = sum(one.other_is_better for one in differ)
    assert f"in {len(pairs)} figures. In {len(differ)} of them" in front
    assert f"better in {len(differ) - peers}, and the peer in {peers}." in front
    count = sum(one.other_is_better for one in against_peers(bench.report()))
    assert f"- [set_vs_lbfo](benchmarks/set_vs_lbfo.md): {count} figures, most in through" in front


def test_report_of_a_bench_has_all_columns() -> None:
    text = benchmarks.of_bench(bench.report(), pictures=["uplinks.png"])
    assert len(TABLE.findall(text)) == 2
    assert "|n = 3|throughput, Mbit/s|share of the limit / published, %|uplinks’ CV|" in text
    assert "1 of 2 expectations are met. Not met:\n\n- no duplicates: 3\n" in text
    assert "- team to team: uplinks’ CV: `manual` 0.010, `dynamic` 0.012\n" in text
    assert "![uplinks.png](uplinks.png)\n" in text
    assert "- commit: not recorded\n" in text


def test_report_without_scenarios_is_one_scenario() -> None:
    report = bench.report()
    del report["scenarios"]
    text = benchmarks.of_bench(report)
    assert len(TABLE.findall(text)) == 1 and "|`dynamic`|187.0|93.5|" in text


@pytest.mark.slow
def test_report_of_a_bench_needs_no_matplotlib() -> None:
    program = "import sys; sys.modules['matplotlib'] = None; import topologies.reports.benchmarks"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=DOCS.parent)


def test_tables_have_a_cell_for_every_heading(tmp_path: Path) -> None:
    report = bench.report()
    odd = "a|b`<c>*\n"
    report["scenarios"][0]["contenders"][odd] = bench.contender(bench.figures(0.1))
    report["scenarios"][0]["name"] = report["expectations"][0]["found"] = odd
    text = page(tmp_path, report)
    assert "<c>" not in text.replace(r"\<c>", "")
    for table in TABLE.findall(text):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_a_table_has_the_columns_that_differ_and_published_figures_first() -> None:
    names = [f"fct_middle_p{number}_ms" for number in (50, 95, 99)]
    rest = ["settle_s", "moves", "loss_ratio", "spread_cv", "throughput_bps", *names]
    one, two = (
        {**dict.fromkeys(rest, value), "throughput_bps": 1e6 * value, "failover_ms": 5.0}
        for value in (1.0, 2.0)
    )
    contenders = {"manual": bench.contender(one), "adaptive": two}
    scenario = bench.scenario(contenders, published={"adaptive": {names[2]: 7.0}})
    shown = [of.name for of in columns(scenario, 4)]
    assert shown == ["throughput_bps", "spread_cv", "settle_s", names[2]]
    assert len(columns(scenario)) == len(rest) + 1, "all, in the report of a bench"
    table = figures_table(scenario, MOST_COLUMNS)
    assert table.splitlines()[0].count("|") - 1 == MOST_COLUMNS
    assert "|contender|n|" in table and "|2.0 / 7.0|" in table


def test_missing_figures_are_empty_cells_and_fewer_runs_are_told() -> None:
    runs = [{"throughput_bps": 1e6, "loss_ratio": 0.01}, {"throughput_bps": 2e6}]
    found = {"a": bench.contender(*runs[::-1]), "adaptive": bench.contender(*runs)}
    found["adaptive"]["loss_ratio"] = float("nan")
    table = figures_table(bench.scenario(found))
    assert "|`a`|1.0|1.00 (n = 1)|" in table
    assert "|`adaptive`|2.0||" in table


@pytest.mark.parametrize("name", ["load-based", "dynamic/lacp", "adaptive+path-check"])
def test_a_policy_is_ours_with_each_addition(name: str) -> None:
    assert is_ours(name) and not is_peer(name)
    assert not is_ours(f"balance-slb{name}") and is_peer("balance-slb/1s")


def _behind(contenders: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (one.figure.name, one.here.contender, one.other.contender)
        for one in against_peers(bench.report(bench.scenario(contenders)))
        if one.other_is_better
    ]


def test_oracle_is_shown_and_is_no_peer() -> None:
    flows = {"throughput_bps": 100e6, "slowdown_p99": 9.0}
    contenders = {
        "balance-slb": bench.contender({**flows, "slowdown_p99": 9.5}),
        "adaptive": bench.contender(flows),
        "oracle": bench.contender({**flows, "slowdown_p99": 1.0}),
    }
    rows = figures_table(bench.scenario(contenders)).splitlines()[2:]
    assert [row.split("|")[1] for row in rows] == ["`oracle`", "`balance-slb`", "`adaptive`"]
    assert _behind(contenders) == []


def test_who_carries_nothing_divides_nothing_evenly() -> None:
    nothing = bench.figures(0.0, spread_cv=0.0) | {"stream_cv": 0.0}
    contenders = {
        "balance-slb": bench.contender(nothing),
        "dynamic": bench.contender(bench.figures(0.5, spread_cv=0.3) | {"stream_cv": 0.2}),
    }
    assert _behind(contenders) == []
    assert against_peers(bench.report(bench.scenario({"dynamic": contenders["dynamic"]}))) == []


def test_only_comparable_figures_of_contenders_that_ran_are_compared_with_the_document() -> None:
    published: dict[str, Any] = {
        "dynamic": {"share_of_limit": 0.5, "cpu_ratio": 0.05, "share_of_link": 0.9},
        "SET": {"share_of_limit": 0.5},
    }
    for share, matches in ((0.52, True), (0.53, False)):
        contenders = {"dynamic": bench.contender(bench.figures(share))}
        report = bench.report(bench.scenario(contenders, published=published))
        assert matches_document(report) == [matches]


def _runs(*values: float) -> dict[str, Any]:
    return bench.contender(*({**bench.figures(0.5), "loss_ratio": one} for one in sorted(values)))


def test_our_best_policy_is_compared_with_the_best_peer() -> None:
    better = {"settle_s": 1.0, "loss_ratio": 0.001, "failover_ms": 5.0, "stream_cv": 0.01}
    worse = {name: 2 * value for name, value in better.items()}
    contenders = {
        "balance-slb": bench.contender({**bench.figures(0.5), **better}),
        "active-backup": bench.contender({**bench.figures(0.5), **worse}),
        "dynamic": bench.contender({**bench.figures(0.5), **worse}),
    }
    found = _behind(contenders)
    assert {name for name, *_ in found} == set(better)
    assert {(ours, peer) for _, ours, peer in found} == {("dynamic", "balance-slb")}
    contenders["adaptive"] = contenders["balance-slb"]
    assert _behind(contenders) == [], "our best policy is as good"


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
    contenders = {"balance-slb": _runs(*theirs), "dynamic": _runs(*ours)}
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
    assert "results -> a directory of reports" in capsys.readouterr().err
    directory.mkdir()
    found = made(directory, bench.report())
    assert benchmarks.main([str(directory)]) == 0
    assert {name: (tmp_path / name).read_text() for name in found} == found
    (directory / "a.json").write_text("not JSON")
    assert benchmarks.main([str(directory)]) == 1
    assert benchmarks.main([]) == 2
