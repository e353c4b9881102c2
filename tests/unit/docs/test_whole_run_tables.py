"""What a whole run of `make bench-times` found, in docs/reliability, against its raw figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests import documents
from tests.unit.docs.figures import assert_says, raw, rows

PAGE = "docs/reliability/limits.md"
HEAD = "| test in `tests/switch` or `tests/mininet` | what | case | limit | measured | runs | repeated |"


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
    assert f"met {held} of {len(figures)} limits" in (documents.ROOT / PAGE).read_text()


def found(test: str, what: str) -> float:
    (one,) = (
        one
        for one in raw("times/whole.json")["figures"]
        if one["test"].startswith(test) and one["what"] == what
    )
    return float(one["found"])


def test_links_that_carry_nothing() -> None:
    table = rows("docs/reliability/failover.md", "| event | effect | measured | test |")
    dark = "test_liveness.py::test_bfd_leaves_a_link_that_carries_nothing"
    cells = [measured for _, measured, _ in table.values()]
    silent = [f"longest silence of a VM, service {one}, s" for one in ("alive", "dead")]
    for cell, what in zip(cells[:3], (*silent, "back after, s"), strict=True):
        seconds = [found(f"{dark}[{bed}", what) for bed in ("plain", "balance-slb")]
        assert_says(cell.replace("promised: 3 s", "").partition("for a delay")[0], *seconds)
    lost = found("test_liveness.py::test_no_failback", "frames lost since the cable was plugged in")
    assert cells[3].startswith(f"{lost:.0f} frames lost of")


def test_a_storm_from_a_vm() -> None:
    share = found("test_hostile.py::test_a_storm", "of a core, the service")
    table = rows("docs/reliability/hostile-input.md", "| a VM | what happens | test |")
    (cell,) = (cells[0] for vm, cells in table.items() if vm.startswith("sends 20 000 frames/s"))
    assert_says(cell, 100 * share)


def test_services_that_stand_by() -> None:
    table = rows("docs/reliability/standby.md", "| what | promised | measured | test |")
    killed = "test_standby.py::test_a_leader_that_is_killed"
    stopped = "test_standby.py::test_a_leader_that_is_stopped"
    measured = {first: cell for first, (_, cell, _) in table.items()}
    for event, test in (("leader killed", killed), ("leader stopped", stopped)):
        (cell,) = (cell for first, cell in measured.items() if first.startswith(event))
        assert_says(cell, found(test, "taken over, s"))
    again_s = found(stopped, "taken over again, s")
    assert f"leads again {again_s:.2f} s after" in " ".join(measured.values())
