"""Whoever wrote a text: it controls no terminal, begins no line of a log, and runs in no shell."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import controller
from controller.api import history
from controller.cli import completion as command
from controller.text import terminal
from controller.text.wording import lines_of, one_line, printable, quoted

HOSTILE = (
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x9b2J",
    "\x85",
    "\u202egnp.exe",
    "\u2028",
    "\udc9b",
    "\r",
    "\x7f",
)
SHELL = (
    *("$(touch ran)", "`touch ran`", "a;touch ran", "a|touch ran", "a' $(touch ran) '", "a b"),
    *(
        "x" * 190 + "' $(touch ran) ",
        "'" * 60 + " $(touch ran)",
        "\n touch ran\n",
        "-x",
        "&touch ran&",
    ),
)
PROGRAM = """
import logging, sys
from controller.cli import answers, run
from controller.text import terminal
terminal.guard(whole=len(sys.argv) > 1)
run.log(logging.INFO)
text = sys.stdin.read()
print(text)
answers.tell(text)
answers.failed(text)
print(text, file=sys.stderr)
logging.getLogger("controller.x").info("vm %s", text + "\\n2026-11-28 forged")
raise ValueError(text)
"""


def printed(text: str, *words: str) -> tuple[str, str]:
    """What a process with guarded streams writes for a text, by all ways out."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        input=text.encode(errors="surrogateescape"),
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8:surrogateescape"},
        capture_output=True,
    )
    return done.stdout.decode(), done.stderr.decode()


def test_nothing_that_is_written_controls_a_terminal() -> None:
    out, err = printed("".join(f"<{one}>" for one in HOSTILE if one != "\r"))
    assert "forged" in err and "Traceback" in err and "<\\udc9b>" in out
    for text in (out, err):
        assert all(line.isprintable() for line in text.split("\n"))
    assert not re.search("^2026-11-28 forged", err, re.MULTILINE)
    found = subprocess.run(
        [sys.executable, "-c", "from controller.cli import main; main(['-t', '\u2026', 'show'])"],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "latin-1:strict"},
        capture_output=True,
        text=True,
    ).stderr
    assert "Traceback" not in found and "\\u2026" in found


def test_texts_are_cut_and_json_is_whole() -> None:
    for text in ("x" * 100_000, "x y " * 25_000):
        out, err = printed(text)
        assert len(out) < 10_000 and len(err) < 30_000 and "…" in out
    text = json.dumps({"vm": "".join(HOSTILE) + "x y" * 10_000})
    assert printed(text, "whole")[0] == f"{text}\n" * 2


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_printable_stays_so(hostile: str) -> None:
    shown = printable(f"a{hostile}b\n\tc")
    assert shown == f"a{one_line(hostile)}b\n\tc" == printable(shown)
    assert printable("x" * 300) == printable(printable("x" * 300)) == "x" * 199 + "…"


def test_a_name_begins_no_line() -> None:
    assert lines_of(["port a\nwarning: b", "c"]) == "port a\\nwarning: b\nc"
    moved = {"port": "vnet0", "vm": "a\nb\x1b[2J", "source": "e", "target": "f", "reason": "pin"}
    entry = {"at": 0.0, "bridge": "br0\n1", "event": "moved", "moves": [moved]}
    text = history.render([entry], False, lambda _at_s: "0:00")
    assert len(text.splitlines()) == 2 and "\x1b" not in text
    assert json.loads(history.render([entry], True, str)) == entry


@pytest.mark.parametrize("name", SHELL)
def test_a_command_with_a_name_runs_nothing_else(name: str, tmp_path: Path) -> None:
    line = printable(f"printf '<%s>' {quoted(name)} end")
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert not [*tmp_path.iterdir()], line
    assert done.stdout in (f"<{name}><end>", "<NAME><end>")


@pytest.mark.parametrize("name", [*HOSTILE, *(name for name in SHELL if name != "-x")])
def test_no_such_name_is_offered_to_a_shell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {name: "", "eth0": "uplink", f"pin={name}": ""}
    monkeypatch.setattr(command, "complete", lambda *_given: offered)
    assert command.answer([]) == "eth0\tuplink"


# A command for people, up to a name in it.
COMMAND = re.compile(r"(ovs-vsctl|ovs-lbt|ovs-appctl|ovs-ofctl|nmcli|ip link) [^:;,]*$")
QUOTED = re.compile(r"quoted\(|shlex\.join\(")
# What is in a command, or behind one in a sentence, and is no name or is quoted before.
UNQUOTED = {
    "advice.py": ("BY_ADDRESS", "DROPPED[reason]", "count"),
    "attach.py": ("wanted",),
    "bonds.py": ("bond", "bridge"),
    "check.py": (
        *("controllers.SPOKEN", "spoken", "rule", "flag", "name"),
        *("' -- '.join(disabling)", "' -- '.join(clear)"),
    ),
    "confirmations.py": ("UNCONFIRMED",),
    "controllers.py": ("bridge", "SECURE", "SPOKEN"),
    "detach.py": ("fault.text",),
    "explain.py": ("bridge",),
    "membership.py": (
        *("added", "uplinks", "port", "bridge", "' -- '.join(steps)"),
        *("_del_port(row, name)", "_del_port(row, other.name)", "_into(row, bond, name)"),
        "_naming(row, known.uplinks)",
    ),
    "named.py": ("key",),
    "plans.py": ("proposal.plan_id",),
    "reader.py": ("column", "at.partition(' ')[0]"),
    "settings.py": ("table.lower()", "column"),
    "show_view.py": ("fault['found']", "fault['part']"),
    "upstream.py": ("teaming",),
}


def _in_commands() -> Iterator[str]:
    """What is put into the commands that messages propose, with its file."""
    for path in Path(controller.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            before = ""
            for part in node.values if isinstance(node, ast.JoinedStr) else []:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                elif isinstance(part, ast.FormattedValue) and COMMAND.search(before):
                    yield f"{path.name}: {ast.unparse(part.value)}"
                    before += "NAME"


@pytest.mark.slow
def test_names_in_proposed_commands_are_quoted() -> None:
    found = {one for one in _in_commands() if not QUOTED.search(one)}
    assert found == {f"{file}: {name}" for file, names in UNQUOTED.items() for name in names}


@pytest.mark.parametrize("words", [["--help"], ["completion", "bash"], ["show", "--help"]])
def test_a_reader_that_has_gone_is_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from controller import cli; exit(cli.main())", *words],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    ("redirected", "status", "told"),
    [
        ("> /dev/full", 1, "No space left on device; redirect it elsewhere"),
        (">&-", 0, ""),
        ("<&- >&-", 0, ""),
    ],
)
@pytest.mark.parametrize("words", ["completion bash", "show --help"])
def test_output_that_cannot_be_written_is_told(
    redirected: str, status: int, told: str, words: str
) -> None:
    program = "from controller import cli; exit(cli.main())"
    done = subprocess.run(
        ["bash", "-c", f"exec {quoted(sys.executable)} -c '{program}' {words} {redirected}"],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (status, status), done
    assert told in done.stderr


def test_another_broken_pipe_is_an_error() -> None:
    with pytest.raises(BrokenPipeError), terminal.until_unread():
        raise BrokenPipeError
