"""Asks the service, prints or draws its answers, and makes exit statuses of them.

Answers go to stdout, errors and warnings to stderr.
"""

from __future__ import annotations

import json
import sys
import time

from controller.host import client
from controller.text.wording import because


def ask(command: str, words: list[str]) -> int:
    """Send a command to the service and print its answer. Returns the exit status.

    Raises:
        Refused: there is no answer.
    """
    tell(client.request(command, words))
    return 0


def tell(answered: str) -> None:
    """Print an answer, its warnings to stderr.

    The library of Open vSwitch 3.1 ends each answer with a newline; that of 3.5 does not.
    """
    for line in answered.removesuffix("\n").split("\n") if answered else ():
        print(line, file=sys.stderr if line.startswith("warning: ") else sys.stdout)


def failed(why: str, status: int = 1) -> int:
    """Print an error. Returns the exit status."""
    print(f"ovs-lbt: {why}", file=sys.stderr)
    return status


def show(bridge: str | None) -> int:
    """Ask for JSON and draw it here, where the width and colours of the terminal are known."""
    words = [] if bridge is None else [bridge]
    shown = json.loads(client.request("show", [*words, "--json"]))
    from controller.text import show_view, terminal

    lines = show_view.lines(shown, terminal.look(), _time_of_day)
    sys.stdout.write(terminal.written(lines))
    return 0


def history(service: str, words: list[str]) -> int:
    """Ask the service for the history. Without a service, read its default file."""
    if client.running():
        return ask("history", words)
    from controller.host import journal

    try:
        print(journal.answer(journal.default_path(service), tuple(words)))
    except (ValueError, OSError) as error:
        return failed(because(error))
    return 0


def _time_of_day(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
