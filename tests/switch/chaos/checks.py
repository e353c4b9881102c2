"""What holds after each event, whatever it was."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.switch import frames
from tests.switch.bed import Copies, Shot, Station
from tests.switch.chaos import audit, losses
from tests.switch.chaos.losses import Flow, Lost
from tests.switch.chaos.model import VLANS, Event, Service
from tests.switch.chaos.world import World
from tests.switch.wire import STREAM_SHIFT, Ears, Stream

# A member whose partner was given up says so each 30 s only, whatever `lacp-time` is.
SETTLED_WITHIN_S = 45.0
RETRY_S = 0.1
OUTSIDER = "02:ee:00:00:00:01"
RSS_MAX_BYTES = 110 << 20
THREADS_MAX, FILES_MAX = 24, 64
LOOPS_FROM = 4
# Numbers of an event's flows, load included.
FLOWS_PER_EVENT = 40
# Together 1.3 times what the service takes an uplink for.
LOAD_FLOWS, LOAD_PPS, LOAD_FRAME_BYTES = 16, 20, 1000
# A switch that has not delivered a frame by then has lost it.
LATE_S = 0.5


@dataclass(frozen=True, slots=True)
class Probe:
    """A frame, and what is said against where its copies came out; nothing: all is well."""

    shot: Shot
    wrong: Callable[[Copies], str]


def settle(world: World, within_s: float, meanwhile: Callable[[], object] = bool) -> list[str]:
    """What is still wrong after a while; nothing, once all is well.

    First nobody but the network is asked to speak: a VM that is silent must be reached, too.
    `meanwhile` is called between looks.
    """
    deadline_s = time.monotonic() + within_s
    looks = (exchanged,) if world.state.on_normal else (reached, exchanged, from_cables)
    with world.bed.listening():
        for look in (*looks, installed, resources):
            while wrong := [*shown(world), *look(world)]:
                if time.monotonic() > deadline_s:
                    return wrong
                meanwhile()
                time.sleep(RETRY_S)
    return []


# ---- what the service says --------------------------------------------------------------


def shown(world: World) -> list[str]:
    """What `show` says that is not so."""
    if world.state.service is Service.DEAD:
        return []
    if not world.service.alive:
        return [f"the service ended: {world.service.log_tail(3)}"]
    try:
        bridge = world.service.show_json(world.bed.bridge)
    except (AssertionError, ValueError, OSError) as error:
        return [f"show: {error}"]
    state, wrong = world.state, []
    if not bridge["connected"]:
        wrong.append("show: not connected")
    uplinks = {uplink["name"]: uplink for uplink in bridge["uplinks"]}
    for name, uplink in state.uplinks.items():
        told = uplinks.get(world.uplink(name).name, {})
        found, so = (told.get("up"), told.get("role")), (uplink.up, uplink.role)
        if found != so:
            wrong.append(f"show: {name} is up, role {found} -> {so}")
    ports = {port["name"]: port["uplink"] for port in bridge["ports"]}
    if ports.keys() != {station.port for station in world.here.values()}:
        wrong.append(f"show: ports {sorted(ports)} -> {sorted(map(str, world.here))}")
    for who, station in world.here.items():
        exits = {world.uplink(exit_).name for exit_ in state.exits(who)}
        # What is observed is bound where rules say, to which NORMAL keeps not.
        if exits and not state.observing and ports.get(station.port) not in exits:
            wrong.append(
                f"show: {who or 'LOCAL'} on {ports.get(station.port)} -> one of {sorted(exits)}"
            )
    errors = "\n".join(bridge["config_errors"])
    told_keys = {key for key in state.garbage if f"ovs-lbt-{key}" in errors or f" {key}" in errors}
    if told_keys != state.garbage:
        wrong.append(f"show: config errors {errors!r} -> about {sorted(state.garbage)}")
    if errors and not state.garbage:
        wrong.append(f"show: config errors {errors!r} -> none")
    return wrong


def installed(world: World) -> list[str]:
    """What the switch has of ours and should not have, or the other way round.

    While the service is dead, nothing of it changes.
    """
    state = world.state
    if state.observing and not state.on_bond and not all(u.up for u in state.uplinks.values()):
        # Links alone move what is observed, and it returns: not written down is where to.
        return []
    if state.service is Service.ALIVE:
        return audit.differences(world.bed, world.in_force, world.homes)
    (flows, groups), (flows_left, groups_left) = world.installed(), world.left
    changed = [
        *sorted(flows ^ flows_left),
        *(g for i, g in groups.items() if groups_left.get(i) != g),
    ]
    return [f"changed while the service is dead: {line}" for line in changed]


def resources(world: World) -> list[str]:
    """What the service has more of than it may have."""
    most = {
        "resident bytes": RSS_MAX_BYTES,
        "threads": THREADS_MAX,
        "open files": FILES_MAX,
    }
    found = resources_of(world)
    return [f"{w}: {n} -> at most {most[w]}" for w, n in found.items() if n > most[w]]


def resources_of(world: World) -> dict[str, int]:
    """What the service has now; nothing where there is none."""
    if not world.service.alive:
        return {}
    process = Path(f"/proc/{world.service.pid}")
    status = (process / "status").read_text()
    sizes = dict(re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.MULTILINE))
    if not sizes:
        return {}
    return {
        "resident bytes": int(sizes["VmRSS"]) << 10,
        "threads": int(sizes["Threads"]),
        "open files": len(os.listdir(process / "fd")),
    }


# ---- where frames come out --------------------------------------------------------------


def reached(world: World) -> list[str]:
    """Who is not reached by the network though nobody here has said a word.

    Nobody announces a failover while the service is dead, so until they speak, switches upstream
    may flood what is for VMs, or send it to where they were.
    """
    known = world.state.service is Service.ALIVE
    return _probed(world, from_outside(world, known))


def exchanged(world: World) -> list[str]:
    """What goes wrong when everybody sends to everybody."""
    return _probed(world, from_everywhere(world))


def _probed(world: World, probes: Iterator[Probe]) -> list[str]:
    """What goes wrong with frames."""
    sent = list(probes)
    copies = world.bed.fire([probe.shot for probe in sent])
    wrong = []
    for probe in sent:
        if story := probe.wrong(copies[probe.shot.frame_id]):
            came = ", ".join(
                f"{n} × {at[0]}" for at, n in sorted(copies[probe.shot.frame_id].at.items())
            )
            wrong.append(f"{probe.shot.story}: {came or 'nowhere'} -> {story}")
    return wrong


def from_outside(world: World, known: bool = True) -> Iterator[Probe]:
    """What a host upstream sends; `known`: upstream it is known where VMs are."""
    bed, host = world.bed, world.bed.hosts[0]
    ends = {str(uplink.upstream_end) for uplink in bed.uplinks}
    reached = {str(s): bool(world.state.exits(n)) for n, s in world.here.items()}

    for name, station in world.here.items() if known else ():
        vlan = station.vlan or 0

        def at_it(copies: Copies, station: Station = station) -> str:
            n = _at(copies)
            # What comes by an uplink that it may not use itself is delivered, too.
            if n[str(station)] != reached[str(station)]:
                return f"once at {station}" if reached[str(station)] else f"none at {station}"
            return "none back" if any(n[end] for end in ends) else _once(n)

        shot = bed.shot(
            host.point, _to(station.mac), host.mac, vlan, host.sends(vlan), f"to {name or 'LOCAL'}"
        )
        yield Probe(shot, at_it)
    for vlan in () if world.state.on_normal else VLANS:
        hearing = [s for s in world.here.values() if s.hears(vlan)]
        expected = Counter({str(s): 1 for s in hearing if reached[str(s)]})

        def at_all(copies: Copies, expected: Counter[str] = expected) -> str:
            return "" if _at(copies) == expected else f"once each at {sorted(expected)}"

        for kind in ("broadcast", "unknown unicast"):
            build = frames.FLOODED[kind]
            story = f"{kind} in VLAN {vlan}"
            yield Probe(
                bed.shot(host.point, build, host.mac, vlan, host.sends(vlan), story), at_all
            )


def from_everywhere(world: World) -> Iterator[Probe]:
    """What VMs send, and what comes by each cable."""
    bed, host, state = world.bed, world.bed.hosts[0], world.state
    ends = {str(world.uplink(name).upstream_end): name for name in state.uplinks}
    yield from from_outside(world)
    for name, station in world.here.items():
        vlan, exits = station.vlan or 0, state.exits(name)
        neighbours = [s for s in world.here.values() if s != station and s.hears(vlan)]

        def leaves(
            copies: Copies,
            exits: frozenset[str] = exits,
            near: Sequence[Station] = (),
            flooded: bool = False,
        ) -> str:
            n = _at(copies)
            by = [ends[at] for at in n if at in ends]
            if sum(n[at] for at in n if at in ends) != bool(exits) or not exits.issuperset(by):
                return f"once by one of {sorted(exits)}" if exits else "by no uplink"
            if flooded:
                return ""
            here = Counter({at: k for at, k in n.items() if at not in ends})
            expected = Counter({str(s): 1 for s in near})
            return "" if here == expected else f"{dict(expected)} here"

        def everywhere(
            copies: Copies, near: Sequence[Station] = neighbours, check: Callable[..., str] = leaves
        ) -> str:
            return check(copies, near=near)

        who, tag = name or "LOCAL", station.sends(vlan)
        shot = bed.shot(
            station.point, frames.broadcast, station.mac, vlan, tag, f"broadcast of {who}"
        )
        yield Probe(shot, everywhere)
        elsewhere = [s.mac for s in world.away.values() if (s.vlan or 0) == vlan]
        # NORMAL floods to neighbours what is for somebody that it has not learned.
        leaves_unheard = functools.partial(leaves, flooded=state.on_normal)
        for mac in (host.mac, *elsewhere):
            shot = bed.shot(
                station.point, _to(mac), station.mac, vlan, tag, f"{who} to {mac} upstream"
            )
            yield Probe(shot, leaves_unheard)
        for other in neighbours:
            if (other.vlan or 0) != vlan:
                continue

            def at_neighbour(copies: Copies, other: Station = other) -> str:
                return "" if _at(copies) == {str(other): 1} else f"once at {other}"

            story = f"{who} to {other}"
            yield Probe(
                bed.shot(station.point, _to(other.mac), station.mac, vlan, tag, story), at_neighbour
            )


def from_cables(world: World) -> list[str]:
    """A broadcast by each cable is heard once from one of them; in a LAG, from each."""
    bed, state = world.bed, world.state
    live = [n for n, u in state.uplinks.items() if u.up]
    shots = {
        (name, vlan): bed.shot(
            world.uplink(name).upstream_end, frames.broadcast, OUTSIDER, vlan, vlan, f"by {name}"
        )
        for name in live
        for vlan in VLANS
    }
    copies = bed.fire(list(shots.values()))
    heard: Counter[tuple[str, int]] = Counter()
    for (_, vlan), shot in shots.items():
        for at, n in _at(copies[shot.frame_id]).items():
            heard[at, vlan] += n
    wrong = []
    for name, station in world.here.items():
        for vlan in VLANS:
            expected = len(live) if state.lag else 1
            expected *= station.hears(vlan) and bool(state.exits(name))
            if (found := heard[str(station), vlan]) != expected:
                wrong.append(
                    f"broadcasts in VLAN {vlan}, one by each of {live}: {found} at {name}"
                    f" -> {expected}"
                )
    ends = {str(uplink.upstream_end) for uplink in bed.uplinks}
    back = {at: n for (at, _), n in heard.items() if at in ends}
    return [*wrong, f"by cables: {back} went back -> none"] if back else wrong


def _to(mac: str) -> frames.Builder:
    return lambda source, tag, frame_id: frames.udp(source, mac, vlan=tag, frame_id=frame_id)


def _at(copies: Copies) -> Counter[str]:
    return Counter(copies.points)


def _once(at: Mapping[str, int]) -> str:
    return "each at most once" if any(n > 1 for n in at.values()) else ""


# ---- what goes on all the while ---------------------------------------------------------


class Background:
    """Flows between the host upstream and every VM, and its broadcasts, during one event.

    Each second VM speaks until all is settled, the others until the event is over; they change
    roles with each event.
    """

    def __init__(self, world: World, ears: Ears, number: int) -> None:
        self.world = world
        self.ears = ears
        # By what was sent: the most frames of it that one receiver heard more than once.
        self.twice: Counter[str] = Counter()
        self.counted: list[Lost] = []
        self.late_s = 0.0
        self.before = world.state
        bed, host = world.bed, world.bed.hosts[0]
        self.first = 1 + number % 100 * FLOWS_PER_EVENT
        self.ends = frozenset(str(uplink.upstream_end) for uplink in bed.uplinks)
        here = {name: vm for name, vm in world.here.items() if name}
        silent = {name for i, name in enumerate(sorted(self.before.vms)) if (i + number) % 2}
        inbound = [_Sent("broadcasts", host, frames.broadcast(host.mac, vlan, 0)) for vlan in VLANS]
        for sent, vlan in zip(inbound, VLANS, strict=True):
            for name, vm in here.items():
                if vm.hears(vlan):
                    story = f"broadcasts in VLAN {vlan} to {name}"
                    sent.heard.append((Flow(story, name, True, True, name in silent), vm))
        for name, vm in here.items():
            frame = frames.udp(host.mac, vm.mac, vlan=vm.vlan or 0)
            flow = Flow(f"host to {name}", name, True, silent=name in silent)
            inbound.append(_Sent("unicast", host, frame, [(flow, vm)]))
        spoken: dict[bool, list[_Sent]] = {True: [], False: []}
        for name, vm in here.items():
            flow = Flow(f"{name} to host", name, False, silent=name in silent)
            frame = frames.udp(vm.mac, host.mac)
            spoken[name in silent].append(_Sent("sent", vm, frame, [(flow, host)]))
        self._sent: list[_Sent] = []
        self._streams: list[Stream] = []
        self.inbound = len(inbound)
        for group in (inbound, spoken[False], spoken[True]):
            self._add(group, losses.PPS)
        self._silenced = self._streams[-1] if spoken[True] else None

    def _add(self, group: Sequence[_Sent], pps: float) -> Stream | None:
        if not group:
            return None
        flows = [(sent.station.point, sent.frame) for sent in group]
        stream = Stream(flows, pps, self.first + len(self._sent), catch_up=False)
        self._sent += group
        self._streams.append(stream)
        assert len(self._sent) <= FLOWS_PER_EVENT, "another event has these numbers"
        return stream

    def __enter__(self) -> Background:
        self.ears.forget()
        self.bound_to = self._bindings()
        for stream in self._streams:
            stream.__enter__()
        self.world.load = self._load
        return self

    def __exit__(self, *_: object) -> None:
        self.world.load = None
        for stream in self._streams:
            self.late_s = max(self.late_s, stream.stop().latest_s)

    def vms_fall_silent(self) -> None:
        """From here on half of them do not speak."""
        if self._silenced:
            self._silenced.stop()

    @contextlib.contextmanager
    def _load(self, vm: str) -> Iterator[None]:
        """A VM sends more than one uplink carries, by connections that are counted, too."""
        station, host = self.world.vm(vm), self.world.bed.hosts[0]
        group = []
        for number in range(LOAD_FLOWS):
            frame = frames.udp(
                station.mac,
                host.mac,
                destination_ip=f"198.51.100.{number + 1}",
                frame_bytes=LOAD_FRAME_BYTES,
            )
            flow = Flow(f"{vm} to host, connection {number}", vm, False)
            group.append(_Sent("load", station, frame, [(flow, host)], LOAD_PPS))
        stream = self._add(group, LOAD_PPS)
        assert stream
        with stream:
            yield

    def _bindings(self) -> dict[str, str]:
        """The uplink of each VM port as the database says it."""
        shown = self.world.bed.ovs.vsctl(
            "--bare",
            "--no-headings",
            "-f",
            "csv",
            "--columns=name,external_ids",
            "list",
            "interface",
        )
        found = (
            re.match(r'"?([^",]+)"?,.*ovs-lbt-binding=([^" ]+)', line) for line in shown.split("\n")
        )
        return {match[1]: match[2] for match in found if match}

    def wrong(self, event: Event) -> tuple[list[str], list[str]]:
        """What is wrong with the way of frames; and what was lost or came twice beyond the bounds."""
        self.__exit__()
        self.ears.until_quiet()
        if any(one.beyond for one in self._count(event)):
            # They may only be late, on a machine that is busy.
            self.ears.until_quiet(quiet_s=LATE_S)
        self.counted = self._count(event)
        return self._looped(), [*map(str, filter(lambda o: o.beyond, self.counted)), *self._twice()]

    def _on_normal(self) -> bool:
        """What a bond of Open vSwitch lets through by itself is not ours."""
        return self.before.on_normal or self.world.state.on_normal

    def _looped(self) -> list[str]:
        wrong = []
        for point, heard in self._heard().items():
            if point in self.ends and not self._on_normal():
                back = sum(self._flow(i) < self.inbound for i in heard)  # type: ignore[operator]
                if back:
                    wrong.append(f"{back} frames went back to the network at {point}")
            if (most := max(heard.values(), default=0)) >= LOOPS_FROM:
                wrong.append(f"a loop: a frame was heard {most} times at {point}")
        return wrong

    def _twice(self) -> list[str]:
        wrong = []
        for point, heard in self._heard().items():
            twice = Counter(self._sent[self._flow(i) or 0].kind for i, n in heard.items() if n > 1)
            self.twice |= twice
            if twice and not self._on_normal():
                wrong.append(f"{dict(twice)} heard twice at {point} -> {losses.TWICE_MAX}")
        return wrong

    def _heard(self) -> dict[str, Counter[int]]:
        """By point, how often each frame of ours came in there."""
        return {
            point: Counter(
                h.frame_id
                for h in ear.frames()
                if h.frame_id is not None and not h.outgoing and self._flow(h.frame_id) is not None
            )
            for point, ear in self.ears.by_name.items()
        }

    def _count(self, event: Event) -> list[Lost]:
        """What each flow has lost. A frame is sent when it leaves its sender."""
        before, after = self.before, self.world.state
        numbers: dict[tuple[str, int, bool], dict[int, float]] = {}
        for point, ear in self.ears.by_name.items():
            for h in ear.frames():
                number = h.frame_id
                if number is not None and (at := self._flow(number)) is not None:
                    found = numbers.setdefault((point, at, h.outgoing), {})
                    found.setdefault(number & ((1 << STREAM_SHIFT) - 1), h.at_s)
        now = self._bindings()
        moved = {
            name
            for name, vm in self.world.here.items()
            if self.bound_to.get(vm.port) != now.get(vm.port)
        }
        counted = []
        for index, sent in enumerate(self._sent):
            at_s = numbers.get((str(sent.station), index, True), {})
            for flow, receiver in sent.heard:
                if not losses.expected(flow, before, after):
                    continue
                bound = losses.bound_ms(
                    event,
                    before,
                    own=losses.is_own(flow, event),
                    broadcast=flow.broadcast,
                    moved=flow.vm in moved,
                )
                counted.append(
                    losses.lost(
                        flow,
                        at_s,
                        numbers.get((str(receiver), index, False), {}).keys(),
                        self.world.moments,
                        bound,
                        promised=losses.promised(flow, event, before, after),
                        frame_ms=1000 / sent.pps,
                    )
                )
        return counted

    def _flow(self, frame_id: int) -> int | None:
        """Which of the flows it is of."""
        flow = (frame_id >> STREAM_SHIFT) - self.first
        return flow if 0 <= flow < len(self._sent) else None


@dataclass(frozen=True, slots=True)
class _Sent:
    """What one station sends, and the flows that this is, each with who should hear it."""

    kind: str
    station: Station
    frame: bytes
    heard: list[tuple[Flow, Station]] = field(default_factory=list)
    pps: float = losses.PPS
