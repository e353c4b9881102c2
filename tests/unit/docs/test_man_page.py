"""docs/ovs-lbt.8 against the command's parsers, in both directions, and as `man` renders it."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess

import pytest

from controller.cli import arguments
from controller.cli.run import RUN_VARIABLES
from policies.presets import PRESETS
from tests import documents
from tests.reference.commands import parsers

PAGE = documents.ROOT / "docs" / "ovs-lbt.8"
HELP = {"-h", "--help"}


def plain(roff: str) -> str:
    """Without escapes and comments."""
    text = re.sub(r'^\.\\".*$', "", roff, flags=re.MULTILINE)
    return re.sub(r"\\f[RPBI]|\\&", "", text).replace("\\-", "-")


def parts() -> dict[str, str]:
    """The text of each section, by its name."""
    _, *found = re.split(r"^\.SH ", plain(PAGE.read_text()), flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in found}


def commands() -> dict[str, str]:
    """The text of each command, by its name."""
    _, *found = re.split(r"^\.SS ", parts()["COMMANDS"], flags=re.MULTILINE)
    return {command.split(None, 1)[0]: command.split("\n", 1)[1] for command in found}


def options(parser: argparse.ArgumentParser) -> set[str]:
    shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    return {word for action in shown for word in action.option_strings} - HELP


def test_every_command_is_on_the_page_and_no_other() -> None:
    assert commands().keys() == parsers().keys()


@pytest.mark.parametrize("name", sorted(parsers()))
def test_every_option_of_a_command_is_on_the_page_and_no_other(name: str) -> None:
    tags = re.findall(r"^\.TP\n(.+)$", commands().get(name, ""), re.MULTILINE)
    listed = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(tags)))
    of_many = set(re.findall(r"^\.B (--[a-z-]+)$", parts()["OPTIONS"], re.MULTILINE))
    assert listed == options(parsers()[name]) - of_many


def test_every_policy_is_on_the_page() -> None:
    told = commands()["attach"]
    assert {preset for preset in PRESETS if not re.search(rf"\b{preset}\b", told)} == set()


def test_every_variable_is_on_the_page() -> None:
    files = (documents.ROOT / "controller").rglob("*.py")
    source = "".join(file.read_text() for file in files)
    named = {*re.findall(r"\"(OVS_LBT_[A-Z_]+)\"", source), *RUN_VARIABLES.values()}
    assert named <= set(re.findall(r"OVS_LBT_\w+", parts()["ENVIRONMENT"]))
    assert "OVS_LBT_CA_CERT" in named


def test_its_examples_are_commands_that_there_are() -> None:
    examples = re.findall(r"^ovs-lbt .+$", parts()["EXAMPLES"], re.MULTILINE)
    assert examples
    for example in examples:
        arguments.parser().parse_args(shlex.split(example)[1:])


@pytest.mark.system
@pytest.mark.parametrize(
    "command", ["groff -man -Tutf8 -ww -z", "man --warnings -E UTF-8 -l -Tutf8 -Z"]
)
def test_it_is_rendered_without_a_warning(command: str) -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    done = subprocess.run([*command.split(), PAGE], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
