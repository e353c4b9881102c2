"""Finds problems of bridges, and facts worth noting, for the answers to `check` and `attach`.

`controller/operations/upstream.py` finds problems of the upstream network from counters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

from controller.api.status import BridgeStatus
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet
from controller.config import columns, controllers
from controller.config.controllers import SECURE
from controller.config.kept_keys import last_keys
from controller.config.membership import NO_OFPORT, replacing
from controller.config.reader import WAITS
from controller.config.rows import PREFIX, BridgeRow, PortRow
from controller.config.values import UplinkConfig
from controller.dataplane.tables import ADDRESSES_PER_PORT_MAX
from controller.features.flooded import LOOPS_PPS
from controller.operations import advice
from controller.operations.findings import ERROR, NOTE, WARNING, Finding, ignored_flags, written
from controller.teaming.address_units import PER_PORT_MAX
from controller.text.show_view import FAILED, JsonObject, guessed
from controller.text.wording import OUR_LOG, UNREACHED, first_of, keys_again, no_device, quoted
from policies.model import OFPORT_LOCAL, Role

# How long `check` and the alert report a move that inbound traffic did not follow.
NOT_FOLLOWED_FOR_S = 900.0
# The port flags with which Open vSwitch drops frames, and these frames.
BLOCKING = {"no-receive": "from", "no-forward": "to"}
# The arguments for ovs-vsctl that disable a protocol on an interface. Without LACP, Open vSwitch 3.1 does
# not use the members of a bond until their links have been down.
DISABLE = {"BFD": "set interface {} bfd:enable=false", "CFM": "clear interface {} cfm_mpid"}
PASSIVE = ("ptcp:", "pssl:")
# The names that Incus and container runtimes make up each time they start a guest.
MADE_UP = re.compile(r"(?:veth|tap|mac)[0-9a-f]{8}")
KEYS_LOST = "OvsLbtConfigurationError"
# A split VM port that sends more than the first rate should send at least this share of it in buckets.
LEAST_SPLIT_BPS, SPREAD_RATIO = 1e6, 0.1
# A service on standby checks several times a second whether this service is alive.
STANDBY_ASKS_WITHIN_S = 10.0
USE_LACP = "configure LACP, in active mode, on the ports of the upstream switch"


class Told(Flag):
    """The answers in which a finding is reported."""

    # `check` of an attached bridge: always, or only while the bridge is connected.
    CHECK = auto()
    CONNECTED = auto()
    # `check` of a bridge that is not attached, but can be.
    FIT = auto()
    # The answer of attach.
    ATTACH = auto()


@dataclass(frozen=True, slots=True)
class About:
    """A bridge to check. `status`: None if the bridge is not attached, or its status is unknown."""

    fleet: Fleet
    bridge: Bridge
    row: BridgeRow
    now_s: float
    status: BridgeStatus | None = None


# A finding: the answers that report it, its severity, its kind, its text, and its runbook, if any.
Found = Iterator[tuple[Told, str, str, str, *tuple[str, ...]]]
# LINKS: findings about uplinks. BEFORE: findings for the answers of `attach`, and of `check` before it.
LINKS, BEFORE = Told.CONNECTED | Told.FIT, Told.FIT | Told.ATTACH


def of_bridge(about: About, told: Told) -> Iterator[Finding]:
    """Return a bridge's findings that the answers `told` report, in display order."""
    name = about.bridge.config.name
    for part in (
        _without_keys,
        _fit,
        _state,
        _configuration,
        _others,
        _ports,
        _uplinks,
        _paths_and_moves,
        _notes,
    ):
        for tells, severity, check, text, *runbook in part(about):
            if tells & told:
                yield Finding(severity, check, text, name, *runbook)


def without_keys(rows: Iterable[BridgeRow]) -> Iterator[Finding]:
    """Report the bridges that are not managed because their keys have disappeared."""
    for row in rows:
        if not row.keys_lost and last_keys(row):
            found = f"{PREFIX}policy has disappeared from the database: the bridge is not managed"
            text = f"{found}; {keys_again(row.name)}"
            yield Finding(ERROR, "keys-lost", text, row.name, KEYS_LOST)


def _without_keys(about: About) -> Found:
    """Report that a bridge's keys have disappeared, and how the bridge forwards without them."""
    for one in without_keys([about.row]):
        yield Told.FIT, one.severity, one.check, one.text, KEYS_LOST
    if about.bridge.installed_anything:
        found = "the ovs-lbt flows forward, but are no longer updated"
        text = f"{found}; to manage the bridge again: ovs-lbt attach {quoted(about.row.name)}"
    elif not last_keys(about.row):
        return
    elif about.row.fail_mode == SECURE:
        text = "the bridge forwards nothing: its fail mode is secure, and it has no ovs-lbt flows"
    else:
        text = "the bridge forwards with NORMAL: it has ovs-lbt keys, but no ovs-lbt flows"
    yield Told.FIT, ERROR, "keys-lost", text, KEYS_LOST


def _fit(about: About) -> Found:
    """Report that the bridge can be attached, and its fail mode if `attach` changes it."""
    config = about.bridge.config
    uplinks = ", ".join(uplink.name for uplink in config.uplinks)
    text = f"can be attached: {config.policy} over {uplinks}, {len(config.vm_ports)} VM ports"
    yield Told.FIT, NOTE, "fit", text
    if not config.on_bond and about.row.fail_mode != SECURE:
        text = "fail mode is standalone; attach sets it to secure, and detach restores it"
        yield Told.FIT, NOTE, "fail-mode", text


def _state(about: About) -> Found:
    """Report problems with the state of an attached bridge."""
    bridge, status = about.bridge, about.status
    if not bridge.connected:
        why = UNREACHED
        if about.row.restores_flows:
            why = WAITS
        elif controllers.refusal(about.row) is not None:
            add = f"ovs-vsctl add bridge {quoted(about.row.name)} protocols {controllers.SPOKEN}"
            why = f"its protocols lack {controllers.SPOKEN}; to add it: {add}"
        text = f"the bridge is not connected: {why}"
        yield Told.CHECK, ERROR, "not-connected", text, "OvsLbtBridgeDisconnected"
    if bridge.config.fallen_back:
        text = f"LACP is not negotiated, so one uplink serves all VM ports; {USE_LACP}"
        yield Told.CHECK, WARNING, "lacp", text, "OvsLbtUplinkDown"
    if bridge.overruling:
        text = (
            f"another program's flows {first_of(bridge.overruling, between=' ')} take precedence over ovs-lbt"
            " flows, so frames may be lost or duplicated; remove the other program's flows, for example:"
            f" ovs-ofctl -O {controllers.SPOKEN} --strict del-flows {quoted(bridge.config.name)}"
            f" {quoted(bridge.overruling[0])}"
        )
        yield Told.CHECK, WARNING, "overruled", text
    if (flooded_pps := bridge.flooded.pps) >= LOOPS_PPS:
        text = (
            f"every VM port in one VLAN receives {flooded_pps:.0f} frames/s, as in a loop; look for a VM port"
            " that is connected to the network, also through a patch port, or a VM that bridges two ports"
        )
        yield Told.CHECK, WARNING, "loop", text
    if cleared := bridge.no_flood.cleared(about.now_s):
        text = (
            f"in the last 15 min, another program cleared no-flood on {', '.join(cleared)}, so VMs received"
            " broadcasts twice until ovs-lbt set the flag again; stop that program from clearing the flag"
        )
        yield Told.CHECK, WARNING, "no-flood", text
    if bridge.observing:
        yield Told.CHECK, NOTE, "observing", "observe mode: VM ports are not moved to balance load"
    if status is None:
        text = f"the bridge's status is unknown because ovs-lbt itself failed; {OUR_LOG}"
        yield Told.CHECK, ERROR, "fault", text, "OvsLbtFault"
    elif status.failure:
        text = f"ovs-lbt itself failed: {status.failure}; {FAILED}; {OUR_LOG}"
        yield Told.CHECK, ERROR, "fault", text, "OvsLbtFault"


def _configuration(about: About) -> Found:
    """Report configuration problems. A broken rule is an error if the VM port has no uplink."""
    bridge, config, status = about.bridge, about.bridge.config, about.status
    for error in config.errors if status else ():
        yield Told.CHECK, ERROR, "bad-value", str(error), "OvsLbtConfigurationError"
    noted = {*columns.reported(about.row, columns.DIFFERENT)}
    for text in status.not_done if status else config.not_done:
        if text not in noted:
            yield Told.CHECK | BEFORE, WARNING, "not-done", text
    flagged = config.no_flood_before if bridge.serves else ()
    there = {port.name for port in config.vm_ports}
    for one in ignored_flags(config.name, there.intersection(flagged)):
        yield Told.CHECK | Told.ATTACH, one.severity, one.check, one.text
    if bridge.observing:
        for text in advice.dropped(config, about.row, bridge.addresses.by_port):
            yield Told.ATTACH, WARNING, "dropped", text
    for port, reason, count in bridge.dropped.recent(config, about.now_s):
        text, asks = advice.of_dropped(about.row, port, reason, count)
        yield Told.CHECK, WARNING if asks else NOTE, "dropped", text, "OvsLbtFramesDropped"
    broken = sorted(
        status.rules_broken if status else (), key=lambda one: one[0].uplink is not None
    )
    for of, rule, how in broken:
        remove = f"ovs-lbt set interface {quoted(of.port.name)} {rule}="
        text = f"rule broken: {of.port.name} {rule}: {how}; to remove the rule: {remove}"
        severity = ERROR if of.uplink is None else WARNING
        yield Told.CHECK, severity, "rule-broken", text, "OvsLbtRuleBroken"


def _others(about: About) -> Found:
    """Report other programs that may write flows to the bridge, and bond members without an LACP partner."""
    config, listens_on = about.bridge.config, about.fleet.listens_on
    if not config.observes_bond:
        for text in controllers.hidden_flows(about.row, config.on_bond, listens_on):
            yield Told.CHECK | Told.FIT, ERROR, "hidden-flows", text
    dialed = (target for target in about.row.controllers if not target.startswith(PASSIVE))
    if others := [target for target in dialed if not controllers.is_ours(target, listens_on)]:
        found = f"another program controls this bridge (controller {', '.join(others)})"
        text = f"{found}; that program must not change ovs-lbt flows, or add flows that take precedence"
        yield Told.FIT, WARNING, "controller", text
        if about.row.fail_mode != SECURE and not about.row.unanswered:
            found += ", and while that program does not answer, NORMAL replaces the ovs-lbt flows"
            remedy = f"to remove the controller: ovs-vsctl del-controller {quoted(about.row.name)}"
            yield Told.CHECK, WARNING, "controller", f"{found}; {remedy}"
    lacp = next((p.lacp for p in about.row.ports if len(p.interfaces) > 1), None)
    if not config.on_bond or lacp not in ("active", "passive"):
        return
    members = {i.name: i.lacp_current for i in about.row.interfaces}
    if silent := [u.name for u in config.uplinks if members.get(u.name) is not True]:
        text = f"LACP ({lacp}) is not negotiated on {', '.join(silent)}; {USE_LACP}"
        yield Told.FIT, WARNING, "lacp", text


def _ports(about: About) -> Found:
    """Report ports that drop frames because of a flag or their VLANs, and VM ports whose devices are down."""
    config, there = about.bridge.config, about.bridge.links.ports
    guests = [port for port in config.vm_ports if port.ofport != OFPORT_LOCAL]
    names = {uplink.ofport: uplink.name for uplink in config.uplinks}
    names |= {port.ofport: port.name for port in config.vm_ports}
    flagged = [(names[n], flag) for n in names if n in there for flag in there[n].flags]
    for name, flag in flagged:
        if flag in BLOCKING:
            found = f"{name}: another program set the port flag {flag}, so frames {BLOCKING[flag]} this port are dropped"
            text = f"{found}; to clear the flag: {_set(about, name, flag.removeprefix('no-'))}"
            yield LINKS, WARNING, "port-flag", text
    untagged = [port.name for port in guests if 0 in port.vlans.carried]
    without = [uplink for uplink in config.uplinks if 0 not in uplink.vlans.carried]
    for uplink in without if untagged else ():
        if len(without) < len(config.uplinks) or not uplink.vlans.takes_tagged:
            found = f"uplink {uplink.name} does not carry untagged frames of {first_of(untagged, between=' ')}"
            port = quoted(_port_of(about, uplink).name)
            clear = (f"clear port {port} {one}" for one in ("tag", "vlan_mode", "trunks"))
            text = f"{found}; to carry all VLANs: ovs-vsctl {' -- '.join(clear)}"
            yield LINKS, WARNING, "untagged", text
    if down := [port.name for port in guests if (port.name, "down") in flagged]:
        text = f"the devices of {first_of(down, between=' ')} are down; to set up the first one:"
        yield LINKS, NOTE, "port-down", f"{text} {_set(about, down[0], 'up')}"


def _port_of(about: About, uplink: UplinkConfig) -> PortRow:
    """Return an uplink's port, which is the bond for a member."""
    (port,) = (p for p in about.row.ports if uplink.name in {i.name for i in p.interfaces})
    return port


def _set(about: About, port: str, flag: str) -> str:
    """Return the command that sets a port flag."""
    spoken, bridge = controllers.SPOKEN, about.row.name
    return f"ovs-ofctl -O {spoken} mod-port {quoted(bridge)} {quoted(port)} {flag}"


def _uplinks(about: About) -> Found:
    """Report problems of uplinks, kind by kind. For a down uplink, report only the most specific one."""
    links, uplinks = about.bridge.links, about.bridge.config.uplinks
    serving = [uplink for uplink in uplinks if uplink.serves]
    working = [uplink for uplink in serving if links.up(uplink)]
    waiting = {u.name: waits for u in serving if (waits := links.why_waiting(u))}
    told = waiting.keys() | links.unreachable
    down = [uplink for uplink in serving if uplink not in working and uplink.name not in told]
    for name in [uplink.name for uplink in serving if uplink.name in waiting and uplink.blocked]:
        off = f"ovs-vsctl set bridge {quoted(about.row.name)} rstp_enable=false stp_enable=false"
        text = f"uplink {name}: {waiting.pop(name)} on this bridge; to disable spanning tree: {off}"
        yield LINKS, NOTE if working else WARNING, "blocked", text
    for name, waits in waiting.items():
        again = "if its device was created again, remove it from the bridge and add it again"
        text = f"uplink {name}: {waits}; connect it to a forwarding switch port in its network; {again}"
        yield LINKS, WARNING, "receives-nothing", text, "OvsLbtUplinkDown"
    for uplink in about.bridge.config.absent:
        if uplink.serves and uplink.ofport == NO_OFPORT:
            yield LINKS, WARNING, "no-device", no_device(uplink.name), "OvsLbtUplinkDown"
    for uplink in down:
        if silent := links.silent(uplink):
            text = f"uplink {uplink.name}: its peer does not answer ({', '.join(silent)})"
            text += f"; configure {', '.join(silent)} on its upstream switch port"
            text += " (LACP in active mode)" if "LACP" in silent else ""
            name = quoted(uplink.name)
            if disabling := [DISABLE[one].format(name) for one in silent if one in DISABLE]:
                text += f", or disable it: ovs-vsctl {' -- '.join(disabling)}"
            yield LINKS, WARNING, "silent", text, "OvsLbtUplinkDown"
    for uplink in down:
        if not links.silent(uplink):
            text = f"uplink {uplink.name}: {_why_down(about, uplink, working)}"
            yield LINKS, WARNING, "uplink-down", text, "OvsLbtUplinkDown"
    for uplink in serving:
        if links.flaps(uplink.name, about.now_s):
            text = f"uplink {uplink.name}: link is flapping"
            yield LINKS, WARNING, "flapping", text, "OvsLbtLinkFlapping"
    own_mac = next((i.mac for i in about.row.interfaces if i.name == about.row.name), None)
    for uplink in uplinks:
        if (used := about.fleet.addresses.get(uplink.name)) and uplink.mac == own_mac:
            text = (
                f"uplink {uplink.name}: this device and the bridge have the same MAC address, and the device"
                f" has IP addresses ({', '.join(used)}), so upstream switches may see this MAC address on"
                f" several uplinks; move the IP addresses to device {about.row.name}"
            )
            yield LINKS, WARNING, "own-address", text
    for uplink in uplinks:
        if uplink.role is Role.DRAINED:
            yield LINKS, NOTE, "drained", f"uplink {uplink.name}: drained"
    idle = [f"ovs-lbt undrain {quoted(u.name)}" for u in uplinks if u.role is Role.DRAINED]
    unused = [quoted(uplink.name) for uplink in uplinks if uplink.role is Role.UNUSED]
    idle += [f"ovs-lbt set interface {name} role=active" for name in unused]
    use = f"; to use another uplink: {idle[0]}" if idle else ""
    if not working:
        text = f"no active or standby uplink is up{use}"
        yield LINKS, ERROR, "dark", text, "OvsLbtBridgeDark"
    if len(working) == 1 and not any(uplink.blocked for uplink in serving):
        text = f"failover is impossible: {working[0].name} is the only working uplink{use}"
        yield LINKS, WARNING, "no-failover", text, "OvsLbtUplinkDown"


def _why_down(about: About, uplink: UplinkConfig, working: Iterable[UplinkConfig]) -> str:
    """Return why an uplink without a link is down, and how to repair it."""
    port = about.bridge.links.ports.get(uplink.ofport)
    if port and port.silent and "down" not in port.flags:
        restart = f"to restart its link: {_set(about, uplink.name, 'down')}, and then up"
        return f"its link is up, but Open vSwitch does not use it; {restart}"
    if uplink.mac is None:
        return "its device no longer exists; create the device, and then add it to the bridge again"
    if port is None or "down" not in port.flags:
        return "link is down; check its cable and its upstream switch port"
    set_up = f"to set it up: {_set(about, uplink.name, 'up')}"
    # A renamed device that was added to the bond again has the same address.
    new = next((other.name for other in working if other.mac == uplink.mac), None)
    if new is not None and about.bridge.config.on_bond:
        uplinks = [one.name for one in about.bridge.config.uplinks]
        replaced = replacing(about.row, _port_of(about, uplink), uplinks, {new: uplink.name})
        return f"its device is down, or was renamed to {new}; if it was renamed: {replaced}; or, {set_up}"
    return f"its device is down; {set_up}"


def _paths_and_moves(about: About) -> Found:
    """Report lost frames between uplinks whose links are up, and problems that moves do not solve."""
    bridge, status = about.bridge, about.status
    for one in bridge.probing.hindrances:
        yield Told.CONNECTED, WARNING, "path-hindered", f"{one.found}; {one.expected}"
    for fault in sorted(bridge.paths.since_s):
        over = "; the fault is over, but failback is delayed" if bridge.paths.is_over(fault) else ""
        text = f"{fault.found}{over}; {fault.expected}"
        yield Told.CONNECTED, WARNING, "path", text, "OvsLbtPathFault"
    for uplink in status.uplinks if status else ():
        if uplink.unrelieved:
            found = f"uplink {uplink.uplink.name} is above the threshold, and no move can reduce its load"
            text = f"{found}; add capacity, or reduce the load"
            yield Told.CONNECTED, WARNING, "unrelieved", text, "OvsLbtUplinkSaturated"
    if split := [one for one in status.ports if one.split] if status else []:
        sent_bps = sum(one.load.tx_bps for one in split)
        units = bridge.placing.team_view().loaded()
        spread_bps = sum(unit.load.tx_bps for unit in units if unit.is_bucket)
        if sent_bps > LEAST_SPLIT_BPS and spread_bps < SPREAD_RATIO * sent_bps:
            names = ", ".join(one.port.name for one in split)
            text = f"{names}: most sent frames are not IP, so splitting does not spread them over uplinks"
            yield Told.CONNECTED, NOTE, "not-spread", text
    if status and (count := status.budgets_spent):
        text = f"{count} VM ports or addresses have used up their move budget"
        yield Told.CONNECTED, WARNING, "budget-spent", text, "OvsLbtMoveBudgetExhausted"
    gave_up_s = bridge.inbound_check.not_followed_s
    if gave_up_s is not None and about.now_s - gave_up_s <= NOT_FOLLOWED_FOR_S:
        text = (
            "inbound traffic did not follow a move in the last 15 min; upstream switches must learn the new"
            f" locations of VM addresses; {OUR_LOG}"
        )
        yield Told.CONNECTED, WARNING, "not-followed", text, "OvsLbtInboundNotFollowing"


def _notes(about: About) -> Found:
    """Report facts that require no action."""
    bridge, config = about.bridge, about.bridge.config
    if unknown := advice.release_warning(about.fleet.database.ovs_version):
        yield BEFORE, NOTE, "release", unknown
    for text in columns.reported(about.row, columns.DIFFERENT):
        yield Told.CHECK | BEFORE, NOTE, "not-done", text
    for text in config.offload.told:
        yield Told.CHECK | BEFORE, NOTE, "offload", text
    if (hashed := bridge.connection_hash.in_use) is not None and hashed.cost is not None:
        yield Told.ATTACH | Told.CHECK, NOTE, "connection-hash", str(hashed)
    for port in (port for port in config.vm_ports if port.per_address):
        known = len(bridge.addresses.by_port.get(port.name, ()))
        if known > PER_PORT_MAX:
            placed = f"{PER_PORT_MAX} of its {known} addresses have their own uplink"
            text = f"{port.name}: {placed}; the other addresses use the VM port's uplink"
            yield Told.CHECK, NOTE, "addresses", text
    for name, addresses in bridge.addresses.by_port.items() if bridge.serves else ():
        if len(addresses) >= ADDRESSES_PER_PORT_MAX:
            limit = f"the switch has learned {len(addresses)} addresses, which is its limit for a VM port"
            text = f"{name}: {limit}; frames to other addresses behind it are flooded in their VLAN"
            yield Told.CHECK, NOTE, "addresses", text
    if no_id := [p.name for p in config.vm_ports if not p.vm_id and MADE_UP.fullmatch(p.name)]:
        text = (
            f"{first_of(no_id)}: external_ids has no iface-id or vm-id, so bindings and rules belong to"
            " the port name, which changes when the VM restarts; set an ID, or a fixed name (Incus: host_name)"
        )
        yield Told.CHECK | BEFORE, NOTE, "no-id", text
    for up in about.status.uplinks if about.status else ():
        if up.up and up.capacity_guessed:
            name = up.uplink.name
            text = f"uplink {name}: {guessed(name, up.uplink.capacity_bps)}"
            yield Told.CONNECTED, NOTE, "capacity", text
    for text in advice.of_endpoints(config):
        yield BEFORE, NOTE, "endpoints", text
    for text in advice.of_joined_bridges(config, about.fleet.rows):
        yield Told.CHECK | BEFORE, NOTE, "patch-port", text
    for text in advice.of_patch_ports(config, about.fleet.rows):
        yield BEFORE, NOTE, "patch-port", text


# ---- the answer to `check` ---------------------------------------------------------------


def answer(
    fleet: Fleet, bridges: Iterable[Bridge], now_s: float, others: Iterable[BridgeRow] = ()
) -> JsonObject:
    """Return the answer to `check` for attached bridges, as documented in docs/reference/json.md.

    `others`: the records of bridges that are reported only if their keys have disappeared.
    """
    bridges = list(bridges)
    found = [*_of_host(fleet, now_s), *without_keys(others)]
    for bridge in bridges:
        name = bridge.config.name
        status = next(iter(fleet.status(name)), None)
        told = Told.CHECK | Told.CONNECTED if bridge.connected else Told.CHECK
        found += of_bridge(About(fleet, bridge, fleet.rows[name], now_s, status), told)
    return written(found, [_team(bridge, attached=True) for bridge in bridges])


def fit(fleet: Fleet, bridge: Bridge, now_s: float) -> JsonObject:
    """Return the answer to `check` for a bridge that was inspected and can be attached."""
    found = of_bridge(About(fleet, bridge, fleet.rows[bridge.config.name], now_s), Told.FIT)
    return written(found, [_team(bridge, attached=False)])


def unfit(row: BridgeRow, why: str) -> JsonObject:
    """Return the answer to `check` for a bridge that `attach` would refuse."""
    team = {"name": row.name, "attached": False, "uplinks": []}
    found = Finding(ERROR, "unfit", f"cannot be attached: {why}", row.name)
    return written([*without_keys([row]), found], [team])


# ---- the host --------------------------------------------------------------------------


def _of_host(fleet: Fleet, now_s: float) -> Iterator[Finding]:
    for fault in fleet.recent_faults(now_s):
        text = f"ovs-lbt fault: {fault.text} (in {fault.part}: {fault.count} in total)"
        yield Finding(WARNING, "fault", text, runbook="OvsLbtFault")
    if fleet.database.lacking:
        yield Finding(ERROR, "schema", fleet.database.lacking)
    if fleet.unstored:
        text = f"{fleet.unstored}; a restarted service would not know the latest bindings"
        yield Finding(WARNING, "unstored", f"{text}; check ovsdb-server and its disk")
    if unknown := advice.release_warning(fleet.database.ovs_version):
        yield Finding(NOTE, "release", unknown)
    if (asked_s := fleet.challenged_s) is None:
        return
    if now_s - asked_s <= STANDBY_ASKS_WITHIN_S:
        yield Finding(NOTE, "standby", "this service leads; another one is on standby")
    else:
        found = f"the service on standby has not responded for {now_s - asked_s:.0f} s"
        yield Finding(WARNING, "standby", f"{found}; check that the standby service runs")


def _team(bridge: Bridge, attached: bool) -> dict[str, Any]:
    config, is_up = bridge.config, bridge.links.up
    return {
        "name": config.name,
        "attached": attached,
        "teaming": config.teaming,
        "bond": config.on_bond,
        "uplinks": [
            {"name": u.name, "ofport": int(u.ofport), "up": is_up(u), "role": u.role.value}
            for u in config.uplinks
        ],
    }
