"""The scripts of the shells, run by those that are there; they get their words from a stand-in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from controller.cli import completion as command

# Says what it was asked, and offers what the test wrote down.
STAND_IN = """#!/bin/sh
printf '[%s]' "$@" >"{0}/asked"
cat "{0}/offers"
"""
BASH = """
. "$1"
COMP_LINE=$2 COMP_POINT=${3:-${#2}}
compopt() { echo "$@"; }
_ovs_lbt
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    program = tmp_path / "ovs-lbt"
    program.write_text(STAND_IN.format(tmp_path))
    program.chmod(0o755)
    return tmp_path


def bash(place: Path, typed: str, offers: str, *point: str) -> tuple[str, list[str]]:
    """What the command was asked, and what bash then offers."""
    (place / "offers").write_text(offers)
    script = place / "script"
    script.write_text(command.script("bash"))
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", script, typed, *point],
        env={"PATH": f"{place}:/usr/bin:/bin"},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return (place / "asked").read_text(), done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("typed", "offers", "found"),
    [
        ("ovs-lbt sh", "show\tshow uplinks\n", ["show"]),
        ("ovs-lbt show ", "br0\t\nbr1\tof\n", ["br0", "br1"]),
        ("ovs-lbt", "", [""]),
        ("ovs-lbt set bridge br0 thr", "threshold=\tThe share\t\n", ["-o nospace", "threshold="]),
        ("ovs-lbt set bridge br0 mode=o", "mode=observe\t\n", ["observe"]),
        (
            "ovs-lbt set interface v prefer=",
            "prefer=eth0\t\t\nprefer=eth1\t\t\n",
            ["-o nospace", "eth0", "eth1"],
        ),
        ("ovs-lbt explain vnet0/02:00:00:", "vnet0/02:00:00:00:00:01\t\n", ["00:00:01"]),
    ],
)
def test_bash_offers_what_the_command_says(
    place: Path, typed: str, offers: str, found: list[str]
) -> None:
    asked = "".join(f"[{word}]" for word in ("__complete", *typed.split(" ")[1:]))
    assert bash(place, typed, offers) == (asked, found)


def test_bash_completes_where_the_cursor_is(place: Path) -> None:
    assert bash(place, "ovs-lbt sho br0", "show\t\n", "11")[0] == "[__complete][sho]"


def test_bash_completes_files(place: Path) -> None:
    (place / "trace.csv").touch()
    asked, found = bash(place, "ovs-lbt replay tra", ":files\t\n")
    assert (asked, found) == ("[__complete][replay][tra]", ["-o filenames", "trace.csv"])


def test_bash_finds_it_by_the_name_of_the_command(place: Path) -> None:
    script = place / "script"
    script.write_text(command.script("bash"))
    told = subprocess.run(
        ["bash", "--norc", "-c", '. "$1"; complete -p ovs-lbt', "bash", script],
        capture_output=True,
        text=True,
    )
    assert told.stdout == "complete -F _ovs_lbt ovs-lbt\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell: str, place: Path) -> None:
    """Where the shell is not installed, at least that its quotes and blocks are closed."""
    text = command.script(shell)
    script = place / "script"
    script.write_text(text)
    if shutil.which(shell):
        done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert "__complete" in code
    assert code.count('"') % 2 == 0
    words = code.split()
    if shell == "fish":
        opened = sum(words.count(word) for word in ("function", "for", "if"))
        assert opened == words.count("end")
    else:
        assert code.count("{") == code.count("}")
        assert words.count("for") == words.count("done")
