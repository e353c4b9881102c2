"""Terminal output of a bench: progress while it runs, and verdicts on the results."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from topologies.compare.expectation import Expectation
from topologies.compare.samples import Sample, mean_utilization, utilizations

# The length of an uplink's bar, with few and with many uplinks.
BAR_CELLS, NARROW_BAR_CELLS = 20, 8
WIDE_BARS = 2
# A terminal line is overwritten every second, and a log gets a line less often.
TERMINAL_INTERVAL_S, LOG_INTERVAL_S = 1.0, 5.0


class ProgressLine:
    """A progress line for the current run, on standard error."""

    def __init__(self, place: str, contender: str, capacities_bps: Mapping[str, int]) -> None:
        self._title = f"{place} {contender:<16}"
        self._capacities_bps = capacities_bps
        self._bar_cells = BAR_CELLS if len(capacities_bps) <= WIDE_BARS else NARROW_BAR_CELLS
        self._terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        self._last: Sample | None = None

    def __call__(self, sample: Sample, load_s: float) -> None:
        """Show a sample of a load of this duration, if the interval has passed."""
        if self._last is None:
            self._last = sample
            return
        if sample.at_s - self._last.at_s < self._interval_s * 0.99:
            return
        spans = utilizations([self._last, sample], self._capacities_bps)
        ratios = mean_utilization(spans, self._last.at_s, sample.at_s)
        bars = "  ".join(
            f"{uplink} {_bar(ratio, self._bar_cells)} {ratio:4.0%}"
            for uplink, ratio in ratios.items()
        )
        bound = " ".join(
            f"{vnic.partition('-')[0]}→{uplink.rpartition('uplink')[2]}"
            for vnic, uplink in sorted(sample.bindings.items())
        )
        elapsed = f"{sample.at_s:4.0f}/{load_s:.0f} s"
        line = f"{self._title} {elapsed}  {bars}  {bound}  moves {sample.moves}"
        if self._terminal:
            # A wrapped line cannot be overwritten. The escape sequence clears a longer old line.
            line = f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K"
        self._write(line if self._terminal else f"{line}\n")
        self._last = sample

    def finish(self) -> None:
        """End the progress line."""
        if self._terminal:
            self._write("\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def verdicts(expectations: Sequence[Expectation]) -> str:
    """One line for each expectation."""
    return "\n".join(
        f"{'PASS' if one.met else 'FAIL'}  {one.condition}: {one.found}" for one in expectations
    )


def _bar(ratio: float, cells: int) -> str:
    filled = min(cells, max(0, round(ratio * cells)))
    return "█" * filled + "░" * (cells - filled)
