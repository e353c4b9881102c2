"""Conditions on the figures of a bench, from published documents and from comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.compare.contenders import BONDS, MANUAL, ORACLE
from topologies.compare.figures import Figures

# The limits for our best policy, relative to the best bond of Open vSwitch.
LEAST_THROUGHPUT_RATIO = 0.98
MOST_CPU_RATIO = 1.05
# A peer with a higher spread counts as uneven. With a lower one, there is nothing to gain.
UNEVEN_CV = 0.1


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition, the measured value, and whether the value meets the condition."""

    condition: str
    found: str
    met: bool


def is_peer(contender: str) -> bool:
    """Whether a contender is one of Open vSwitch's own bonds."""
    return contender in BONDS


def is_ours(contender: str) -> bool:
    """Whether a contender is one of our policies."""
    return not is_peer(contender) and contender not in (MANUAL, ORACLE)


def against_peers(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Compare our best policy with the best peer: throughput, spread, CPU time per bit.

    The throughput comparison is between the fastest contenders of both sides. For spread and CPU
    time, each side has its most even contender among those within 2 % of its fastest, because an
    operator would choose that one.
    """
    of_ours = {name: one for name, one in contenders.items() if is_ours(name)}
    of_peers = {name: one for name, one in contenders.items() if is_peer(name)}
    if not of_ours or not of_peers:
        return []
    ours, peer = fastest(of_ours), fastest(of_peers)
    most_bps = contenders[peer]["throughput_bps"]
    ratio = contenders[ours]["throughput_bps"] / max(1.0, most_bps)
    found = [
        Expectation(
            f"{scenario}: throughput of our best policy >= {LEAST_THROUGHPUT_RATIO} x best peer",
            f"{ours} {ratio:.3f} x {peer}",
            ratio >= LEAST_THROUGHPUT_RATIO,
        )
    ]
    ours, peer = best(of_ours), best(of_peers)
    mine, theirs = contenders[ours], contenders[peer]
    if "spread_cv" in theirs and theirs["spread_cv"] > UNEVEN_CV:
        found.append(
            Expectation(
                f"{scenario}: spread of our best policy better than the best peer's",
                f"CV {ours} {mine['spread_cv']:.3f}, {peer} {theirs['spread_cv']:.3f}",
                mine["spread_cv"] < theirs["spread_cv"],
            )
        )
    if mine.get("cpu_s_per_gbit") and theirs.get("cpu_s_per_gbit"):
        ratio = mine["cpu_s_per_gbit"] / theirs["cpu_s_per_gbit"]
        found.append(
            Expectation(
                f"{scenario}: CPU time per bit of our best policy <= {MOST_CPU_RATIO} x best peer",
                f"{ours} {ratio:.3f} x {peer}",
                ratio <= MOST_CPU_RATIO,
            )
        )
    return found


def within(condition: str, value: float, least: float, most: float) -> Expectation:
    """Expect a value within a range, including its ends."""
    return Expectation(
        f"{condition}: {least:.3f} to {most:.3f}", f"{value:.3f}", least <= value <= most
    )


def at_least(condition: str, value: float, least: float) -> Expectation:
    """Expect at least this value."""
    return Expectation(f"{condition}: at least {least:.3f}", f"{value:.3f}", value >= least)


def at_most(condition: str, value: float, most: float, shown: str = "{:.3f}") -> Expectation:
    """Expect at most this value, which the condition names."""
    return Expectation(condition, shown.format(value), value <= most)


def better(
    condition: str, ours: float, theirs: float, shown: str, *, or_equal: bool = False
) -> Expectation:
    """Expect our value to be less than theirs."""
    found = f"{shown.format(ours)} and {shown.format(theirs)}"
    return Expectation(condition, found, ours < theirs or (or_equal and ours == theirs))


def none(condition: str, counts: Mapping[str, float]) -> Expectation:
    """Expect nothing to have been counted, under any of these names."""
    found = [f"{name} {round(count)}".strip() for name, count in counts.items() if count]
    return Expectation(condition, ", ".join(found) or "0", not found)


def fastest(contenders: Mapping[str, Figures]) -> str:
    """The contender with the highest throughput; ties go by name. Empty without contenders."""
    return min(contenders, key=lambda name: (-contenders[name]["throughput_bps"], name), default="")


def best(contenders: Mapping[str, Figures]) -> str:
    """The most even contender within 2 % of the highest throughput. Empty without contenders."""
    if not contenders:
        return ""
    most_bps = max(one["throughput_bps"] for one in contenders.values())
    good = _names(contenders, LEAST_THROUGHPUT_RATIO * most_bps)
    return min(good, key=lambda name: (contenders[name].get("spread_cv", 0.0), name))


def _names(contenders: Mapping[str, Figures], least_bps: float) -> Iterable[str]:
    return (name for name, one in contenders.items() if one["throughput_bps"] >= least_bps)
