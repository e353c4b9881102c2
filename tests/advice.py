"""The commands that messages and runbooks propose, found in the sources.

A command is known by its place and by its words, with `{}` for a quoted name and `{value}` for other words
that the message fills in. tests/switch/test_advice.py runs each of them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from controller.api.commands import COMMANDS
from tests.documents import ROOT

RUNBOOKS = ("docs/runbooks.md", "docs/runbooks-service.md")
# The examples of `--help`, which propose nothing: tests/unit/docs/test_documents.py parses them.
EXAMPLES = "api/commands"
OURS = "|".join(sorted({command.name for command in COMMANDS} - {"set"}))
PROGRAM = (
    rf"ovs-lbt (?:-t \S+ )?(?:(?:{OURS}|COMMAND)(?![\w:-])|set (?:bridge|interface|--help|\{{))"
    r"|ovs-(?:vsctl|appctl|ofctl|dpctl) |ovsdb-(?:client|tool) |(?:systemctl|journalctl|ethtool|nmcli) "
    r"|(?:ip|ss|curl|kill) -|(?:promtool|virsh|modprobe|sysctl|apt-get) "
    r"|(?:ip|tc) (?:link|address|route|qdisc|class|filter) "
)
# Prose goes on behind these.
END = r"(?=[;`)\n]|: |, (?:or|then|and)\b| \((?:or|which|see|runbook)\b| first$|,$|$)"
COMMAND = re.compile(rf"(?<![\w./{{-])(?:{PROGRAM})[^;`]*?{END}")
BLANK = re.compile(r"\{(\w*)\}")
# What `quoted` makes of a name.
QUOTED = r"(?:'[^']*'|[^\s;,'`)])+"


@dataclass(frozen=True, order=True, slots=True)
class Advice:
    """A command that is proposed. `place`: a function below controller/, or a runbook."""

    place: str
    command: str

    def __str__(self) -> str:
        return f"{self.place}: {self.command}"

    @property
    def in_runbook(self) -> bool:
        return self.place.startswith("OvsLbt")

    def found_in(self, text: str, behind: str = "") -> str | None:
        """The command as a message has it, behind some words; None if it is not there."""
        words = [re.escape(part) for part in BLANK.split(self.command)[::2]]
        blanks = [".*?" if name else QUOTED for name in BLANK.findall(self.command)]
        pattern = words[0] + "".join(b + w for b, w in zip(blanks, words[1:], strict=True))
        end = END if re.search(r"\{\w+\}$", self.command) else rf"(?=\s|{END[3:]}"
        found = re.search(rf"{re.escape(behind)}({pattern}){end}", text, re.MULTILINE)
        return found and found[1]


@functools.cache
def collected() -> tuple[Advice, ...]:
    """Every command that a message or a runbook proposes, once for each time that it is written."""
    return tuple(sorted([*_in_messages(), *_in_runbooks()]))


def _in_runbooks() -> Iterator[Advice]:
    for page in RUNBOOKS:
        for section in (ROOT / page).read_text().split("\n## ")[1:]:
            name, _, text = section.partition("\n")
            for span in re.findall(r"`([^`]+)`", text):
                if found := COMMAND.match(" ".join(span.split())):
                    yield Advice(name, found[0])


def _in_messages() -> Iterator[Advice]:
    for path in sorted((ROOT / "controller").rglob("*.py")):
        place = str(path.relative_to(ROOT / "controller").with_suffix(""))
        if place == EXAMPLES:
            continue
        for function, text in _texts(ast.parse(path.read_text())):
            where = f"{place}.{function}" if function else place
            yield from (Advice(where, found[0].strip()) for found in COMMAND.finditer(text))


def _texts(node: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Each string with the function that has it, in one piece if it is joined; docstrings are none."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = node.name
    if (text := _text(node)) is not None:
        yield function, text
        for filled_in in _filled_in(node):
            yield from _texts(filled_in, function)
        return
    for child in ast.iter_child_nodes(node):
        is_doc = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_doc:
            yield from _texts(child, function)


def _filled_in(text: ast.AST) -> Iterator[ast.AST]:
    """The expressions whose values are parts of a text."""
    match text:
        case ast.JoinedStr(values=parts):
            yield from (part.value for part in parts if isinstance(part, ast.FormattedValue))
        case ast.BinOp(left=left, right=right):
            for side in (left, right):
                yield from [side] if _text(side) is None else _filled_in(side)


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(part) or "" for part in values)
        case ast.FormattedValue(value=value):
            return _blank(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _text(left), _text(right)
            if first is not None or second is not None:
                return (first or _blank(left)) + (second or _blank(right))
    return None


def _blank(value: ast.AST) -> str:
    match value:
        case ast.Call(func=ast.Name(id="quoted") | ast.Attribute(attr="quoted")):
            return "{}"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name}}}"
        case ast.Call(func=function):
            return _blank(function)
    return "{}"
