"""What a bench shows on the terminal: progress while it runs, tables afterwards."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.expectations import Expectation
from topologies.figures import Figures
from topologies.phases import Phase
from topologies.samples import Sample, mean_utilization, utilizations

BAR_CELLS = 20
# A terminal is written over each second; a log gets a line every few.
TERMINAL_INTERVAL_S, LOG_INTERVAL_S = 1.0, 5.0


class ProgressLine:
    """One line for the run under way, on standard error."""

    def __init__(
        self, capacities_bps: Mapping[str, int], load_s: float, contenders: Sequence[str]
    ) -> None:
        self._capacities_bps = capacities_bps
        self._load_s = load_s
        self._contenders = list(contenders)
        self._terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        self._last: Sample | None = None

    def __call__(self, contender: str, sample: Sample) -> None:
        """Show a sample, if it is time for it."""
        if self._last is not None and sample.at_s < self._last.at_s:
            self._last = None  # the next contender
        if self._last is None:
            self._last = sample
            return
        if sample.at_s - self._last.at_s < self._interval_s * 0.99:
            return
        spans = utilizations([self._last, sample], self._capacities_bps)
        ratios = mean_utilization(spans, self._last.at_s, sample.at_s)
        bars = "  ".join(f"{uplink} {_bar(ratio)} {ratio:4.0%}" for uplink, ratio in ratios.items())
        bound = " ".join(
            f"{vnic.partition('-')[0]}→{uplink.removeprefix('uplink')}"
            for vnic, uplink in sorted(sample.bindings.items())
        )
        place = f"{self._contenders.index(contender) + 1}/{len(self._contenders)}"
        elapsed = f"{sample.at_s:4.0f}/{self._load_s:.0f} s"
        line = f"{place} {contender:<16} {elapsed}  {bars}  {bound}  moves {sample.moves}"
        # Clear what a longer line before it left.
        self._write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        self._last = sample

    def finish(self) -> None:
        """Leave the line."""
        if self._terminal:
            self._write("\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def phase_table(phases: Sequence[Phase], published: Mapping[str, Any]) -> str:
    """The phases beside the published shares of link speed."""
    published_of = {one["name"]: one for one in published.get("phases", [])}
    uplinks = list(phases[0].uplink_utilization) if phases else []
    rows = [["phase", "from", "to", *uplinks, "published", "what was published"]]
    for phase in phases:
        document = published_of.get(phase.name, {})
        shares = " / ".join(f"{share:.0%}" for share in document.get("shares", []))
        rows.append(
            [
                phase.name,
                f"{phase.start_s:.1f} s",
                f"{phase.end_s:.1f} s",
                *(f"{phase.uplink_utilization.get(uplink, 0):.1%}" for uplink in uplinks),
                shares,
                document.get("what", ""),
            ]
        )
    return _table(rows)


def contender_table(contenders: Mapping[str, Figures], limit_bps: int) -> str:
    """The contenders side by side."""
    rows = [
        [
            *("contender", "throughput", "steady", "of limit", "spread CV"),
            *("moves", "loss", "QoS", "downloads", "CPU ratio"),
        ]
    ]
    for name, one in contenders.items():
        rows.append(
            [
                name,
                f"{one['throughput_bps'] / 1e6:.1f} Mbit/s",
                f"{one['steady_throughput_bps'] / 1e6:.1f} Mbit/s",
                f"{one['steady_throughput_bps'] / limit_bps:.1%}",
                f"{one['spread_cv']:.3f}",
                f"{one['moves']:.0f}",
                f"{one['loss_ratio']:.2%}",
                f"{one['qos_ratio']:.2%}" if "qos_ratio" in one else "",
                f"{one['downloads']:.0f}",
                f"{one['cpu_ratio']:.2f}" if "cpu_ratio" in one else "",
            ]
        )
    return _table(rows)


def verdicts(expectations: Sequence[Expectation]) -> str:
    """One line for each expectation."""
    return "\n".join(
        f"{'PASS' if one.met else 'FAIL'}  {one.condition}: {one.found}" for one in expectations
    )


def _bar(ratio: float) -> str:
    filled = min(BAR_CELLS, max(0, round(ratio * BAR_CELLS)))
    return "█" * filled + "░" * (BAR_CELLS - filled)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
