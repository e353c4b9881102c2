"""Texts of a report: figures, settings, and the descriptions of layouts."""

from __future__ import annotations

import pytest

from topologies.layouts import LAYOUTS
from topologies.reports.markdown import described


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_a_description(name: str) -> None:
    found = described(name)
    assert found.headline[0].isupper() and found.headline.endswith(".")
    assert found.reproduces.endswith(".")
    assert "mn --custom" not in found.reproduces
