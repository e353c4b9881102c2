"""Runs `ovs-lbt top`, which shows uplinks, VM ports and decisions, live or once as text."""

from __future__ import annotations

import argparse
import locale
import os
import sys
import time

from controller.cli.top import feed, view
from controller.cli.top.state import State, with_picture
from controller.host import client
from controller.text import terminal
from controller.text.wording import Refused


def main(options: argparse.Namespace) -> int:
    """Run `ovs-lbt top`, and return the exit status.

    Raises:
        Refused: the service does not answer, a bridge is not attached, or there is no terminal.
    """
    if (obstacle := client.obstacle()) is not None:
        raise Refused(obstacle)
    state = State(
        only=tuple(options.bridges),
        interval_s=float(options.interval),
        sort=options.sort,
        filter=options.filter,
        now_s=time.monotonic(),
    )
    if not options.once and (no_screen := _no_screen()) is not None:
        raise Refused(f"{no_screen}; use a terminal, or: ovs-lbt top --once")
    first = feed.read()
    for bridge in options.bridges:
        client.ask("lbt/show", (bridge,))
    state = with_picture(state, first)
    if options.once:
        # Two readings are needed to count the drops between them.
        time.sleep(state.interval_s)
        state = with_picture(state, feed.read())
        sys.stdout.write(terminal.written(view.once(state, terminal.look())))
        return 0
    from controller.cli.top import screen

    locale.setlocale(locale.LC_ALL, "")
    try:
        screen.run(state)
    except Refused as why:
        raise Refused(f"{why}; use: ovs-lbt top --once") from None
    return 0


def _no_screen() -> str | None:
    """Return why `top` cannot draw on this terminal; None if the terminal is suitable."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "top: input or output is not a terminal"
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return f"top: terminal {os.environ.get('TERM') or 'unknown'} is not supported"
    return None
