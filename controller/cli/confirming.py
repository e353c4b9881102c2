"""Changes that are undone unless they are confirmed: made, confirmed, reverted."""

from __future__ import annotations

import argparse

from controller.cli import answers
from controller.cli.without_service import detach
from controller.host import client
from controller.text.wording import Refused


def until_confirmed(options: argparse.Namespace, words: list[str]) -> int:
    """Make a change that is reverted unless it is confirmed. The reversal is armed first.

    So nothing that happens to this command or the service, from the first moment on, prevents it.
    """
    from controller.host import arming

    if (obstacle := client.obstacle()) is not None:
        return answers.failed(obstacle)
    if options.command != "detach" and not client.running():
        return answers.ask(options.command, words)
    bridge = options.bridge if options.command != "set" else _bridge_of(options)
    if bridge is None:
        return answers.ask(options.command, words)
    armed = arming.arm(bridge, float(options.rollback_after), options.service)
    if options.command == "detach" and not client.running():
        return detach(words)
    try:
        answers.tell(client.ask(f"lbt/{options.command}", words))
    except Refused as why:
        # A service that does not answer may have made the change.
        if not isinstance(why, client.Unanswered):
            armed.disarm()
        raise
    return 0


def confirm(bridge: str) -> int:
    """Confirm through the service if it is running, else in the database."""
    from controller import reversal

    if (obstacle := client.obstacle()) is not None:
        return answers.failed(obstacle)
    try:
        if client.running():
            answers.tell(client.ask("lbt/confirm", [bridge]))
        else:
            print(reversal.confirm(bridge))
    except Refused as why:
        return answers.failed(_too_late(bridge, str(why)))
    return 0


def revert(bridge: str) -> int:
    """Revert through the service if it is running, else with a service of our own."""
    from controller import reversal

    if client.obstacle() is not None or client.running():
        return answers.ask("revert", [bridge])
    reversal.waiting(bridge)
    return reversal.once(bridge)


def _bridge_of(options: argparse.Namespace) -> str | None:
    """The bridge that `set` concerns; None if the interface is on none."""
    if options.table == "bridge":
        return str(options.name)
    from controller.host import programs

    try:
        found = programs.run("ovs-vsctl", "iface-to-br", options.name.partition("/")[0])
    except Refused:
        return None
    return found.strip()


def _too_late(bridge: str, why: str) -> str:
    """Why a change was not confirmed. If it was reverted, says so instead of "nothing waits"."""
    from controller import reversal

    if why != reversal.nothing_waits(bridge):
        return why
    from controller.host import journal

    asked = [bridge, "--last", "20", "--json"]
    try:
        if client.running():
            told = client.ask("lbt/history", asked)
        else:
            told = journal.answer(journal.default_path(client.NAME), tuple(asked))
    except (Refused, ValueError, OSError):
        return why
    if (reverted := reversal.last_reversal(told)) is None:
        return why
    return f"bridge {bridge}: too late: {reverted} -> the change once more"
