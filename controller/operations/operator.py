"""Checks operators' requests, carries them out (over several events if needed) and answers them.

Every refusal is one line, which states the problem and how to solve it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from weakref import WeakKeyDictionary

from controller.api.commands import REQUESTS
from controller.api.engine_commands import Reply, Setting
from controller.api.events import Request
from controller.api.history import Moved
from controller.api.requests import Asked, assignments, changes, parse
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import Fleet
from controller.config.kept_keys import last_keys
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS, Record, settable
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import UplinkConfig, VmPortConfig
from controller.operations import answers, check, explain, get, named, planning, plans, unconfirmed
from controller.operations.attach import attach, attachable
from controller.operations.confirmations import Confirmations
from controller.operations.detach import NO_FLOWS, detach, removed, traces
from controller.operations.diagnosis import Account
from controller.operations.dry_run import applied, described
from controller.operations.findings import shown
from controller.operations.jobs import DRAIN_TIMEOUT_S, Doing, Drain, Jobs, Step
from controller.teaming.bindings import Bound
from controller.text.wording import Refused, lines_of, one_line, one_of, quoted
from policies import failover
from policies.model import Load, Reason, Role

LOST = "another service now leads, so the result is unknown; check it with ovs-lbt show"


@dataclass(slots=True)
class Operator:
    """Handles operators' requests.

    `jobs`: requests that take several events. `confirmations`: unconfirmed changes. `shown`: plans,
    each until its bridge is released.
    """

    fleet: Fleet
    jobs: Jobs
    confirmations: Confirmations
    shown: plans.Shown = field(default_factory=WeakKeyDictionary)

    def answer_request(self, request: Request, now_s: float) -> Commands:
        """Carry out a request, or its first steps if the request takes several events."""
        command, *words = request.words
        try:
            asked = parse(command, REQUESTS[command], words)
            found = _COMMANDS[REQUESTS[command].name](self, request.request_id, asked, now_s)
            if not isinstance(found, Doing):
                return found
            if asked.dry_run:
                return [Reply(request.request_id, described(self.fleet, found, now_s))]
            return found.carry_out()
        except Refused as refusal:
            text = one_line(str(refusal))
            dry_run = "--dry-run" in words
            noted = [] if dry_run else _note_refusal(self, request.words, text, now_s)
            return [*noted, Reply(request.request_id, text, refused=True)]

    def abandon(self) -> Commands:
        """Refuse all waiting requests, because another service now leads."""
        waiting = [reply for b in self.fleet.bridges.values() for reply in b.installation.abandon()]
        numbers = [*(reply.request_id for reply in waiting), *self.jobs.abandon()]
        numbers += self.confirmations.abandon_reversals()
        return [Reply(number, LOST, refused=True) for number in numbers]


# ---- commands --------------------------------------------------------------------------


def _show(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Commands:
    names, fleet = asked.names, operator.fleet
    if names:
        named.attached_bridge(fleet, names[0])
    statuses = fleet.status(*names)
    rows = {name: row for name, row in fleet.rows.items() if not names or name in names}
    waiting = unconfirmed.as_json(rows, fleet.epoch_s + now_s)
    faults = fleet.recent_faults(now_s)
    text = answers.shown(statuses, asked.as_json, faults, unconfirmed=waiting)
    return [Reply(request_id, text)]


def _attach(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Commands:
    """Attach a bridge: `BRIDGE KEY=VALUE… [--rollback-after S]`."""
    row = named.row(operator.fleet, asked.names[0])
    values = assignments(asked.settings, settable(BRIDGE_KEYS))
    return attach(
        operator.jobs, request_id, row, values, now_s, asked.confirm_s, dry_run=asked.dry_run
    )


def _check(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Commands:
    """Check bridges: `[BRIDGE [KEY=VALUE]…]`, with the keys of `attach`. Reply with JSON or lines."""
    fleet, text = operator.fleet, partial(shown, as_json=asked.as_json)
    if not asked.names:
        found = check.answer(fleet, fleet.serving, now_s, fleet.rows.values())
        return [Reply(request_id, text(found))]
    (name,) = asked.names
    row = named.row(fleet, name)
    if row.attached:
        if asked.settings:
            raise Refused(f"bridge {name} is already attached; run ovs-lbt check {quoted(name)}")
        serving = [named.serving_bridge(fleet, name)]
        return [Reply(request_id, text(check.answer(fleet, serving, now_s)))]
    operator.jobs.refuse_in_hand(name)
    values = assignments(asked.settings, settable(BRIDGE_KEYS))
    try:
        return attach(operator.jobs, request_id, row, values, now_s, trial=text)
    except Refused as why:
        return [Reply(request_id, text(check.unfit(row, one_line(str(why)))))]


def _detach(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    (name,), purge, confirm_s = asked.names, "--purge" in asked.options, asked.confirm_s
    row, fleet, jobs = named.row(operator.fleet, name), operator.fleet, operator.jobs

    def detached() -> Doing:
        bridge = named.attached_bridge(fleet, name)
        return detach(jobs, request_id, bridge, now_s, purge, confirm_s)

    if not row.attached and last_keys(row):
        jobs.refuse_in_hand(name)
        unconfirmed.refuse_waiting(row, fleet.epoch_s + now_s)
        return Doing(
            name,
            lambda: [*fleet.recall(name, now_s), *detached().carry_out()],
            traces(fleet, row) if purge else removed(row),
            notes=(NO_FLOWS.format(name),),
        )
    if purge and confirm_s is None and not row.attached:
        jobs.refuse_in_hand(name)
        return jobs.store(request_id, name, traces(fleet, row), f"{name}: ovs-lbt keys removed")
    return detached()


def _confirm_change(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    (name,) = asked.names
    return operator.confirmations.confirm(request_id, named.row(operator.fleet, name), now_s)


def _revert(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    (name,) = asked.names
    return operator.confirmations.revert(request_id, named.row(operator.fleet, name), now_s)


def _set(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    """Check and write keys: `bridge|interface NAME KEY=VALUE… [--rollback-after S]`.

    `KEY=` removes a key, so that its default applies.
    """
    bridge, record, settings = _settings(operator, asked)
    row = operator.fleet.rows[bridge]
    if asked.confirm_s is None:
        done = answers.changed(asked.names[1], row, record, settings)
        return operator.jobs.store(request_id, bridge, settings, done)
    return operator.confirmations.set(request_id, row, tuple(settings), asked.confirm_s, now_s)


def _unset(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    words = tuple(f"{key}=" for key in asked.settings)
    return _set(operator, request_id, replace(asked, settings=words), now_s)


def _get(operator: Operator, request_id: int, asked: Asked, _now_s: float) -> Commands:
    return [Reply(request_id, get.answer(operator.fleet, asked))]


def _settings(operator: Operator, asked: Asked) -> tuple[str, Record, list[Setting]]:
    """Return the name of the bridge, the kind of the changed record, and the settings to write."""
    table, name = asked.names
    if table not in ("bridge", "interface"):
        raise Refused(f"table: {table} is invalid; expected bridge or interface")
    if table == "bridge":
        config = named.attached_bridge(operator.fleet, name).config
        values = changes(asked.settings, settable(BRIDGE_KEYS))
        if "policy" in values and values["policy"] is None:
            remedy = f"to stop managing the bridge: ovs-lbt detach {quoted(name)}"
            raise Refused(f"policy cannot be removed; {remedy}")
        attachable(operator.fleet.rows[name], values, config)
        return name, Record.BRIDGE, _written("Bridge", name, values)
    if (at := _elsewhere(operator, name)) is not None:
        return at.config.name, Record.VM_PORT, _rules_elsewhere(at, name, asked.settings)
    bridge, port = named.interface(operator.fleet, name)
    row = operator.fleet.rows[bridge.config.name]
    if port is None:
        values = changes(asked.settings, settable(UPLINK_KEYS))
        if values.get("role") in (Role.DRAINED, Role.UNUSED) and not _others(bridge, name):
            expected = "active or standby, because the bridge has no other active or standby uplink"
            raise Refused(f"role: {values['role']} is invalid; expected {expected}")
        settings = _written("Interface", name, values)
        _refuse_what_is_bad_together(operator, bridge, settings)
        return bridge.config.name, Record.UPLINK, settings
    settings = list[Setting]()
    for key, rule in changes(asked.settings, VM_RULE_KEYS).items():
        if rule is None:
            settings += named.removed_rule(row, port, key)
            continue
        if key == "pin":
            _pinnable(bridge, named.carrier(bridge, port, rule))
        settings += named.kept_rule(row, port, key, rule)
    _refuse_what_is_bad_together(operator, bridge, settings)
    return bridge.config.name, Record.VM_PORT, settings


def _written(table: str, name: str, values: Mapping[str, str | None]) -> list[Setting]:
    return [Setting(table, name, PREFIX + key, value) for key, value in values.items()]


def _elsewhere(operator: Operator, name: str) -> Bridge | None:
    """Return the bridge that stores rules for VM interface `name`; None if the VM is on this host."""
    fleet = operator.fleet
    known = named.of_vm(fleet.bridges, name) or named.address(fleet, name)
    return named.home_of_rules(fleet, name) if known is None else None


def _rules_elsewhere(bridge: Bridge, name: str, words: Sequence[str]) -> list[Setting]:
    """Return the settings that write rules for a VM on another host; `KEY=` removes a rule."""
    found = changes(words, named.rule_keys_at(bridge))
    if (pin := found.get("pin")) is not None:
        _pinnable(bridge, named.uplink(bridge, pin))
    at = bridge.config.name
    return [named.rule_on_bridge(at, name.lower(), key, value) for key, value in found.items()]


def _refuse_what_is_bad_together(
    operator: Operator, bridge: Bridge, settings: list[Setting]
) -> None:
    """Refuse values that conflict with other values of the bridge."""
    row = applied(operator.fleet.rows[bridge.config.name], settings)
    known = {*bridge.config.errors}
    errors = read_bridge(row, bridge.config).errors
    if bad := [str(error) for error in errors if error not in known]:
        raise Refused("; ".join(bad))


def _move(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    bridge, port = named.port_or_vm(operator.fleet, asked.names[0])
    name, target = port.name, asked.names[1]
    uplink = named.carrier(bridge, port, target)
    named.moving_bridge(bridge)
    if port.rules.pin not in (None, target):
        unpin = f"ovs-lbt unpin {quoted(name)}"
        raise Refused(f"port {name} is pinned to {port.rules.pin}; to remove the pin: {unpin}")
    serving = failover.in_service(bridge.placing.uplinks())
    if target not in [u.name for u in serving]:
        state = bridge.links.why_unused(uplink, now_s)
        raise Refused(f"uplink {target}: {state}; use {one_of(sorted(u.name for u in serving))}")
    if name in bridge.address_units.silent():
        # The move could not be announced, and upstream switches would still use the old uplink.
        remedy = "send a frame from the VM (for example a ping), and try again"
        raise Refused(f"the switch has no entry for address {name}; {remedy}")
    # The rules that the move breaks; they do not prevent it.
    bound = bridge.placing.on_switch.bound | {name: Bound(target, now_s, Reason.MANUAL)}
    states = bridge.placing.rules(bound).get(name, {})
    broken = tuple(f"{name} {rule}: {how}" for rule, how in states.items() if how)
    text = lines_of([answers.moved(bridge, port, target), *broken])
    source = bridge.placing.on_switch.by_unit().get(name)
    moved = Moved(name, source, target, Reason.MANUAL.value, port.vm)
    return Doing(
        bridge.config.name,
        lambda: bridge.move(name, target, Reply(request_id, text), now_s),
        moves=(moved,) if source != target else (),
        notes=broken,
    )


def _pin(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    name, target = asked.names
    if _elsewhere(operator, name) is not None:
        return _set(operator, request_id, Asked(("interface", name), (f"pin={target}",)), now_s)
    bridge, port, row = _ruled(operator, name)
    uplink = named.carrier(bridge, port, target)
    _pinnable(bridge, uplink)
    done = answers.pinned(bridge, port, uplink, now_s)
    return operator.jobs.store(
        request_id, row.name, named.kept_rule(row, port, "pin", target), done
    )


def _pinnable(bridge: Bridge, uplink: UplinkConfig) -> None:
    """Refuse a pin that would have no effect because the uplink's role takes precedence."""
    if uplink.role is not Role.ACTIVE:
        active = one_of(sorted(u.name for u in bridge.config.uplinks if u.role is Role.ACTIVE))
        found = f"uplink {uplink.name} is {uplink.role.value}"
        raise Refused(f"{found}; a pin needs an active uplink: {active}")


def _unpin(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    (name,) = asked.names
    if _elsewhere(operator, name) is not None:
        return _set(operator, request_id, Asked(("interface", name), ("pin=",)), now_s)
    _, port, row = _ruled(operator, name)
    settings = named.removed_rule(row, port, "pin")
    before = (s.value for s in unconfirmed.before_set(row, settings))
    # Also report a pin that had no effect.
    pin = next((pin for pin in before if pin is not None), None)
    done = f"{answers.called(port)}: {f'no longer pinned to {pin}' if pin else 'had no pin'}"
    return operator.jobs.store(request_id, row.name, settings, done)


def _ruled(operator: Operator, name: str) -> tuple[Bridge, VmPortConfig, BridgeRow]:
    """Return the VM port or address for a rule. An address must belong to a VM with a known ID."""
    bridge, port = named.port_or_vm(operator.fleet, name)
    if port.name in bridge.address_units.by_name and port.vm_id is None:
        expected = "expected an address that is the attached-mac of a VM's interface on this host"
        raise Refused(f"address {port.name} belongs to no known VM; {expected}")
    return bridge, port, operator.fleet.rows[bridge.config.name]


def _drain(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Doing:
    """Take an uplink out of service. The reply is sent when the uplink carries no traffic."""
    bridge, uplink = named.member(operator.fleet, asked.names[0])
    named.moving_bridge(bridge)
    name = bridge.config.name
    if uplink.role is Role.UNUSED:
        raise Refused(f"uplink {uplink.name} is unused; expected an active or standby uplink")
    if not any(bridge.links.up(other) for other in _others(bridge, uplink.name)):
        advice = "bring up another active or standby uplink first"
        raise Refused(f"uplink {uplink.name} is the last working uplink; {advice}")
    ports = sum(bound.uplink == uplink.name for bound in bridge.placing.bound.values())
    is_drained = uplink.role is Role.DRAINED
    notes = _overload(bridge, uplink.name)
    job = Drain(
        operator.jobs,
        request_id,
        name,
        Step.EMPTY if is_drained else Step.STORE,
        uplink=uplink.name,
        ports=ports,
        addresses=len(
            bridge.address_units.by_name.keys() & bridge.placing.on_switch.on(uplink.name)
        ),
        deadline_s=now_s + DRAIN_TIMEOUT_S,
        notes=notes,
    )
    # The current role is kept for `undrain`.
    roles = {"role": Role.DRAINED.value, "role-before": _written_role(uplink.role)}
    settings = [] if is_drained else _written("Interface", uplink.name, roles)
    return operator.jobs.writing(job, settings, notes)


def _undrain(operator: Operator, request_id: int, asked: Asked, _now_s: float) -> Doing:
    bridge, uplink = named.member(operator.fleet, asked.names[0])
    if uplink.role is not Role.DRAINED:
        raise Refused(f"uplink {uplink.name} is {uplink.role.value}, not drained")
    note = ", used if no active uplink works" if uplink.role_before is Role.STANDBY else ""
    done = f"{uplink.name}: {uplink.role_before.value} again{note}"
    roles = {"role": _written_role(uplink.role_before), "role-before": None}
    settings = _written("Interface", uplink.name, roles)
    return operator.jobs.store(request_id, bridge.config.name, settings, done)


def _written_role(role: Role) -> str | None:
    """Return the value of the key for a role; None, no key, for the default role."""
    return None if role is Role.ACTIVE else role.value


def _plan(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Commands:
    fleet = operator.fleet
    bridges = [named.serving_bridge(fleet, name) for name in asked.names] or fleet.serving
    proposals = [planning.propose(bridge, now_s) for bridge in bridges]
    operator.shown.update(zip(bridges, proposals, strict=True))
    form = plans.as_json if asked.as_json else plans.as_text
    return [Reply(request_id, form(proposals))]


def _apply(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Commands | Doing:
    serving, plan_id = operator.fleet.serving, asked.options.get("--plan")
    name = asked.names[0] if asked.names else plans.only(serving, operator.shown, plan_id)
    bridge = named.serving_bridge(operator.fleet, name)
    return plans.apply(bridge, operator.shown, request_id, asked, now_s)


def _explain(operator: Operator, request_id: int, asked: Asked, now_s: float) -> Commands:
    (name,) = asked.names
    bridge, port = named.port_or_vm(operator.fleet, name)
    form = explain.as_json if asked.as_json else explain.as_text
    return [Reply(request_id, form(Account(bridge, port, now_s)))]


# For each command that moves units, the reason that is recorded for its moves.
_MOVING = {"move": Reason.MANUAL, "pin": Reason.PIN, "drain": Reason.DRAIN}


def _note_refusal(operator: Operator, words: tuple[str, ...], why: str, now_s: float) -> Commands:
    """Count and record a refused command that would have moved VM ports or addresses."""
    command, name, *rest = *words, ""
    if command not in _MOVING:
        return []
    try:
        found = named.address(operator.fleet, name)
        bridge, port = found or named.interface(operator.fleet, name)
    except Refused:
        return []
    moves = []
    if port is not None and rest[0]:
        source = bridge.placing.on_switch.by_unit().get(port.name)
        moves = [Moved(port.name, source, rest[0], _MOVING[command].value, port.vm)]
    return bridge.refuse([_MOVING[command]], why, now_s, moves)


_COMMANDS: dict[str, Callable[[Operator, int, Asked, float], Commands | Doing]] = {
    "show": _show,
    "attach": _attach,
    "check": _check,
    "detach": _detach,
    "confirm": _confirm_change,
    "rollback": _revert,
    "set": _set,
    "unset": _unset,
    "get": _get,
    "move": _move,
    "pin": _pin,
    "unpin": _unpin,
    "drain": _drain,
    "undrain": _undrain,
    "plan": _plan,
    "apply": _apply,
    "explain": _explain,
}


# ---- looking things up -----------------------------------------------------------------


def _others(bridge: Bridge, name: str) -> list[UplinkConfig]:
    """Return the bridge's uplinks in service, without uplink `name`."""
    return [u for u in bridge.config.uplinks if u.name != name and u.serves]


def _overload(bridge: Bridge, drained: str) -> tuple[str, ...]:
    """Return a note if the current load exceeds the known capacity of the uplinks without `drained`."""
    team_view = bridge.placing.team_view()
    uplinks = team_view.carrying(team_view.covered(team_view.config.window_s))
    without = [replace(u, role=Role.DRAINED) if u.name == drained else u for u in uplinks]
    left = sorted(uplink.name for uplink in failover.in_service(without))
    speeds_bps = [team_view.known_capacity_bps(u) for u in bridge.config.uplinks if u.name in left]
    room_bps, load = sum(filter(None, speeds_bps)), sum((u.load for u in uplinks), Load())
    if not all(speeds_bps) or (load_bps := max(load.tx_bps, load.rx_bps)) <= room_bps:
        return ()
    does = "sends" if load_bps == load.tx_bps else "receives"
    found = f"note: the bridge {does} {load_bps / 1e6:.0f} Mbit/s, but {', '.join(left)} can carry"
    return (f"{found} only {room_bps / 1e6:.0f} Mbit/s, so frames will be lost",)
