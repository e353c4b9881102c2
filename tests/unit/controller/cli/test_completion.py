"""What is offered where, with names that are known and without any, and where names come from.

The scripts of shells that are installed are run. They get their words from a stand-in.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.api.commands import COMMANDS
from controller.cli import completion
from controller.cli.completion import FILES, Names, Team, complete, is_unfinished
from policies.presets import PRESETS

HOST = Names(
    {
        "br0": Team(
            True,
            {"br0": "", "eth0": "uplink", "eth1": "uplink", "vnet0": "web-1", "vnet1": ""},
            ("eth0", "eth1"),
        ),
        "br1": Team(True, {"eth2": "uplink", "eth3": "uplink", "vnet9": ""}, ("eth2", "eth3")),
        "free": Team(False, {"eth4": "", "eth5": "", "tap7": ""}, ()),
    }
)


def offered(line: str, names: Names = HOST) -> dict[str, str]:
    """The words, with descriptions, for the last word of a line as it is typed; a space at its end begins a word."""
    words = line.split() + ([""] if line.endswith(" ") or not line else [])
    return dict(complete(words, lambda: names))


def words(line: str, names: Names = HOST) -> list[str]:
    return list(offered(line, names))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sh", ["show"]),
        ("nothing ", []),
        ("--v", ["--version"]),
        ("show ", ["br0", "br1"]),
        ("show br0 ", ["--help", "--json"]),
        ("show br0 --j", ["--json"]),
        ("top br0 ", ["br1"]),
        ("attach ", ["free"]),
        ("attach free --uplink eth4 --uplink ", ["eth5", "tap7"]),
        ("attach free --policy adap", ["adaptive"]),
        ("move v", ["vnet0", "vnet1", "vnet9"]),
        ("move vnet0 ", ["eth0", "eth1"]),
        ("pin vnet0/02:00:00:00:00:01 ", ["eth0", "eth1"]),
        ("drain ", ["eth0", "eth1", "eth2", "eth3"]),
        ("plan --endpoints ", ["--help", "--json"]),
        ("rescue br0 ", ["--help", "--dry-run"]),
        ("-t ovs-lbt-b show b", ["br0", "br1"]),
        ("run --certificate ", [FILES]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("set ", ["bridge", "interface"]),
        ("set bridge ", ["br0", "br1"]),
        ("set bridge br0 th", ["threshold="]),
        ("set bridge br0 threshold=60 th", []),
        ("set bridge br0 threshold=", []),
        ("set bridge br0 mode=", ["mode=enforce", "mode=observe"]),
        ("set bridge br0 uplinks=eth0,e", ["uplinks=eth0,eth1"]),
        ("set interface eth0 ro", ["role="]),
        ("set interface eth0 pi", []),
        ("set interface vnet0 pin=", ["pin=eth0", "pin=eth1"]),
        ("set interface vnet0 prefer=!eth0,!", ["prefer=!eth0,!eth1"]),
        (
            "set interface vnet0 exclude=",
            [f"exclude={word}" for word in ("on", "off", "true", "false")],
        ),
        ("set interface vnet0 no-such=", []),
        ("replay ", [FILES]),
        ("bench mixed", ["mixed_speed"]),
    ],
)
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_every_command_is_offered_and_told() -> None:
    assert words("") == [row.name for row in COMMANDS]
    assert all(offered("").values())


def test_every_option_of_replay_is_told() -> None:
    told = offered("replay --")
    assert {"--since", "--uplinks", "--seed"} <= told.keys() and all(told.values())


def test_policies_are_those_that_there_are() -> None:
    assert set(words("attach free --policy ")) == PRESETS.keys()


def test_only_what_needs_more_is_unfinished() -> None:
    assert [is_unfinished(one) for one in offered("set bridge br0 threshold")] == [True]
    assert [is_unfinished(one) for one in offered("set bridge br0 mode=o")] == [False]


def test_without_a_database_the_rest_is_still_offered() -> None:
    assert words("move ", Names()) == ["--help", "--dry-run"]
    assert words("set interface eth0 role=d", Names()) == ["role=drained"]


def test_names_are_not_asked_for_where_none_can_stand() -> None:
    def ask() -> Names:
        raise AssertionError("somebody waits for this")

    for line in (["se"], ["set", "bridge", "br0", "mode="], ["attach", "br0", "--policy", ""]):
        assert complete(line, ask)


# ---- what `ovs-vsctl --format=json` prints, one table on a line ----------------------------


def uuids(*ids: str) -> list[Any]:
    """One, or a set of others."""
    return ["uuid", ids[0]] if len(ids) == 1 else ["set", [["uuid", one] for one in ids]]


def rows(ids: dict[str, str]) -> str:
    bonded_and_one = ["br0", uuids("P1", "P2"), ["map", list(map(list, ids.items()))]]
    vm = ["map", [["iface-id", "u-1"], ["vm-id", "web"]]]
    eth0, eth1 = ([uuids(f"I{n}"), f"eth{n - 1}", ["map", []]] for n in (1, 2))
    tables: tuple[list[list[Any]], ...] = (
        [["br1", ["set", []], ["map", []]], bonded_and_one],
        [[uuids("P1"), "bond0", uuids("I2", "I1")], [uuids("P2"), "vnet0", uuids("I3")]],
        [eth0, eth1, [uuids("I3"), "vnet0", vm]],
    )
    return "\n".join(
        json.dumps({"headings": columns.split(","), "data": data})
        for (_, columns), data in zip(completion.TABLES, tables, strict=True)
    )


def test_the_uplinks_are_the_members_of_the_bond() -> None:
    found = completion.parse(rows({"ovs-lbt-policy": "slb"}))
    about = {"eth0": "uplink", "eth1": "uplink", "vnet0": "web"}
    assert found.teams == {"br0": Team(True, about, ("eth0", "eth1")), "br1": Team(False, {}, ())}
    assert (found.attached, found.unattached) == ({"br0": ""}, {"br1": ""})
    assert found.vm_ports == {"vnet0": "web"}
    assert found.uplinks_beside("vnet0") == {"eth0": "", "eth1": ""}
    assert found.uplinks_beside("gone") == {"eth0": "of br0", "eth1": "of br0"}


def test_the_uplinks_that_are_named_come_in_their_order() -> None:
    found = completion.parse(rows({"ovs-lbt-policy": "slb", "ovs-lbt-uplinks": "vnet0, eth1"}))
    assert found.teams["br0"].uplinks == ("vnet0", "eth1")
    assert found.vm_ports == {"eth0": ""}


# ---- the scripts of shells ----------------------------------------------------------------

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
    script.write_text(completion.script("bash"))
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
    script.write_text(completion.script("bash"))
    told = subprocess.run(
        ["bash", "--norc", "-c", '. "$1"; complete -p ovs-lbt', "bash", script],
        capture_output=True,
        text=True,
    )
    assert told.stdout == "complete -F _ovs_lbt ovs-lbt\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell: str, place: Path) -> None:
    """Where the shell is not installed, at least that its quotes and blocks are closed."""
    text = completion.script(shell)
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
