"""The life of a bridge is what the table says."""

from __future__ import annotations

import pytest

from controller.bridge.phase import Phase, Turn, after

# "attached" is ON_NORMAL if the bridge observes a bond, otherwise SERVING. A dash: the same phase.
TABLE = """
| turn        | INSPECTING | SERVING    | GATHERING  | ON_NORMAL  | LEAVING    |
|-------------|------------|------------|------------|------------|------------|
| INSPECT     | -          | INSPECTING | INSPECTING | INSPECTING | INSPECTING |
| TAKE_OVER   | attached   | attached   | attached   | attached   | attached   |
| CONFIGURE   | -          | attached   | -          | attached   | -          |
| CHANGE_MODE | -          | attached   | attached   | attached   | -          |
| GATHER      | GATHERING  | GATHERING  | -          | GATHERING  | -          |
| GATHERED    | -          | -          | attached   | -          | -          |
| GIVE_BACK   | LEAVING    | LEAVING    | LEAVING    | LEAVING    | -          |
"""


def table() -> dict[tuple[Turn, Phase], str]:
    """The phase that follows, by turn and phase."""
    lines = [line.strip() for line in TABLE.splitlines()]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    (_, *phases), _, *turns = rows
    return {
        (Turn[turn], Phase[phase]): said
        for turn, *cells in turns
        for phase, said in zip(phases, cells, strict=True)
    }


@pytest.mark.parametrize("observes_bond", [False, True])
def test_each_turn_leads_where_the_table_says(observes_bond: bool) -> None:
    said = table()
    assert len(said) == len(Turn) * len(Phase)
    attached = Phase.ON_NORMAL if observes_bond else Phase.SERVING
    for (turn, phase), text in said.items():
        expected = {"-": phase, "attached": attached}.get(text) or Phase[text]
        assert after(phase, turn, observes_bond) is expected, (turn, phase)


def test_who_is_attached_is_looked_after() -> None:
    assert [phase for phase in Phase if phase.is_attached] == [
        Phase.SERVING,
        Phase.GATHERING,
        Phase.ON_NORMAL,
    ]
