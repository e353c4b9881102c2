"""`ovs-lbt rescue`: makes a bridge with plain uplinks forward on one uplink, without the service.

A bridge with plain uplinks does not forward frames until the service has installed its flows. If the
service cannot start, this command lets NORMAL forward for all VM ports on one uplink. The other uplinks
are disconnected, so that they cannot form a loop. On a bond, NORMAL forwards anyway. If another
program has removed our flows, this command lets NORMAL flood to VM ports (clears no-flood).

Peers may still send to a tunnel endpoint's off-home addresses (see `features.off_home`), which no
longer work. So the endpoint's own address is announced to the peers.

This module uses Open vSwitch's tools and not the framework, because the framework may be the reason
why the service does not start.
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
from controller.host.forwarding import flagged, flood, forward, has_pipeline, openflow10
from controller.host.programs import run, wait_until
from controller.text.wording import STARTED, Refused, unknown
from policies.model import Role

# After a boot, the switch and its links may need some time.
PATIENCE_S = 10.0
CHECK_INTERVAL_S = 0.2
PREFERRED = (Role.ACTIVE, Role.STANDBY)


class NotNeeded(Refused):
    """Raised for a bridge that forwards without a rescue."""


def rescue(remote: str, bridge: str | None, dry_run: bool = False) -> Iterator[str]:
    """Rescue one bridge, or all attached bridges if `bridge` is None.

    Yield a description of each bridge's changes. `dry_run`: only describe them.

    Raises:
        Refused: a bridge is not eligible for rescue, a rescue failed, or the database does not answer.
    """
    if not remote.startswith("unix:"):
        raise Refused(
            f"database {remote} is invalid; expected unix:PATH, because rescue works only locally"
        )
    if client.running() or client.another() is not None:
        raise Refused("the service is running; rescue works only while it is stopped")
    rows = {row.name: recalled(row) for row in read(remote).bridges}
    if bridge is not None and bridge not in rows:
        raise Refused(unknown("bridge", bridge, rows, "ovs-vsctl list-br"))
    attached = [row.name for row in rows.values() if row.attached]
    if bridge is None and not attached:
        yield "no bridge is attached, so there is nothing to rescue"
    failures, rescued = [], set()
    for name in attached if bridge is None else (bridge,):
        try:
            yield f"{name}: {_rescue(rows[name], dry_run)}"
            rescued.add(name)
        except NotNeeded as reason:
            if bridge is not None:
                raise
            yield str(reason)
        except Refused as refusal:
            failures.append(str(refusal))
    try:
        announce(remote, () if dry_run else rescued)
    except Refused as refusal:
        failures.append(str(refusal))
    if failures:
        raise Refused("; ".join(failures))


def _rescue(row: BridgeRow, dry_run: bool) -> str:
    """Rescue a bridge. Return a description of the result."""
    config, name = read_bridge(row), row.name
    if not row.attached:
        raise Refused(f"bridge {name} is not attached, so there is nothing to rescue")
    socket = Path(ovs.dirs.RUNDIR) / f"{name}.mgmt"
    if config.on_bond:
        return _flood_again(config, socket.is_socket(), dry_run)
    if not config.uplinks:
        raise Refused(f"bridge {name} has no uplink on the switch; set uplinks to existing ports")
    late = f"bridge {name} does not answer; {STARTED}"
    wait_until(socket.is_socket, PATIENCE_S, CHECK_INTERVAL_S, late)
    if has_pipeline(name):
        raise NotNeeded(f"bridge {name} needs no rescue: the ovs-lbt flows are installed")
    chosen, is_up = _choose(config)
    others = [uplink.name for uplink in config.uplinks if uplink is not chosen]
    # These interfaces are not uplinks, but may be connected to the network as well.
    others += config.missing
    link = "" if is_up else ", whose link is down"
    if dry_run:
        return f"NORMAL would forward on {chosen.name}{link}; would disconnect {', '.join(others)}"
    forward(name, chosen.name, tuple(others))
    return f"NORMAL forwards on {chosen.name}{link}; disconnected: {', '.join(others)}"


def _flood_again(config: BridgeConfig, answers: bool, dry_run: bool) -> str:
    """Let NORMAL flood to all VM ports of a bridge with a bond, if another program has removed our flows.

    Our flows deliver broadcasts to VM ports, and the flag no-flood prevents a second copy from NORMAL.
    `answers`: whether the switch is running. Returns a description of the result.
    """
    ports = list[str]()
    if answers and not has_pipeline(config.name):
        with openflow10(config.name):
            kept = flagged(config.name)
        before = config.no_flood_before
        ports = [p.name for p in config.vm_ports if p.ofport in kept and p.name not in before]
    if not ports:
        raise NotNeeded(f"bridge {config.name} needs no rescue: NORMAL forwards on its bond")
    if dry_run:
        return f"NORMAL would flood to {len(ports)} VM ports again"
    flood(config.name, ports)
    return f"NORMAL forwards on the bond, and floods to {len(ports)} VM ports again"


def _choose(config: BridgeConfig) -> tuple[UplinkConfig, bool]:
    """Wait for an uplink whose link is up. Return the best uplink, and whether its link is up."""
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
