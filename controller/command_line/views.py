"""Commands that show something: drawn here, where the terminal is known, or read without the service."""

from __future__ import annotations

import json
import sys
import time

from controller.command_line import answers
from controller.host import client
from controller.text.wording import because


def show(bridge: str | None) -> int:
    """Ask for JSON and draw it here, where the width and colours of the terminal are known."""
    words = [] if bridge is None else [bridge]
    if (answer := answers.answer("show", [*words, "--json"])) is None:
        return 1
    from controller.text import show_view, terminal

    lines = show_view.lines(json.loads(answer), terminal.look(), _time_of_day)
    sys.stdout.write(terminal.written(lines))
    return 0


def history(service: str, words: list[str]) -> int:
    """Ask the service for the history. Without a service, read its default file."""
    if client.running():
        return answers.ask("history", words)
    from controller.host import journal

    try:
        print(journal.answer(journal.default_path(service), tuple(words)))
    except (ValueError, OSError) as error:
        return answers.failed(because(error))
    return 0


def _time_of_day(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
