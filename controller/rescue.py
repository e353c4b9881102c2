"""`ovs-lbt rescue`: lets a bridge of plain uplinks forward on one of them, without the service.

A bridge with plain uplinks forwards nothing until the service has installed its flows. If the
service cannot start, NORMAL takes over for all VM ports and one uplink. The other uplinks are
disconnected, so that they cannot form a loop. On a bond, NORMAL forwards anyway, but floods to no VM port if
another program has removed our flows and the ports have kept the flag no-flood.

Peers of a tunnel endpoint may still send to its off-home addresses, which are no longer received. So
its own address is announced to them.

This module uses Open vSwitch's own tools and not the framework, because the framework may be what
keeps the service from starting.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import ovs.dirs

from controller.announce_endpoints import announce, read
from controller.config.kept_keys import recalled
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow
from controller.config.values import BridgeConfig, UplinkConfig
from controller.host import client
from controller.host.forwarding import flood, forward, has_pipeline, not_flooded
from controller.host.programs import run, wait_until
from controller.text.wording import STARTED, Refused, unknown
from policies.model import Role

# After a boot, the switch and its links may need some time.
PATIENCE_S = 10.0
CHECK_INTERVAL_S = 0.2
PREFERRED = (Role.ACTIVE, Role.STANDBY)


class NotNeeded(Refused):
    """The bridge forwards without a rescue."""


def rescue(remote: str, bridge: str | None) -> Iterator[str]:
    """Rescue one bridge, or all attached ones if `bridge` is None. Yields a line for each.

    Raises:
        Refused: a bridge must not or could not be rescued, or the database does not answer.
    """
    if not remote.startswith("unix:"):
        raise Refused(
            f"database {remote} is invalid; expected unix:PATH, on the host of the bridges"
        )
    if client.running() or client.another() is not None:
        raise Refused("the service is running; rescue works only while it is stopped")
    rows = {row.name: recalled(row) for row in read(remote).bridges}
    if bridge is not None:
        if bridge not in rows:
            raise Refused(unknown("bridge", bridge, rows, "ovs-vsctl list-br"))
        yield f"{bridge}: {_rescue(rows[bridge])}"
        announce(remote, {bridge})
        return
    if not any(row.attached for row in rows.values()):
        yield "no bridge is attached, so there is nothing to rescue"
    failures, rescued = [], set()
    for row in rows.values():
        if row.attached:
            try:
                yield f"{row.name}: {_rescue(row)}"
                rescued.add(row.name)
            except NotNeeded as reason:
                yield str(reason)
            except Refused as refusal:
                failures.append(str(refusal))
    try:
        announce(remote, rescued)
    except Refused as refusal:
        failures.append(str(refusal))
    if failures:
        raise Refused("; ".join(failures))


def _rescue(row: BridgeRow) -> str:
    """Rescue a bridge. Returns what was done."""
    config, name = read_bridge(row), row.name
    if not row.attached:
        raise Refused(f"bridge {name} is not attached, so there is nothing to rescue")
    socket = Path(ovs.dirs.RUNDIR) / f"{name}.mgmt"
    if config.on_bond:
        return _flood_again(config, socket.is_socket())
    if not config.uplinks:
        raise Refused(f"bridge {name} has no uplink on the switch; set uplinks to existing ports")
    late = f"bridge {name} does not answer; {STARTED}"
    wait_until(socket.is_socket, PATIENCE_S, CHECK_INTERVAL_S, late)
    if has_pipeline(name):
        raise NotNeeded(f"bridge {name} needs no rescue: the flows of ovs-lbt are installed")
    chosen, is_up = _choose(config)
    others = [uplink.name for uplink in config.uplinks if uplink is not chosen]
    # These may lead to the network as well.
    others += config.missing
    forward(name, chosen.name, tuple(others))
    link = "" if is_up else ", whose link is down"
    return f"NORMAL forwards on {chosen.name}{link}; disconnected: {', '.join(others)}"


def _flood_again(config: BridgeConfig, answers: bool) -> str:
    """Let NORMAL flood to all VM ports of a bond, if another program has removed the flows of ovs-lbt.

    These bring broadcasts to VM ports, and the flag no-flood keeps NORMAL from bringing a second copy.
    `answers`: whether the switch runs. Returns what was done.
    """
    ports = list[str]()
    if answers and not has_pipeline(config.name):
        kept, before = not_flooded(config.name), config.no_flood_before
        ports = [p.name for p in config.vm_ports if p.ofport in kept and p.name not in before]
    if not ports:
        raise NotNeeded(f"bridge {config.name} needs no rescue: NORMAL forwards on its bond")
    flood(config.name, ports)
    return f"NORMAL forwards on the bond; it floods to {len(ports)} VM ports again"


def _choose(config: BridgeConfig) -> tuple[UplinkConfig, bool]:
    """The best uplink that has a link, after waiting for one. Returns whether it has a link."""
    usable = [uplink for role in PREFERRED for uplink in config.uplinks if uplink.role is role]
    candidates = usable or list(config.uplinks)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        for uplink in candidates:
            state = run("ovs-vsctl", "get", "interface", uplink.name, "link_state")
            if state.strip() == "up":
                return uplink, True
        if time.monotonic() > deadline_s:
            return candidates[0], False
        time.sleep(CHECK_INTERVAL_S)
