"""The commands: their usage from the parsers, and their descriptions from the man page."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence

from controller.api.commands import BY_NAME
from controller.cli import arguments

WIDTH = 90
INDENT = "    "
PIPE, ESCAPED = "|", "\\|"
# Parts of the man page that follow the commands: title here, title there, the head of its table.
OTHER_PARTS = (
    ("Options of all commands", "OPTIONS", "option"),
    ("Exit status", "EXIT STATUS", "status"),
    ("Environment", "ENVIRONMENT", "variable"),
    ("Files", "FILES", "file"),
)
LINKS = {"`SETTINGS`": "[settings](settings.md)"}
# The fonts of the words of a macro: B and I are code, R is not.
FONTS = {"B": "B", "I": "I", "BR": "BR", "BI": "BI", "IR": "IR", "RI": "RI", "RB": "RB"}
WORD = re.compile(r'"([^"]*)"|(\S+)')
FONT = re.compile(r"\\f[BIRP]")
BOLD = re.compile(r"\\f[BI](.+?)\\f[PR]")
COMMENT = '.\\"'


def markdown(man_page: str) -> str:
    """A section for each command, and what holds for all of them."""
    lines = [line for line in man_page.splitlines() if not line.startswith(COMMENT)]
    parts = _sections(lines, ".SH ")
    described = {
        title.split()[0]: body for title, body in _sections(parts["COMMANDS"], ".SS ").items()
    }
    sections = [_command(name, described[name]) for name in parsers()]
    sections += [f"## {title}\n\n{_body(parts[part], head)}" for title, part, head in OTHER_PARTS]
    text = "\n\n".join(sections)
    for words, link in LINKS.items():
        text = text.replace(words, link)
    return text


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by the name that its help has."""
    own = {name: arguments.separate_parser(name) for name in arguments.SEPARATE}
    named = {n: p for n, p in _choices().items() if p.prog.endswith(f" {n}")}
    return {**named, **own}


def usage(parser: argparse.ArgumentParser) -> str:
    """The arguments of a command. The text of argparse differs between releases of Python."""
    groups = [(group._group_actions, group.required) for group in parser._mutually_exclusive_groups]
    words: list[str] = []
    options: list[str] = []
    for action in (a for a in parser._actions if a.dest not in ("help", "service")):
        group, required = next((g for g in groups if action in g[0]), (None, False))
        if group is None:
            (options if action.option_strings else words).append(_argument(action))
        elif action is group[0]:
            choice = " | ".join(map(_word, group))
            words.append(f"({choice})" if required else f"[{choice}]")
    lines = [parser.prog]
    for word in (*words, *options):
        if len(lines[-1]) + len(word) < WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(INDENT + word)
    return "\n".join(lines)


def _choices() -> dict[str, argparse.ArgumentParser]:
    (action,) = (
        a for a in arguments.parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    return dict(action.choices)


def _word(action: argparse.Action) -> str:
    """An argument as it is typed, without whether it is needed."""
    name = str(action.metavar or "|".join(action.choices or [action.dest]))
    many = " ..." if action.nargs in ("+", "*") else ""
    if not action.option_strings:
        return f"{name}{many}"
    return action.option_strings[-1 if len(action.option_strings[0]) == 2 else 0] + (
        "" if action.nargs == 0 else f" {name}{many}"
    )


def _argument(action: argparse.Action) -> str:
    word = _word(action)
    again = isinstance(action, argparse._AppendAction) and action.nargs is None
    if not action.option_strings:
        return f"[{word}]" if action.nargs in ("?", "*") else word
    if not action.required:
        return f"[{word}]..." if again else f"[{word}]"
    return f"{word} [{word}]..." if again else word


def _command(name: str, description: Sequence[str]) -> str:
    parser, choices = parsers()[name], _choices()
    others = [n for n, p in choices.items() if n != name and p is choices[name]]
    parts = [
        f"## {', '.join([name, *others])}",
        f"```text\n{usage(parser)}\n```",
        _body(description, "option"),
    ]
    if examples := BY_NAME[name].example_pairs():
        rows = [(f"`{typed}`", effect) for typed, effect in examples]
        parts.append(_table("example", "effect", rows))
    return "\n\n".join(parts)


# ---- roff ------------------------------------------------------------------------------


def _sections(lines: Iterable[str], macro: str) -> dict[str, list[str]]:
    """The lines of each section, by its title. Lines before the first one are left out."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in lines:
        if line.startswith(macro):
            title = _plain(line.removeprefix(macro))
            found[title] = []
        elif title:
            found[title].append(line)
    return found


def _body(lines: Iterable[str], head: str) -> str:
    """Paragraphs, and a table for each list of tagged paragraphs."""
    parts: list[str] = []
    rows: list[tuple[str, str]] = []
    for tag, text in _paragraphs(lines):
        if tag:
            rows.append((tag, text))
        else:
            parts += [_table(head, "meaning", rows)] if rows else []
            rows = []
            parts.append(text)
    parts += [_table(head, "meaning", rows)] if rows else []
    return "\n\n".join(parts)


def _paragraphs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The tag of each paragraph, if it has one, and its text."""
    tags: list[str] = []
    words: list[str] = []
    tag_next = False
    for line in lines:
        if line in (".PP", ".TP"):
            if words or tags:
                yield ", ".join(tags), " ".join(words)
            tags, words, tag_next = [], [], line == ".TP"
        elif line == ".TQ":
            tag_next = True
        elif tag_next:
            tags += [f"`{word}`" for word in _typed(line).split(", ")]
            tag_next = False
        else:
            words.append(_inline(line))
    if words or tags:
        yield ", ".join(tags), " ".join(words)


def _typed(line: str) -> str:
    """A line as it is typed, without fonts."""
    macro, _, rest = line.partition(" ")
    if macro[1:] not in FONTS:
        return _plain(line)
    found = [quoted or bare for quoted, bare in WORD.findall(rest)]
    return _plain((" " if len(macro) == 2 else "").join(found))


def _inline(line: str) -> str:
    """A line as Markdown: words in bold or italics become code."""
    macro, _, rest = line.partition(" ")
    fonts = FONTS.get(macro[1:]) if line.startswith(".") else None
    if fonts is None:
        return _plain(BOLD.sub(r"`\1`", line))
    if len(fonts) == 1:
        return f"`{_typed(line)}`"
    found = [quoted or bare for quoted, bare in WORD.findall(rest)]
    return "".join(
        _plain(word) if fonts[number % 2] == "R" else f"`{_plain(word)}`"
        for number, word in enumerate(found)
    )


def _plain(text: str) -> str:
    return FONT.sub("", text).replace("\\&", "").replace("\\-", "-")


def _table(first: str, second: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = [f"| {a.replace(PIPE, ESCAPED)} | {b.replace(PIPE, ESCAPED)} |" for a, b in rows]
    return "\n".join([f"| {first} | {second} |", "|---|---|", *cells])
