"""The commands that docs/operations.md has operators type are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.cli import _parser

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
QUOTED = re.compile(r"`(ovs-lbt [^`]+)`")


def commands() -> list[str]:
    _, runbooks = OPERATIONS.read_text().split("\n## Runbooks\n")
    return sorted({" ".join(found.split()) for found in QUOTED.findall(runbooks)})


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_runbook_is_one_of_ours(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        _parser().parse_args(command.split()[1:])
    except SystemExit:
        pytest.fail(capsys.readouterr().err)


def test_runbooks_have_commands() -> None:
    named = {command.split()[1] for command in commands()}
    assert {"show", "explain", "history", "drain", "set"} <= named
