"""Commands that do not ask the service, or can do without it: `check`, `rescue`, `plan --endpoints`, `detach`."""

from __future__ import annotations

import argparse
import importlib
import logging
import shlex
from collections.abc import Callable, Iterable

from controller.cli import answers, environment
from controller.host import client
from controller.text.wording import Refused, because, quoted


def check(parser: argparse.ArgumentParser, options: argparse.Namespace, words: list[str]) -> int:
    """Check bridges, or whether one is fit to attach."""
    from controller import check as checking

    settings = [word for word in words if word != "--json"]
    if options.bridge is None and settings:
        parser.error("settings for an attach -> a BRIDGE that is not attached")
    return checking.main(settings, options.json)


def rescue(bridge: str | None) -> int:
    """Let bridges of plain uplinks forward by one of them."""
    from controller import rescue as rescuing

    return _print(lambda: rescuing.rescue(client.database(), bridge))


def plan_endpoints(as_json: bool) -> int:
    """Show which tunnel endpoint each VM should use."""
    from controller.endpoint_plan import plan

    return _print(lambda: [plan(client.database(), as_json)])


def _print(found: Callable[[], Iterable[str]]) -> int:
    """Print what is found in the database, or done with it."""
    import ovs.vlog

    ovs.vlog.Vlog.set_level("any", "any", "off")
    if (obstacle := client.obstacle()) is not None:
        return answers.failed(obstacle)
    try:
        for line in found():
            print(line, flush=True)
    except (Refused, ValueError) as error:
        return answers.failed(environment.blamed_database(str(error)))
    return 0


def detach(words: list[str]) -> int:
    """Detach through the service if it is running, else with a service of our own."""
    if client.obstacle() is not None or client.running():
        return answers.ask("detach", words)
    if (obstacle := client.read_only()) is not None:
        return answers.failed(obstacle)
    if (another := client.another()) is not None:
        expected = f"the service that is: ovs-lbt -t {quoted(another)} detach {shlex.join(words)}"
        return answers.failed(f"no service {client.pidfile().stem} is running -> {expected}")
    environment.log(logging.ERROR)
    importlib.import_module("controller.openflow.framework")
    from controller import one_shot
    from controller.service import serve_and_exit

    def serve() -> int:
        try:
            return one_shot.detach(client.database(), words[0], tuple(words[1:]))
        except (Refused, ValueError, OSError) as error:
            return answers.failed(environment.blamed_database(because(error)))

    return serve_and_exit(serve)
