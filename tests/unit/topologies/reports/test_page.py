"""The page of a bench: self-contained, and with every measured figure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topologies import bench_reports as bench
from topologies.compare.samples import Utilization
from topologies.layouts import LAYOUTS
from topologies.reports import chart as page_chart
from topologies.reports import known_figures as page_figures
from topologies.reports import page
from topologies.reports.layout_texts import described
from topologies.reports.markup import Markup, tag
from topologies.reports.repeated import published
from topologies.reports.settings import setting, setting_name

VOID = ("meta", "br")


class Read(HTMLParser):
    """The parsed page: elements, text, and tables as rows of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.tables: list[list[list[list[str]]]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "elements that do not end"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1].append(data)

    def names(self, table: int) -> list[str]:
        """The first words of a table's rows without the header."""
        return [row[0][0] for row in self.tables[table][1:]]

    def row(self, table: int, name: str) -> dict[str, list[str]]:
        """A row's words by heading. The published column of `x` is `x, published`."""
        heads = [cell[0] for cell in self.tables[table][0]]
        headings = [
            f"{heads[place - 1]}, published" if head == "published" else head
            for place, head in enumerate(heads)
        ]
        found = self.tables[table][1 + self.names(table).index(name)]
        return dict(zip(headings, found, strict=True))


def _made(report: dict[str, Any] | None = None, runs: list[dict[str, Any]] | None = None) -> str:
    return page.page(report or bench.report(), bench.runs() if runs is None else runs)


def test_page_is_self_contained() -> None:
    made = _made()
    read = Read(made)
    names = {name for name, _ in read.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "use", "image", "base"}
    assert not re.search(r"https?:|//|@import|url\(", made)
    for _, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    links = [attributes["href"] for _, attributes in read.elements if "href" in attributes]
    assert len(ids) == len(set(ids))
    assert links and set(links) <= {f"#{one}" for one in ids}


def test_page_has_its_parts_in_order() -> None:
    words = " ".join(Read(_made()).words)
    order = (
        *("set_vs_lbfo", described("set_vs_lbfo").headline, "Switch Embedded Teaming"),
        *("Altaro", "1 of 2 expectations met", "no duplicates", "total within 5%", "93.5 %"),
        *(
            "Where a peer is better",
            "Streams from one VM",
            "share of the limit",
            "Uplinks over time",
        ),
        *("fault", "blackout", "How to read this", "Environment", "poll interval 200 ms"),
    )
    place = 0
    for one in order:
        place = words.find(one, place)
        assert place >= 0, one


EVIL = "<script>alert('x')</script>\"&\x00"


def test_texts_of_a_report_are_escaped() -> None:
    report = bench.report()
    evil = bench.scenario(
        {EVIL: bench.contender({**bench.figures(0.5), EVIL: 1.0})},
        name=EVIL,
        published={f"{EVIL}2": {EVIL: 0.5}},
    )
    evil["what"] = evil["uplinks"] = EVIL
    evil["uplinks"] = {EVIL: bench.CAPACITY_BPS}
    report["scenarios"].append(evil)
    report["layout"] = report["published"]["source"] = report["environment"][EVIL] = EVIL
    report["expectations"].append({"condition": EVIL, "found": EVIL, "met": False})
    report["phases"] = [{"name": EVIL, "start_s": 0, "end_s": 1, "uplink_utilization": {EVIL: 0.5}}]
    report["published"]["phases"] = [{"name": EVIL, "what": EVIL, "shares": [0.5]}]
    runs = [*bench.runs(), bench.run(EVIL, {EVIL: 0.5}, scenario=EVIL)]
    read = Read(_made(report, runs))
    assert "script" not in {name for name, _ in read.elements}
    shown = EVIL.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert sum(shown in one for one in read.words) > 15
    labels = [attributes.get("aria-label", "") for _, attributes in read.elements]
    assert any(one.startswith(shown) for one in labels)


def test_every_figure_is_in_the_table_of_all_figures() -> None:
    report = bench.report()
    read = Read(_made(report))
    for scenario, table in zip(report["scenarios"], (1, 3), strict=True):
        heads, *rows = read.tables[table]
        for contender, found in scenario["contenders"].items():
            column = heads.index([contender])
            for of in (page_figures.figure(name) for name in found if name != "runs"):
                (row,) = (row for row in rows if row[0][1].split()[0] == of.name)
                assert row[column][0] == of.text(found[of.name]), (contender, of.name)


def test_table_has_contenders_limit_and_published_figures() -> None:
    read = Read(_made())
    share, beside = "share of the limit", "share of the limit, published"
    assert read.names(0) == ["limit", "SET", "manual", "balance-tcp", "dynamic"]
    assert read.row(0, "limit")["throughput"] == ["200.0"]
    assert read.row(0, "limit")[share] == ["100.0"]
    assert (read.row(0, "SET")[share], read.row(0, "SET")[beside]) == ([], ["91.5"])
    dynamic = read.row(0, "dynamic")
    assert dynamic["throughput"] == ["187.0", "184.0–190.2"]
    assert (dynamic[share], dynamic[beside]) == (["93.5", "92.0–95.1"], ["93.8"])
    assert dynamic["streams’ CV"][0] == "2.26"
    assert dynamic["uplinks’ CV"][0] == "0.012"
    assert dynamic["packets lost"][0] == "0.04"
    assert dynamic["CPU time per bit"][0] == "1.38"
    heads = read.tables[0][0]
    assert ["throughput", "Mbit/s"] in heads
    assert ["CPU time per bit", "× manual"] in heads


def test_unmeasured_figure_is_an_empty_cell() -> None:
    report = bench.report()
    manual = report["scenarios"][0]["contenders"]["manual"]
    manual["cpu_ratio"], manual["loss_ratio"] = None, float("nan")
    read = Read(_made(report))
    row = read.row(0, "manual")
    for heading in ("streams’ CV", "CPU time per bit", "packets lost"):
        assert row[heading] == []
    assert row["share of the limit, published"] == []
    assert read.row(0, "balance-tcp")["CPU time per bit"] != []


def test_our_best_policy_and_the_best_peer_are_marked() -> None:
    heads = [row[0] for row in Read(_made()).tables[0]]
    assert ["dynamic", "our best"] in heads
    assert ["balance-tcp", "best peer"] in heads
    assert ["manual"] in heads
    alike = bench.scenario(
        {name: bench.contender(bench.figures(0.5)) for name in ("manual", "dynamic")}
    )
    heads = [row[0] for row in Read(_made(bench.report(alike), [])).tables[0]]
    assert heads[1:] == [["limit"], ["manual", "best peer"], ["dynamic", "our best"]]
    assert 'class="best"' not in _made(bench.report(alike), []), "none is better than the other"


def test_single_run_has_no_range() -> None:
    assert Read(_made()).row(2, "manual")["throughput"] == ["100.0"]


def test_equal_runs_have_no_range() -> None:
    assert Read(_made()).row(0, "balance-tcp")["throughput"] == ["182.0"]


def test_first_repetitions_are_drawn_on_the_same_axes() -> None:
    made = _made()
    figures = re.findall(r"<figure>.*?</figure>", made)
    assert [re.findall(r"<span[^>]*>([^<]*)", one)[0] for one in figures] == [
        *("manual", "balance-tcp", "dynamic", "manual"),
    ]
    dynamic = figures[2]
    assert "2 moves" in dynamic
    assert "1 move at 7.2 s" in dynamic and "1 move at 9.0 s" in dynamic
    capacity = [re.findall(r'class="capacity"[^>]*y1="([^"]*)"', one)[0] for one in figures[:3]]
    assert len(set(capacity)) == 1
    (first, _), *_ = re.findall(r'points="[\d.]+,([\d.]+) [\d.]+,([\d.]+)', dynamic)
    expected = page_chart.BOTTOM - (page_chart.BOTTOM - page_chart.TOP) * 0.9 / 1.06
    assert float(first) == pytest.approx(expected, abs=0.2), "90 % of the capacity"
    measured = re.findall(r'class="measured" x="([\d.]+)" y="\d+" width="([\d.]+)"', dynamic)
    width = page_chart.RIGHT - page_chart.LEFT
    assert [float(one) for one in measured[0]] == pytest.approx(
        [page_chart.LEFT + width / 4, width / 2], abs=0.2
    )


def test_bench_without_samples_has_no_charts() -> None:
    assert "Uplinks over time" not in _made(runs=[])


def test_report_without_scenarios_is_one_scenario() -> None:
    report = bench.report()
    del report["scenarios"]
    made = _made(report)
    assert len(Read(made).tables) == 2
    assert "187.0" in made


def test_phases_have_the_published_ones() -> None:
    report = bench.report(layout="vmware_lbt")
    report["published"]["phases"] = [
        {"name": "phase 1", "what": "one is idle", "shares": [0.75, 0]}
    ]
    report["phases"] = [
        {
            "name": "phase 1",
            "start_s": 0,
            "end_s": 25.25,
            "uplink_utilization": {"uplink1": 0.7261, "uplink2": 0.0004},
        }
    ]
    read = Read(_made(report))
    (table,) = (one for one in read.tables if one[0][0] == ["phase"])
    cells = [cell[0] for cell in table[1]]
    assert cells == ["phase 1", "0.0", "25.2", "72.6", "0.0", "75.0 / 0.0", "one is idle"]


shares = st.floats(0, 3)


@given(
    ratios=st.lists(st.tuples(shares, shares), min_size=1, max_size=40),
    interval_s=st.floats(0.05, 7),
    moves_s=st.lists(st.floats(0, 400), max_size=20),
    measured_s=st.tuples(st.floats(0, 200), st.floats(200, 400)) | st.none(),
    end_s=st.floats(0, 300),
)
def test_nothing_is_drawn_outside_of_the_chart(
    ratios: list[tuple[float, float]],
    interval_s: float,
    moves_s: list[float],
    measured_s: tuple[float, float] | None,
    end_s: float,
) -> None:
    intervals = [
        Utilization(place * interval_s, (place + 1) * interval_s, {"a": one, "b": other})
        for place, (one, other) in enumerate(ratios)
    ]
    points = page_chart.points(intervals)
    made = page_chart.chart(
        points,
        moves_s=moves_s,
        measured_s=measured_s,
        end_s=end_s,
        top_ratio=page_chart.highest([points]),
        label="x",
    )
    for _, attributes in Read(made).elements:
        x = [float(attributes[name]) for name in ("x", "x1", "x2") if name in attributes]
        y = [float(attributes[name]) for name in ("y", "y1", "y2") if name in attributes]
        for point in attributes.get("points", "").split():
            at_x, at_y = point.split(",")
            x.append(float(at_x))
            y.append(float(at_y))
        if "width" in attributes:
            assert float(attributes["width"]) >= 0
            x.append(x[0] + float(attributes["width"]))
            y.append(y[0] + float(attributes["height"]))
        assert all(0 <= one <= page_chart.WIDTH + 1e-6 for one in x)
        assert all(0 <= one <= page_chart.HEIGHT for one in y)


def test_points_are_means_over_a_second() -> None:
    quarters = [
        Utilization(n / 4, (n + 1) / 4, {"u": share})
        for n, share in enumerate((0, 1, 1, 0, 0.5, 0.5))
    ]
    assert page_chart.points(quarters) == {"u": [(0.5, pytest.approx(0.5)), (1.25, 0.5)]}
    assert page_chart.points([]) == {}


def test_uplinks_of_two_servers_have_different_lines() -> None:
    names = [f"server{server}-uplink{number}" for server in (1, 2) for number in (1, 2, 3, 4)]
    classes = page_chart.line_classes(names)
    assert len(set(classes.values())) == len(names)
    assert classes["server1-uplink3"].split()[1] == classes["server2-uplink3"].split()[1]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("throughput_bps", 81_856_800.0, "81.9"),
        ("throughput_bps", 9_033_100_000, "9\N{NARROW NO-BREAK SPACE}033.1"),
        ("share_of_limit", 0.599065, "59.9"),
        ("some_new_share", 0.5, "50.0"),
        ("share_of_something", 0.5, "50.0"),
        ("spread_cv", 0.00237729, "0.002"),
        ("stream_cv", 0.0312, "3.12"),
        ("cpu_ratio", 0.967782, "0.97"),
        ("jumbo_ratio", 1.905, "1.91"),
        ("loss_ratio", -0.0, "0.00"),
        ("loss_ratio", 0.000230835, "0.02"),
        ("moves", 2, "2"),
        ("blackout_ms", 12.34, "12.3"),
        ("copied_bytes", 1_500_000, "1.5"),
        ("cpu_s_ovs-vswitchd", 39.41, "39.41"),
        ("throughput_bps", None, ""),
    ],
)
def test_number_format(name: str, value: float | None, text: str) -> None:
    assert page_figures.figure(name).text(value) == text


def test_figures_have_a_fixed_order() -> None:
    names = ["cpu_s_x", "zeta_ms", "cpu_ratio", "moves", "share_of_limit", "throughput_bps"]
    ordered = ["throughput_bps", "share_of_limit", "moves", "zeta_ms", "cpu_ratio", "cpu_s_x"]
    assert [of.name for of in page_figures.figures(names * 2)] == ordered
    assert [of.name for of in page_figures.figures(reversed(names))] == ordered


def test_settings_have_the_unit_of_their_name() -> None:
    assert (setting_name("poll_interval_ms"), setting("poll_interval_ms", 250)) == (
        *("poll interval", "250 ms"),
    )
    assert setting("pace", {"name": "quick", "ramp_s": 14.0, "on": True}) == (
        "name quick, ramp 14 s, on yes"
    )
    assert setting("uplinks", ["a", "b"]) == "a, b"


def test_markup_is_escaped_once() -> None:
    inner = tag("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert tag("p", inner, None, 1, class_='a"b', data_x=None) == (
        '<p class="a&quot;b"><b>&lt;&amp;&gt;</b>1</p>'
    )
    assert isinstance(inner, Markup)
    assert tag("br") == "<br>"


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_a_description(name: str) -> None:
    found = described(name)
    assert found.headline[0].isupper() and found.headline.endswith(".")
    assert found.reproduces.endswith(".")
    assert "mn --custom" not in found.reproduces


def test_unknown_layout_has_no_description() -> None:
    assert described("theirs").headline == ""
    assert "theirs" in _made(bench.report(layout="theirs"))


def _written(directory: Path) -> Path:
    (directory / "report.json").write_text(json.dumps(bench.report()))
    lines = [json.dumps(run) + "\n" for run in bench.runs()]
    (directory / "samples.jsonl").write_text("".join(lines))
    return directory


def test_page_is_generated_from_the_two_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page.main([str(_written(tmp_path))]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    made = page.page(bench.report(), bench.runs(), published({"layout": "set_vs_lbfo"}))
    assert (tmp_path / "report.html").read_text() == made


def test_unreadable_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main([str(tmp_path)]) == 1
    assert "report.json" in capsys.readouterr().err
    _written(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    assert page.main([str(tmp_path)]) == 1
    assert "no 'layout' -> the files of a bench" in capsys.readouterr().err
    (tmp_path / "report.json").write_text("not JSON")
    assert page.main([str(tmp_path)]) == 1
    assert page.main([]) == page.main(["--help"]) == 2


@pytest.mark.slow
def test_page_needs_no_matplotlib() -> None:
    program = "import sys; sys.modules['matplotlib'] = None; import topologies.reports.page"
    root = Path(__file__).resolve().parents[4]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
