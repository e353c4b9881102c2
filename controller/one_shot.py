"""Runs a temporary service for one request, and ends it with the answer.

It manages only one bridge. It holds the pidfile, so that no other service starts meanwhile.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from controller.api.engine_commands import Reply
from controller.api.events import Request
from controller.host import client, journal
from controller.service import Options, Service

REQUEST_ID = 1
# A name of its own: a service that hangs, or starts meanwhile, has the usual one.
REVERSAL = f"{client.NAME}-reversal"
# Longer than the service waits for a switch or a database that does not answer.
ANSWER_TIMEOUT_S = 15.0


class OneAnswer:
    """Takes the place of the unixctl server, and takes the only answer."""

    def __init__(self, _submit: Callable[[Request], None], _version: str) -> None:
        self._answered = threading.Event()
        self._reply: Reply | None = None

    def reply(self, reply: Reply) -> None:
        self._reply = reply
        self._answered.set()

    def wake(self) -> None:
        self._answered.set()

    def serve(self, going_on: Callable[[], bool]) -> int:
        """Wait for the answer and print it. Returns the exit status of the command."""
        self._answered.wait(ANSWER_TIMEOUT_S)
        if self._reply is None:
            late = f"the switch or the database did not answer within {ANSWER_TIMEOUT_S:g} s"
            fault = "ovs-lbt itself failed; see the error above"
            _tell(f"ovs-lbt: {late if going_on() else fault}", sys.stderr)
            return 1
        if self._reply.refused:
            _tell(f"ovs-lbt: {self._reply.text}", sys.stderr)
            return 1
        if self._reply.text:
            _tell(self._reply.text, sys.stdout)
        return 0


def _tell(text: str, to: TextIO) -> None:
    """Print the result of the request, which has been carried out even if the reader is gone."""
    with contextlib.suppress(OSError):
        print(text, file=to)


def detach(ovsdb: str, bridge: str, *options: str) -> Service:
    """A service that detaches a bridge.

    Raises:
        Refused: the database does not answer.
    """
    service = Service(Options(ovsdb, only=bridge), OneAnswer)
    service.request(Request(REQUEST_ID, ("detach", bridge, *options)))
    return service


def revert(ovsdb: str, bridge: str) -> Service:
    """A service that reverts a change that waits to be confirmed, if no other service does.

    A service that hangs loses the lead to this one. Nothing happens while a service that is alive
    leads.

    Raises:
        Refused: the database does not answer.
    """
    options = Options(
        ovsdb,
        history=journal.default_path(client.NAME),
        only=bridge,
        name=REVERSAL,
        request=Request(REQUEST_ID, ("revert", bridge)),
    )
    return Service(options, OneAnswer)
