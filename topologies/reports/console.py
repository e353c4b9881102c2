"""Terminal output of a bench: progress while it runs, and verdicts on the results."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from topologies.compare.expectation import Expectation
from topologies.compare.samples import Sample, mean_utilization, utilizations

# A terminal line is overwritten every second, and a log gets a line less often.
TERMINAL_INTERVAL_S, LOG_INTERVAL_S = 1.0, 5.0


class ProgressLine:
    """A progress line for the current run, on standard error."""

    def __init__(self, place: str, contender: str, capacities_bps: Mapping[str, int]) -> None:
        self._title = f"{place} {contender:<16}"
        self._capacities_bps = capacities_bps
        self._terminal = sys.stderr.isatty()
        self._last: Sample | None = None

    def __call__(self, sample: Sample, load_s: float) -> None:
        """Show a sample of a load of this duration, if the interval has passed."""
        interval_s = TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S
        if self._last is None:
            self._last = sample
        if sample.at_s - self._last.at_s < interval_s * 0.99:
            return
        spans = utilizations([self._last, sample], self._capacities_bps)
        ratios = mean_utilization(spans, self._last.at_s, sample.at_s)
        used = "  ".join(f"{uplink} {ratio:4.0%}" for uplink, ratio in ratios.items())
        line = f"{self._title} {sample.at_s:4.0f}/{load_s:.0f} s  {used}  moves {sample.moves}"
        if self._terminal:
            # A wrapped line cannot be overwritten. The escape sequence clears a longer old line.
            line = f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K"
        print(line, end="" if self._terminal else "\n", file=sys.stderr, flush=True)
        self._last = sample

    def finish(self) -> None:
        """End the progress line."""
        if self._terminal:
            print(file=sys.stderr)


def verdicts(expectations: Sequence[Expectation]) -> str:
    """One line for each expectation."""
    return "\n".join(
        f"{'PASS' if one.met else 'FAIL'}  {one.condition}: {one.found}" for one in expectations
    )
