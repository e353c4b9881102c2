"""Runs a temporary service for one request, for example to detach a bridge while no service runs.

The service manages one bridge, then ends. Its pidfile blocks other services of the same name.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable

from controller.api.engine_commands import Reply
from controller.api.events import Request
from controller.host import client, journal
from controller.host.control import SLOW_TIMEOUT_S
from controller.host.sockets import TlsFiles
from controller.service import Options, Service

REQUEST_ID = 1
# A different name, because a service that hangs or has just started uses the default name.
REVERSAL = f"{client.NAME}-reversal"
# The limit for a rollback, which is tried again. A detach may take as long as in a running service.
ANSWER_TIMEOUT_S = 15.0


class OneAnswer:
    """Receives the answer to the only request, in place of the unixctl server."""

    def __init__(
        self,
        _submit: Callable[[Request], None],
        _version: str,
        limit_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._limit_s = limit_s
        self._answered = threading.Event()
        self._reply: Reply | None = None

    def reply(self, reply: Reply) -> None:
        self._reply = reply
        self._answered.set()

    def wake(self) -> None:
        self._answered.set()

    def serve(self, going_on: Callable[[], bool]) -> int:
        """Wait for the answer and print it. Return the exit status of the command."""
        self._answered.wait(self._limit_s)
        late = f"the switch or the database did not answer within {self._limit_s:g} s"
        fault = "ovs-lbt itself failed; see the error above"
        reply = self._reply or Reply(REQUEST_ID, late if going_on() else fault, refused=True)
        # Output errors are ignored, because the request is already done.
        with contextlib.suppress(OSError):
            if reply.refused:
                print(f"ovs-lbt: {reply.text}", file=sys.stderr)
            elif reply.text:
                print(reply.text)
        return int(reply.refused)


def detach(ovsdb: str, bridge: str, *options: str) -> Service:
    """Return a service that detaches a bridge. `options`: the options of `ovs-lbt detach`.

    Raises:
        Refused: the database does not answer.
    """
    tls = TlsFiles.tls_files_of(*client.tls_files())
    answers = functools.partial(OneAnswer, limit_s=SLOW_TIMEOUT_S)
    service = Service(Options(ovsdb, tls=tls, only=bridge), answers)
    service.request(Request(REQUEST_ID, ("detach", bridge, *options)))
    return service


def revert(ovsdb: str, bridge: str) -> Service:
    """Return a service that rolls back a bridge's unconfirmed change, if no other service does.

    The returned service does nothing while another service is alive and leads. It takes over from
    a service that hangs.

    Raises:
        Refused: the database does not answer.
    """
    options = Options(
        ovsdb,
        tls=TlsFiles.tls_files_of(*client.tls_files()),
        history=journal.default_path(client.NAME),
        only=bridge,
        name=REVERSAL,
        request=Request(REQUEST_ID, ("revert", bridge)),
    )
    return Service(options, OneAnswer)
