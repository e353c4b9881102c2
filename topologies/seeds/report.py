"""The page of generated load jumps, for docs/benchmarks and for the bench's own report."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.reports.markdown import bullets, table
from topologies.seeds.jumps import NAME

# The scenarios of a jump are `NAME jump` and `NAME control`.
JUMP, CONTROL = " jump", " control"
# What a scenario has of the jump itself, as if it were a contender.
PERFECT = "perfect"

TEXT = """\
`ovs-lbt bench shift --seeds {count}` generates load jumps from seeds, each on a network of its own. Uplinks have mixed
speeds, and VMs send UDP. The loads of one uplink's VMs rise above its capacity, each at a random time within 200 ms. A
placement of whole VM ports exists that keeps every uplink below 85 %.

- *To*: the utilization of that uplink if no VM port moves.
- *Lost*: the share of the datagrams of the first {watched_s:g} s.
- *Perfect*: the loss of a perfect decider, which polls every 100 ms, knows the present rates, and moves VMs immediately.
  A fluid model computes it, as a mean over {phases:.0f} phases of the polls."""

Report = Mapping[str, Any]


def jumps(report: Report) -> list[Report]:
    """The scenarios in which the load jumps."""
    return [one for one in report["scenarios"] if one["name"].endswith(JUMP)]


def pooled(report: Report) -> dict[str, Any]:
    """Each contender with the runs of all jumps, and the medians of what the page shows."""
    names = dict.fromkeys(name for one in jumps(report) for name in one["contenders"])
    found = {}
    for name in names:
        runs = [
            run
            for one in jumps(report)
            for run in one["contenders"].get(name, {"runs": []})["runs"]
        ]
        figures = ("loss_ratio", "settle_s", "moves")
        known = {of: [run[of] for run in runs if of in run] for of in figures}
        medians = {of: statistics.median(values) for of, values in known.items() if values}
        found[name] = {**medians, "runs": runs}
    return found


def section(report: Report) -> list[str]:
    """The parts of the page."""
    perfect = jumps(report)[0]["published"][PERFECT] if jumps(report) else {}
    text = TEXT.format(
        count=len(jumps(report)),
        watched_s=perfect.get("watched_s", 0),
        phases=perfect.get("phases", 0),
    )
    verdicts = [
        f"{'PASS' if one['met'] else '**FAIL**'} {one['condition']}: {one['found']}"
        for one in report["expectations"]
    ]
    return [f"# {NAME}", text, _table(report), f"## Expectations\n\n{bullets(verdicts)}"]


def _table(report: Report) -> str:
    """A row for each jump, and rows with the medians and the worst values."""
    names = list(pooled(report))
    rows: list[Sequence[str]] = []
    losses: dict[str, list[float]] = {name: [] for name in (PERFECT, *names)}
    for one in jumps(report):
        perfect = one["published"][PERFECT]
        cells = []
        for name, of in losses.items():
            found = perfect if name == PERFECT else one["contenders"].get(name, {})
            cells.append(f"{found['loss_ratio']:.3%}" if found else "")
            of += [found["loss_ratio"]] if found else []
        rows.append(
            [
                one["name"].removesuffix(JUMP),
                "/".join(f"{bps / 1e6:.0f}" for bps in one["uplinks"].values()),
                f"{perfect['vms']:.0f}",
                f"{perfect['jump_ratio']:.0%}",
                *cells,
            ]
        )
    for word, of_values in (("median", statistics.median), ("worst", max)):
        label = f"{word}, n = {len(jumps(report))}"
        rows.append([label, "", "", "", *(f"{of_values(v):.3%}" for v in losses.values() if v)])
    lost = (f"{name} lost" for name in losses)
    return table(["jump", "uplinks, Mbit/s", "VMs", "to", *lost], rows)
