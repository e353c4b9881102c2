"""The figures of a replay as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.replay.figures import Figures
from controller.replay.host import Options
from controller.replay.trace import HostTrace

HEAD = (
    f"{'':<18}{'EXCESS, % OF BYTES':>20}{'ABOVE':>10}{'OPTIMALITY':>16}{'MOVES':>7}{'PER MAC':>9}",
    f"{'POLICY':<18}{'transmit':>11}{'receive':>9}{'hours':>10}{'mean':>9}{'worst':>7}"
    f"{'':>7}{'in 180 s':>9}",
)


def table(
    found: Mapping[str, Figures],
    hosts: Sequence[HostTrace],
    options: Options,
    threshold_ratio: float,
) -> list[str]:
    """A table of at most 80 columns."""
    ports = sum(len(host.ports) for host in hosts)
    longest_s = max(end - host.intervals()[0][0] for host in hosts for end in [_end_s(host)])
    return [
        f"{len(hosts)} hosts with {options.uplinks} uplinks each, {ports} VM ports of"
        f" {options.mix.flows} flows, {longest_s / 3600:.1f} hours",
        "",
        *HEAD,
        *(_row(policy, figures) for policy, figures in found.items()),
        "",
        f"Above: hours, summed over hosts, with an uplink above {100 * threshold_ratio:g} %.",
        "Optimality: the worst utilization over the least that any placement of what the",
        "policy moves could reach; 1 is perfect.",
    ]


def _end_s(host: HostTrace) -> float:
    return host.intervals()[-1][1]


def _row(policy: str, figures: Figures) -> str:
    volume = figures.volume
    transmit, receive = (100 * volume.excess_ratio(direction) for direction in range(2))
    mean = figures.optimality_s / figures.duration_s
    return (
        f"{policy:<18}{transmit:>11.2f}{receive:>9.2f}{figures.above_threshold_s / 3600:>10.1f}"
        f"{mean:>9.2f}{figures.worst_optimality_ratio:>7.2f}{figures.moves:>7}"
        f"{figures.most_moves_per_mac:>9}"
    )
