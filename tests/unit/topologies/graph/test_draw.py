"""The drawings of the layouts: complete, readable, and up to date in the documentation."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from tests.said import says
from topologies.graph import draw
from topologies.layouts import LAYOUTS

IMAGES = Path(__file__).resolve().parents[4] / "docs" / "images"
VARIANTS = [
    *((name, {}) for name in LAYOUTS),
    ("quad_gbe_team", {"virtual_switches": 1, "vms": 3}),
    ("quad_gbe_team", {"virtual_switches": 2}),
    ("two_switches", {"uplinks": 5, "switches": 3, "clients": 5}),
    ("vmware_lbt", {"uplinks": 4, "vms": 1, "vnics_per_vm": 1}),
]


def _words(path: Path) -> list[str]:
    return sorted(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text()))


@pytest.mark.parametrize(("name", "parameters"), VARIANTS, ids=str)
def test_every_node_has_a_box_and_boxes_do_not_overlap(
    name: str, parameters: dict[str, int]
) -> None:
    layout = LAYOUTS[name](**parameters)
    places = draw.places(layout)
    assert set(places) == set(layout.graph)
    for (one, (x, y)), (other, (other_x, other_y)) in combinations(places.items(), 2):
        apart = max(abs(x - other_x) / draw.COLUMN, abs(y - other_y) / draw.ROW)
        assert apart >= 1 - 1e-9, f"{one} overlaps {other}"


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_documentation_has_the_current_layout(name: str, tmp_path: Path) -> None:
    """If it fails, run `python -m topologies.graph.draw`."""
    assert draw.main([name, "--out", str(tmp_path)]) == 0
    file = f"layout_{name}.svg"
    assert _words(tmp_path / file) == _words(IMAGES / file)


def test_an_unknown_layout_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert draw.main(["no_such_layout"]) == 2
    said = capsys.readouterr().err
    assert says(said, "layout no_such_layout ", "; expected vmware_lbt | ")


def test_speeds_have_a_readable_unit() -> None:
    assert (draw.speed(10**7), draw.speed(10**10)) == ("10 Mbit/s", "10 Gbit/s")
