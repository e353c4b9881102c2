"""Checks the controller settings of a bridge: the allowed OpenFlow versions, and the fail mode.

In fail mode `standalone`, Open vSwitch adds NORMAL to a bridge without flows, and plain uplinks then form
a loop. So `attach` sets `secure` for plain uplinks, and saves the previous mode in the key `before`.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from controller.config.rows import PREFIX, BridgeRow
from controller.text.wording import quoted

# The version of OpenFlow that the service uses.
SPOKEN = "OpenFlow13"
SECURE = "secure"
# The targets of controllers that Open vSwitch connects to. Other controllers connect to it.
DIALED = ("tcp:", "ssl:")
# Open vSwitch's port for targets without a port.
DEFAULT_PORT = 6653


def refusal(row: BridgeRow) -> str | None:
    """Return the reason why the service cannot connect, and the solution; None if it can connect.

    An empty `protocols` allows every version of OpenFlow.
    """
    if not row.protocols or SPOKEN in row.protocols:
        return None
    remedy = f"allow {SPOKEN} as well: ovs-vsctl add bridge {quoted(row.name)} protocols {SPOKEN}"
    return f"bridge {row.name} allows only {', '.join(row.protocols)}; {remedy}"


def may_flush(before: BridgeRow, row: BridgeRow) -> bool:
    """Whether Open vSwitch flushes the bridge's flows because its record has changed.

    Flows are flushed if the fail mode changes, if the first controller is added, or if the last
    controller is removed.
    """
    had, has = bool(before.controllers), bool(row.controllers)
    return before.fail_mode != row.fail_mode or had != has


def was_loosened(row: BridgeRow, on_bond: bool) -> bool:
    """Whether the fail mode of a bridge with plain uplinks was changed after `attach` set it."""
    is_loose = row.attached and not on_bond and row.fail_mode != SECURE
    return is_loose and PREFIX + "before" in row.external_ids


def is_ours(target: str, listens_on: tuple[str, int] | None) -> bool:
    """Whether a bridge with this controller target connects to the service, which listens on an address.

    If the service listens on all addresses, or if a host is not an IP address, only ports are compared.
    """
    if listens_on is None or not target.startswith(DIALED):
        return False
    try:
        host, port = place_of(target)
    except ValueError:
        return False
    if port != listens_on[1]:
        return False
    try:
        here, there = ip_address(listens_on[0]), ip_address(host)
    except ValueError:
        return True
    return here.is_unspecified or here == there


def place_of(target: str) -> tuple[str, int]:
    """Return the host and the port of a controller target to which Open vSwitch connects.

    Raises:
        ValueError: the target is not valid.
    """
    place = urlsplit(f"//{target.partition(':')[2]}")
    if not place.hostname:
        raise ValueError(f"{target} has no host")
    return place.hostname, place.port or DEFAULT_PORT


def hidden_flows(
    row: BridgeRow, on_bond: bool, listens_on: tuple[str, int] | None
) -> Iterator[str]:
    """Report hidden Open vSwitch flows that send frames to NORMAL before any program's flows match.

    On a bond, NORMAL does not flood to VM ports, because our flows do. On plain uplinks, NORMAL floods to
    every uplink; `attach` has set the fail mode `secure` there. `listens_on`: as for `is_ours`.
    """
    bridge = quoted(row.name)
    if row.in_band:
        harm = (
            "do not reach VMs" if on_bond else "leave on all uplinks, and reach VMs several times"
        )
        found = f"in-band control: ARP requests from the host {harm}"
        yield f"{found}; turn it off: ovs-vsctl set bridge {bridge} other_config:disable-in-band=true"
    # The service answers only bridges that are attached.
    ours = any(is_ours(target, listens_on) for target in row.controllers)
    if on_bond and row.unanswered and not ours and row.fail_mode != SECURE:
        targets = ", ".join(target for target in row.controllers if target.startswith(DIALED))
        found = f"controller {targets} does not answer, so NORMAL forwards all frames (fail mode standalone)"
        harm = "broadcasts from VMs and the host do not reach VMs on this host"
        yield f"{found}, and {harm}; remove the controller: ovs-vsctl del-controller {bridge}"


def not_done(row: BridgeRow, plain_uplinks: int) -> Iterator[str]:
    """Report settings that keep the service from connecting, or cause a loop after a restart.

    `plain_uplinks`: the number of named uplinks that are not in a bond, including absent uplinks.
    """
    if refusal(row) is not None:
        found = f"Bridge {row.name} protocols: {', '.join(row.protocols)}"
        yield f"{found}; the service cannot connect without {SPOKEN}"
    if plain_uplinks >= 2 and row.attached and row.fail_mode != SECURE:
        found = f"Bridge {row.name} fail_mode: {row.fail_mode or 'standalone'}"
        found += ", so the uplinks will form a loop when ovs-vswitchd restarts"
        yield f"{found}; set {SECURE}: ovs-vsctl set-fail-mode {quoted(row.name)} {SECURE}"
