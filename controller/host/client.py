"""The client side of the commands: finds the service and sends requests to its control socket."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import ovs.dirs

from controller.api.commands import SERVICE, SLOW
from controller.text.wording import OUR_LOG, STARTED, Refused, quoted

# Longer than the service itself waits before it reports that a switch or the database does not answer.
ANSWER_TIMEOUT_S = 20.0
SLOW_TIMEOUT_S = 130.0
CHUNK_BYTES = 1 << 16
NAME = SERVICE

_name = NAME


def call(name: str) -> None:
    """Set the name of the service to contact: an Open vSwitch instance can have several services."""
    global _name
    _name = name


def pidfile() -> Path:
    """Return the pidfile of the chosen service."""
    return Path(ovs.dirs.RUNDIR) / f"{_name}.pid"


def database(given: str | None = None) -> str:
    """Return the database's address: `given`, else OVS_LBT_OVSDB, else the database on this host."""
    return given or os.environ.get("OVS_LBT_OVSDB") or f"unix:{ovs.dirs.RUNDIR}/db.sock"


def tls_files() -> list[str | None]:
    """Return the paths of the TLS files in the environment: the private key, its certificate, and the CA."""
    return [os.environ.get(f"OVS_LBT_{of}") for of in ("PRIVATE_KEY", "CERTIFICATE", "CA_CERT")]


class Unanswered(Refused):
    """Raised if the service did not answer."""


def running(path: Path | None = None) -> bool:
    """Whether the service with the pidfile `path` (None: the chosen service) accepts connections."""
    wire = _connected(ANSWER_TIMEOUT_S, path)
    if wire is not None:
        wire.close()
    return wire is not None


def another() -> str | None:
    """Return the name of another service on this Open vSwitch instance; None if none is running."""
    others = (p for p in sorted(Path(ovs.dirs.RUNDIR).glob(f"{NAME}*.pid")) if p.stem != _name)
    return next((path.stem for path in others if running(path)), None)


def obstacle() -> str | None:
    """Return the reason why this user cannot reach a service on this host; None if the user can."""
    directory = ovs.dirs.RUNDIR
    if not os.path.isdir(directory):
        return f"Open vSwitch is not running: {directory} does not exist; {STARTED}"
    if os.geteuid() == 0 or os.access(directory, os.W_OK | os.X_OK):
        return None
    return f"user {os.geteuid()} cannot write to {directory}; run the command as root"


def read_only() -> str | None:
    """Return the reason why a service cannot write its pidfile and start here; None if it can."""
    if os.access(ovs.dirs.RUNDIR, os.W_OK | os.X_OK):
        return None
    return f"{ovs.dirs.RUNDIR} is not writable"


def request(command: str, words: Sequence[str]) -> str:
    """Send an `ovs-lbt` command to the service, and return its answer.

    Raises:
        Refused: the service refuses the command, does not answer, or cannot be reached by this user.
    """
    if (prevented := obstacle()) is not None:
        raise Unanswered(prevented)
    return ask(f"lbt/{command}", words)


def ask(method: str, words: Sequence[str], timeout_s: float | None = None) -> str:
    """Send the request `method` to the service, and return its answer.

    Raises:
        Refused: the service refuses the command.
        Unanswered: no service is running, or the service ended before it answered.
    """
    message = json.dumps({"id": 0, "method": method, "params": list(words)})
    if timeout_s is None:
        slow = method.removeprefix("lbt/") in SLOW
        timeout_s = SLOW_TIMEOUT_S if slow else ANSWER_TIMEOUT_S
    wire = _connected(timeout_s)
    if wire is None:
        raise Unanswered(_nobody())
    try:
        with wire:
            wire.sendall(message.encode())
            reply = _reply(wire)
    except TimeoutError:
        raise Unanswered(f"the service did not answer within {timeout_s:g} s; {OUR_LOG}") from None
    except OSError as error:
        raise Unanswered(
            f"the service closed the connection: {error.strerror or error}; {OUR_LOG}"
        ) from None
    if reply.get("error") is not None:
        raise Refused(str(reply["error"]).rstrip())
    return str(reply.get("result") or "")


def _nobody() -> str:
    """Return the error text if no service is running, with the commands that start the service."""
    start = "ovs-lbt run" if _name == NAME else f"ovs-lbt run --name {quoted(_name)}"
    elsewhere = os.environ.get("OVS_LBT_OVSDB", "")
    database = pidfile().with_name("db.sock")
    if elsewhere or database.exists():
        return f"no service is running; start it with: {start}"
    found = f"neither the service nor Open vSwitch is running: {database} does not exist"
    return f"{found}; {STARTED}; then start the service: {start}"


def _connected(timeout_s: float, path: Path | None = None) -> socket.socket | None:
    """Connect to the service with pidfile `path` (None: the chosen service); return None on failure."""
    path = path or pidfile()
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        wire.settimeout(timeout_s)
        pid = int(path.read_text())
        wire.connect(str(path.with_name(f"{path.stem}.{pid}.ctl")))
    except (OSError, ValueError):
        wire.close()
        return None
    return wire


def _reply(wire: socket.socket) -> dict[str, object]:
    """Read the reply, which consists of one JSON object."""
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
    raise OSError(None, "the connection was closed before the answer")
