"""Conditions on a bench's figures, from documents or from comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.compare.contenders import BONDS, MANUAL
from topologies.compare.figures import Figures

# The best of our policies against the best bond of Open vSwitch.
LEAST_THROUGHPUT_RATIO = 0.98
MOST_CPU_RATIO = 1.05
# The spread of a peer above which its load counts as uneven; below that there is nothing to gain.
UNEVEN_CV = 0.1


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition, what was found, and whether that meets it."""

    condition: str
    found: str
    met: bool


def is_peer(contender: str) -> bool:
    """Whether it is one of Open vSwitch's own bonds."""
    return contender in BONDS


def is_ours(contender: str) -> bool:
    """Whether it is one of our policies."""
    return not is_peer(contender) and contender != MANUAL


def against_peers(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Compare our best policy with the best peer: throughput, spread, CPU time per bit.

    Throughput is that of the fastest on each side. Spread and CPU time are those of the most even
    on each side among those within 2 % of the fastest, because an operator would choose that one.
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
            f"{scenario}: throughput of the best of ours >= {LEAST_THROUGHPUT_RATIO} x best peer",
            f"{ours} {ratio:.3f} x {peer}",
            ratio >= LEAST_THROUGHPUT_RATIO,
        )
    ]
    ours, peer = best(of_ours), best(of_peers)
    mine, theirs = contenders[ours], contenders[peer]
    if "spread_cv" in theirs and theirs["spread_cv"] > UNEVEN_CV:
        found.append(
            Expectation(
                f"{scenario}: spread of the best of ours better than the best peer's",
                f"CV {ours} {mine['spread_cv']:.3f}, {peer} {theirs['spread_cv']:.3f}",
                mine["spread_cv"] < theirs["spread_cv"],
            )
        )
    if mine.get("cpu_s_per_gbit") and theirs.get("cpu_s_per_gbit"):
        ratio = mine["cpu_s_per_gbit"] / theirs["cpu_s_per_gbit"]
        found.append(
            Expectation(
                f"{scenario}: CPU time per bit of the best of ours <= {MOST_CPU_RATIO} x best peer",
                f"{ours} {ratio:.3f} x {peer}",
                ratio <= MOST_CPU_RATIO,
            )
        )
    return found


def within(condition: str, value: float, least: float, most: float) -> Expectation:
    """Expects a share within a range."""
    return Expectation(
        f"{condition}: {least:.3f} to {most:.3f}", f"{value:.3f}", least <= value <= most
    )


def at_least(condition: str, value: float, least: float) -> Expectation:
    """Expects at least this share."""
    return Expectation(f"{condition}: at least {least:.3f}", f"{value:.3f}", value >= least)


def fastest(contenders: Mapping[str, Figures]) -> str:
    """The contender with the most throughput; of equals the first by name. Empty without any."""
    return min(contenders, key=lambda name: (-contenders[name]["throughput_bps"], name), default="")


def best(contenders: Mapping[str, Figures]) -> str:
    """The most even contender within 2 % of the best throughput; empty without any."""
    if not contenders:
        return ""
    most_bps = max(one["throughput_bps"] for one in contenders.values())
    good = _names(contenders, LEAST_THROUGHPUT_RATIO * most_bps)
    return min(good, key=lambda name: (contenders[name].get("spread_cv", 0.0), name))


def _names(contenders: Mapping[str, Figures], least_bps: float) -> Iterable[str]:
    return (name for name, one in contenders.items() if one["throughput_bps"] >= least_bps)
