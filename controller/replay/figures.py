"""The figures of a replay: excess traffic, time above the threshold, optimality, and moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from policies.model import Uplink

# The span over which RFC 7432 counts moves of an address.
MAC_MOVES_SPAN_S = 180.0
DIRECTIONS = ("transmit", "receive")


@dataclass(slots=True)
class Volume:
    """Bytes by direction. `excess`: bytes above the capacity of their uplink."""

    excess: list[float] = field(default_factory=lambda: [0.0, 0.0])
    total: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, other: Volume) -> None:
        for direction in range(2):
            self.excess[direction] += other.excess[direction]
            self.total[direction] += other.total[direction]

    def excess_ratio(self, direction: int) -> float:
        total = self.total[direction]
        return self.excess[direction] / total if total else 0.0


@dataclass(slots=True)
class Figures:
    """The figures of one policy, on one host or all hosts. Times are summed over hosts.

    `by_time`: the volume of each sample, by its start.
    """

    by_time: dict[float, Volume] = field(default_factory=dict)
    duration_s: float = 0.0
    above_threshold_s: float = 0.0
    optimality_s: float = 0.0
    worst_optimality_ratio: float = 1.0
    moves: int = 0
    most_moves_per_mac: int = 0

    def hold_figures(
        self,
        start_s: float,
        seconds: float,
        uplinks: Sequence[Uplink],
        optimality_ratio: float,
        threshold_ratio: float,
    ) -> None:
        """Add the loads of `uplinks` for `seconds` to the sample that started at `start_s`."""
        volume = self.by_time.setdefault(start_s, Volume())
        for uplink in uplinks:
            for direction, bps in enumerate((uplink.load.tx_bps, uplink.load.rx_bps)):
                over_bps = max(0.0, bps - uplink.capacity_bps)
                volume.excess[direction] += over_bps * seconds / 8
                volume.total[direction] += bps * seconds / 8
        self.duration_s += seconds
        if any(uplink.utilization_ratio > threshold_ratio for uplink in uplinks):
            self.above_threshold_s += seconds
        self.optimality_s += optimality_ratio * seconds
        self.worst_optimality_ratio = max(self.worst_optimality_ratio, optimality_ratio)

    def add_figures(self, other: Figures) -> None:
        """Add the figures of another host."""
        for start_s, volume in other.by_time.items():
            self.by_time.setdefault(start_s, Volume()).add(volume)
        self.duration_s += other.duration_s
        self.above_threshold_s += other.above_threshold_s
        self.optimality_s += other.optimality_s
        worst = max(self.worst_optimality_ratio, other.worst_optimality_ratio)
        self.worst_optimality_ratio = worst
        self.moves += other.moves
        self.most_moves_per_mac = max(self.most_moves_per_mac, other.most_moves_per_mac)

    @property
    def volume(self) -> Volume:
        summed = Volume()
        for volume in self.by_time.values():
            summed.add(volume)
        return summed

    def as_json(self) -> dict[str, Any]:
        volume = self.volume
        return {
            "excess_ratio": {
                name: volume.excess_ratio(number) for number, name in enumerate(DIRECTIONS)
            },
            "above_threshold_s": self.above_threshold_s,
            "duration_s": self.duration_s,
            "optimality": {
                "mean": self.optimality_s / self.duration_s if self.duration_s else 1.0,
                "worst": self.worst_optimality_ratio,
            },
            "moves": self.moves,
            "most_moves_per_mac_180s": self.most_moves_per_mac,
        }


def summed(of_hosts: Iterable[Figures]) -> Figures:
    total = Figures()
    for figures in of_hosts:
        total.add_figures(figures)
    return total


class MacMoves:
    """Counts moves of addresses. `most`: the most moves of an address within `MAC_MOVES_SPAN_S`."""

    def __init__(self) -> None:
        self.most = 0
        self._times: dict[int, deque[float]] = {}

    def moved(self, ofport: int, now_s: float) -> None:
        times = self._times.setdefault(ofport, deque())
        times.append(now_s)
        while times[0] <= now_s - MAC_MOVES_SPAN_S:
            times.popleft()
        self.most = max(self.most, len(times))
