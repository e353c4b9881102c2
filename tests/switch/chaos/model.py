"""What can happen to a host, and what is then so: pure, seeded, and written as lines of text.

Uplinks are called u0, u1…, VMs v0, v1…, whatever their interfaces are called.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from policies.presets import PRESETS

Choices = Sequence[tuple[str, ...]]

UPLINK_RANKS = {"active": 0, "standby": 1, "drained": 2}
VLANS = (0, 10, 20)
FLAPS_MAX = 6
PAUSE_S_MAX = 8
# The standby takes over after a second and a bit.
LEADER_PAUSES_S = ("2", "3", "5")
# With `adaptive`, so many other events at most, as long as one can follow. These lead to one.
HOT_EVERY = 8
RETURNS = frozenset(
    {
        *("cable-up", "lit", "lacp-in", "undrain", "vm-starts", "vm-migrates-in"),
        *("service-started", "enforce", "unpin", "allow-all", "role"),
    }
)
# What `adaptive` splits by stays.
KEPT_FOR_ADAPTIVE = ("policy", "threshold", "window-s", "poll-interval-ms")
# Those that every kind of team takes.
POLICIES = (
    "originating-port",
    "source-mac",
    "explicit",
    "load-based",
    "slb",
    "address-hash",
    "dynamic",
    "adaptive",
)
BRIDGE_VALUES = {
    "policy": POLICIES,
    "threshold": ("10", "60", "75", "100"),
    "window-s": ("1", "2", "30"),
    "poll-interval-ms": ("100", "1000", "2500"),
    "failback-delay-s": ("0", "1", "2"),
}


class Service(StrEnum):
    """What there is of it."""

    ALIVE = "alive"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens: what, and to whom or with what."""

    kind: str
    args: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.kind, *self.args))

    @classmethod
    def parse(cls, line: str) -> Event:
        """The event that a line says."""
        kind, *args = line.split(" ")
        return cls(kind, tuple(args))


def as_text(events: Iterable[Event]) -> str:
    """A replay file, one line each."""
    return "".join(f"{event}\n" for event in events)


def from_text(text: str) -> list[Event]:
    """The events of a replay file; lines that begin with # are for people."""
    lines = (line.rstrip("\n") for line in text.split("\n"))
    return [Event.parse(line) for line in lines if line.strip() and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class UplinkState:
    """`plugged`: its cable; `in_lag`: the upstream switch has it in the LAG.

    `dark`: its cable loses all that is put on it, and what watches the link says so.
    """

    plugged: bool = True
    in_lag: bool = True
    dark: bool = False
    role: str = "active"

    @property
    def up(self) -> bool:
        return self.plugged and self.in_lag and not self.dark


@dataclass(frozen=True, slots=True)
class VmState:
    """`here`: it has a port; `elsewhere`: another host has it. The rest is of its Interface."""

    vlan: int
    here: bool = True
    elsewhere: bool = False
    renamed: bool = False
    allow: frozenset[str] = frozenset()
    pin: str | None = None

    @property
    def anew(self) -> VmState:
        """With a new Interface, that has no rules."""
        return replace(self, allow=frozenset(), pin=None)


@dataclass(frozen=True, slots=True)
class State:
    """All of it.

    `lag`: uplinks are one link upstream; `negotiated`: LACP says so. `on_bond`: NORMAL may
    forward. `watched`: links are, by LACP or BFD. `adaptive`: that policy stays, and VMs may be
    split. `standby`: there is a second service.
    """

    uplinks: dict[str, UplinkState]
    vms: dict[str, VmState]
    lag: bool = False
    negotiated: bool = False
    on_bond: bool = False
    watched: bool = False
    service: Service = Service.ALIVE
    observing: bool = False
    adaptive: bool = False
    standby: bool = False

    @property
    def on_normal(self) -> bool:
        """Whether the bond forwards by itself: it is only observed."""
        return self.observing and self.on_bond

    def exits(self, vm: str | None) -> frozenset[str]:
        """The uplinks by which a VM's frames may leave (None: the host's own).

        While the service is dead or observes, nobody says in which order they are taken.
        """
        if self.on_normal:
            return frozenset(name for name, uplink in self.uplinks.items() if uplink.up)
        allow = self.vms[vm].allow if vm else frozenset()
        up = [
            name
            for name, uplink in self.uplinks.items()
            if uplink.up and uplink.role in UPLINK_RANKS and (not allow or name in allow)
        ]
        if self.service is Service.DEAD or self.observing or not up:
            return frozenset(up)
        best = min(UPLINK_RANKS[self.uplinks[name].role] for name in up)
        exits = frozenset(n for n in up if UPLINK_RANKS[self.uplinks[n].role] == best)
        pin = self.vms[vm].pin if vm else None
        return frozenset({pin}) if pin in exits else exits


# ---- what is possible, and what comes of it --------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event: how often, its arguments in a state, and the state behind it.

    `while_dead`, `observing`: whether it happens while the service is dead, or only observes.
    """

    weight: int
    choices: Callable[[State], Choices]
    after: Callable[[State, tuple[str, ...]], State] = field(default=lambda s, _: s)
    while_dead: bool = False
    observing: bool = True

    def happens(self, state: State) -> bool:
        """Whether such an event may happen at all in this state."""
        if state.observing and not self.observing:
            return False
        return self.while_dead or state.service is not Service.DEAD


def after(state: State, event: Event) -> State:
    """The state that it leaves."""
    return KINDS[event.kind].after(state, event.args)


def changes(state: State, event: Event) -> tuple[int, int]:
    """How many links fail, and how many return, with an event."""
    match event.kind:
        case "cable-down" | "dark" | "lacp-out":
            return 1, 0
        case "cable-up" | "lit" | "lacp-in":
            return 0, 1
        case "flap":
            return int(event.args[1]), int(event.args[1])
        case "storm":
            times = int(event.args[0]) * len(state.uplinks)
            return times, times
    return 0, 0


def generate(state: State, seed: int) -> Iterator[Event]:
    """Events without end, each possible behind those before; the same for the same seed.

    With `adaptive`, a VM is split and merged at least every so often, behind what makes that possible.
    """
    since_hot = 0
    chance = random.Random(seed)
    while True:
        choices = {
            name: found
            for name, kind in KINDS.items()
            if kind.happens(state) and (found := kind.choices(state))
        }
        names = sorted(choices)
        if state.adaptive and since_hot >= HOT_EVERY:
            choices["role"] = [a for a in choices.get("role", ()) if a[1] == "active"]
            back = [n for n in names if n in RETURNS and choices[n]]
            names = ["hot"] if "hot" in names else back or [n for n in names if choices[n]]
        (name,) = chance.choices(names, [KINDS[n].weight for n in names])
        event = Event(name, chance.choice(sorted(choices[name])))
        state = after(state, event)
        since_hot = 0 if name == "hot" else since_hot + 1
        yield event


def _uplink(state: State, name: str, **changes: object) -> State:
    changed = replace(state.uplinks[name], **changes)  # type: ignore[arg-type]
    return replace(state, uplinks={**state.uplinks, name: changed})


def _vm(state: State, name: str, changed: VmState) -> State:
    return replace(state, vms={**state.vms, name: changed})


def _uplinks(which: Callable[[UplinkState], bool]) -> Callable[[State], Choices]:
    return lambda state: [(name,) for name, uplink in state.uplinks.items() if which(uplink)]


def _vms(which: Callable[[VmState], bool]) -> Callable[[State], Choices]:
    return lambda state: [(name,) for name, vm in state.vms.items() if which(vm)]


def _always(*choices: tuple[str, ...]) -> Callable[[State], Choices]:
    return lambda _: list(choices)


def _alone(*choices: tuple[str, ...]) -> Callable[[State], Choices]:
    """Where no other service stands by."""
    return lambda state: [] if state.standby else list(choices)


def _of_bridge(state: State) -> Choices:
    kept = KEPT_FOR_ADAPTIVE if state.adaptive else ()
    values = BRIDGE_VALUES.items()
    return [(key, value) for key, found in values if key not in kept for value in found]


def _splittable(state: State) -> Choices:
    """One that the service would split: a rule would keep it from that."""
    if not state.adaptive:
        return []
    return [
        (name,)
        for name, vm in state.vms.items()
        if vm.here and not vm.allow and vm.pin is None and len(state.exits(name)) > 1
    ]


def _counts(name: str, most: int) -> Choices:
    return [(name, str(count)) for count in range(2, most + 1)]


def _others_serve(state: State, without: str) -> bool:
    others = (uplink for name, uplink in state.uplinks.items() if name != without)
    return any(uplink.up and uplink.role == "active" for uplink in others)


def _any_up(state: State) -> bool:
    return any(uplink.up for uplink in state.uplinks.values())


def _may_leave_service(state: State) -> list[str]:
    """An operator is refused the last uplink; and a VM that may use no other stays on it."""
    return [
        name
        for name, uplink in state.uplinks.items()
        if uplink.role == "active" and _others_serve(state, name)
    ]


def _drainable(state: State) -> Choices:
    confined = [vm.allow for vm in state.vms.values() if vm.here and vm.allow]
    serving = {n for n, u in state.uplinks.items() if u.up and u.role == "active"}
    return [
        (name,)
        for name in _may_leave_service(state)
        if all((serving - {name}) & allow for allow in confined)
    ]


def _roles(state: State) -> Choices:
    leaving = _may_leave_service(state)
    back = [(n, "active") for n, u in state.uplinks.items() if u.role in ("standby", "unused")]
    return back + [(name, role) for name in leaving for role in ("standby", "unused")]


def _movable(state: State) -> Choices:
    return [
        (name, target)
        for name, vm in state.vms.items()
        if vm.here and vm.pin is None
        for target, uplink in state.uplinks.items()
        if target in state.exits(name) and uplink.role == "active"
    ]


def _pinnable(state: State) -> Choices:
    return [pair for pair in _movable(state) if not state.vms[pair[0]].allow]


def _allowable(state: State) -> Choices:
    return [
        (name, uplink)
        for name, vm in state.vms.items()
        if vm.here and not vm.allow and vm.pin is None
        for uplink in state.uplinks
    ]


def _in_lag(wanted: bool) -> Callable[[State], Choices]:
    def choices(state: State) -> Choices:
        others_out = any(not u.in_lag for u in state.uplinks.values())
        if not state.negotiated or (wanted is False and others_out):
            return []
        if wanted is False:
            return [(n,) for n, u in state.uplinks.items() if u.up]
        return [(n,) for n, u in state.uplinks.items() if u.plugged and not u.in_lag]

    return choices


def _one(name: str, to: object) -> Callable[[State, tuple[str, ...]], State]:
    return lambda state, args: _uplink(state, args[0], **{name: to})


def _with_vm(change: Callable[[VmState], VmState]) -> Callable[[State, tuple[str, ...]], State]:
    return lambda state, args: _vm(state, args[0], change(state.vms[args[0]]))


KINDS: dict[str, Kind] = {
    # ---- uplinks
    "cable-down": Kind(8, _uplinks(lambda u: u.up), _one("plugged", False), True),
    "cable-up": Kind(14, _uplinks(lambda u: not u.plugged), _one("plugged", True), True),
    "flap": Kind(
        4,
        lambda s: [pair for n, u in s.uplinks.items() if u.up for pair in _counts(n, FLAPS_MAX)],
        while_dead=True,
    ),
    "storm": Kind(
        3,
        lambda s: (
            [(str(n),) for n in range(2, FLAPS_MAX)]
            if all(u.up for u in s.uplinks.values())
            else []
        ),
    ),
    "lacp-out": Kind(4, _in_lag(False), _one("in_lag", False), True),
    "lacp-in": Kind(12, _in_lag(True), _one("in_lag", True), True),
    "dark": Kind(
        4,
        lambda s: [(n,) for n, u in s.uplinks.items() if s.watched and u.up],
        _one("dark", True),
        while_dead=True,
    ),
    "lit": Kind(
        12,
        _uplinks(lambda u: u.dark and u.plugged and u.in_lag),
        _one("dark", False),
        while_dead=True,
    ),
    "drain": Kind(3, _drainable, _one("role", "drained"), observing=False),
    "undrain": Kind(
        6,
        _uplinks(lambda u: u.role == "drained"),
        _one("role", "active"),
        observing=False,
    ),
    "role": Kind(4, _roles, lambda s, a: _uplink(s, a[0], role=a[1]), observing=False),
    # ---- VMs
    "vm-stops": Kind(
        4,
        _vms(lambda v: v.here),
        _with_vm(lambda v: replace(v.anew, here=False, elsewhere=False)),
        while_dead=True,
    ),
    "vm-starts": Kind(
        10,
        _vms(lambda v: not v.here and not v.elsewhere),
        _with_vm(lambda v: replace(v, here=True)),
    ),
    "vm-renamed": Kind(
        4, _vms(lambda v: v.here), _with_vm(lambda v: replace(v.anew, renamed=not v.renamed))
    ),
    "vm-retagged": Kind(
        4,
        lambda s: [
            (n, str(vlan)) for n, v in s.vms.items() if v.here for vlan in VLANS if vlan != v.vlan
        ],
        lambda s, a: _vm(s, a[0], replace(s.vms[a[0]], vlan=int(a[1]))),
    ),
    "vm-migrates-out": Kind(
        5,
        # Where nobody sees it off, its new host must be heard.
        lambda s: _vms(lambda v: v.here and (s.service is Service.ALIVE or _any_up(s)))(s),
        _with_vm(lambda v: replace(v.anew, here=False, elsewhere=True)),
        while_dead=True,
    ),
    "vm-migrates-in": Kind(
        10,
        # By a LAG only the service announces one that comes while none of its uplinks lives.
        lambda s: [
            (name,)
            for name, v in s.vms.items()
            if v.elsewhere and (not s.lag or s.service is Service.ALIVE or s.exits(name))
        ],
        _with_vm(lambda v: replace(v, here=True, elsewhere=False)),
    ),
    # ---- the service
    "service-killed": Kind(
        5, _always(()), lambda s, _: replace(s, service=Service.DEAD), while_dead=False
    ),
    "service-started": Kind(
        12,
        lambda s: [()] if s.service is Service.DEAD else [],
        lambda s, _: replace(s, service=Service.ALIVE),
        while_dead=True,
    ),
    "service-restarted": Kind(10, _alone(("SIGKILL",), ("SIGTERM",))),
    "service-paused": Kind(3, _alone(*((str(n),) for n in range(1, PAUSE_S_MAX + 1)))),
    "leader-killed": Kind(10, lambda s: [()] if s.standby else []),
    "leader-paused": Kind(6, lambda s: [(n,) for n in LEADER_PAUSES_S] if s.standby else []),
    # ---- the switch
    "switch-restarted": Kind(2, _always(())),
    "database-restarted": Kind(2, _always(()), while_dead=True),
    # ---- what operators do
    "set-bridge": Kind(6, _of_bridge, while_dead=True),
    "observe": Kind(
        2, lambda s: [] if s.observing else [()], lambda s, _: replace(s, observing=True)
    ),
    "enforce": Kind(
        14, lambda s: [()] if s.observing else [], lambda s, _: replace(s, observing=False)
    ),
    "move": Kind(8, _movable, observing=False),
    "pin": Kind(
        3,
        _pinnable,
        lambda s, a: _vm(s, a[0], replace(s.vms[a[0]], pin=a[1])),
        observing=False,
    ),
    "unpin": Kind(
        5,
        _vms(lambda v: v.here and v.pin is not None),
        _with_vm(lambda v: replace(v, pin=None)),
        observing=False,
    ),
    "allow": Kind(
        3,
        _allowable,
        lambda s, a: _vm(s, a[0], replace(s.vms[a[0]], allow=frozenset({a[1]}))),
        observing=False,
    ),
    "allow-all": Kind(
        6,
        _vms(lambda v: v.here and bool(v.allow)),
        _with_vm(lambda v: replace(v, allow=frozenset())),
        observing=False,
    ),
    "vm-policy": Kind(
        3,
        lambda s: (
            []
            if s.adaptive
            else [(n, policy) for n, v in s.vms.items() if v.here for policy in POLICIES]
        ),
        observing=False,
    ),
    "hot": Kind(8, _splittable, observing=False),
}
assert set(POLICIES) <= set(PRESETS)
