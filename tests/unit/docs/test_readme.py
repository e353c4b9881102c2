"""README is short, and its screens are of one move."""

from __future__ import annotations

import re

from tests import documents

README = documents.ROOT / "README.md"
MOST_LINES, MOST_WORDS = 130, 900


def test_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert len(text.split()) <= MOST_WORDS


def test_the_screens_are_before_and_after_one_move() -> None:
    """The load of the VM port that moved is missing on its first uplink, and is on the second."""
    screens = README.read_text().partition("```text\n")[2].partition("```")[0].split("\n\n")
    before, after = (
        {
            name: float(mbps)
            for name, mbps in re.findall(r"^ (eth\d) +active +100 +(\S+)", one, re.M)
        }
        for one in screens
    )
    (moved,) = re.findall(r"^ vnet0 +\S+ +eth2 +(\S+)", screens[1], re.M)
    assert before["eth2"] == 0.0
    for uplink, mbps in (("eth1", before["eth1"] - float(moved)), ("eth2", float(moved))):
        assert abs(after[uplink] - mbps) < 1.0
