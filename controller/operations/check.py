"""What `check` finds: whether an attached bridge is healthy, and whether another one is fit to attach.

What the network upstream shows by counters is found by `operations.upstream`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from controller.api.status import BridgeStatus
from controller.bridge import inspection
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet
from controller.config import controllers
from controller.config.controllers import SECURE
from controller.config.rows import BridgeRow
from controller.config.values import UplinkConfig
from controller.load.flooded import LOOPS_PPS
from controller.operations import advice, releases
from controller.teaming.address_units import PER_PORT_MAX
from controller.text.check_view import ERROR, NOTE, WARNING, JsonObject
from controller.text.show_view import FAILED
from controller.text.wording import OUR_LOG
from policies.model import Role

# How long a move that inbound traffic did not follow is reported, as by the alert.
NOT_FOLLOWED_FOR_S = 900.0
# A service on standby asks several times a second whether this one is alive.
STANDBY_ASKS_WITHIN_S = 10.0
PASSIVE = ("ptcp:", "pssl:")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what was found -> what is expected, in `text`.

    `check`: what kind it is, one word for programs. `bridge`: None if it is about the host. `runbook`:
    the runbook of docs/runbooks.md or docs/runbooks-service.md.
    """

    severity: str
    check: str
    text: str
    bridge: str | None = None
    runbook: str | None = None


def answer(fleet: Fleet, bridges: Iterable[Bridge], now_s: float) -> JsonObject:
    """The answer about attached bridges, as documented in docs/reference/json.md."""
    bridges = list(bridges)
    found = [*_of_host(fleet, now_s)]
    for bridge in bridges:
        found += _of_bridge(fleet, bridge, now_s)
    return _written(found, [_team(bridge, attached=True) for bridge in bridges])


def fit(fleet: Fleet, bridge: Bridge, now_s: float) -> JsonObject:
    """The answer about a bridge that `attach` would take. It was inspected."""
    config, row = bridge.config, fleet.rows[bridge.config.name]
    uplinks = ", ".join(uplink.name for uplink in config.uplinks)
    takes = f"{config.policy} over {uplinks}, {len(config.vm_ports)} VM ports"
    found = [Finding(NOTE, "fit", f"fit to attach: {takes}")]
    if not config.on_bond and row.fail_mode != SECURE:
        text = "fail mode: standalone; it is secure while the bridge is attached"
        found.append(Finding(NOTE, "fail-mode", text))
    found += [Finding(WARNING, "not-done", text) for text in config.not_done]
    found += _other_controllers(row)
    found += _lacp(bridge, row)
    found += _of_links(bridge, now_s)
    if unknown := releases.warning(fleet.ovs_version):
        found.append(Finding(NOTE, "release", unknown))
    found += [Finding(NOTE, "offload", text) for text in config.offload.told]
    found += [Finding(NOTE, check, text) for check, text in advice.advice(config, fleet)]
    of_bridge = [replace(finding, bridge=config.name) for finding in found]
    return _written(of_bridge, [_team(bridge, attached=False)])


def unfit(name: str, why: str) -> JsonObject:
    """The answer about a bridge that `attach` would refuse."""
    team = {"name": name, "attached": False, "uplinks": []}
    return _written([Finding(ERROR, "unfit", f"not fit to attach: {why}", name)], [team])


# ---- the host --------------------------------------------------------------------------


def _of_host(fleet: Fleet, now_s: float) -> Iterator[Finding]:
    for fault in fleet.recent_faults(now_s):
        text = f"fault of ovs-lbt: {fault.text} (of {fault.part}: {fault.count} in all)"
        yield Finding(WARNING, "fault", text, runbook="OvsLbtFault")
    if unknown := releases.warning(fleet.ovs_version):
        yield Finding(NOTE, "release", unknown)
    if (asked_s := fleet.challenged_s) is None:
        return
    if now_s - asked_s <= STANDBY_ASKS_WITHIN_S:
        yield Finding(NOTE, "standby", "this service leads; another one stands by")
    else:
        found = f"standby: silent for {now_s - asked_s:.0f} s"
        yield Finding(WARNING, "standby", f"{found} -> a running service that stands by")


# ---- an attached bridge ----------------------------------------------------------------


def _of_bridge(fleet: Fleet, bridge: Bridge, now_s: float) -> Iterator[Finding]:
    status = next(iter(fleet.status(bridge.config.name)), None)
    found = [*_of_state(fleet, bridge), *_of_config(bridge, status)]
    if bridge.connected:
        found += [*_of_links(bridge, now_s), *_of_paths(bridge), *_of_moves(bridge, status, now_s)]
    yield from (replace(finding, bridge=bridge.config.name) for finding in found)


def _of_state(fleet: Fleet, bridge: Bridge) -> Iterator[Finding]:
    if not bridge.connected:
        expected = "a running ovs-vswitchd that answers"
        row = fleet.rows.get(bridge.config.name)
        if row is not None and not controllers.is_allowed(row):
            expected = f"{controllers.SPOKEN} among the protocols of the bridge"
        text = f"not connected -> {expected}"
        yield Finding(ERROR, "not-connected", text, runbook="OvsLbtBridgeDisconnected")
    if bridge.config.fallen_back:
        text = (
            "LACP: not negotiated, so one uplink serves all VM ports -> a partner that speaks LACP"
        )
        yield Finding(WARNING, "lacp", text, runbook="OvsLbtUplinkDown")
    if bridge.overruling:
        text = (
            f"flows {inspection.named(bridge.overruling)} of other programs take precedence over those of"
            " ovs-lbt: frames may be lost or duplicated -> no such flows"
        )
        yield Finding(WARNING, "overruled", text)
    if (flooded_pps := bridge.flooded.pps) >= LOOPS_PPS:
        text = (
            f"every VM port of a VLAN receives {flooded_pps:.0f} frames/s, as in a loop -> no loop:"
            " for example, no VM port that leads to the network, and no VM that bridges two ports"
        )
        yield Finding(WARNING, "loop", text)
    if bridge.observing:
        yield Finding(NOTE, "observing", "mode observe: load moves nothing")


def _of_config(bridge: Bridge, status: BridgeStatus | None) -> Iterator[Finding]:
    if (hashed := bridge.connection_hash.in_use) is not None and hashed.cost is not None:
        yield Finding(NOTE, "connection-hash", str(hashed))
    for vm_port in (port for port in bridge.config.vm_ports if port.per_address):
        known = len(bridge.addresses.by_port.get(vm_port.name, ()))
        if known > PER_PORT_MAX:
            text = (
                f"{vm_port.name}: {known} addresses, of which {PER_PORT_MAX} are placed one by one"
            )
            yield Finding(NOTE, "addresses", f"{text}; the others leave by its uplink")
    if status is None or status.failure:
        text = "its status: ovs-lbt itself failed"
        if status is not None:
            text = f"ovs-lbt itself failed: {status.failure}; {FAILED}"
        yield Finding(ERROR, "fault", f"{text} -> {OUR_LOG}", runbook="OvsLbtFault")
    if status is None:
        return
    for error in status.config_errors:
        yield Finding(ERROR, "bad-value", error, runbook="OvsLbtConfigurationError")
    for text in status.not_done:
        yield Finding(WARNING, "not-done", text)
    for port, rule, how in status.rules_broken:
        severity = ERROR if port.uplink is None else WARNING
        text = f"rule broken: {port.name} {rule}: {how}"
        yield Finding(severity, "rule-broken", text, runbook="OvsLbtRuleBroken")
    for text in status.offload:
        yield Finding(NOTE, "offload", text)


def _of_paths(bridge: Bridge) -> Iterator[Finding]:
    """What is lost between uplinks although their links are up, and what hinders path checks."""
    for one in bridge.probing.hindrances:
        yield Finding(WARNING, "path-hindered", f"{one.found} -> {one.expected}")
    for fault in sorted(bridge.paths.since_s):
        over = "; it is over, and its failback delay runs" if bridge.paths.is_over(fault) else ""
        text = f"{fault.found}{over} -> {fault.expected}"
        yield Finding(WARNING, "path", text, runbook="OvsLbtPathFault")


def _of_links(bridge: Bridge, now_s: float) -> Iterator[Finding]:
    """Uplinks that carry nothing, and how many could still fail."""
    serving = [u for u in bridge.config.uplinks if u.role in (Role.ACTIVE, Role.STANDBY)]
    working = [uplink for uplink in serving if bridge.links.up(uplink)]
    for uplink in serving:
        if waits := bridge.links.why_waiting(uplink):
            text = f"uplink {uplink.name}: {waits} -> a port of the same network that forwards"
            yield Finding(WARNING, "receives-nothing", text, runbook="OvsLbtUplinkDown")
        elif not bridge.links.up(uplink) and uplink.name not in bridge.links.unreachable:
            yield _down(bridge, uplink)
        if bridge.links.flaps(uplink.name, now_s):
            text = f"uplink {uplink.name}: its link goes up and down -> a link that stays"
            yield Finding(WARNING, "flapping", text, runbook="OvsLbtLinkFlapping")
    drained = [uplink.name for uplink in bridge.config.uplinks if uplink.role is Role.DRAINED]
    for name in drained:
        yield Finding(NOTE, "drained", f"uplink {name}: drained")
    if not working:
        text = "no active or standby uplink has a link -> one at least"
        yield Finding(ERROR, "dark", text, runbook="OvsLbtBridgeDark")
    elif len(working) == 1:
        text = f"no failover is left: only {working[0].name} works -> two uplinks at least"
        yield Finding(WARNING, "no-failover", text, runbook="OvsLbtUplinkDown")


def _down(bridge: Bridge, uplink: UplinkConfig) -> Finding:
    if silent := bridge.links.silent(uplink):
        text = f"uplink {uplink.name}: no answer ({', '.join(silent)}) -> a peer that answers"
        return Finding(WARNING, "silent", text, runbook="OvsLbtUplinkDown")
    text = f"uplink {uplink.name}: link down -> a link"
    return Finding(WARNING, "uplink-down", text, runbook="OvsLbtUplinkDown")


def _of_moves(bridge: Bridge, status: BridgeStatus | None, now_s: float) -> Iterator[Finding]:
    for uplink in status.uplinks if status else ():
        if uplink.unrelieved:
            text = f"uplink {uplink.name}: above the threshold, and no move helps"
            text += " -> more capacity, or less load"
            yield Finding(WARNING, "unrelieved", text, runbook="OvsLbtUplinkSaturated")
    if status and (count := status.budgets_spent):
        text = f"move budget: spent by {count} units -> loads that do not jump"
        yield Finding(WARNING, "budget-spent", text, runbook="OvsLbtMoveBudgetExhausted")
    gave_up_s = bridge.inbound_check.not_followed_s
    if gave_up_s is not None and now_s - gave_up_s <= NOT_FOLLOWED_FOR_S:
        text = (
            "inbound traffic did not follow a move in the last 15 min"
            " -> upstream switches that learn VM addresses anew; see the log of ovs-lbt"
        )
        yield Finding(WARNING, "not-followed", text, runbook="OvsLbtInboundNotFollowing")


# ---- a bridge that is not attached -----------------------------------------------------


def _other_controllers(row: BridgeRow) -> Iterator[Finding]:
    """Programs that may write flows to the bridge as well."""
    others = [target for target in row.controllers if not target.startswith(PASSIVE)]
    if others:
        text = (
            f"controller {', '.join(others)}: another program controls this bridge"
            " -> one that writes no flows where those of ovs-lbt are, or none"
        )
        yield Finding(WARNING, "controller", text)


def _lacp(bridge: Bridge, row: BridgeRow) -> Iterator[Finding]:
    """Members of the bond that LACP has no partner for."""
    lacp = next((p.lacp for p in row.ports if len(p.interfaces) > 1), None)
    if not bridge.config.on_bond or lacp not in ("active", "passive"):
        return
    members = {i.name: i.lacp_current for port in row.ports for i in port.interfaces}
    if silent := [u.name for u in bridge.config.uplinks if members.get(u.name) is not True]:
        text = f"LACP ({lacp}): not negotiated on {', '.join(silent)} -> a partner that speaks LACP"
        yield Finding(WARNING, "lacp", text)


# ----------------------------------------------------------------------------------------


def _team(bridge: Bridge, attached: bool) -> dict[str, Any]:
    config, is_up = bridge.config, bridge.links.up
    return {
        "name": config.name,
        "attached": attached,
        "teaming": config.teaming,
        "uplinks": [
            {"name": u.name, "ofport": int(u.ofport), "up": is_up(u), "role": u.role.value}
            for u in config.uplinks
        ],
    }


def _written(found: Iterable[Finding], teams: Iterable[JsonObject]) -> JsonObject:
    return {"bridges": [*teams], "findings": [as_json(one) for one in found]}


def as_json(finding: Finding) -> dict[str, Any]:
    """A finding as documented in docs/reference/json.md."""
    return {
        "bridge": finding.bridge,
        "severity": finding.severity,
        "check": finding.check,
        "text": finding.text,
        **({"runbook": finding.runbook} if finding.runbook else {}),
    }
