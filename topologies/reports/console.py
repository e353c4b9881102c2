"""Terminal output of a bench: progress while it runs, and tables of the results."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topologies.compare.expectation import Expectation
from topologies.compare.figures import Figures
from topologies.compare.phases import Phase
from topologies.compare.samples import Sample, mean_utilization, utilizations
from topologies.loads.flow_figures import CLASSES, PERCENTILES

# The length of an uplink's bar, with few and with many uplinks.
BAR_CELLS, NARROW_BAR_CELLS = 20, 8
WIDE_BARS = 2
_FLOW_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    **{f"fct_{of}_p99_ms": (f"{of} p99", lambda ms: f"{ms:.1f} ms") for of in CLASSES},
    **{f"slowdown_p{one}": (f"slowdown p{one}", "{:.1f}".format) for one in PERCENTILES},
}
# The columns of the table in order: title, and format of a value.
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "throughput_bps": ("throughput", lambda bps: f"{bps / 1e6:.1f} Mbit/s"),
    "share_of_limit": ("of limit", "{:.1%}".format),
    "steady_throughput_bps": ("steady", lambda bps: f"{bps / 1e6:.1f} Mbit/s"),
    "steady_share_of_limit": ("of limit", "{:.1%}".format),
    "share_of_link": ("of a link", "{:.1%}".format),
    "one_stream_share": ("1 stream", "{:.1%}".format),
    "ten_streams_share": ("10 streams", "{:.1%}".format),
    "ten_streams_ratio": ("10 over 4 x 1", "{:.1%}".format),
    "predicted_share": ("as hashed", "{:.1%}".format),
    "jumbo_ratio": ("jumbo", "{:.2f}".format),
    "uplink_difference": ("uplink diff", "{:.1%}".format),
    "stream_cv": ("streams CV", "{:.2%}".format),
    "spread_cv": ("spread CV", "{:.3f}".format),
    "settle_s": ("settled", "{:.2f} s".format),
    "lossless_s": ("no loss", "{:.2f} s".format),
    "placed_s": ("placed", "{:.2f} s".format),
    "fault_found_s": ("fault found", "{:.2f} s".format),
    **_FLOW_COLUMNS,
    "computed_one_link_slowdown_p99": ("one link", "{:.1f}".format),
    "caught_slowdown_worst": ("worst caught", "{:.0f}".format),
    "unfinished_ratio": ("given up", "{:.2%}".format),
    "late_p99_ms": ("late", "{:.1f} ms".format),
    "moves": ("moves", "{:.0f}".format),
    "loss_ratio": ("loss", "{:.2%}".format),
    "reordered_ratio": ("reordered", "{:.3%}".format),
    "retransmissions_per_move": ("retransmits", "{:.2f}".format),
    "calm_retransmissions": ("calm", "{:.2f}".format),
    "tcp_disordered_per_move": ("disordered", "{:.2f}".format),
    "lost_per_move": ("lost", "{:.2f}".format),
    "reordered_per_move": ("reordered", "{:.2f}".format),
    "silence_ms": ("silence", "{:.1f} ms".format),
    "worst_silence_ms": ("worst", "{:.1f} ms".format),
    "duplicated": ("duplicates", "{:.0f}".format),
    "failover_ms": ("failover", "{:.0f} ms".format),
    "migration_s": ("one migration", "{:.1f} s".format),
    "blackout_ms": ("blackout", "{:.0f} ms".format),
    "worst_blackout_ms": ("worst", "{:.0f} ms".format),
    "probe_duplicated": ("duplicates", "{:.0f}".format),
    "qos_ratio": ("QoS", "{:.2%}".format),
    "downloads": ("downloads", "{:.0f}".format),
    "cpu_ratio": ("CPU ratio", "{:.2f}".format),
}
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


def phase_table(phases: Sequence[Phase], published: Mapping[str, Any]) -> str:
    """A table of the phases and the published shares of the link speed."""
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
    return table(rows)


def contender_table(contenders: Mapping[str, Figures]) -> str:
    """A table of the contenders with the figures that were measured."""
    measured = dict.fromkeys(figure for one in contenders.values() for figure in one)
    columns = {name: shown for name, shown in COLUMNS.items() if name in measured}
    rows = [["contender", *(title for title, _ in columns.values())]]
    for contender, one in contenders.items():
        cells = (text(one[name]) if name in one else "" for name, (_, text) in columns.items())
        rows.append([contender, *cells])
    return table(rows)


def verdicts(expectations: Sequence[Expectation]) -> str:
    """One line for each expectation."""
    return "\n".join(
        f"{'PASS' if one.met else 'FAIL'}  {one.condition}: {one.found}" for one in expectations
    )


def _bar(ratio: float, cells: int) -> str:
    filled = min(cells, max(0, round(ratio * cells)))
    return "█" * filled + "░" * (cells - filled)


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
