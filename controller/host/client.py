"""The service, as its commands reach it: over the control socket in OVS's run directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from controller.text.wording import OUR_LOG

# Longer than the service takes to say that a switch or the database does not answer.
ANSWER_TIMEOUT_S = 20.0
CHUNK_BYTES = 1 << 16
NAME = "ovs-lbt"
# What is expected where there is none.
STARTED = "one that is, e.g. by: systemctl start openvswitch-switch"

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


def another() -> str | None:
    """The name of another service that runs beside this Open vSwitch than the one that is meant."""
    import ovs.dirs

    for path in sorted(Path(ovs.dirs.RUNDIR).glob(f"{NAME}*.pid")):
        if path.stem != _name and _reaches(path):
            return path.stem
    return None


def _reaches(path: Path) -> bool:
    """Whether a service takes commands that has this pidfile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        try:
            wire.connect(str(path.with_name(f"{path.stem}.{int(path.read_text())}.ctl")))
        except (OSError, ValueError):
            return False
    return True


def obstacle() -> str | None:
    """Why this user can ask nobody beside this Open vSwitch; None if nothing stands against it."""
    import ovs.dirs

    directory = ovs.dirs.RUNDIR
    if not os.path.isdir(directory):
        return f"Open vSwitch is not started: no directory {directory} -> {STARTED}"
    if os.geteuid() == 0 or os.access(directory, os.W_OK | os.X_OK):
        return None
    return f"user {os.geteuid()}, who may not write to {directory} -> root"


def read_only() -> str | None:
    """Why no service can be started here, which has a pidfile; None if nothing stands against it."""
    import ovs.dirs

    if os.access(ovs.dirs.RUNDIR, os.W_OK | os.X_OK):
        return None
    return f"{ovs.dirs.RUNDIR}: read-only -> a directory that can be written to"


def ask(method: str, words: Sequence[str], timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """Have the running service carry out a command; its answer.

    Raises:
        Refusal: it says no.
        Unanswered: there is no service, or it ended meanwhile.
    """
    request = json.dumps({"id": 0, "method": method, "params": list(words)})
    wire = _connected(timeout_s)
    if wire is None:
        raise Unanswered(_nobody())
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


def _nobody() -> str:
    """Why nobody answers, and what to do."""
    start = "ovs-lbt run" if _name == NAME else f"ovs-lbt run --name {_name}"
    elsewhere = os.environ.get("OVS_LBT_OVSDB", "")
    database = pidfile().with_name("db.sock")
    if elsewhere or database.exists():
        return f"no service is running -> start one with: {start}"
    found = f"no service is running, and Open vSwitch is not started: no {database}"
    return f"{found} -> {STARTED}, then: {start}"


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
