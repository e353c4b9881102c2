"""Load jumps in simulated time: the engine, and a switch with queues.

Rates are constant between events, so queues and losses are reckoned exactly. Counters are as a real
switch has them: ports' of whole frames, as they happen; flows' when a revalidator has looked.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.api.engine_commands import Apply, Record
from controller.api.events import BundleDone, PortCounters, Sample, Tick
from controller.api.history import Entry, Happened
from tests.unit.fake_switch import FakeSwitch, World, world
from tests.unit.rows import bond, bridge, interface, ours, port
from topologies.network.shaping import QUEUE_BYTES
from topologies.seeds.jumps import (
    FEASIBLE_RATIO,
    SPREAD_S,
    Jump,
    Vm,
    find_below,
    find_best,
    generate,
)
from topologies.seeds.perfect import POLL_S, loss_ratio, schedule

FRAME_BYTES = 1442
# From when a bundle is sent until it is confirmed, and from then until cached flows follow.
CONFIRM_S = 0.02
FOLLOW_S = 0.1
# A revalidator looks twice a second.
FLOWS_S = 0.5
WATCHED_S = 15.0


def of_seed(seed: int, spread_s: float) -> Jump:
    """The jump that the bench has for a seed, whose loads start within this time."""
    jump = generate(seed)
    vms = (replace(vm, start_s=vm.start_s * spread_s / SPREAD_S) for vm in jump.vms)
    return replace(jump, vms=tuple(vms))


def like_trial(seed: int, spread_s: float = 0.05) -> Jump:
    """Eight VMs by two uplinks; those of one come to 118 %, the others to nearly nothing."""
    rng = random.Random(seed)
    capacities_bps = (100_000_000, 100_000_000)
    while True:
        weights = [rng.uniform(0.3, 1.7) for _ in range(8)]
        most_bps = 118e6, rng.uniform(10e6, 40e6)
        after_bps = [w / sum(weights[i % 2 :: 2]) * most_bps[i % 2] for i, w in enumerate(weights)]
        if find_below(after_bps, capacities_bps, FEASIBLE_RATIO):
            vms = (
                Vm(i % 2, 10e6, bps, rng.uniform(0.0, spread_s)) for i, bps in enumerate(after_bps)
            )
            return Jump("trial", capacities_bps, tuple(vms))


class Uplinks:
    """Queues in front of links, as fluids."""

    def __init__(self, capacities_bps: Sequence[float]) -> None:
        self.capacities_bps = capacities_bps
        self.queue_bytes = [0.0] * len(capacities_bps)
        self.sent_bytes = [0.0] * len(capacities_bps)
        self.lost_bytes = 0.0

    def carry(self, offered_bps: Sequence[float], seconds: float) -> None:
        for u, (bps, cap) in enumerate(zip(offered_bps, self.capacities_bps, strict=True)):
            came, room = bps / 8 * seconds, cap / 8 * seconds
            queued = self.queue_bytes[u] + came
            sent = min(queued, room)
            # At one rate a queue only fills or only empties.
            left = queued - sent
            self.lost_bytes += max(0.0, left - QUEUE_BYTES)
            self.queue_bytes[u] = min(left, QUEUE_BYTES)
            self.sent_bytes[u] += sent


class QueuedSwitch(FakeSwitch):
    """Its uplinks carry what they can, and its flows are counted late."""

    def begin(self, capacities_bps: Mapping[int, float], flows_phase_s: float) -> None:
        self.uplink_numbers = list(capacities_bps)
        self.uplinks = Uplinks(list(capacities_bps.values()))
        self.flow_bytes: dict[int, float] = {}
        self.flows_due_s = flows_phase_s
        self.start_s: dict[int, tuple[float, float, float]] = {}
        self.in_force: dict[int, int] = {}
        self.changes: list[tuple[float, dict[int, int]]] = []
        self.offered_bytes = 0.0
        self.pushed: dict[int, float] = {}
        self.bucket_bytes: dict[tuple[int, int], float] = {}
        self.series: list[tuple[float, float, list[float]]] = []

    def loads(self, at_s: float) -> dict[int, float]:
        return {
            o: (after if at_s >= s else before) for o, (before, after, s) in self.start_s.items()
        }

    def forward_until(self, now_s: float) -> None:
        while self.now_s < now_s:
            times = [now_s, self.flows_due_s]
            times += [s for _, _, s in self.start_s.values() if s > self.now_s]
            times += [at_s for at_s, _ in self.changes if at_s > self.now_s]
            end_s = min(t for t in times if t > self.now_s)
            self._carry(end_s)
            while self.changes and self.changes[0][0] <= self.now_s:
                self.in_force = self.changes.pop(0)[1]
            if self.now_s >= self.flows_due_s:
                self.pushed = dict(self.flow_bytes)
                self.sent_by_bucket = dict(self.bucket_bytes)
                self.flows_due_s += FLOWS_S

    def _carry(self, end_s: float) -> None:
        seconds = end_s - self.now_s
        offered = [0.0] * len(self.uplink_numbers)
        for ofport, bps in self.loads(self.now_s).items():
            came = bps / 8 * seconds
            self.sent_bytes[ofport] = self.sent_bytes.get(ofport, 0.0) + came
            self.flow_bytes[ofport] = self.flow_bytes.get(ofport, 0.0) + came
            self.offered_bytes += came
            number = self.hash_of(ofport)
            if number is not None:
                key = number, self.bucket_of(ofport)
                self.bucket_bytes[key] = self.bucket_bytes.get(key, 0.0) + came
            if ofport in self.in_force:
                offered[self.uplink_numbers.index(self.in_force[ofport])] += bps
        self.uplinks.carry(offered, seconds)
        self.series.append((self.now_s, end_s, offered))
        self.now_s = end_s

    def follow(self, now_s: float) -> None:
        """Cached flows follow groups a little later."""
        after = {o: u for o in self.start_s if (u := self._leaves(o)) is not None}
        if not self.in_force:
            self.in_force = after
        elif not self.changes or self.changes[-1][1] != after:
            self.changes.append((now_s + FOLLOW_S, after))

    def _leaves(self, ofport: int) -> int | None:
        """Each VM has one connection."""
        number = self.hash_of(ofport)
        if number is None:
            return self.uplink_of(ofport)
        return self.uplink_of_bucket(number, self.bucket_of(ofport))

    @staticmethod
    def bucket_of(ofport: int) -> int:
        return ofport * 89 % 256

    def _counters(self, ofport: int) -> PortCounters:
        clock_s = self.now_s + 1000.0
        if ofport in self.uplink_numbers:
            sent = self.uplinks.sent_bytes[self.uplink_numbers.index(ofport)]
            return PortCounters(ofport, clock_s, _frames(sent), 0, 0, 0)
        return PortCounters(ofport, clock_s, 0, _frames(self.sent_bytes.get(ofport, 0.0)), 0, 0)

    def _unit_sample(self, ofport: int) -> Sample:
        return Sample(self.now_s + 1000.0, _frames(self.pushed.get(ofport, 0.0)), 0)


def _frames(counted: float) -> int:
    return int(counted // FRAME_BYTES) * FRAME_BYTES


class Late(World):
    """A bundle is confirmed a moment after it is sent."""

    def __init__(self, *rows: object, **more: object) -> None:
        super().__init__(*rows, **more)  # type: ignore[arg-type]
        self.late: list[tuple[float, BundleDone]] = []

    def _carry_out(self, command: object) -> None:
        if isinstance(command, Apply):
            switch = self.switches[command.bridge]
            self.outstanding.add(command.bridge)
            (done,) = switch.carry_out(command)
            switch.follow(self.now_s)  # type: ignore[attr-defined]
            self.late.append((self.now_s + CONFIRM_S, done))  # type: ignore[arg-type]
            return
        super()._carry_out(command)  # type: ignore[arg-type]

    def run_until(self, end_s: float) -> Late:
        while True:
            late_s = self.late[0][0] if self.late else math.inf
            due_s = min(max(self.engine.deadline_s(), self.now_s), late_s)
            if due_s >= end_s:
                break
            self._pass(due_s)
            if late_s <= due_s:
                self.say(self.late.pop(0)[1])
            else:
                self.say(Tick())
        self._pass(end_s)
        return self


@dataclass
class Outcome:
    """What became of a jump.

    `rounds`: the moves that were made together. `above`: from when to when an uplink was offered
    more than 90 % of its capacity, later than a second after the last load began.
    """

    loss_ratio: float
    perfect_ratio: float
    rounds: list[Entry]
    above: list[tuple[float, float, float]]


def moved(world: World, since_s: float) -> list[Entry]:
    """The history's entries of moves."""
    entries = [c.entry for at_s, c in world.log if isinstance(c, Record) and at_s >= since_s]
    return [entry for entry in entries if entry.happened is Happened.MOVED]


def team(
    capacities_bps: Sequence[float],
    at: Sequence[int],
    sent_bps: Sequence[float],
    flows_phase_s: float = 0.123,
) -> tuple[Late, QueuedSwitch]:
    """A bridge with VMs that send that, at uplinks by their indexes; not yet started."""
    capacities = dict(enumerate(capacities_bps, 1))
    members = [
        interface(f"eth{number}", number, ours(capacity_mbps=f"{cap / 1e6:g}"))
        for number, cap in capacities.items()
    ]
    ports = [port(f"vm{i:02}", 10 + i, ours(binding=f"eth{home + 1}")) for i, home in enumerate(at)]
    row = bridge(bond(*members), *ports, ids=ours(policy="adaptive"))
    here = Late(row)
    switch = QueuedSwitch(world(row).switch.ports)
    switch.begin(capacities, flows_phase_s)
    switch.start_s = {10 + i: (bps, bps, 0.0) for i, bps in enumerate(sent_bps)}
    switch.offered_bps = {10 + i: (lambda _: 0.0) for i in range(len(at))}
    here.switches["br0"] = switch
    return here, switch


def run(jump: Jump, phase_s: float) -> Outcome:
    """Have a jump `phase_s` after a poll, and look for a while what comes of it."""
    before_bps = [vm.before_bps for vm in jump.vms]
    here, switch = team(jump.capacities_bps, jump.homes, before_bps, 0.123 + phase_s * 3)
    jump_s = 20.0 + phase_s
    switch.start_s = {
        10 + i: (vm.before_bps, vm.after_bps, jump_s + vm.start_s) for i, vm in enumerate(jump.vms)
    }
    here.start()
    here.run_until(jump_s)
    lost, offered = switch.uplinks.lost_bytes, switch.offered_bytes
    here.run_until(jump_s + WATCHED_S)
    limit_s = jump.last_start_s + 1.0
    above = []
    for begin_s, end_s, used in switch.series:
        worst = max(bps / cap for bps, cap in zip(used, jump.capacities_bps, strict=True))
        if end_s - jump_s > limit_s and worst > 0.9:
            above.append((max(begin_s - jump_s, limit_s), end_s - jump_s, worst))
    perfect = schedule(
        jump, -jump_s % POLL_S, POLL_S, lambda bps: find_best(bps, jump.capacities_bps, jump.homes)
    )
    return Outcome(
        (switch.uplinks.lost_bytes - lost) / (switch.offered_bytes - offered),
        loss_ratio(jump, perfect, WATCHED_S),
        moved(here, jump_s),
        above,
    )
