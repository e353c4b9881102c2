"""The policies in README's table and docs/policies.md against the presets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.presets import PRESETS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "beginning"),
    [("README.md", "| "), ("docs/policies.md", ""), ("docs/policies/equivalents.md", "| ")],
)
def test_pages_about_policies_name_every_preset(page: str, beginning: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith(beginning)]
    named = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert PRESETS.keys() <= named
