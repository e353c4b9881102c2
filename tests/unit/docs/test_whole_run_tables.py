"""What a whole run of `make bench-times` did not hold, in docs/reliability.md, against its raw figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests import documents
from tests.unit.docs.figures import raw

PAGE = "docs/reliability.md"
HEAD = "| test in `tests/switch` or `tests/mininet` | what | case | limit | found | runs | found again |"


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["test"], one["what"]) == (other["test"], other["what"])


def listed(found: Sequence[float]) -> str:
    if len(found) > 1 and len(set(found)) == 1:
        return f"{found[0]:.4g}, {len(found)} times"
    return ", ".join(f"{one:.4g}" for one in found)


def table() -> list[str]:
    """The rows that the raw figures make."""
    lines = []
    again = [one for run in raw("times/again.json") for one in run["figures"]]
    for one in raw("times/whole.json")["figures"]:
        if not one["kept"]:
            file, _, name = one["test"].partition("::")
            runs = ", ".join(f"{run:.4g}" for run in one["runs"] or [one["found"]])
            case = name.partition("[")[2].rstrip("]")
            cells = [
                f"`{file}`",
                one["what"],
                case,
                f"{one['limit']:.4g}",
                f"{one['found']:.4g}",
                runs,
                listed([it["found"] for it in again if same(it, one)]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def test_the_limits_that_were_not_held_are_listed() -> None:
    behind = (documents.ROOT / PAGE).read_text().partition(HEAD)[2].splitlines()[2:]
    assert behind[: len(table()) + 1] == [*table(), ""]


def test_how_many_limits_were_held() -> None:
    figures = raw("times/whole.json")["figures"]
    held = sum(one["kept"] for one in figures)
    assert f"held {held} of {len(figures)} limits" in (documents.ROOT / PAGE).read_text()
