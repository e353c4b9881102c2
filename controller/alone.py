"""One request carried out without a service: by one of our own, that ends with the answer.

It looks after one bridge only, and holds the pidfile meanwhile, so that no service starts
in between.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from controller.api.events import Reply, Request
from controller.service import Options, Service

REQUEST_ID = 1
# Longer than any request takes that a switch or the database does not answer.
ANSWER_TIMEOUT_S = 15.0


class OneAnswer:
    """Stands in for the unixctl server: takes the only answer there will be."""

    def __init__(self, _submit: Callable[[Request], None], _version: str) -> None:
        self._answered = threading.Event()
        self._reply: Reply | None = None

    def reply(self, reply: Reply) -> None:
        self._reply = reply
        self._answered.set()

    def wake(self) -> None:
        self._answered.set()

    def serve(self, going_on: Callable[[], bool]) -> int:
        """Wait for the answer and print it; the exit status of the command."""
        self._answered.wait(ANSWER_TIMEOUT_S)
        if self._reply is None:
            late = f"no answer in {ANSWER_TIMEOUT_S:g} s -> a switch and a database that answer"
            fault = "a fault of ovs-lbt, not of the switch: see above -> the bridge given back"
            print(f"ovs-lbt: {late if going_on() else fault}", file=sys.stderr)
            return 1
        if self._reply.refused:
            print(f"ovs-lbt: {self._reply.text}", file=sys.stderr)
            return 1
        if self._reply.text:
            print(self._reply.text)
        return 0


def detach(ovsdb: str, bridge: str, purge: bool = False) -> int:
    """Detach a bridge as the service would; the exit status of the command.

    Raises:
        DatabaseAway: the database does not answer.
    """
    service = Service(Options(ovsdb, metrics=None, only=bridge), OneAnswer)
    service.request(Request(REQUEST_ID, ("detach", bridge, *(["--purge"] if purge else []))))
    return service.run()
