"""What operators ask: checked, carried out over several events where needed, answered.

Every refusal is one line that says what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller import show
from controller.adoption import Adoption, Refused, attachable, keys
from controller.bridge import Bridge, Commands
from controller.config import (
    BRIDGE_KEYS,
    UPLINK_KEYS,
    VM_KEYS,
    VM_RULE_KEYS,
    Key,
    VmPortConfig,
    parse_value,
)
from controller.database import PREFIX, BridgeRow
from controller.events import Reply, Request, Setting, Write, Written
from controller.fleet import Fleet
from policies.model import Reason, Role


@dataclass(slots=True)
class Operator:
    """Operators' requests; those that take a while are under way in `adoption`."""

    fleet: Fleet
    adoption: Adoption

    @property
    def in_hand(self) -> set[str]:
        """The bridges that a request is changing now."""
        return self.adoption.in_hand

    def deadline_s(self) -> float:
        """When the first request under way has something to do; infinity if none is."""
        return self.adoption.deadline_s()

    def answer(self, request: Request, now_s: float) -> Commands:
        """Carry out one request, at once or as far as it goes now."""
        command, *words = request.words
        try:
            return _COMMANDS[command](self, request.request_id, words, now_s)
        except Refused as refusal:
            return [Reply(request.request_id, str(refusal), refused=True)]

    def written(self, event: Written, now_s: float) -> Commands:
        """A request's settings are in the database, or were refused by it."""
        return self.adoption.written(event, now_s)

    def proceed(self, now_s: float) -> Commands:
        """Take what is under way one step further after each event."""
        return self.adoption.proceed(now_s)


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
    """`BRIDGE KEY=VALUE…`."""
    name, *assignments = words
    row = _row(operator, name)
    values = _assignments(assignments, BRIDGE_KEYS)
    values.setdefault("policy", str(BRIDGE_KEYS["policy"].default))
    return operator.adoption.attach(request_id, row, values, now_s)


def _detach(operator: Operator, request_id: int, words: list[str], now_s: float) -> Commands:
    (name,) = words
    bridge = _attached_bridge(operator, name)
    return operator.adoption.detach(request_id, bridge, now_s)


def _set(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    """`bridge|interface NAME KEY=VALUE…`, as `ovs-vsctl set`, but checked first."""
    table, name, *assignments = words
    if table == "bridge":
        row = _row(operator, name)
        values = _assignments(assignments, BRIDGE_KEYS)
        attachable(row, {**_ours(row.external_ids), **values})
        settings = [Setting("Bridge", name, PREFIX + key, value) for key, value in values.items()]
        return [Write(tuple(settings), request_id)]
    bridge, port = _interface(operator, name)
    if port is None:
        values = _assignments(assignments, UPLINK_KEYS)
        settings = [
            Setting("Interface", name, PREFIX + key, value) for key, value in values.items()
        ]
        return [Write(tuple(settings), request_id)]
    values = _assignments(assignments, {k: v for k, v in VM_KEYS.items() if k != "binding"})
    if "pin" in values:
        _uplink(bridge, values["pin"])
    settings = [_vm_setting(bridge, port, key, value) for key, value in values.items()]
    return [Write(tuple(settings), request_id)]


def _move(operator: Operator, request_id: int, words: list[str], now_s: float) -> Commands:
    name, target = words
    bridge, port = _vm_port(operator, name)
    _uplink(bridge, target)
    if port.pin not in (None, target):
        raise Refused(f"port {name}: pinned to {port.pin} -> a port that is not pinned")
    uplink = next(u for u in bridge.uplinks() if u.name == target)
    if not bridge.connected:
        raise Refused(f"bridge {bridge.config.name}: not connected -> a connected bridge")
    if not uplink.usable or uplink.role not in (Role.ACTIVE, Role.STANDBY):
        state = uplink.role.value if uplink.usable else "not usable now"
        raise Refused(f"uplink {target}: {state} -> an uplink that carries traffic")
    return bridge.move(name, target, Reason.MANUAL, Reply(request_id, ""), now_s)


def _pin(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    name, target = words
    bridge, port = _vm_port(operator, name)
    _uplink(bridge, target)
    return [Write((_vm_setting(bridge, port, "pin", target),), request_id)]


def _unpin(operator: Operator, request_id: int, words: list[str], _now_s: float) -> Commands:
    (name,) = words
    bridge, port = _vm_port(operator, name)
    keys = [Setting("Interface", name, PREFIX + "pin", None)]
    if port.vm_id:
        keys.append(_vm_setting(bridge, port, "pin", None))
    return [Write(tuple(keys), request_id)]


_COMMANDS: dict[str, Callable[[Operator, int, list[str], float], Commands]] = {
    "show": _show,
    "attach": _attach,
    "detach": _detach,
    "set": _set,
    "move": _move,
    "pin": _pin,
    "unpin": _unpin,
}


# ---- looking things up -----------------------------------------------------------------


def _row(operator: Operator, name: str) -> BridgeRow:
    if name not in operator.fleet.rows:
        raise Refused(f"bridge: {name} -> {_one_of(operator.fleet.rows)}")
    return operator.fleet.rows[name]


def _attached_bridge(operator: Operator, name: str) -> Bridge:
    row = _row(operator, name)
    if not row.attached or name not in operator.fleet.bridges:
        attached = [name for name, row in operator.fleet.rows.items() if row.attached]
        expected = _one_of(attached) if attached else "an attached bridge; there is none"
        raise Refused(f"bridge: {name}, not attached -> {expected}")
    return operator.fleet.bridges[name]


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


def _uplink(bridge: Bridge, name: str) -> None:
    names = [uplink.name for uplink in bridge.config.uplinks]
    if name not in names:
        raise Refused(f"uplink: {name} -> {_one_of(names)}")


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
    present = {key.removeprefix(PREFIX): external_ids[key] for key in keys(external_ids)}
    return {key: value for key, value in present.items() if key in BRIDGE_KEYS}


def _one_of(names: object) -> str:
    words = sorted(names)  # type: ignore[call-overload]
    return "one of " + ", ".join(words) if words else "nothing there is"
