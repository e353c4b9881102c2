"""Announces tunnel endpoints' own addresses several times, without the service.

    python -m controller.announce_endpoints BRIDGE DATABASE

After a bridge is detached, peers may still send to an endpoint's off-home addresses (see
`features.off_home`), which no longer work. The announcements must be repeated, but the service may
end before the last one, for example if the package is removed. So the service starts this module
as a separate process. `rescue` makes the announcements in its own process.

This module uses Open vSwitch's tools and not the framework, because the framework may be the reason
why the service does not start.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from collections.abc import Collection, Iterator

from controller.api.events import DatabaseRead, Event
from controller.config.marks import Marks
from controller.config.reader import read_bridge
from controller.features.off_home import OWN_AFTER_S, announcements
from controller.host import addresses, arming, client, faults
from controller.host.programs import run
from controller.host.sockets import TlsFiles
from controller.ovsdb.database import Database
from controller.text import terminal
from controller.text.wording import Refused

LOG_NAME = "ovs-lbt-announce.log"
# If systemd refuses the scope, systemd-run ends within this time. Announcements take longer.
REFUSED_WITHIN_S = 5.0


def start(bridge: str, remote: str) -> None:
    """Announce the tunnel endpoints of a detached bridge, in a process that continues after this one.

    Under systemd, the process has its own scope, so that it does not end with the service or login session.
    """
    command = [sys.executable, "-P", "-m", "controller.announce_endpoints", bridge, remote]
    unit = f"--unit=ovs-lbt-announce-{time.time_ns() // 1_000_000}"
    scope = ["systemd-run", "--scope", "--quiet", "--collect", unit, "--"]
    first = [*scope, *command] if arming.BOOTED.is_dir() else command
    started_s = time.monotonic()
    with contextlib.suppress(OSError):
        process = arming.started(first, LOG_NAME)

        def wait() -> None:
            failed = process.wait() != 0
            if failed and first is not command and time.monotonic() < started_s + REFUSED_WITHIN_S:
                arming.started(command, LOG_NAME).wait()

        faults.once("announcements", f"announcements of {bridge}", wait, lambda _found: None)


def announce(remote: str, bridges: Collection[str]) -> None:
    """Announce each tunnel endpoint's own addresses on these bridges, after the delays `OWN_AFTER_S`.

    An upstream switch may miss the first announcements, for example while its port is not forwarding. The
    bridge forwards announcements like other frames: drained and disconnected uplinks do not send them.

    Raises:
        Refused: the database does not answer, the addresses of this host could not be read, or the last
            announcement of a bridge was not sent.
    """
    # The database is read here, because the switch may have added addresses of ports.
    announced = list(_announced(read(remote), bridges)) if bridges else []
    failures = dict[str, str]()
    begun_s = time.monotonic()
    for after_s in OWN_AFTER_S if announced else ():
        time.sleep(max(0.0, begun_s + after_s - time.monotonic()))
        failures.clear()
        for bridge, packet_out in announced:
            try:
                run("ovs-ofctl", "-O", "OpenFlow13", "packet-out", bridge, packet_out)
            except Refused as error:
                # The switch may be restarting.
                failures[bridge] = str(error)
    if failures:
        raise Refused("; ".join(failures.values()))


def _announced(read: DatabaseRead, bridges: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the announcements, each as (bridge, argument of `ovs-ofctl packet-out`)."""
    marks = marked(read)
    for row in marks.rows.values():
        if row.name not in bridges:
            continue
        for port in read_bridge(row).endpoints:
            for frame in announcements(port):
                yield row.name, f'in_port="{port.name}", packet={frame.hex()}, actions=TABLE'


def read(remote: str) -> DatabaseRead:
    """Return the current content of the database at `remote`.

    Raises:
        Refused: the database does not answer.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    Database(remote, events.put, TlsFiles.tls_files_of(*client.tls_files()))
    found = events.get()
    assert isinstance(found, DatabaseRead)
    return found


def marked(read: DatabaseRead) -> Marks:
    """Return the bridges' records, with this host's tunnel endpoints marked.

    Raises:
        Refused: the addresses of this host could not be read.
    """
    try:
        devices = addresses.read_addresses().devices
    except OSError as error:
        found = "the addresses of this host cannot be read, so tunnel endpoints are not announced"
        raise Refused(f"{found}: {error}") from error
    marks = Marks()
    marks.mark(read.bridges, read.ovn, devices)
    return marks


def main(words: list[str]) -> int:
    terminal.guard()
    match words:
        case [bridge, remote]:
            try:
                announce(remote, {bridge})
            except Refused as error:
                print(f"ovs-lbt announcements: {error}", file=sys.stderr)
                return 1
            return 0
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
