"""README and the pages about policies against the presets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.presets import DEFAULT_PRESET, PRESETS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "beginning"), [("docs/policies.md", ""), ("docs/policies/equivalents.md", "| ")]
)
def test_pages_about_policies_name_every_preset(page: str, beginning: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith(beginning)]
    named = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert PRESETS.keys() <= named


def test_readme_names_the_default_and_no_policy_that_there_is_not() -> None:
    section = (ROOT / "README.md").read_text().partition("\n## Policies\n")[2].partition("\n## ")[0]
    named = re.findall(r"^- `([a-z-]+)`", section, re.MULTILINE)
    assert len(named) == 3 and set(named) <= PRESETS.keys()
    assert f"- `{DEFAULT_PRESET}`, the default" in section
