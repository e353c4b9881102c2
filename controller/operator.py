"""What operators ask: checked, carried out over several events where needed, answered.

Every refusal is one line that says what was found and what was expected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from controller import show
from controller.bridge import Bridge, Commands
from controller.config import (
    BRIDGE_KEYS,
    UPLINK_KEYS,
    VM_KEYS,
    VM_RULE_KEYS,
    WRITTEN_BY_US,
    BridgeConfig,
    Key,
    UplinkConfig,
    VmPortConfig,
    bond_of,
    parse_value,
    read_bridge,
)
from controller.database import PREFIX, BridgeRow
from controller.drain import DRAIN_TIMEOUT_S, Drain, drained, undrained
from controller.events import Disconnect, Reply, Request, Setting, Write, Written
from controller.fleet import Fleet
from policies import failover
from policies.model import Role

# The pipeline of a bridge is confirmed within this time, or the attach is undone.
ATTACH_TIMEOUT_S = 10.0
DETACH_TIMEOUT_S = 5.0


class Refused(Exception):
    """A request that cannot be done; its text says what was found -> what is expected."""


@dataclass(slots=True)
class Attach:
    """An attach under way: read the bridge, write the configuration, see it installed."""

    request_id: int
    deadline_s: float
    settings: tuple[Setting, ...]
    undo: tuple[Setting, ...]
    writing: bool = False
    written: bool = False


@dataclass(slots=True)
class Detach:
    """A detach under way: take our flows away, then the configuration."""

    request_id: int
    deadline_s: float
    writing: bool = False


UnderWay = TypeVar("UnderWay", Attach, Detach)


@dataclass(slots=True)
class Operator:
    """Operators' requests; `attaching` and `detaching` are those under way, by bridge."""

    fleet: Fleet
    attaching: dict[str, Attach] = field(default_factory=dict)
    detaching: dict[str, Detach] = field(default_factory=dict)
    draining: list[Drain] = field(default_factory=list)

    @property
    def in_hand(self) -> set[str]:
        """The bridges that a request is changing now."""
        return self.attaching.keys() | self.detaching.keys()

    def deadline_s(self) -> float:
        """When the first request under way runs out of time; infinity if none is."""
        times = [attach.deadline_s for attach in self.attaching.values()]
        times += [detach.deadline_s for detach in self.detaching.values()]
        times += [drain.deadline_s for drain in self.draining if drain.written]
        return min(times, default=float("inf"))

    def answer(self, request: Request, now_s: float) -> Commands:
        """Carry out one request, at once or as far as it goes now."""
        command, *words = request.words
        try:
            return _COMMANDS[command](self, request.request_id, words, now_s)
        except Refused as refusal:
            return [Reply(request.request_id, str(refusal), refused=True)]

    def written(self, event: Written, now_s: float) -> Commands:
        """A request's settings are in the database, or were refused by it."""
        for drain in self.draining:
            if drain.request_id == event.request_id and event.error is None:
                drain.written = True
                return []
        self.draining = [d for d in self.draining if d.request_id != event.request_id]
        for attach in self.attaching.values():
            if attach.request_id == event.request_id and event.error is None:
                attach.written = True
                return []
        self.attaching = _without(self.attaching, event.request_id)
        detached = [n for n, d in self.detaching.items() if d.request_id == event.request_id]
        self.detaching = _without(self.detaching, event.request_id)
        if event.error is None:
            return [Reply(event.request_id, "")]
        commands: Commands = []
        for bridge in (self.fleet.bridges[n] for n in detached if n in self.fleet.bridges):
            bridge.enabled = True
            commands += bridge.settle(now_s)
        return [*commands, Reply(event.request_id, f"database: {event.error}", refused=True)]

    def proceed(self, now_s: float) -> Commands:
        """Take what is under way one step further after each event."""
        commands: Commands = []
        for drain in list(self.draining):
            if answer := drain.proceed(self.fleet.bridges.get(drain.bridge), now_s):
                self.draining.remove(drain)
                commands += answer
        for name in list(self.attaching):
            commands += _proceed_attach(self, name, self.attaching[name], now_s)
        for name in list(self.detaching):
            commands += _proceed_detach(self, name, self.detaching[name], now_s)
        return commands


# ---- commands --------------------------------------------------------------------------


def _show(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    as_json = "--json" in words
    names = [word for word in words if word != "--json"]
    statuses = operator.fleet.status()
    if names:
        _attached_bridge(operator, names[0])
        statuses = tuple(status for status in statuses if status.name == names[0])
    return [Reply(request_id, show.as_json(statuses) if as_json else show.as_text(statuses))]


def _attach(operator: Operator, request_id: int, words: list[str], now_s: float) -> Commands:
    """`BRIDGE KEY=VALUE…`: look at the bridge first, change nothing yet."""
    name, *assignments = words
    row = _row(operator, name)
    if row.attached or name in operator.attaching:
        raise Refused(f"bridge {name}: attached already -> a bridge that is not attached")
    values = _assignments(assignments, BRIDGE_KEYS)
    values.setdefault("policy", str(BRIDGE_KEYS["policy"].default))
    config = _attachable(row, values)
    settings = [Setting("Bridge", name, PREFIX + key, value) for key, value in values.items()]
    undo = [Setting("Bridge", name, PREFIX + key, None) for key in values]
    if not config.on_bond and row.fail_mode != "secure":
        # NORMAL over plain uplinks is a loop, which a standalone bridge falls back to when
        # ovs-vswitchd restarts.
        before = json.dumps({"fail_mode": row.fail_mode})
        settings.append(Setting("Bridge", name, PREFIX + "before", before))
        settings.append(Setting("Bridge", name, "fail_mode", "secure", column="fail_mode"))
        undo.append(Setting("Bridge", name, PREFIX + "before", None))
        undo.append(Setting("Bridge", name, "fail_mode", row.fail_mode, column="fail_mode"))
    operator.attaching[name] = Attach(
        request_id, now_s + ATTACH_TIMEOUT_S, tuple(settings), tuple(undo)
    )
    return operator.fleet.adopt(config, candidate=True)


def _attachable(row: BridgeRow, values: Mapping[str, str]) -> BridgeConfig:
    """The configuration the bridge would have.

    Raises:
        Refused: it would not be a team.
    """
    if "uplinks" not in values and bond_of(row) is None:
        bonds = sum(len(port.interfaces) > 1 for port in row.ports)
        raise Refused(f"bridge {row.name}: {bonds} bonds -> one bond, or --uplink at least twice")
    ids = {**row.external_ids, **{PREFIX + key: value for key, value in values.items()}}
    config = read_bridge(replace(row, external_ids=ids))
    for error in config.errors:
        if error.record == f"Bridge {row.name}":
            raise Refused(str(error))
    if len(config.uplinks) < 2:
        found = ", ".join(uplink.name for uplink in config.uplinks) or "none"
        raise Refused(f"bridge {row.name} uplinks: {found} -> two or more that the switch has")
    return config


def _detach(operator: Operator, request_id: int, words: list[str], now_s: float) -> Commands:
    (name,) = words
    bridge = _attached_bridge(operator, name)
    bridge.enabled = False
    operator.detaching[name] = Detach(request_id, now_s + DETACH_TIMEOUT_S)
    return bridge.settle(now_s)


def _set(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    """`bridge|interface NAME KEY=VALUE…`, as `ovs-vsctl set`, but checked first."""
    table, name, *assignments = words
    if table not in ("bridge", "interface"):
        raise Refused(f"table: {table} -> bridge or interface")
    if table == "bridge":
        row = _attached_row(operator, name)
        values = _assignments(assignments, BRIDGE_KEYS)
        _attachable(row, {**_ours(row.external_ids), **values})
        settings = [Setting("Bridge", name, PREFIX + key, value) for key, value in values.items()]
        return [Write(tuple(settings), request_id)]
    bridge, port = _interface(operator, name)
    if port is None:
        values = _assignments(assignments, _without_own(UPLINK_KEYS))
        if values.get("role") in (Role.DRAINED, Role.UNUSED) and not _others(bridge, name):
            found = f"role: {values['role']}"
            raise Refused(f"{found} -> active or standby, as no other uplink of the bridge is")
        settings = [
            Setting("Interface", name, PREFIX + key, value) for key, value in values.items()
        ]
        return [Write(tuple(settings), request_id)]
    values = _assignments(assignments, _without_own(VM_KEYS))
    if "pin" in values:
        _pinnable(bridge, port, values["pin"])
    settings = [_vm_setting(bridge, port, key, value) for key, value in values.items()]
    return [Write(tuple(settings), request_id)]


def _move(operator: Operator, request_id: int, words: list[str], now_s: float) -> Commands:
    name, target = words
    bridge, port = _vm_port(operator, name)
    uplink = _carrier(bridge, port, target)
    _enforcing(bridge)
    if port.pin not in (None, target):
        raise Refused(f"port {name}: pinned to {port.pin} -> a port that is not pinned")
    if not bridge.connected:
        raise Refused(f"bridge {bridge.config.name}: not connected -> a connected bridge")
    serving = failover.in_service(bridge.uplinks())
    if target not in [u.name for u in serving]:
        state = _why_not(bridge, uplink, now_s)
        raise Refused(f"uplink {target}: {state} -> {_one_of(u.name for u in serving)}")
    return bridge.move(name, target, Reply(request_id, ""), now_s)


def _why_not(bridge: Bridge, uplink: UplinkConfig, now_s: float) -> str:
    """Why nothing can be moved to an uplink now."""
    if uplink.role in (Role.UNUSED, Role.DRAINED):
        return uplink.role.value
    if not bridge.links.up(uplink):
        return "link down"
    if wait_s := math.ceil(bridge.links.waits_s(uplink.name, now_s)):
        return f"its link returned, and its failback delay has {wait_s} s to go"
    return f"{uplink.role.value}, and an active one carries traffic"


def _pin(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    name, target = words
    bridge, port = _vm_port(operator, name)
    _pinnable(bridge, port, target)
    return [Write((_vm_setting(bridge, port, "pin", target),), request_id)]


def _pinnable(bridge: Bridge, port: VmPortConfig, target: str) -> None:
    """Refuse a pin that would not hold: an uplink's role wins over it."""
    uplink = _carrier(bridge, port, target)
    if uplink.role is not Role.ACTIVE:
        active = [u.name for u in bridge.config.uplinks if u.role is Role.ACTIVE]
        raise Refused(f"uplink {target}: {uplink.role.value} -> an active one: {_one_of(active)}")


def _unpin(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    (name,) = words
    bridge, port = _vm_port(operator, name)
    keys = [Setting("Interface", name, PREFIX + "pin", None)]
    if port.vm_id:
        keys.append(_vm_setting(bridge, port, "pin", None))
    return [Write(tuple(keys), request_id)]


def _drain(operator: Operator, request_id: int, words: list[str], now_s: float) -> Commands:
    """Take an uplink out of service; answered when it is idle."""
    bridge, uplink = _member(operator, words[0])
    _enforcing(bridge)
    name = bridge.config.name
    if not bridge.connected:
        raise Refused(f"bridge {name}: not connected -> a connected bridge")
    if uplink.role is Role.UNUSED:
        raise Refused(f"uplink {uplink.name}: unused -> an active or standby one")
    if not any(bridge.links.up(other) for other in _others(bridge, uplink.name)):
        expected = f"another active or standby uplink of {name} that is up"
        raise Refused(f"uplink {uplink.name}: the last that carries traffic -> {expected}")
    ports = len(bridge.bindings.on(uplink.name))
    drain = Drain(request_id, name, uplink.name, ports, now_s + DRAIN_TIMEOUT_S)
    operator.draining.append(drain)
    if uplink.role is Role.DRAINED:
        drain.written = True
        return []
    return [Write(drained(uplink), request_id)]


def _undrain(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    _, uplink = _member(operator, words[0])
    if uplink.role is not Role.DRAINED:
        raise Refused(f"uplink {uplink.name}: {uplink.role.value} -> a drained one")
    return [Write(undrained(uplink), request_id)]


_COMMANDS: dict[str, Callable[[Operator, int, list[str], float], Commands]] = {
    "show": _show,
    "attach": _attach,
    "detach": _detach,
    "set": _set,
    "move": _move,
    "pin": _pin,
    "unpin": _unpin,
    "drain": _drain,
    "undrain": _undrain,
}


def _without(under_way: dict[str, UnderWay], request_id: int) -> dict[str, UnderWay]:
    return {name: r for name, r in under_way.items() if r.request_id != request_id}


# ---- attach and detach, step by step ---------------------------------------------------


def _proceed_attach(operator: Operator, name: str, attach: Attach, now_s: float) -> Commands:
    bridge = operator.fleet.bridges.get(name)
    if bridge is None:
        del operator.attaching[name]
        return [Reply(attach.request_id, f"bridge {name}: deleted -> a bridge", refused=True)]
    if now_s >= attach.deadline_s:
        return _give_up_attach(
            operator,
            name,
            attach,
            f"not installed within {ATTACH_TIMEOUT_S:g} s -> a switch that answers; see the log",
        )
    if bridge.installed is None:
        return []
    if not attach.writing:
        flushed = any(s.column == "fail_mode" for s in attach.settings) and bridge.foreign_flows
        if flushed:
            found = f"fail mode standalone and {bridge.foreign_flows} flows of others'"
            expected = "fail mode secure, as setting it now would flush those flows"
            return _give_up_attach(operator, name, attach, f"{found} -> {expected}")
        attach.writing = True
        return [Write(attach.settings, attach.request_id)]
    if attach.written and not bridge.candidate and bridge.settled:
        del operator.attaching[name]
        uplinks = ", ".join(uplink.name for uplink in bridge.config.uplinks)
        text = f"{name}: {bridge.config.policy} over {uplinks}, {len(bridge.bound)} VM ports"
        return [Reply(attach.request_id, text)]
    return []


def _give_up_attach(operator: Operator, name: str, attach: Attach, why: str) -> Commands:
    """Put everything back as it was."""
    del operator.attaching[name]
    bridge = operator.fleet.bridges[name]
    reply = Reply(attach.request_id, f"bridge {name}: {why}", refused=True)
    if not attach.writing:
        del operator.fleet.bridges[name]
        return [Disconnect(name), reply]
    bridge.enabled = False
    return [*bridge.settle(attach.deadline_s), Write(attach.undo), reply]


def _proceed_detach(operator: Operator, name: str, detach: Detach, now_s: float) -> Commands:
    bridge = operator.fleet.bridges.get(name)
    if name not in operator.fleet.rows or bridge is None:
        del operator.detaching[name]
        return [Reply(detach.request_id, "")]
    gone = bridge.settled and not bridge.installed_anything
    if detach.writing or not (gone or now_s >= detach.deadline_s):
        return []
    detach.writing = True
    return [Write(_traces(operator.fleet.rows[name]), detach.request_id)]


def _traces(row: BridgeRow) -> tuple[Setting, ...]:
    """What takes every key of ours off a bridge, and puts back what attach changed.

    Rules that an operator wrote for VMs go too; capacities of uplinks stay, as they
    describe the hardware.
    """
    settings = [Setting("Bridge", row.name, key, None) for key in _keys(row.external_ids)]
    if (before := _before(row)) is not None:
        fail_mode = before["fail_mode"]
        settings.append(Setting("Bridge", row.name, "fail_mode", fail_mode, column="fail_mode"))
    for port in row.ports:
        for interface in port.interfaces:
            if PREFIX + "binding" in interface.external_ids:
                settings.append(Setting("Interface", interface.name, PREFIX + "binding", None))
    return tuple(settings)


def _before(row: BridgeRow) -> dict[str, str | None] | None:
    """What attach noted; None where it changed nothing, or the note was spoiled since."""
    try:
        note = json.loads(row.external_ids.get(PREFIX + "before", "null"))
    except ValueError:
        return None
    return note if isinstance(note, dict) and note.keys() == {"fail_mode"} else None


# ---- looking things up -----------------------------------------------------------------


def _row(operator: Operator, name: str) -> BridgeRow:
    if name not in operator.fleet.rows:
        raise Refused(f"bridge: {name} -> {_one_of(operator.fleet.rows)}")
    return operator.fleet.rows[name]


def _attached_row(operator: Operator, name: str) -> BridgeRow:
    row = _row(operator, name)
    if not row.attached or name not in operator.fleet.bridges:
        attached = [name for name, row in operator.fleet.rows.items() if row.attached]
        raise Refused(f"bridge: {name}, not attached -> {_one_of(attached)}")
    return row


def _attached_bridge(operator: Operator, name: str) -> Bridge:
    return operator.fleet.bridges[_attached_row(operator, name).name]


def _interface(operator: Operator, name: str) -> tuple[Bridge, VmPortConfig | None]:
    """The attached bridge an interface is on, and its VM port unless it is an uplink."""
    for bridge in operator.fleet.bridges.values():
        for port in bridge.config.vm_ports:
            if port.name == name:
                return bridge, port
        if any(uplink.name == name for uplink in bridge.config.uplinks):
            return bridge, None
    raise Refused(f"interface: {name} -> an interface of an attached bridge")


def _vm_port(operator: Operator, name: str) -> tuple[Bridge, VmPortConfig]:
    bridge, port = _interface(operator, name)
    if port is None:
        raise Refused(f"port: {name}, an uplink -> {_one_of(bridge.bound)}")
    return bridge, port


def _uplink(bridge: Bridge, name: str) -> UplinkConfig:
    by_name = {uplink.name: uplink for uplink in bridge.config.uplinks}
    if name not in by_name:
        raise Refused(f"uplink: {name} -> {_one_of(by_name)}")
    return by_name[name]


def _member(operator: Operator, name: str) -> tuple[Bridge, UplinkConfig]:
    """An uplink of any attached bridge, and that bridge."""
    bridges = [b for b in operator.fleet.bridges.values() if not b.candidate]
    teams = {uplink.name: (b, uplink) for b in bridges for uplink in b.config.uplinks}
    if name not in teams:
        raise Refused(f"uplink: {name} -> {_one_of(teams)}")
    return teams[name]


def _others(bridge: Bridge, name: str) -> list[UplinkConfig]:
    """The uplinks that would serve without this one."""
    serving = (Role.ACTIVE, Role.STANDBY)
    return [u for u in bridge.config.uplinks if u.name != name and u.role in serving]


def _enforcing(bridge: Bridge) -> None:
    if bridge.observing:
        raise Refused(f"bridge {bridge.config.name}: mode observe -> mode enforce")


def _without_own(keys: Mapping[str, Key]) -> dict[str, Key]:
    """The keys that are an operator's to set."""
    return {key: spec for key, spec in keys.items() if spec.expected != WRITTEN_BY_US}


def _carrier(bridge: Bridge, port: VmPortConfig, name: str) -> UplinkConfig:
    """An uplink of the team that carries the port's VLANs."""
    uplink = _uplink(bridge, name)
    if port.allowed is not None and name not in port.allowed:
        carriers = _one_of(port.allowed) if port.allowed else "none does"
        raise Refused(f"uplink {name}: does not carry the VLANs of {port.name} -> {carriers}")
    return uplink


def _assignments(words: list[str], keys: Mapping[str, Key]) -> dict[str, str]:
    """KEY=VALUE words, checked."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in keys:
            raise Refused(f"{word} -> KEY=VALUE with KEY {_one_of(keys)}")
        try:
            parse_value(keys, key, text)
        except ValueError:
            raise Refused(f"{key}: {text} -> {keys[key].expected}") from None
        values[key] = text
    return values


def _vm_setting(bridge: Bridge, port: VmPortConfig, key: str, value: str | None) -> Setting:
    """Where a rule for a VM is kept: on the Bridge if the VM has an identity of its own."""
    if port.vm_id and key in VM_RULE_KEYS:
        return Setting("Bridge", bridge.config.name, f"{PREFIX}vm-{port.vm_id}-{key}", value)
    return Setting("Interface", port.name, PREFIX + key, value)


def _ours(external_ids: Mapping[str, str]) -> dict[str, str]:
    """Our bridge keys and their values, as an attach would set them."""
    present = {key.removeprefix(PREFIX): external_ids[key] for key in _keys(external_ids)}
    return {key: value for key, value in present.items() if key in BRIDGE_KEYS}


def _keys(external_ids: Mapping[str, str]) -> list[str]:
    return sorted(key for key in external_ids if key.startswith(PREFIX))


def _one_of(names: object) -> str:
    words = sorted(names)  # type: ignore[call-overload]
    return "one of " + ", ".join(words) if words else "nothing there is"
