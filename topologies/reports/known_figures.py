"""Labels, order and formats of the figures in a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topologies.compare.contenders import ORACLE, is_ours
from topologies.loads.flow_load import CLASSES, PERCENTILES

MORE, LESS = 1, -1
THOUSANDS = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure.

    Attributes:
        name: the key in the report.
        label: the text for readers.
        unit: the unit of the displayed number; empty for a plain number.
        scale: the factor from the reported to the displayed number.
        better: MORE or LESS if one of two values is better, else 0.
        comparable: whether it is comparable with a published figure despite another machine and scale.
        minor: whether the tables leave it out, unless it was published.
    """

    name: str
    label: str
    unit: str = ""
    scale: float = 1.0
    decimals: int = 0
    better: int = 0
    comparable: bool = False
    minor: bool = False

    def text(self, value: float | None) -> str:
        """A value without its unit; empty if there is none."""
        if value is None:
            return ""
        shown = round(value * self.scale, self.decimals) + 0.0  # no -0
        return f"{shown:,.{self.decimals}f}".replace(",", THOUSANDS)

    def with_unit(self, value: float | None) -> str:
        """A value with its unit; empty if there is none."""
        text = self.text(value)
        return f"{text} {self.unit}" if text and self.unit else text


# How evenly something is divided, which says nothing if nothing was carried.
_OF_WHAT_IS_CARRIED = ("stream_cv", "spread_cv")


def _rate(name: str, label: str, better: int = MORE) -> Figure:
    return Figure(name, label, "Mbit/s", 1e-6, 1, better)


def _share(name: str, label: str) -> Figure:
    return Figure(name, label, "%", 100, 1, MORE, comparable=True)


def _fine_share(name: str, label: str, better: int, *, comparable: bool = False) -> Figure:
    return Figure(name, label, "%", 100, 2, better, comparable)


def _flow_figures() -> Iterator[Figure]:
    """The completion times and slowdowns of flows, by size class and percentile."""
    for of in ("", *CLASSES):
        for percent in PERCENTILES:
            if of:
                name, label = f"fct_{of}_p{percent}_ms", f"{of}, p{percent}"
                yield Figure(name, label, "ms", 1, 1, LESS)
            name = "_".join(filter(None, ("slowdown", of, f"p{percent}")))
            label = ", ".join(filter(None, ("slowdown", of, f"p{percent}")))
            yield Figure(name, label, "", 1, 2, LESS, minor=bool(of))
        if of:
            yield Figure(f"flows_{of}", f"{of} flows", minor=True)


# The figures in the order of the tables' columns.
KNOWN = {
    figure.name: figure
    for figure in (
        _rate("throughput_bps", "throughput"),
        _share("share_of_limit", "share of the limit"),
        _rate("steady_throughput_bps", "steady throughput"),
        _share("steady_share_of_limit", "steady share of the limit"),
        _share("share_of_link", "share of one link"),
        _share("one_stream_share", "one stream, share of a link"),
        _share("ten_streams_share", "ten streams, share of the team"),
        Figure("ten_streams_ratio", "ten streams over four times one", "", 1, 2),
        Figure("spread_cv", "uplinks’ CV", "", 1, 3, LESS),
        Figure("return_cv", "receiving uplinks’ CV", "", 1, 3),
        _rate("stream_mean_bps", "mean of the streams", 0),
        _rate("sent_bps", "sent", 0),
        _rate("received_bps", "received", 0),
        Figure("stream_stdev_bps", "stdev of the streams", "Mbit/s", 1e-6, 2, LESS, minor=True),
        _fine_share("stream_cv", "streams’ CV", LESS, comparable=True),
        _fine_share("qos_ratio", "at the required rate", MORE, comparable=True),
        Figure("downloads", "downloads", better=MORE, minor=True),
        Figure("settle_s", "settled after", "s", 1, 2, LESS),
        Figure("lossless_s", "no loss after", "s", 1, 2, LESS),
        Figure("placed_s", "placed by capacity after", "s", 1, 2, LESS),
        Figure("restored_s", "no loss and placed after", "s", 1, 2, LESS),
        Figure("fault_found_s", "fault found after", "s", 1, 2),
        *_flow_figures(),
        Figure("caught", "caught by the failure"),
        Figure("caught_slowdown_worst", "worst slowdown of the caught", "", 1, 1, LESS),
        Figure("unfinished_ratio", "given up", "%", 100, 2, LESS),
        Figure("late_p99_ms", "started late, p99", "ms", 1, 1),
        Figure("late_worst_ms", "started late, worst", "ms", 1, 1, minor=True),
        Figure("moves", "moves", comparable=True),
        _fine_share("loss_ratio", "packets lost", LESS),
        _fine_share("reordered_ratio", "packets reordered", LESS),
        Figure("probe_duplicated", "duplicates", better=LESS),
        Figure("retransmissions_per_move", "retransmissions per move", "", 1, 2, LESS),
        Figure("calm_retransmissions", "calm", "", 1, 2),
        Figure("tcp_disordered_per_move", "TCP, out of order per move", "", 1, 2, LESS),
        Figure("lost_per_move", "lost per move", "", 1, 2, LESS),
        Figure("reordered_per_move", "reordered per move", "", 1, 2, LESS),
        Figure("silence_ms", "longest silence", "ms", 1, 1, LESS),
        Figure("worst_silence_ms", "worst silence", "ms", 1, 1, LESS),
        Figure("duplicated", "duplicates", better=LESS),
        Figure("offered_bps", "offered", "Mbit/s", 1e-6, 1, minor=True),
        Figure("jumbo_ratio", "jumbo over standard frames", "", 1, 2, MORE, comparable=True),
        Figure("failover_ms", "failover", "ms", 1, 1, LESS),
        Figure("failback_ms", "failback", "ms", 1, 1, LESS),
        Figure("blackout_ms", "interruption", "ms", 1, 1, LESS),
        Figure("worst_blackout_ms", "worst interruption", "ms", 1, 1, LESS),
        Figure("longest_gap_ms", "longest gap", "ms", 1, 1, LESS),
        Figure("probe_lost", "probe lost", "", 1, 0, LESS),
        Figure("migration_s", "migration", "s", 1, 1, LESS),
        Figure("precopy_rounds", "precopy rounds", "", 1, 2, LESS),
        Figure("stopped_ms", "stopped", "ms", 1, 1, LESS),
        Figure("total_s", "total", "s", 1, 1, LESS),
        _fine_share("perfect_loss_ratio", "lost by a perfect decider", 0),
        Figure("excess_loss_ratio", "lost more than by a perfect decider", "%", 100, 3),
        Figure("jump_ratio", "load of that uplink if no VM moves", "%", 100),
        Figure("highest_ratio", "highest utilization after 1 s", "%", 100, 1),
        Figure("strangers", "VMs not at home before", minor=True),
        Figure("unsent_ratio", "not sent", "%", 100, 2, minor=True),
        Figure("cpu_at_rest_ratio", "CPU at rest", "%", 100, 2),
        Figure("rss_bytes", "resident", "MB", 1e-6),
        Figure("poll_ms", "poll", "ms", 1, 1),
        Figure("scale_failover_ms", "failover", "ms"),
        Figure("attach_s", "attach", "s", 1, 2),
        Figure("start_s", "start", "s", 1, 1),
        Figure("cached_flows", "flows"),
        Figure("switch_rss_bytes", "resident", "MB", 1e-6),
        Figure("failover_lost", "failover, frames lost"),
        Figure("service_down_lost", "service down, frames lost"),
        Figure("opened_per_s", "opened/s"),
        Figure("upcalls_per_s", "upcalls/s"),
        _fine_share("new_lost_ratio", "first frames lost", 0),
        Figure("uplink_difference", "uplink difference", "", 1, 2, LESS),
        Figure("cpu_ratio", "CPU time per bit", "× manual", 1, 2, LESS),
        Figure("cpu_s", "CPU time", "s", 1, 2, 0, minor=True),
        Figure("cpu_s_per_gbit", "CPU time per Gbit", "s", 1, 2, LESS, minor=True),
    )
}
_ORDER = {name: place for place, name in enumerate(KNOWN)}


def figure(name: str) -> Figure:
    """The figure of this name. The CPU time of a program, and others without an entry, have no unit."""
    minor = name.startswith("cpu_s_")
    return KNOWN.get(name) or Figure(name, name.replace("_", " "), decimals=2, minor=minor)


def figures(names: Iterable[str]) -> list[Figure]:
    """Distinct figures by name, in the order of the tables' columns; those without an entry come last."""
    return [*map(figure, sorted({*names}, key=lambda name: (_ORDER.get(name, len(KNOWN)), name)))]


def number(found: Mapping[str, Any], name: str) -> float | None:
    """A figure's value; None if it was not measured, or says nothing."""
    if name in _OF_WHAT_IS_CARRIED and found.get("throughput_bps") == 0.0:
        return None
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def measured(found: Mapping[str, Any]) -> list[str]:
    """The names of the figures that were measured."""
    return [name for name in found if number(found, name) is not None]


def repetitions(found: Mapping[str, Any], name: str) -> list[float]:
    """The values of a figure in the repetitions that measured it."""
    runs = (number(run, name) for run in found.get("runs", ()))
    return [value for value in runs if value is not None]


def is_peer(contender: str) -> bool:
    """Whether a contender is a bond, or placement by hand."""
    return not is_ours(contender) and contender != ORACLE
