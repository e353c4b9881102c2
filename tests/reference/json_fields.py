"""The fields of the JSON that commands print, as docs/reference/json.md lists them.

Only the values that some fields have are made from the code. A path is as `jq` takes it, without the first dot: `[]` stands for each element of a list, and a word in
capitals for each key of an object.
"""

from __future__ import annotations

import re

from controller.api.history import Happened
from controller.operations.diagnosis import Obstacle
from controller.operations.findings import ERROR, NOTE, WARNING
from controller.operations.unconfirmed import What
from policies.model import Reason, Role
from policies.verdicts import Standing, WhyAtRest
from tests.documents import ROOT, sections

PAGE = "docs/reference/json.md"
# The sources that name kinds of findings, and how: behind the severity. Only attach tells some.
SOURCES = (
    "controller/cli/answers.py",
    *(f"controller/operations/{m}.py" for m in ("check", "upstream")),
)
KIND = re.compile(r'(?<!Told.ATTACH, )\b(?:ERROR|WARNING|NOTE|severity), "([a-z-]+)", ')


def fields() -> dict[str, list[tuple[str, str]]]:
    """The paths and meanings of each answer, by its command. A row may have several paths."""
    return {
        command: [
            (path, meaning)
            for paths, meaning in re.findall(r"^\| (`\..+?`) \| (.+) \|$", section, re.MULTILINE)
            for path in re.findall(r"`\.([^`]+)`", paths)
        ]
        for command, section in sections(PAGE).items()
    }


def kinds_of_findings() -> list[str]:
    """The kinds of the findings of `check`."""
    return sorted({kind for path in SOURCES for kind in KIND.findall((ROOT / path).read_text())})


# By the last name of a path: the values of these fields.
VALUES = {
    "change": [*What],
    "role": [*Role],
    "reason": [*Reason],
    "event": [*Happened],
    "severity": [ERROR, WARNING, NOTE],
    "check": kinds_of_findings(),
    "rest": [*WhyAtRest, "loads-unknown"],
    "against": [*Obstacle, *Standing],
}
# A row with a list of values: up to the last name of its path, and up to the list.
ROW = re.compile(r"^(\| `\.[^`]*?(\w+)` \| .*?)`[a-z-]+`(?:, `[a-z-]+`)*", re.MULTILINE)


def with_values(page: str) -> str:
    """The page, in which the meanings of these fields list the values of the code."""

    def row(found: re.Match[str]) -> str:
        values = VALUES.get(found[2])
        return f"{found[1]}{', '.join(f'`{value}`' for value in values)}" if values else found[0]

    return ROW.sub(row, page)
