"""`attach --from-bond` and `detach --to-bond`: a bond of Linux becomes one of Open vSwitch, and back."""

from __future__ import annotations

import argparse
import contextlib
import sys

from controller.cli import answers
from controller.host import client
from controller.text.wording import Refused, quoted


def from_bond(options: argparse.Namespace, words: list[str]) -> int:
    """Make a bond of Linux one of the bridge, and attach it."""
    from controller import from_linux_bond as moving
    from controller.config.keys import BRIDGE_KEYS
    from controller.operations import bond_plan, request_words

    if options.uplink:
        return answers.failed(
            "--uplink with --from-bond -> one of them: the bond's members are uplinks"
        )
    request_words.assignments(words[1:], BRIDGE_KEYS)
    if (obstacle := client.obstacle()) is not None or not client.running():
        return answers.failed(obstacle or "no service is running -> start one with: ovs-lbt run")
    host = moving.survey(options.bridge, options.from_bond)
    print(bond_plan.forward(host))
    if not options.yes:
        return answers.failed("nothing was changed -> the same command with --yes")
    moving.move(host, _say)
    _say(bond_plan.configuration(host))
    try:
        return answers.ask("attach", words)
    except Refused as why:
        answers.failed(str(why))
        bridge, bond = quoted(options.bridge), quoted(options.from_bond)
        back = f"ovs-lbt detach {bridge} --to-bond {bond} --yes"
        found = f"{options.from_bond} has moved, but is not attached"
        return answers.failed(f"{found}; to go back: {back}")


def to_bond(options: argparse.Namespace) -> int:
    """Detach a bridge, unless it is detached, and make its bond one of Linux again."""
    from controller import from_linux_bond as moving
    from controller.operations import bond_plan

    host = moving.survey_back(options.bridge, options.to_bond)
    print(bond_plan.back(host))
    if not options.yes:
        return answers.failed("nothing was changed -> the same command with --yes")
    if moving.is_attached(options.bridge):
        command = [sys.executable, "-m", "controller.cli", "-t", options.service]
        purge = ["--purge"] if options.purge else []
        if status := moving.ended([*command, "detach", options.bridge, *purge]):
            return status
    moving.move_back(host, _say)
    return 0


def _say(line: str) -> None:
    """Say what is being done, also to a terminal that has gone meanwhile."""
    with contextlib.suppress(OSError):
        print(line, flush=True)
