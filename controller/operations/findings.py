"""What can be wrong with a bridge, or worth knowing: one table of findings, for `check` and attach.

What the network upstream shows by counters is found by `controller/check.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
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
from controller.operations import advice
from controller.teaming.address_units import PER_PORT_MAX
from controller.text.show_view import FAILED
from controller.text.wording import OUR_LOG
from policies.model import Role

# A note asks for nothing; the others make the exit status of `check` 1.
ERROR, WARNING, NOTE = "error", "warning", "note"
# How long a move that inbound traffic did not follow is reported, as by the alert.
NOT_FOLLOWED_FOR_S = 900.0
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

    def as_json(self) -> dict[str, Any]:
        """The finding as documented in docs/reference/json.md."""
        return {
            "bridge": self.bridge,
            "severity": self.severity,
            "check": self.check,
            "text": self.text,
            **({"runbook": self.runbook} if self.runbook else {}),
        }


class Told(Flag):
    """Who tells a finding."""

    # `check` of an attached bridge; or only while its switch is connected.
    CHECK = auto()
    CONNECTED = auto()
    # `check` of a bridge that is fit to attach.
    FIT = auto()
    # The answer of attach.
    ATTACH = auto()


@dataclass(frozen=True, slots=True)
class About:
    """A bridge that is looked at. `status`: None if an error of ours prevents it, or it is not attached."""

    fleet: Fleet
    bridge: Bridge
    row: BridgeRow
    now_s: float
    status: BridgeStatus | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding. `texts`: what was found of it, one for each finding."""

    check: str
    severity: str
    told: Told
    texts: Callable[[About], Iterable[str]]
    runbook: str | None = None


def of_bridge(about: About, told: Told) -> Iterator[Finding]:
    """The findings about a bridge, in the order of the table."""
    for kind in FINDINGS:
        if kind.told & told:
            for text in kind.texts(about):
                name = about.bridge.config.name
                yield Finding(kind.severity, kind.check, text, name, kind.runbook)


# ---- a bridge that is not attached -----------------------------------------------------


def _fit(about: About) -> Iterator[str]:
    config = about.bridge.config
    uplinks = ", ".join(uplink.name for uplink in config.uplinks)
    yield f"fit to attach: {config.policy} over {uplinks}, {len(config.vm_ports)} VM ports"


def _fail_mode(about: About) -> Iterator[str]:
    if not about.bridge.config.on_bond and about.row.fail_mode != SECURE:
        yield "fail mode: standalone; it is secure while the bridge is attached"


def _other_controllers(about: About) -> Iterator[str]:
    """Programs that may write flows to the bridge as well."""
    if others := [target for target in about.row.controllers if not target.startswith(PASSIVE)]:
        yield (
            f"controller {', '.join(others)}: another program controls this bridge"
            " -> one that writes no flows where those of ovs-lbt are, or none"
        )


def _no_partner(about: About) -> Iterator[str]:
    """Members of the bond that LACP has no partner for."""
    lacp = next((p.lacp for p in about.row.ports if len(p.interfaces) > 1), None)
    if not about.bridge.config.on_bond or lacp not in ("active", "passive"):
        return
    members = {i.name: i.lacp_current for i in about.row.interfaces}
    if silent := [u.name for u in about.bridge.config.uplinks if members.get(u.name) is not True]:
        yield f"LACP ({lacp}): not negotiated on {', '.join(silent)} -> a partner that speaks LACP"


# ---- the state of the bridge -----------------------------------------------------------


def _not_connected(about: About) -> Iterator[str]:
    if not about.bridge.connected:
        expected = "a running ovs-vswitchd that answers"
        if not controllers.is_allowed(about.row):
            expected = f"{controllers.SPOKEN} among the protocols of the bridge"
        yield f"not connected -> {expected}"


def _fallen_back(about: About) -> Iterator[str]:
    if about.bridge.config.fallen_back:
        yield "LACP: not negotiated, so one uplink serves all VM ports -> a partner that speaks LACP"


def _overruled(about: About) -> Iterator[str]:
    if about.bridge.overruling:
        yield (
            f"flows {inspection.named(about.bridge.overruling)} of other programs take precedence over those of"
            " ovs-lbt: frames may be lost or duplicated -> no such flows"
        )


def _loop(about: About) -> Iterator[str]:
    if (flooded_pps := about.bridge.flooded.pps) >= LOOPS_PPS:
        yield (
            f"every VM port of a VLAN receives {flooded_pps:.0f} frames/s, as in a loop -> no loop:"
            " for example, no VM port that leads to the network, and no VM that bridges two ports"
        )


def _observing(about: About) -> Iterator[str]:
    if about.bridge.observing:
        yield "mode observe: load moves nothing"


def _failed(about: About) -> Iterator[str]:
    if about.status is None:
        yield f"its status: ovs-lbt itself failed -> {OUR_LOG}"
    elif about.status.failure:
        yield f"ovs-lbt itself failed: {about.status.failure}; {FAILED} -> {OUR_LOG}"


# ---- its configuration -----------------------------------------------------------------


def _bad_values(about: About) -> Iterable[str]:
    return about.status.config_errors if about.status else ()


def _not_done(about: About) -> Iterable[str]:
    return about.status.not_done if about.status else about.bridge.config.not_done


def _dropped(about: About) -> Iterable[str]:
    bridge = about.bridge
    if not bridge.observing:
        return ()
    return advice.dropped(bridge.config, about.row, bridge.addresses.by_port)


def _rules_broken(about: About, has_uplink: bool) -> Iterator[str]:
    for port, rule, how in about.status.rules_broken if about.status else ():
        if (port.uplink is not None) is has_uplink:
            yield f"rule broken: {port.name} {rule}: {how}"


def _release(about: About) -> Iterator[str]:
    if unknown := advice.release_warning(about.fleet.ovs_version):
        yield unknown


def _hash(about: About) -> Iterator[str]:
    if (hashed := about.bridge.connection_hash.in_use) is not None and hashed.cost is not None:
        yield str(hashed)


def _addresses(about: About) -> Iterator[str]:
    for vm_port in (port for port in about.bridge.config.vm_ports if port.per_address):
        known = len(about.bridge.addresses.by_port.get(vm_port.name, ()))
        if known > PER_PORT_MAX:
            placed = f"of which {PER_PORT_MAX} are placed one by one"
            yield f"{vm_port.name}: {known} addresses, {placed}; the others leave by its uplink"


# ---- its uplinks -----------------------------------------------------------------------


def _serving(about: About) -> list[UplinkConfig]:
    return [uplink for uplink in about.bridge.config.uplinks if uplink.serves]


def _working(about: About) -> list[UplinkConfig]:
    return [uplink for uplink in _serving(about) if about.bridge.links.up(uplink)]


def _down(about: About) -> Iterator[UplinkConfig]:
    """The uplinks that are down, except those with a finding that says more."""
    links = about.bridge.links
    for uplink in _serving(about):
        told = links.why_waiting(uplink) or uplink.name in links.unreachable
        if not told and not links.up(uplink):
            yield uplink


def _receives_nothing(about: About) -> Iterator[str]:
    for uplink in _serving(about):
        if waits := about.bridge.links.why_waiting(uplink):
            yield f"uplink {uplink.name}: {waits} -> a port of the same network that forwards"


def _silent(about: About) -> Iterator[str]:
    for uplink in _down(about):
        if silent := about.bridge.links.silent(uplink):
            yield f"uplink {uplink.name}: no answer ({', '.join(silent)}) -> a peer that answers"


def _links_down(about: About) -> Iterator[str]:
    for uplink in _down(about):
        if not about.bridge.links.silent(uplink):
            yield f"uplink {uplink.name}: link down -> a link"


def _flapping(about: About) -> Iterator[str]:
    for uplink in _serving(about):
        if about.bridge.links.flaps(uplink.name, about.now_s):
            yield f"uplink {uplink.name}: its link goes up and down -> a link that stays"


def _drained(about: About) -> Iterator[str]:
    for uplink in about.bridge.config.uplinks:
        if uplink.role is Role.DRAINED:
            yield f"uplink {uplink.name}: drained"


def _dark(about: About) -> Iterator[str]:
    if not _working(about):
        yield "no active or standby uplink has a link -> one at least"


def _no_failover(about: About) -> Iterator[str]:
    if len(working := _working(about)) == 1:
        yield f"no failover is left: only {working[0].name} works -> two uplinks at least"


def _hindered(about: About) -> Iterator[str]:
    """What hinders path checks."""
    for one in about.bridge.probing.hindrances:
        yield f"{one.found} -> {one.expected}"


def _paths(about: About) -> Iterator[str]:
    """What is lost between uplinks although their links are up."""
    paths = about.bridge.paths
    for fault in sorted(paths.since_s):
        over = "; it is over, and its failback delay runs" if paths.is_over(fault) else ""
        yield f"{fault.found}{over} -> {fault.expected}"


# ---- its moves -------------------------------------------------------------------------


def _unrelieved(about: About) -> Iterator[str]:
    for uplink in about.status.uplinks if about.status else ():
        if uplink.unrelieved:
            found = f"uplink {uplink.name}: above the threshold, and no move helps"
            yield f"{found} -> more capacity, or less load"


def _budgets_spent(about: About) -> Iterator[str]:
    if about.status and (count := about.status.budgets_spent):
        yield f"move budget: spent by {count} units -> loads that do not jump"


def _not_followed(about: About) -> Iterator[str]:
    gave_up_s = about.bridge.inbound_check.not_followed_s
    if gave_up_s is not None and about.now_s - gave_up_s <= NOT_FOLLOWED_FOR_S:
        yield (
            "inbound traffic did not follow a move in the last 15 min"
            " -> upstream switches that learn VM addresses anew; see the log of ovs-lbt"
        )


LINKS, BEFORE, RULE_BROKEN = Told.CONNECTED | Told.FIT, Told.FIT | Told.ATTACH, "OvsLbtRuleBroken"
# In the order in which they are told. A broken rule of a port that no uplink serves cuts it off.
FINDINGS = (
    Kind("fit", NOTE, Told.FIT, _fit),
    Kind("fail-mode", NOTE, Told.FIT, _fail_mode),
    Kind("not-connected", ERROR, Told.CHECK, _not_connected, "OvsLbtBridgeDisconnected"),
    Kind("lacp", WARNING, Told.CHECK, _fallen_back, "OvsLbtUplinkDown"),
    Kind("overruled", WARNING, Told.CHECK, _overruled),
    Kind("loop", WARNING, Told.CHECK, _loop),
    Kind("observing", NOTE, Told.CHECK, _observing),
    Kind("fault", ERROR, Told.CHECK, _failed, "OvsLbtFault"),
    Kind("bad-value", ERROR, Told.CHECK, _bad_values, "OvsLbtConfigurationError"),
    Kind("not-done", WARNING, Told.CHECK | BEFORE, _not_done),
    Kind("dropped", WARNING, Told.ATTACH, _dropped),
    Kind("rule-broken", ERROR, Told.CHECK, partial(_rules_broken, has_uplink=False), RULE_BROKEN),
    Kind("rule-broken", WARNING, Told.CHECK, partial(_rules_broken, has_uplink=True), RULE_BROKEN),
    Kind("controller", WARNING, Told.FIT, _other_controllers),
    Kind("lacp", WARNING, Told.FIT, _no_partner),
    Kind("receives-nothing", WARNING, LINKS, _receives_nothing, "OvsLbtUplinkDown"),
    Kind("silent", WARNING, LINKS, _silent, "OvsLbtUplinkDown"),
    Kind("uplink-down", WARNING, LINKS, _links_down, "OvsLbtUplinkDown"),
    Kind("flapping", WARNING, LINKS, _flapping, "OvsLbtLinkFlapping"),
    Kind("drained", NOTE, LINKS, _drained),
    Kind("dark", ERROR, LINKS, _dark, "OvsLbtBridgeDark"),
    Kind("no-failover", WARNING, LINKS, _no_failover, "OvsLbtUplinkDown"),
    Kind("path-hindered", WARNING, Told.CONNECTED, _hindered),
    Kind("path", WARNING, Told.CONNECTED, _paths, "OvsLbtPathFault"),
    Kind("unrelieved", WARNING, Told.CONNECTED, _unrelieved, "OvsLbtUplinkSaturated"),
    Kind("budget-spent", WARNING, Told.CONNECTED, _budgets_spent, "OvsLbtMoveBudgetExhausted"),
    Kind("not-followed", WARNING, Told.CONNECTED, _not_followed, "OvsLbtInboundNotFollowing"),
    Kind("release", NOTE, BEFORE, _release),
    Kind("offload", NOTE, Told.CHECK | BEFORE, lambda a: a.bridge.config.offload.told),
    Kind("connection-hash", NOTE, Told.CHECK | Told.ATTACH, _hash),
    Kind("addresses", NOTE, Told.CHECK, _addresses),
    Kind("endpoints", NOTE, BEFORE, lambda a: advice.of_endpoints(a.bridge.config)),
    Kind(
        "patch-port", NOTE, BEFORE, lambda a: advice.of_patch_ports(a.bridge.config, a.fleet.rows)
    ),
)
