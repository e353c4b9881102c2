"""The tables of a report in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topologies.compare.contenders import ORACLE
from topologies.reports.comparison import by_kind
from topologies.reports.known_figures import (
    Figure,
    figures,
    measured,
    number,
    repetitions,
)
from topologies.reports.markdown import code, table

# The columns of a table on a page.
MOST_COLUMNS = 7
# If there are more figures, published ones come first, then these in this order, then the others.
PREFERRED = (
    *("settle_s", "restored_s", "fault_found_s", "slowdown_p50", "slowdown_p99"),
    *("caught_slowdown_worst", "fct_small_p99_ms", "unfinished_ratio", "uplink_difference"),
    *("retransmissions_per_move", "tcp_disordered_per_move", "reordered_per_move", "silence_ms"),
    *("worst_silence_ms", "failover_ms", "failback_ms", "blackout_ms", "probe_lost", "total_s"),
    *("throughput_bps", "spread_cv", "loss_ratio", "cpu_ratio", "stream_cv", "moves"),
)
# Figures that another column has in another unit.
REPEATED = ("share_of_limit", "steady_share_of_limit", "stream_mean_bps")


def columns(scenario: Mapping[str, Any], most: int | None = None) -> list[Figure]:
    """The figures of the scenario except minor ones.

    With `most`, only that many, and none that is the same for all contenders.
    """
    contenders = scenario["contenders"].values()
    documented = {name for found in scenario.get("published", {}).values() for name in found}
    names = {name for found in contenders for name in measured(found)}
    known = [of for of in figures(names) if not of.minor or of.name in documented]
    if most is None:
        return known

    def rank(of: Figure) -> int:
        if of.name in documented:
            return -1
        return PREFERRED.index(of.name) if of.name in PREFERRED else len(PREFERRED)

    def varies(of: Figure) -> bool:
        return len({of.text(number(one, of.name)) for one in contenders}) > 1

    shown = [of for of in known if of.name not in REPEATED and (len(contenders) == 1 or varies(of))]
    shown += [of for of in known if of.name in documented and of not in shown]
    chosen = sorted(shown, key=lambda of: (rank(of), known.index(of)))[:most]
    return [of for of in known if of in chosen]


def figures_table(scenario: Mapping[str, Any], most: int | None = None, of: str = "") -> str:
    """The medians of the oracle, the peers, and our policies, with at most `most` columns.

    A published figure follows the measured one after a slash. `of`: what rows are, if not contenders.
    """
    contenders, published = scenario["contenders"], scenario.get("published", {})
    counts = {len(found.get("runs", ())) for found in contenders.values()}
    names = ["contender", "n"] if len(counts) > 1 else [of or f"n = {max(counts)}"]
    shown = columns(scenario, most and most - len(names))
    documented = {name for found in published.values() for name in found}
    heads = [
        f"{of.label}{' / published' if of.name in documented else ''}"
        f"{f', {of.unit}' if of.unit else ''}"
        for of in shown
    ]
    oracle = {name: found for name, found in contenders.items() if name == ORACLE}
    peers, ours = (by_kind(contenders, ours=ours) for ours in (False, True))
    lines = []
    for name, found in (oracle | peers | ours).items():
        cells = [_cell(found, published.get(name, {}), of) for of in shown]
        count = str(len(found.get("runs", ())) or "")
        lines.append([code(name), *([count] if len(counts) > 1 else []), *cells])
    return table([*names, *heads], lines)


def _cell(found: Mapping[str, Any], published: Mapping[str, Any], of: Figure) -> str:
    text = of.text(number(found, of.name))
    count = len(repetitions(found, of.name))
    if text and count and count != len(found["runs"]):
        text += f" (n = {count})"
    document = of.text(number(published, of.name))
    return f"{text} / {document}" if document else text


def phases_table(report: Mapping[str, Any]) -> str:
    """The phases of a ramping load next to the published ones. Empty without phases."""
    phases = report.get("phases", [])
    if not phases:
        return ""
    documents = {one["name"]: one for one in report.get("published", {}).get("phases", [])}
    share, time = Figure("share", "", scale=100, decimals=1), Figure("start_s", "", decimals=1)
    uplinks = list(phases[0]["uplink_utilization"])
    lines = []
    for phase in phases:
        used = [share.text(number(phase["uplink_utilization"], uplink)) for uplink in uplinks]
        there = " / ".join(map(share.text, documents.get(phase["name"], {}).get("shares", [])))
        lines.append([phase["name"], time.text(number(phase, "start_s")), *used, there])
    used = [f"{uplink}, %" for uplink in uplinks]
    return table(["phase", "from, s", *used, "published, %"], lines)
