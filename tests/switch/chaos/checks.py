"""What holds after each event, whatever it was."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.switch import frames
from tests.switch.bed import Bed, Shot, Station
from tests.switch.chaos import audit, losses
from tests.switch.chaos.losses import Counted, Flow, Lost
from tests.switch.chaos.model import VLANS, Service
from tests.switch.chaos.traffic import Rounds, Sending, Traffic
from tests.switch.chaos.world import World
from tests.switch.wire import STREAM_SHIFT

# A member whose partner was given up says so each 30 s only, whatever `lacp-time` is.
SETTLED_WITHIN_S = 45.0
RETRY_S = 0.1
OUTSIDER = "02:ee:00:00:00:01"
RSS_MAX_BYTES = 110 << 20
THREADS_MAX, FILES_MAX = 24, 64
LOOPS_FROM = 4
# Together 1.3 times what the service takes an uplink for. One frame in every so manyth round.
LOAD_FLOWS, LOAD_EVERY, LOAD_FRAME_BYTES = 16, 2, 800
# A switch that has not delivered a frame by then has lost it.
LATE_S = 0.5
# What a move costs may be lost in the event behind it.
MOVE_LASTS_S = 0.5
# By point and flow, how often each frame came in there.
HeardAt = Mapping[str, Mapping[int, Mapping[int, int]]]


@dataclass(frozen=True, slots=True)
class Probe:
    """A frame, and what is said against where its copies came out; nothing: all is well."""

    shot: Shot
    wrong: Callable[[Counter[str]], str]


def settle(world: World, traffic: Traffic) -> list[str]:
    """What is still wrong after a while; nothing, once all is well.

    First nobody but the network is asked to speak: a VM that is silent must be reached, too.
    """
    deadline_s = time.monotonic() + SETTLED_WITHIN_S
    everywhere = (reached, exchanged, from_cables)
    by_frames = everywhere[1:2] if world.state.on_normal else everywhere
    looks = [*(functools.partial(look, world, traffic) for look in by_frames)]
    looks += [*(functools.partial(look, world) for look in (installed, resources))]
    # LOCAL is a new interface whenever the switch was restarted.
    with traffic.listening_at(world.bed.local.point):
        for look in looks:
            while wrong := [*shown(world), *look()]:
                if time.monotonic() > deadline_s:
                    return wrong
                traffic.listen_for(RETRY_S)
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
            wrong.append(f"show: (up, role) of {name} is {found}; expected {so}")
    ports = {port["name"]: port["uplink"] for port in bridge["ports"]}
    if ports.keys() != {station.port for station in world.here.values()}:
        wrong.append(f"show: ports are {sorted(ports)}; expected {sorted(map(str, world.here))}")
    for who, station in world.here.items():
        exits = {world.uplink(exit_).name for exit_ in state.exits(who)}
        # What is observed is bound where rules say, to which NORMAL keeps not.
        if exits and not state.observing and ports.get(station.port) not in exits:
            wrong.append(
                f"show: {who or 'LOCAL'} is on {ports.get(station.port)};"
                f" expected one of {sorted(exits)}"
            )
    if errors := bridge["config_errors"]:
        wrong.append(f"show: config errors are {errors}; expected none")
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
        return audit.differences(world.bed, world.homes)
    (flows, groups), (flows_left, groups_left) = world.installed(), world.left
    changed = [
        *sorted(flows ^ flows_left),
        *(g for i, g in groups.items() if groups_left.get(i) != g),
    ]
    return [f"changed while the service is dead: {line}" for line in changed]


def resources(world: World) -> list[str]:
    """What the service has more of than it may have."""
    most = {"resident bytes": RSS_MAX_BYTES, "threads": THREADS_MAX, "open files": FILES_MAX}
    found = resources_of(world)
    return [f"{n} {w}; expected at most {most[w]}" for w, n in found.items() if n > most[w]]


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


def reached(world: World, traffic: Traffic) -> list[str]:
    """Who is not reached by the network though nobody here has said a word.

    Nobody announces a failover while the service is dead, so until they speak, switches upstream
    may flood what is for VMs, or send it to where they were.
    """
    known = world.state.service is Service.ALIVE
    return _probed(traffic, from_outside(world, known))


def exchanged(world: World, traffic: Traffic) -> list[str]:
    """What goes wrong when everybody sends to everybody."""
    return _probed(traffic, from_everywhere(world))


def _probed(traffic: Traffic, probes: Iterator[Probe]) -> list[str]:
    """What goes wrong with frames."""
    sent = list(probes)
    copies = traffic.fire([probe.shot for probe in sent])
    wrong = []
    for probe in sent:
        if story := probe.wrong(copies[probe.shot.frame_id]):
            came = ", ".join(f"{n} × {at}" for at, n in sorted(copies[probe.shot.frame_id].items()))
            wrong.append(f"{probe.shot.story}: arrived {came or 'nowhere'}; expected {story}")
    return wrong


def from_outside(world: World, known: bool = True) -> Iterator[Probe]:
    """What a host upstream sends; `known`: upstream it is known where VMs are."""
    bed, host = world.bed, world.bed.hosts[0]
    reached = {str(s): bool(world.state.exits(n)) for n, s in world.here.items()}
    for name, station in world.here.items() if known else ():
        vlan, story = station.vlan or 0, f"to {name or 'LOCAL'}"
        shot = bed.frame_of(host, _to(station.mac), story=story, vlan=vlan)
        at_it = functools.partial(_at_it, str(station), reached[str(station)], bed.ends)
        yield Probe(shot, at_it)
    for vlan in () if world.state.on_normal else VLANS:
        hearing = [s for s in world.here.values() if s.hears(vlan) and reached[str(s)]]
        for kind in ("broadcast", "unknown unicast"):
            build, story = frames.FLOODED[kind], f"{kind} in VLAN {vlan}"
            shot = bed.frame_of(host, build, story=story, vlan=vlan)
            yield Probe(shot, functools.partial(_at_all, _once_at(hearing)))


def from_everywhere(world: World) -> Iterator[Probe]:
    """What VMs send, and what comes by each cable."""
    bed, host, state = world.bed, world.bed.hosts[0], world.state
    ends = {str(world.uplink(name).upstream_end): name for name in state.uplinks}
    yield from from_outside(world)
    for name, station in world.here.items():
        vlan, who = station.vlan or 0, name or "LOCAL"
        neighbours = [s for s in world.here.values() if s != station and s.hears(vlan)]
        leaves = functools.partial(_leaves, ends, state.exits(name))

        def shot(
            build: frames.Builder, story: str, station: Station = station, vlan: int = vlan
        ) -> Shot:
            return bed.frame_of(station, build, story=story, vlan=vlan)

        flooded = _once_at(neighbours)
        broadcast = shot(frames.broadcast, f"broadcast of {who}")
        yield Probe(broadcast, functools.partial(leaves, (flooded,)))
        elsewhere = [s.mac for s in world.away.values() if (s.vlan or 0) == vlan]
        # What is for somebody that the switch has not learned is flooded to neighbours.
        here = () if state.on_normal else (Counter[str](), flooded)
        for mac in (host.mac, *elsewhere):
            yield Probe(shot(_to(mac), f"{who} to {mac} upstream"), functools.partial(leaves, here))
        for other in neighbours:
            if (other.vlan or 0) == vlan:
                at_other = functools.partial(_at_all, _once_at([other]))
                yield Probe(shot(_to(other.mac), f"{who} to {other}"), at_other)


def _at_it(station: str, reached: bool, ends: Collection[str], n: Counter[str]) -> str:
    """Against a unicast frame: it is not once at its station, or came back, or came twice."""
    # What comes by an uplink that the station may not use itself is delivered, too.
    if n[station] != reached:
        return f"{'once' if reached else 'none'} at {station}"
    if any(n[end] for end in ends):
        return "none back"
    return "each at most once" if any(count > 1 for count in n.values()) else ""


def _at_all(expected: Counter[str], n: Counter[str]) -> str:
    """Against a frame: it did not come out there, and nowhere else."""
    return "" if n == expected else f"once each at {sorted(expected)}"


def _leaves(
    ends: Mapping[str, str], exits: frozenset[str], here: Sequence[Counter[str]], n: Counter[str]
) -> str:
    """Against a frame: it did not leave once by one of the exits, or was heard `here` in none of these ways.

    No way: it may be heard anywhere.
    """
    by = [ends[at] for at in n.elements() if at in ends]
    if len(by) != bool(exits) or not exits.issuperset(by):
        return f"once over one of {sorted(exits)}" if exits else "no uplink"
    heard = Counter({at: count for at, count in n.items() if at not in ends})
    return f"{dict(here[0])} here" if here and heard not in here else ""


def _once_at(stations: Iterable[Station]) -> Counter[str]:
    return Counter(map(str, stations))


def from_cables(world: World, traffic: Traffic) -> list[str]:
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
    copies = traffic.fire(list(shots.values()))
    heard: Counter[tuple[str, int]] = Counter()
    for (_, vlan), shot in shots.items():
        for at, n in copies[shot.frame_id].items():
            heard[at, vlan] += n
    wrong = []
    for name, station in world.here.items():
        for vlan in VLANS:
            expected = len(live) if state.lag else 1
            expected *= station.hears(vlan) and bool(state.exits(name))
            if (found := heard[str(station), vlan]) != expected:
                wrong.append(
                    f"broadcasts in VLAN {vlan}, one over each of {live}:"
                    f" {name} received {found}; expected {expected}"
                )
    back = {at: n for (at, _), n in heard.items() if at in bed.ends}
    return [*wrong, f"broadcasts returned to the network: {back}"] if back else wrong


def _to(mac: str) -> frames.Builder:
    return lambda source, tag, frame_id: frames.udp(source, mac, vlan=tag, frame_id=frame_id)


# ---- what goes on all the while ---------------------------------------------------------


class Background:
    """Flows between the host upstream and every VM, and its broadcasts, during one event.

    Each second VM speaks until all is settled, the others until the event is over; they change
    roles with each event. The sender goes on between events, and what is lost then is of the next one.
    `cost` gets what the event has cost.
    """

    def __init__(self, world: World, traffic: Traffic, number: int, cost: Counted) -> None:
        self.world = world
        self.traffic = traffic
        self.cost = cost
        self.before = world.state
        host = world.bed.hosts[0]
        here = {name: vm for name, vm in world.here.items() if name}
        all_vms = sorted(self.before.vms)
        self._silent = {name for i, name in enumerate(all_vms) if (i + number) % 2}
        # Numbers of flows: broadcasts, to each VM, from each VM, of a VM's connections.
        self._sent: dict[int, _Sent] = {}
        # Numbers below 1 are of frames that are not of a flow.
        for index, vlan in enumerate(VLANS, start=1):
            sent = self._sent[index] = _Sent(
                "broadcasts", host, frames.broadcast(host.mac, vlan, 0)
            )
            for name, vm in here.items():
                if vm.hears(vlan):
                    story = f"broadcasts in VLAN {vlan} to {name}"
                    sent.heard.append((Flow(story, name, True, True, name in self._silent), vm))
        self._to = 1 + len(VLANS)
        self._of = self._to + len(all_vms)
        self._load_of = self._of + len(all_vms)
        for name, vm in here.items():
            index = all_vms.index(name)
            frame = frames.udp(host.mac, vm.mac, vlan=vm.vlan or 0)
            flow = Flow(f"host to {name}", name, True, silent=name in self._silent)
            self._sent[self._to + index] = _Sent("unicast", host, frame, [(flow, vm)])
            flow = Flow(f"{name} to host", name, False, silent=name in self._silent)
            frame = frames.udp(vm.mac, host.mac)
            self._sent[self._of + index] = _Sent("sent", vm, frame, [(flow, host)])

    def __enter__(self) -> Background:
        self.bound_to = self._bindings()
        self._since_s = time.time()
        since = self.traffic.go_on({number: sent.sending for number, sent in self._sent.items()})
        for number, sent in self._sent.items():
            sent.first = since[number]
        self.first = min(since.values(), default=self.traffic.counted)
        self.world.load = self._load
        return self

    def __exit__(self, *_: object) -> None:
        self.world.load = None

    def vms_fall_silent(self) -> None:
        """From here on half of them do not speak."""
        of_vms = {n: s for n, s in self._sent.items() if self._of <= n < self._load_of}
        self._end(number for number, sent in of_vms.items() if sent.heard[0][0].silent)

    def _end(self, numbers: Iterable[int]) -> None:
        ended = list(numbers)
        end = self.traffic.set(dict.fromkeys(ended)) if ended else 0
        for number in ended:
            self._sent[number].end = end

    @contextlib.contextmanager
    def _load(self, vm: str) -> Iterator[None]:
        """A VM sends more than one uplink carries, by connections that are counted, too."""
        station, host = self.world.vm(vm), self.world.bed.hosts[0]
        load = {}
        for number in range(LOAD_FLOWS):
            frame = frames.udp(
                station.mac,
                host.mac,
                destination_ip=f"198.51.100.{number + 1}",
                frame_bytes=LOAD_FRAME_BYTES,
            )
            flow = Flow(f"{vm} to host, connection {number}", vm, False)
            load[self._load_of + number] = _Sent("load", station, frame, [(flow, host)], LOAD_EVERY)
        first = self.traffic.set({number: sent.sending for number, sent in load.items()})
        for sent in load.values():
            sent.first = first
        self._sent |= load
        try:
            yield
        finally:
            self._end(load)

    def _bindings(self) -> dict[str, str]:
        """The uplink of each VM port as the database says it."""
        columns = ("--columns=name,external_ids", "list", "interface")
        shown = self.world.bed.ovs.vsctl("--bare", "--no-headings", "-f", "csv", *columns)
        line = r'^"?([^",\n]+)"?,.*ovs-lbt-binding=([^" \n]+)'
        return dict(re.findall(line, shown, re.MULTILINE))

    def wrong(self) -> tuple[list[str], list[str]]:
        """What is wrong with the way of frames; and what was lost or came twice beyond the bounds."""
        rounds, cost = self.traffic.rounds(self.first), self.cost
        self.traffic.counted = rounds.end
        cost.late_s = rounds.latest_s
        for sent in self._sent.values():
            sent.end = min(sent.end, rounds.end)
        after = self.world.state
        going_on = {
            number: [
                str(to) for flow, to in sent.heard if losses.expected(flow, self.before, after)
            ]
            for number, sent in self._sent.items()
            if sent.end == rounds.end
        }
        self.traffic.landed(going_on, rounds.end)
        now = self._bindings()
        cost.flows = self._count(rounds, now)
        if cost.beyond:
            # They may only be late, on a machine that is busy.
            self.traffic.listen_for(LATE_S)
            cost.flows = self._count(rounds, now)
        heard = self._heard(rounds)
        cost.twice_bound = losses.twice_bound(cost.event, self.before)
        return self._looped(heard), [*map(str, cost.beyond), *self._twice(heard)]

    def _on_normal(self) -> bool:
        """What a bond of Open vSwitch lets through by itself is not ours."""
        return self.before.on_normal or self.world.state.on_normal

    def _looped(self, heard_at: HeardAt) -> list[str]:
        wrong = []
        for point, heard in heard_at.items():
            if point in self.world.bed.ends and not self._on_normal():
                back = sum(len(copies) for flow, copies in heard.items() if flow < self._of)
                if back:
                    wrong.append(f"{back} frames went back to the network at {point}")
            most = max((max(copies.values(), default=0) for copies in heard.values()), default=0)
            if most >= LOOPS_FROM:
                wrong.append(f"a loop: a frame was heard {most} times at {point}")
        return wrong

    def _twice(self, heard_at: HeardAt) -> list[str]:
        wrong, cost = [], self.cost
        # By what was sent: the most frames of it that one receiver heard more than once.
        twice = Counter[str]()
        for point, heard in heard_at.items():
            again = +Counter({i: sum(n > 1 for n in of.values()) for i, of in heard.items()})
            twice |= Counter(kind for i, n in again.items() for kind in [self._sent[i].kind] * n)
            if self._on_normal():
                continue
            cost.flow_twice = max([cost.flow_twice, *again.values()])
            for index, count in again.items():
                sent = self._sent[index]
                most = cost.twice_bound if sent.kind == "broadcasts" else 0
                if count > most:
                    wrong.append(
                        f"{count} {sent.kind} of one flow heard twice at {point} -> {most}"
                    )
        cost.twice = dict(twice)
        return wrong

    def _heard(self, rounds: Rounds) -> HeardAt:
        """By point and flow, how often each frame of this event came in there."""
        return {
            point: {
                flow: {n: copies for n, copies in of.items() if rounds.first <= n < rounds.end}
                for flow, of in counts.items()
                if flow in self._sent
            }
            for point, counts in self.traffic.heard().items()
        }

    def _count(self, rounds: Rounds, now: Mapping[str, str]) -> list[Lost]:
        """What each flow has lost. `now`: the uplinks of VM ports at the end."""
        event, before, after = self.cost.event, self.before, self.world.state
        heard = self.traffic.heard()
        ports = moved_since(self.world.bed, self._since_s - MOVE_LASTS_S)
        moved = {
            name
            for name, vm in self.world.here.items()
            if self.bound_to.get(vm.port) != now.get(vm.port) or vm.port in ports
        }
        counted = []
        for index, sent in self._sent.items():
            at_s = rounds.sent(index, sent.first, sent.end, sent.every)
            for flow, receiver in sent.heard:
                if not losses.expected(flow, before, after):
                    continue
                bound = losses.bound_ms(
                    event,
                    before,
                    own=losses.is_own(flow, event),
                    broadcast=flow.broadcast,
                    moved=flow.vm in moved,
                    slow=self.world.slow_bfd,
                )
                counted.append(
                    losses.lost(
                        flow,
                        at_s,
                        heard[str(receiver)].get(index, ()),
                        self.world.moments,
                        bound,
                        promised=losses.promised(flow, event, before, after),
                        frame_ms=losses.FRAME_MS * sent.every,
                    )
                )
        return counted


def moved_since(bed: Bed, at_s: float) -> set[str]:
    """The VM ports that policies have moved since then, even if they are back where they were."""
    ports: set[str] = set()
    for history in sorted(bed.ovs.rundir.glob("*-history.jsonl")):
        for line in reversed(history.read_text().splitlines()):
            entry = json.loads(line)
            if entry["at"] < at_s:
                break
            if entry["event"] == "moved":
                # Moves of buckets have no port.
                ports |= {str(move["port"]) for move in entry["moves"] if "port" in move}
    return ports


@dataclass(slots=True)
class _Sent:
    """What one station sends, and the flows that this is, each with who should hear it.

    From round `first` on, in every so manyth round, until round `end`.
    """

    kind: str
    station: Station
    frame: bytes
    heard: list[tuple[Flow, Station]] = field(default_factory=list)
    every: int = 1
    first: int = 0
    end: int = 1 << STREAM_SHIFT

    @property
    def sending(self) -> Sending:
        return self.station, self.frame, self.every
