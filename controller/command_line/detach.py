"""`ovs-lbt detach`, with and without the service."""

from __future__ import annotations

import importlib
import logging
import shlex

from controller.command_line import answers, environment
from controller.host import client
from controller.text.wording import because, quoted


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
    from controller.ovsdb.database import DatabaseAway
    from controller.service import serve_and_exit

    def serve() -> int:
        try:
            return one_shot.detach(environment.database(), words[0], tuple(words[1:]))
        except (DatabaseAway, ValueError, OSError) as error:
            return answers.failed(environment.blamed_database(because(error)))

    return serve_and_exit(serve)
