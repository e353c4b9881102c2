"""The figures of a replay: excess traffic, time above the threshold, optimality, and moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.replay.trace import HostTrace
from policies.model import IDLE, Load, Uplink

# The span over which RFC 7432 counts moves of an address.
MAC_MOVES_SPAN_S = 180.0


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes sent and received. `excess`: bytes above the capacity of their uplink."""

    excess: Load = IDLE
    total: Load = IDLE

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.excess + other.excess, self.total + other.total)

    @property
    def excess_ratios(self) -> tuple[float, float]:
        """The excess as a share of the total, for transmit and receive."""
        excess, total = self.excess, self.total
        return (
            excess.tx_bps / total.tx_bps if total.tx_bps else 0.0,
            excess.rx_bps / total.rx_bps if total.rx_bps else 0.0,
        )


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
        volume = self.by_time.get(start_s, Volume())
        for uplink in uplinks:
            carried_bps = uplink.load.tx_bps, uplink.load.rx_bps
            over_bps = (max(0.0, bps - uplink.capacity_bps) for bps in carried_bps)
            excess, total = ((bps * seconds / 8 for bps in of) for of in (over_bps, carried_bps))
            volume += Volume(Load(*excess), Load(*total))
        self.by_time[start_s] = volume
        self.duration_s += seconds
        if any(uplink.utilization_ratio > threshold_ratio for uplink in uplinks):
            self.above_threshold_s += seconds
        self.optimality_s += optimality_ratio * seconds
        self.worst_optimality_ratio = max(self.worst_optimality_ratio, optimality_ratio)

    def add_figures(self, other: Figures) -> None:
        """Add the figures of another host."""
        for start_s, volume in other.by_time.items():
            self.by_time[start_s] = self.by_time.get(start_s, Volume()) + volume
        self.duration_s += other.duration_s
        self.above_threshold_s += other.above_threshold_s
        self.optimality_s += other.optimality_s
        worst_ratios = self.worst_optimality_ratio, other.worst_optimality_ratio
        self.worst_optimality_ratio = max(worst_ratios)
        self.moves += other.moves
        self.most_moves_per_mac = max(self.most_moves_per_mac, other.most_moves_per_mac)

    @property
    def volume(self) -> Volume:
        return sum(self.by_time.values(), Volume())

    def as_json(self, bound: Volume) -> dict[str, Any]:
        """Return the figures. `bound`: as returned by `fluid_bound`."""
        transmit, receive = self.volume.excess_ratios
        least_transmit, least_receive = bound.excess_ratios
        return {
            "excess_ratio": {"transmit": transmit, "receive": receive},
            "fluid_bound_ratio": {"transmit": least_transmit, "receive": least_receive},
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


def fluid_bound(hosts: Iterable[HostTrace], uplinks: int) -> Volume:
    """Return the least excess of any policy, which could divide all traffic evenly over the uplinks."""
    bound = Volume()
    for host in hosts:
        for start_s, end_s, rates in host.intervals():
            of_vm_ports = (sum(way) for way in zip(*rates.values(), strict=True))
            total = [bps * (end_s - start_s) / 8 for bps in of_vm_ports]
            capacity = uplinks * host.capacity_bps * (end_s - start_s) / 8
            bound += Volume(Load(*(max(0.0, sent - capacity) for sent in total)), Load(*total))
    return bound


class MacMoves:
    """Counts address moves. `most`: the most moves of one address within `MAC_MOVES_SPAN_S`."""

    def __init__(self) -> None:
        self.most = 0
        self._times: dict[int, deque[float]] = {}

    def moved(self, ofport: int, now_s: float) -> None:
        times = self._times.setdefault(ofport, deque())
        times.append(now_s)
        while times[0] <= now_s - MAC_MOVES_SPAN_S:
            times.popleft()
        self.most = max(self.most, len(times))
