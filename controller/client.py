"""The service, as its commands reach it: over the control socket in OVS's run directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from controller.wording import OUR_LOG

# Longer than the service takes to say that a switch or the database does not answer.
ANSWER_TIMEOUT_S = 20.0
CHUNK_BYTES = 1 << 16
NAME = "ovs-lbt"

_name = NAME


def call(name: str) -> None:
    """The service of this name is meant from here on: of two beside one Open vSwitch."""
    global _name
    _name = name


def pidfile() -> Path:
    """Where the service that is meant says which process it is."""
    import ovs.dirs

    return Path(ovs.dirs.RUNDIR) / f"{_name}.pid"


class Unanswered(Exception):
    """There is no answer; the text is what was found -> what was expected."""


class Refusal(Exception):
    """The service says no; the text is what was found -> what was expected."""


def running() -> bool:
    """Whether a service takes commands."""
    wire = _connected(ANSWER_TIMEOUT_S)
    if wire is not None:
        wire.close()
    return wire is not None


def stranger() -> str | None:
    """What keeps this user out of Open vSwitch's run directory; None if nothing does."""
    import ovs.dirs

    directory = ovs.dirs.RUNDIR
    if not os.path.isdir(directory) and os.geteuid() == 0:
        return None
    if os.access(directory, os.W_OK | os.X_OK):
        return None
    return f"user {os.geteuid()}, who may not write to {directory} -> root"


def ask(method: str, words: Sequence[str], timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """Have the running service carry out a command; its answer.

    Raises:
        Refusal: it says no.
        Unanswered: there is no service, or it ended meanwhile.
    """
    request = json.dumps({"id": 0, "method": method, "params": list(words)})
    wire = _connected(timeout_s)
    if wire is None:
        which = "" if _name == NAME else f" --name {_name}"
        raise Unanswered(f"no service is running -> start one with: ovs-lbt run{which}")
    try:
        with wire:
            wire.sendall(request.encode())
            reply = _reply(wire)
    except TimeoutError:
        raise Unanswered(f"no answer in {timeout_s:g} s -> a service that answers") from None
    except OSError as error:
        raise Unanswered(f"the service ended: {error.strerror or error} -> {OUR_LOG}") from None
    if reply.get("error") is not None:
        raise Refusal(str(reply["error"]).rstrip())
    return str(reply.get("result") or "")


def _connected(timeout_s: float) -> socket.socket | None:
    """A line to the running service; None if there is none."""
    path = pidfile()
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        wire.settimeout(timeout_s)
        pid = int(path.read_text())
        wire.connect(str(path.with_name(f"{_name}.{pid}.ctl")))
    except (OSError, ValueError):
        wire.close()
        return None
    return wire


def _reply(wire: socket.socket) -> dict[str, object]:
    """The only message that comes; it ends where its JSON does."""
    received = b""
    while chunk := wire.recv(CHUNK_BYTES):
        received += chunk
        if chunk.rstrip().endswith(b"}"):
            try:
                reply = json.loads(received)
            except ValueError:
                continue
            if isinstance(reply, dict):
                return reply
    raise OSError(None, "the connection was closed before an answer")
