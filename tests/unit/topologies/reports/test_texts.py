"""Texts of a report: figures, settings, and the descriptions of layouts."""

from __future__ import annotations

import pytest

from topologies.layouts import LAYOUTS
from topologies.reports.known_figures import figure, figures
from topologies.reports.markdown import described, setting, setting_name


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
    assert figure(name).text(value) == text


def test_figures_have_a_fixed_order() -> None:
    names = ["cpu_s_x", "zeta_ms", "cpu_ratio", "moves", "share_of_limit", "throughput_bps"]
    ordered = ["throughput_bps", "share_of_limit", "moves", "zeta_ms", "cpu_ratio", "cpu_s_x"]
    assert [of.name for of in figures(names * 2)] == ordered
    assert [of.name for of in figures(reversed(names))] == ordered


def test_settings_have_the_unit_of_their_name() -> None:
    assert (setting_name("poll_interval_ms"), setting("poll_interval_ms", 250)) == (
        *("poll interval", "250 ms"),
    )
    assert setting("pace", {"name": "quick", "ramp_s": 14.0, "on": True}) == (
        "name quick, ramp 14 s, on yes"
    )
    assert setting("uplinks", ["a", "b"]) == "a, b"


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_a_description(name: str) -> None:
    found = described(name)
    assert found.headline[0].isupper() and found.headline.endswith(".")
    assert found.reproduces.endswith(".")
    assert "mn --custom" not in found.reproduces


def test_unknown_layout_has_no_description() -> None:
    assert described("theirs").headline == ""
