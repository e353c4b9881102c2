"""docs/benchmarks.md: it matches the stored reports and lists where a peer is better."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.topologies import bench_reports as bench
from topologies.compare import expectation
from topologies.layouts import LAYOUTS
from topologies.reports import benchmarks as benchmarks_page
from topologies.reports.code_changes import CodeChanges
from topologies.reports.comparison import against_document, behind, champions, duels, orders
from topologies.reports.known_figures import is_ours, is_peer
from topologies.reports.table import rows as table_rows

DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_command_prints_the_document_of_the_stored_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = "python -m topologies.reports.benchmarks docs/results > docs/benchmarks.md"
    assert benchmarks_page.main([str(DOCS / "results")]) == 0
    kept, made = (DOCS / "benchmarks.md").read_text(), capsys.readouterr().out
    # Lines about commits are compared only in a clone that has all of them.
    commits = re.findall(r"^(?:Measured at|Commit of).*`([0-9a-f]{7,})`", kept, re.MULTILINE)
    if not all(map(CodeChanges().knows, commits)):
        kept, made = (
            re.sub(r"^(Measured at|Commit of).*$", r"\1", text, flags=re.MULTILINE)
            for text in (kept, made)
        )
    assert kept == made, again


def test_every_drawing_exists() -> None:
    every = benchmarks_page.benchmarks([bench.report(layout=name) for name in LAYOUTS], {})
    images = re.findall(r"!\[[^]]*\]\(([^)]*)\)", every)
    assert len(images) == len(LAYOUTS)
    assert all((DOCS / image).is_file() for image in images)
    assert "Not measured yet" not in every


def test_notes_belong_to_known_sections() -> None:
    notes = benchmarks_page.read_notes((DOCS / "results" / "notes.md").read_text())
    known = {path.stem for path in (DOCS / "results").glob("*.json")}
    assert set(notes) <= {*known, *LAYOUTS, *benchmarks_page.SECTIONS}
    assert all(notes.values())


def test_notes_are_copied_unchanged() -> None:
    notes = benchmarks_page.read_notes(
        "About.\n\n## set_vs_lbfo\n\nIt is *so*.\n\n## other\n\nNo.\n"
    )
    assert notes == {"set_vs_lbfo": "It is *so*.", "other": "No."}
    made = benchmarks_page.benchmarks([bench.report()], notes)
    assert "**Why**\n\nIt is *so*.\n" in made
    assert "No." not in made


def test_a_layout_has_one_section_of_notes() -> None:
    with pytest.raises(ValueError, match="two sections shift"):
        benchmarks_page.read_notes("## shift\n\nOne.\n\n## scale\n\nNo.\n\n## shift\n\nTwo.\n")


def test_layouts_are_in_their_order() -> None:
    reports = [bench.report(layout=name) for name in ("theirs", "converged", "vmware_lbt")]
    made = benchmarks_page.benchmarks(reports, {})
    assert made == benchmarks_page.benchmarks(reports[::-1], {})
    assert re.findall(r"^## (\S+)$", made, re.MULTILINE) == ["vmware_lbt", "converged", "theirs"]


def test_other_settings_are_a_section_of_their_own() -> None:
    usual, faithful, receive = (bench.report(layout="vmware_lbt") for _ in range(3))
    faithful["environment"]["pace"]["name"] = "faithful"
    receive["environment"]["direction"] = "receive"
    made = benchmarks_page.benchmarks([receive, faithful, usual], {"vmware_lbt_receive": "So."})
    sections = re.findall(r"^## (\S+)$", made, re.MULTILINE)
    assert sections == ["vmware_lbt", "vmware_lbt_faithful", "vmware_lbt_receive"]
    assert made.count("layout_vmware_lbt.svg") == 1
    assert "The layout [`vmware_lbt`](#vmware_lbt) with the documented window of 30 s" in made
    assert "**Why**\n\nSo." in made.split("## vmware_lbt_receive")[1]
    assert "- [`vmware_lbt_receive`](#vmware_lbt_receive), " in made


def test_matches_and_differences_are_listed() -> None:
    report = bench.report()
    made = benchmarks_page.benchmarks([report], {})
    matches, differs = made.split("**Where we match the document**")[1].split("**Where we differ")
    assert "1 of 2 expectations are met." in matches
    assert (
        "team to team: share of the limit, published 93.8 %: `dynamic` 93.5 % (n = 3)." in matches
    )
    assert "Not met: no duplicates: 3." in differs
    assert "team to team" not in differs
    assert "| [`set_vs_lbfo`](#set_vs_lbfo) | 1 of 2 | 1 of 1 | 3 of 4 |" in made
    report["scenarios"][0]["published"]["dynamic"]["share_of_limit"] = 0.7
    differs = benchmarks_page.benchmarks([report], {}).split("**Where we differ")[1]
    assert (
        "team to team: share of the limit, published 70.0 %: `dynamic` 93.5 % (n = 3)." in differs
    )


def test_page_opens_with_what_peers_are_better_in() -> None:
    made = benchmarks_page.benchmarks([bench.report()], {})
    opening = made.split("## Where a peer is better")[1].split("## How to read")[0]
    ranges, single = opening.split("at least one side has no range")
    link = "- [`set_vs_lbfo`](#set_vs_lbfo), "
    assert (
        f"{link}team to team: uplinks’ CV: `manual` 0.010 (n = 3) beats `dynamic` 0.012 (n = 3)."
        in ranges
    )
    assert (
        f"{link}fault: throughput: `manual` 100.0 Mbit/s (n = 1) beats `dynamic/lacp` 60.0 Mbit/s"
        " (n = 1)." in single
    )
    assert made.index(opening) < made.index("## set_vs_lbfo")
    assert made.count(" beats ") == opening.count(" beats ")


def test_report_of_a_bench_has_the_tables_of_the_document() -> None:
    report = bench.report()
    made = benchmarks_page.of_bench(report, pictures=["uplinks.png"])
    tables = re.findall(r"(?:^\|.*\n)+", made, re.MULTILINE)
    document = benchmarks_page.benchmarks([report], {})
    assert len(tables) == 2 and all(table in document for table in tables)
    assert "- PASS total within 5%: 93.5 %\n- **FAIL** no duplicates: 3\n" in made
    better = made.split("**Where a peer is better**")[1]
    assert "- team to team: uplinks’ CV: `manual` 0.010 (n = 3) beats `dynamic`" in better
    assert made.endswith("![uplinks.png](uplinks.png)\n")
    assert "not recorded for these runs: commit, " in made.lower()


def test_report_without_scenarios_is_one_scenario() -> None:
    report = bench.report()
    del report["scenarios"]
    made = benchmarks_page.of_bench(report)
    assert made.count("| contender |") == 1 and "| `dynamic` | 3 | **187.0** |" in made


@pytest.mark.slow
def test_report_of_a_bench_needs_no_matplotlib() -> None:
    program = "import sys; sys.modules['matplotlib'] = None; import topologies.reports.benchmarks"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=DOCS.parent)


def test_empty_lists_say_none() -> None:
    even = bench.scenario(
        {name: bench.contender(bench.figures(0.5)) for name in ("manual", "dynamic")}
    )
    report = {**bench.report(even), "expectations": []}
    made = benchmarks_page.benchmarks([report], {})
    assert made.count("None in these figures.") == 2
    assert "## Where a peer is better\n\nNone in these figures." in made


def test_tables_have_a_cell_for_every_heading() -> None:
    report = bench.report()
    odd = "a|b`<c>*\n"
    report["scenarios"][0]["contenders"][odd] = bench.contender(bench.figures(0.1))
    report["scenarios"][0]["name"] = report["expectations"][0]["found"] = odd
    made = benchmarks_page.benchmarks([report], {})
    assert "<c>" not in made.replace(r"\<c>", "")
    tables = re.findall(r"(?:^\|.*\n)+", made, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_missing_figures_are_empty_cells() -> None:
    report = bench.report()
    lacp = report["scenarios"][1]["contenders"]["dynamic/lacp"]
    lacp["loss_ratio"], lacp["cpu_ratio"] = float("nan"), None
    lines = benchmarks_page.benchmarks([report], {}).splitlines()
    (row,) = (line for line in lines if line.startswith("| `dynamic/lacp` |"))
    (heads,) = (line for line in lines if "blackout, ms" in line)
    names, cells = ([one.strip() for one in of.strip("|").split("|")] for of in (heads, row))
    cell_of = dict(zip(names, cells, strict=True))
    assert (cell_of["n"], cell_of["throughput, Mbit/s"]) == ("1", "**60.0**")
    unmeasured = ("blackout, ms", "packets lost, %", "CPU time per bit, × manual")
    assert [cell_of[name] for name in unmeasured] == ["", "", ""]


def _found(**contenders: dict[str, float]) -> list[tuple[str, str, str, bool]]:
    named = {name.replace("_", "-"): found for name, found in contenders.items()}
    return [
        (one.figure.name, one.ours.contender, one.peer.contender, one.holds) for one in duels(named)
    ]


def test_duels_are_between_the_fastest_and_the_most_even() -> None:
    idle = bench.figures(0.2, spread_cv=0.0)
    found = _found(
        active_backup=idle,
        manual=bench.figures(0.5, spread_cv=0.3),
        balance_tcp=bench.figures(0.495, spread_cv=0.2),
        explicit=idle,
        dynamic=bench.figures(0.5, spread_cv=0.1),
        load_based=bench.figures(0.499, spread_cv=0.21),
    )
    assert [one[:3] for one in found] == [
        ("throughput_bps", "dynamic", "manual"),
        ("spread_cv", "dynamic", "balance-tcp"),
        ("cpu_s_per_gbit", "dynamic", "balance-tcp"),
    ]


@pytest.mark.parametrize("name", ["load-based", "dynamic/lacp", "adaptive+path-check"])
def test_a_policy_is_ours_with_each_addition(name: str) -> None:
    assert is_ours(name) and not is_peer(name)
    assert not is_ours(f"balance-slb{name}") and is_peer("balance-slb/1s")


def test_oracle_is_shown_and_beats_nobody() -> None:
    flows = {"throughput_bps": 100e6, "slowdown_p99": 9.0}
    contenders = {
        "oracle": bench.contender({**flows, "throughput_bps": 900e6, "slowdown_p99": 1.0}),
        "balance-slb": bench.contender({**flows, "slowdown_p99": 9.5}),
        "adaptive": bench.contender(flows),
    }
    scenario = bench.scenario(contenders)
    assert [row.name for row in table_rows(scenario)] == [
        *("limit", "oracle", "balance-slb", "adaptive")
    ]
    assert behind(contenders) == []
    assert champions(contenders) == ("adaptive", "balance-slb")
    assert all(duel.holds for duel in duels(contenders))


@pytest.mark.parametrize(
    ("share", "spread_cv", "cpu_s", "peer_cv", "held"),
    [
        (0.6, 0.2, 7.5, 0.3, [True, True, True]),
        (0.491, 0.3, 7.5 * 1.04, 0.3, [True, False, True]),
        (0.489, 0.29, 7.5 * 1.06, 0.3, [False, True, False]),
        (0.5, 0.09, 7.5, 0.05, [True, True]),  # the peer is even
    ],
)
def test_duels_have_the_rules_of_the_expectations(
    share: float, spread_cv: float, cpu_s: float, peer_cv: float, held: list[bool]
) -> None:
    contenders = {
        "balance-slb": bench.figures(0.5, peer_cv),
        "dynamic": {**bench.figures(share, spread_cv), "cpu_s_per_gbit": cpu_s},
    }
    assert [one.holds for one in duels(contenders)] == held
    assert [one.met for one in expectation.against_peers("here", contenders)] == held


def test_who_carries_nothing_divides_nothing_evenly() -> None:
    nothing = bench.figures(0.0, spread_cv=0.0) | {"stream_cv": 0.0}
    contenders = {
        "balance-slb": bench.contender(nothing),
        "dynamic": bench.contender(bench.figures(0.5, spread_cv=0.3) | {"stream_cv": 0.2}),
    }
    assert behind(contenders) == []


def test_without_a_peer_or_a_figure_there_is_no_comparison() -> None:
    assert _found(dynamic=bench.figures(0.5)) == []
    no_cpu = {name: one for name, one in bench.figures(0.5).items() if name != "cpu_s_per_gbit"}
    assert len(_found(manual=no_cpu, dynamic=bench.figures(0.5))) == 1


def test_only_comparable_figures_of_contenders_that_ran_are_compared_with_the_document() -> None:
    published: dict[str, Any] = {
        "dynamic": {"share_of_limit": 0.5, "cpu_ratio": 0.05, "share_of_link": 0.9},
        "SET": {"share_of_limit": 0.5},
    }
    contenders = {"dynamic": bench.contender(bench.figures(0.52))}
    (one,) = against_document(bench.scenario(contenders, published=published))
    assert (one.contender, one.figure.name, one.matches) == ("dynamic", "share_of_limit", True)


def _runs(*values: float, name: str = "loss_ratio") -> dict[str, Any]:
    return bench.contender(*({**bench.figures(0.5), name: value} for value in sorted(values)))


def test_figures_in_which_a_peer_is_better_are_listed() -> None:
    better = {"settle_s": 1.0, "loss_ratio": 0.001, "failover_ms": 5.0, "stream_cv": 0.01}
    contenders = {
        "balance-slb": bench.contender({**bench.figures(0.5), **better}),
        "dynamic": bench.contender(
            {**bench.figures(0.5), **{name: 2 * value for name, value in better.items()}}
        ),
    }
    found = behind(contenders)
    assert {one.figure.name for one in found} == set(better)
    assert all(one.differs for one in found)
    contenders["adaptive"] = contenders["balance-slb"]
    assert behind(contenders) == [], "our best policy is as good"


def test_overlapping_ranges_are_no_difference() -> None:
    for theirs, ours, differs in (
        ((0.01, 0.02, 0.03), (0.03, 0.04, 0.05), False),
        ((0.01, 0.02, 0.029), (0.03, 0.04, 0.05), True),
        ((0.001, 0.02, 0.2), (0.03, 0.04, 0.05), False),
        ((0.02,), (0.04,), True),
    ):
        contenders = {"balance-slb": _runs(*theirs), "dynamic": _runs(*ours)}
        (found,) = behind(contenders)
        assert (found.figure.name, found.differs) == ("loss_ratio", differs)
        assert (found.peer.count, found.ours.count) == (len(theirs), len(ours))
        made = benchmarks_page.benchmarks([bench.report(bench.scenario(contenders))], {})
        assert (", packets lost: `balance-slb`" in made.split("## How to read")[0]) == differs
        assert ("**No difference: the ranges of the runs overlap**" in made) != differs
    assert "`balance-slb` 2.00 % (n = 1) beats `dynamic` 4.00 % (n = 1)" in made


def test_equal_texts_are_no_difference() -> None:
    assert behind({"balance-slb": _runs(0.0), "dynamic": _runs(0.00004)}) == []


def test_lost_duel_is_listed_even_if_another_policy_is_better() -> None:
    contenders = {
        "balance-slb": bench.contender(bench.figures(0.5)),
        "dynamic": bench.contender({**bench.figures(0.5), "cpu_s_per_gbit": 9.0}),
        "explicit": bench.contender({**bench.figures(0.1), "cpu_s_per_gbit": 5.0}),
    }
    (found,) = behind(contenders)
    assert (found.figure.name, found.ours.contender) == ("cpu_s_per_gbit", "dynamic")


def test_medians_have_the_number_of_runs() -> None:
    report = bench.report()
    runs = report["scenarios"][0]["contenders"]["dynamic"]["runs"]
    del runs[0]["loss_ratio"]
    made = benchmarks_page.benchmarks([report], {})
    (row,) = (line for line in made.splitlines() if line.startswith("| `dynamic` |"))
    assert row.startswith("| `dynamic` | 3 |")
    assert row.count("(n = 2)") == 1


@pytest.mark.parametrize(
    ("cv", "reproduced"),
    [
        ({"set": (0.09,), "dynamic": (0.01,)}, True),
        ({"set": (0.03,), "dynamic": (0.06,)}, False),
        ({"set": (0.03, 0.05, 0.09), "dynamic": (0.01, 0.02, 0.04)}, False),
    ],
)
def test_published_order_is_judged(cv: dict[str, tuple[float, ...]], reproduced: bool) -> None:
    contenders = {name: _runs(*values, name="stream_cv") for name, values in cv.items()}
    published = {"set": {"stream_cv": 0.0738}, "dynamic": {"stream_cv": 0.0226}}
    scenario = bench.scenario(contenders, published=published)
    (order,) = orders(scenario)
    assert order.reproduced == reproduced
    assert [names for _, names in order.published] == [["dynamic"], ["set"]]
    made = benchmarks_page.benchmarks([bench.report(scenario)], {})
    where = "Where we match the document" if reproduced else "Where we differ from the document"
    (line,) = (line for line in made.splitlines() if line.startswith("- order by streams’ CV"))
    assert "published `dynamic` 2.26 % before `set` 7.38 %; measured `" in line
    assert line.endswith(": reproduced." if reproduced else ": not reproduced.")
    assert line in made.split(f"**{where}**")[1].split("\n\n**")[0]


def test_command_reports_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmarks_page.main([str(tmp_path / "none")]) == 1
    assert "none -> a directory of reports" in capsys.readouterr().err
    (tmp_path / "a.json").write_text("not JSON")
    assert benchmarks_page.main([str(tmp_path)]) == 1
    assert benchmarks_page.main([]) == 2
