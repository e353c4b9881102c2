"""The life of a bridge is what the table in the docstring says."""

from __future__ import annotations

import pytest

from controller.bridge.phase import Phase, Turn, after


def table() -> dict[tuple[Turn, Phase], str]:
    """What the docstring says, by turn and phase."""
    lines = [line.strip() for line in (after.__doc__ or "").splitlines()]
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
