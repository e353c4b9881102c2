"""What is offered where, with names that are known and without any."""

from __future__ import annotations

import pytest

from controller.api.commands import COMMANDS
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
        ("show --json ", ["br0", "br1"]),
        ("top br0 ", ["br1"]),
        ("attach ", ["free"]),
        ("attach free --uplink eth4 --uplink ", ["eth5", "tap7"]),
        ("attach free --uplink eth4 --up", ["--uplink"]),
        ("attach free --policy adap", ["adaptive"]),
        ("attach free --teaming s", ["switch-independent", "static"]),
        ("move v", ["vnet0", "vnet1", "vnet9"]),
        ("move vnet0 ", ["eth0", "eth1"]),
        ("pin vnet0/02:00:00:00:00:01 ", ["eth0", "eth1"]),
        ("drain ", ["eth0", "eth1", "eth2", "eth3"]),
        ("history --port vnet0 b", ["br0", "br1"]),
        ("plan --endpoints ", ["--help", "--json"]),
        ("rescue br0 ", ["--help", "--dry-run"]),
        ("top --sort u", ["used-by", "uplink"]),
        ("-t ovs-lbt-b show b", ["br0", "br1"]),
        ("run --certificate ", [FILES]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("set ", ["bridge", "interface"]),
        ("set bridge ", ["br0", "br1"]),
        ("set interface eth", ["eth0", "eth1", "eth2", "eth3"]),
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
        ("replay --policy slb --pol", ["--policy"]),
        ("bench mixed", ["mixed_speed"]),
        ("bench shift --policy adap", ["adaptive"]),
    ],
)
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_every_command_is_offered_and_told() -> None:
    assert words("") == [row.name for row in COMMANDS]
    assert all(offered("").values())


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
