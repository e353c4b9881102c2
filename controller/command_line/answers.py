"""Asks the service, prints its answers, and makes exit statuses of them.

Answers go to stdout, errors and warnings to stderr.
"""

from __future__ import annotations

import sys

from controller.host import client


def ask(command: str, words: list[str]) -> int:
    """Send a command to the service and print its answer. Returns the exit status."""
    if (answered := answer(command, words)) is None:
        return 1
    tell(answered)
    return 0


def answer(command: str, words: list[str]) -> str | None:
    """The service's answer. If there is none, prints the reason and returns None."""
    try:
        if (obstacle := client.obstacle()) is not None:
            raise client.Unanswered(obstacle)
        return client.ask(f"lbt/{command}", words)
    except (client.Refusal, client.Unanswered) as why:
        failed(str(why))
        return None


def tell(answered: str) -> None:
    """Print an answer, its warnings to stderr."""
    for line in answered.splitlines(keepends=True):
        warning = line.startswith("warning: ")
        (sys.stderr if warning else sys.stdout).write(line)


def failed(why: str, status: int = 1) -> int:
    """Print an error. Returns the exit status."""
    print(f"ovs-lbt: {why}", file=sys.stderr)
    return status
