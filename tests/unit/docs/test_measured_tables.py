"""Tables of measured figures in docs/reliability against the raw figures.

A row is compared with the median and the range of its runs in docs/results, as exact as the row is
written. (pages for operators: `test_operations_tables.py`; README's comparison: `test_documents.py`; generated tables: the tests of what makes them.)
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.unit.docs.figures import NUMBER, assert_says, grouped, of_runs, plain, raw, rows


class Of(NamedTuple):
    """Which figures of a file below docs/results/times are a row's."""

    file: str
    tests: tuple[str, ...]  # parts of the tests' names, one for each column of a median
    what: tuple[str, ...]  # parts of what was measured, one for each median
    scale: float  # of the row's unit in one of the file's


LIMITS, FAILOVER, OVERLAYS, PATH_CHECKS, SCALE, CHAOS = (
    f"docs/reliability/{name}.md"
    for name in ("limits", "failover", "overlays", "path-checks", "scale", "chaos")
)
CAUSES = "docs/results/causes/README.md"
NO_LAG = ("plain-3-untagged", "plain-3-vlans", "balance-slb-2-vlans", "active-backup-2-untagged")
BOTH = ("each uplink fails, service alive", "each uplink fails, service dead")
CONNECTIONS = "lost of a flow of 100 pps, "
BROADCASTS = "lost of a flow of 1000 pps, "
FIRST_AND_SECOND = (BROADCASTS + "each uplink fails", BROADCASTS + "each uplink fails and returns")

REPETITIONS = {
    "attach to plain uplinks, worst flow": Of("adoption", ("plain",), ("pps, attach",), 1),
    "detach from plain uplinks, worst flow": Of("adoption", ("plain",), ("pps, detach",), 1),
    "a VM with eight connections, 30 s, `dynamic` over `balance-slb`": Of(
        "hot_vm", ("test_hot_vm",), ("balance-slb, dynamic",), 1
    ),
    "the same, `adaptive`": Of("hot_vm", ("test_hot_vm",), ("balance-slb, adaptive",), 1),
    "an uplink fails, `balance-slb`, frames of 1000 per second": Of(
        "failover", ("failover",), ("frames lost, balance-slb",), 1
    ),
    "the same, service up": Of("failover", ("failover",), ("service alive",), 1),
    "the same, service down": Of("failover", ("failover",), ("service dead",), 1),
    "each uplink of a LACP bond fails, hashed connections, service up, down": Of(
        "lag", ("dynamic-lacp",), tuple(CONNECTIONS + one for one in BOTH), 10
    ),
    "each uplink of a static LAG fails, hashed connections, service up, down": Of(
        "lag", ("dynamic-static",), tuple(CONNECTIONS + one for one in BOTH), 10
    ),
    "each uplink of a LACP bond fails, broadcasts, service up, down": Of(
        "lag", ("[lacp-2-vlans",), FIRST_AND_SECOND, 1
    ),
    "each uplink of a static LAG fails, broadcasts, service up, down": Of(
        "lag", ("[static-lag",), FIRST_AND_SECOND, 1
    ),
    "each uplink fails, no LAG, broadcasts, service up": Of(
        "lag", NO_LAG, (BROADCASTS + "each uplink fails",), 1
    ),
    "each uplink fails and returns, no LAG, broadcasts, service down": Of(
        "lag", NO_LAG, (BROADCASTS + "each uplink fails and returns",), 1
    ),
    "each uplink returns, no LAG, broadcasts, service up": Of(
        "lag", NO_LAG, (BROADCASTS + "each uplink returns",), 1
    ),
    # The third VM of a test does not move and loses nothing.
    "four moves of a VM, no LAG, broadcasts": Of("lag", NO_LAG, (BROADCASTS + "4 moves",), 1),
    "each plain uplink returns, hashed connections, service up": Of(
        "lag", ("dynamic-plain",), (CONNECTIONS + "each uplink returns, service alive",), 10
    ),
    "each member of a LACP bond loses LACP, service up, down": Of(
        "lag", ("withdrawn",), ("service alive", "service dead"), 0.01
    ),
}
WHAT_DOES_NOT_MOVE = 0


def of_row(row: str, what: str) -> tuple[list[float], list[float]]:
    """The values of a row, in its unit, and the load averages of their measurement."""
    of = REPETITIONS[row]
    figures = [
        figure
        for figure in raw(f"times/{of.file}.json")["figures"]
        if any(test in figure["test"] for test in of.tests)
        and figure["what"].partition(", median")[0].endswith(what)
    ]
    assert figures, f"{row}: {what} was not measured"
    values = [run * of.scale for f in figures for run in f["runs"] or [f["found"]]]
    if what.endswith("moves"):
        values = [value for value in values if value != WHAT_DOES_NOT_MOVE]
    loads = [f["load_average"] for f in figures]
    return values, loads


def test_every_row_of_repetitions_is_compared() -> None:
    assert {*rows(LIMITS, "| what | limit | n |")} == REPETITIONS.keys()


@pytest.mark.parametrize("row", REPETITIONS)
def test_repetitions(row: str) -> None:
    _, n, median, spread, loads = rows(LIMITS, "| what | limit | n |")[row]
    found = [of_row(row, what) for what in REPETITIONS[row].what]
    values = [values for values, _ in found]
    assert_says(n, *map(len, values))
    assert_says(median, *map(statistics.median, values))
    every = [value for one in values for value in one]
    assert_says(spread, min(every), max(every))
    # Of the tests of this row; or from the beginning of the command to its end.
    whole = raw(f"times/{REPETITIONS[row].file}.json")
    command = [whole["origin"]["load_average"][0], whole["load_average_at_end"][0]]
    measured = [load for _, one in found for load in one]
    numbers = [float(number) for number in re.findall(NUMBER, loads)]
    within = [says_span(numbers, one) for one in (measured, command, measured + command)]
    assert any(within), f"{loads} -> {sorted(measured + command)}"


def says_span(told: Sequence[float], found: Sequence[float]) -> bool:
    """Whether the least and the most of both are the same, within what one digit can tell."""
    room = 0.051 if any(number % 1 for number in told) else 0.51
    return all(abs(edge(told) - edge(found)) <= room for edge in (min, max))


def test_carrier_loss() -> None:
    (scenario,) = [s for s in raw("shift.json")["scenarios"] if s["name"] == "an uplink fails"]
    table = rows(FAILOVER, "| | no loss after | placed after |")
    assert len(table) == len(scenario["contenders"])
    for first, (lossless, placed, lost) in table.items():
        name = first.split("`")[1] + ("/1s" if "every 1 s" in first else "")
        runs = scenario["contenders"][name]["runs"]
        assert len(runs) == 5
        for cell, figure in ((lossless, "lossless_s"), (placed, "placed_s")):
            values = [run[figure] for run in runs]
            if cell == "never":
                assert min(values) >= 40
            else:
                assert_says(*of_runs(cell.replace("immediately", "0"), values))
        assert_says(*of_runs(lost, [100 * run["loss_ratio"] for run in runs]))


def test_loads_that_jump_below_ovn() -> None:
    runs = raw("ovn/provider.json")["runs"]
    table = rows(OVERLAYS, "| contender | relieved after, s |")
    assert {first.replace("`", "") for first in table} == {run["contender"] for run in runs}
    for first, (relieved, fullest, missed, moves, lost) in table.items():
        of = [run for run in runs if run["contender"] == first.replace("`", "")]
        jumps = [jump for run in of for jump in run["phases"]]
        assert (len(of), len(jumps)) == (5, 20)
        assert_says(*of_runs(relieved, [jump["relieved_after_s"] for jump in jumps]))
        at_end = [100 * max(jump["uplinks_at_end"].values()) for jump in jumps]
        assert_says(*of_runs(fullest, at_end))
        assert_says(missed, sum(not jump["relieved"] for jump in jumps))
        assert_says(*of_runs(moves, [run["moves"] for run in of]))
        assert_says(*of_runs(lost, [share_lost(run["phases"]) for run in of]))
        assert not any(run.get("moves_of_idle") for run in of)
    assert not any(lost for run in runs for lost in run["pings_lost"].values())
    loads = [run["load_average"] for run in runs]
    assert (round(min(loads), 1), round(max(loads), 1)) == (0.9, 1.9)


def test_faults_that_keep_the_links_up() -> None:
    every = raw("paths/faults.json")["runs"]
    runs = [run for run in every if run["lost_before"] <= 0.05 * run["sent_per_s"]]
    table = rows(PATH_CHECKS, "| fault, contender | n | detected after, s |")
    assert {first.replace("`", "") for first in table} == {
        f"{run['fault']}, {run['contender']}" for run in runs
    }
    for first, (n, *cells) in table.items():
        fault, _, contender = first.replace("`", "").partition(", ")
        of = [run for run in runs if (run["fault"], run["contender"]) == (fault, contender)]
        assert int(n) == len(of) >= 4
        columns: list[list[float | None]] = [
            [run["found_after_s"] for run in of],
            [run["moved_after_s"] for run in of],
            [run["lost_until_found"] + run["lost_after"] for run in of],
            [run["lost_after"] if run["found_after_s"] is not None else None for run in of],
            [run["lossless_after_s"] for run in of],
        ]
        for cell, values in zip(cells, columns, strict=True):
            known = [value for value in values if value is not None]
            said, _, never = cell.partition(", when it is fixed in ")
            assert int(never or 0) == (len(of) - len(known) if known else 0)
            if known:
                assert_says(*of_runs(said, known))
            else:
                assert cell in ("–", "when it is fixed")


def share_lost(jumps: Sequence[dict[str, Any]]) -> float:
    """Percent of the frames that were sent."""
    lost, sent = (sum(jump[key] for jump in jumps) for key in ("lost_frames", "sent_frames"))
    return 100.0 * float(lost) / float(sent)


class Beyond(NamedTuple):
    """A flow that lost more in an event of chaos than its bound allows."""

    kind: str
    lost_ms: int
    bound_ms: int


LOST = re.compile(r"(.*): lost \d+ of \d+ frames \((\d+) ms,.* -> at most (\d+) ms")


def beyond(file: str) -> list[Beyond]:
    """What a run of chaos lists beyond its bounds."""
    return [
        Beyond(finding["event"].partition(" ")[0], int(told[2]), int(told[3]))
        for finding in raw(f"soak/{file}.json")["beyond_bounds"]
        if (told := LOST.match(finding["what"]))
    ]


def span(found: Sequence[Beyond]) -> str:
    lost_ms = [one.lost_ms for one in found]
    return f"{min(lost_ms)} to {max(lost_ms)} ms"


def test_exceptions_of_chaos() -> None:
    table = rows(CHAOS, "| event | loss | why |")
    cells = {first.split("`")[1]: (loss, why) for first, (loss, why) in table.items()}
    assert len(cells) == len(table) == 3
    worst_ms = raw("soak/busy/seed-12.json")["kinds"]["cable-up"]["flow_lost_ms"]["worst"]
    assert_says(cells["cable-up"][0].partition(" of ")[0], worst_ms)
    busy = beyond("busy/seed-10")
    pulled, moved = (
        span([one for one in busy if one.kind == "cable-down"]),
        span([one for one in busy if one.bound_ms == 80]),
    )
    assert cells["cable-down"][0] == f"{pulled} and {moved}"
    late_s = raw("soak/busy/seed-10.json")["sender_late_s"]
    assert f"{late_s:.2f} s late" in cells["cable-down"][1]
    storms = [
        finding["event"]
        for seed in (5, 9, 12)
        for finding in raw(f"soak/links/seed-{seed}.json")["beyond_bounds"]
    ]
    assert storms == ["storm 2"] * 3, "three VMs"


def test_vms_that_send_nothing() -> None:
    figures = [one for one in raw("times/silent.json")["figures"] if "send_nothing" in one["test"]]
    table = rows(FAILOVER, "| frames to VMs that send nothing")
    for (n, lost), figure in zip(table.values(), figures, strict=True):
        assert int(n) == len(figure["runs"])
        assert_says(*of_runs(lost, figure["runs"]))


def test_cables_pulled_while_vms_send_nothing() -> None:
    ((n, (lost, silent)),) = rows(FAILOVER, "| cables pulled |").items()
    pulled = raw("soak/silent/now.json")["kinds"]["cable-down"]
    assert int(n) == pulled["n"]
    for cell, what in ((lost, "frames_lost"), (silent, "flow_lost_ms")):
        assert_says(cell, pulled[what]["median"], pulled[what]["worst"])


def test_scale() -> None:
    found = {row["bridges"]: row for row in raw("scale.json")["rows"]}
    table = rows(SCALE, "| bridges | CPU at rest")
    assert {int(first) for first in table} == found.keys()
    for first, (cpu, resident, threads, poll, decision, failover, start) in table.items():
        row, rest = found[int(first)], found[int(first)]["at_rest"]
        assert_says(cpu, 100 * rest["cpu_ratio"])
        assert_says(resident, row["rss_bytes"] / 1e6)
        assert_says(threads, row["threads"])
        assert_says(poll, *(1000 * rest["poll_s"][of] for of in ("median", "p99")))
        assert_says(decision, *(1000 * rest["decision_s"][of] for of in ("median", "p99")))
        assert_says(failover, 1000 * row["failover_s"]["median"])
        assert_says(start, row["start_s"])


def test_failovers_of_many_bridges() -> None:
    runs = raw("scale/failovers_garbage.json")["services"]["now"]["runs"]
    assert len(runs) == 4
    ((count, row),) = rows(SCALE, "| failovers | service's part").items()
    *failover, poll, slow_poll, cpu = row
    assert_says_failovers(failover, [one for run in runs for one in run["failovers"]], int(count))
    for cell, of in ((poll, "median"), (slow_poll, "p99")):
        assert_says_range(cell, [1000 * run["poll_s"][of] for run in runs])
    assert_says_range(cpu, [100 * run["cpu_ratio"] for run in runs])


def assert_says_failovers(
    cells: Sequence[str], failovers: Sequence[Mapping[str, float]], count: int
) -> None:
    """The service's part, the whole failover, and the switch's longest answer."""
    assert len(failovers) == count
    for cell, what in zip(cells, ("service_s", "whole_s", "switch_s"), strict=True):
        assert_says_range(cell, [1000 * one[what] for one in failovers])


def assert_says_range(cell: str, values: Sequence[float]) -> None:
    """A median and a range, both of which are due."""
    assert "(" in cell, f"{cell} -> a range"
    assert_says(*of_runs(cell, values))


CACHED = {
    (one["connections"], row["contender"]): one | {"load_average": row["origin"]["load_average"][0]}
    for file in ("connections/failover.json", "connections/many.json")
    for row in raw(file)["rows"]
    for one in row["sizes"]
}


def test_failovers_with_many_connections() -> None:
    table = rows(FAILOVER, "| userspace datapath | n | cached flows |")
    assert len(table) == len(CACHED)
    for first, (n, flows, alive, dead, load) in table.items():
        size, name = first.split(" connections, ")
        one = CACHED[int(size.replace(",", "")), name.strip("`")]
        assert_says(flows, one["flows"])
        assert_says(load, one["load_average"])
        for cell, services in ((alive, ("alive", "none")), (dead, ("dead",))):
            lost = [c["probe_lost"] for c in one["failovers"] if c["service"] in services]
            if lost:
                assert_says(*of_runs(cell, lost))
                assert int(n) == len(lost)
            else:
                assert cell == "–"


def test_failovers_on_the_kernel() -> None:
    table = rows(FAILOVER, "| kernel datapath, service down | n |")
    few = grouped(raw("causes/failover_kernel_few.json")["runs"], "who")
    runs = [
        run for run in raw("causes/failover_kernel.json")["runs"] if run["silent_ms"] is not None
    ]
    many = grouped(runs, "by")
    by_name = {
        plain(first).partition(" connections, ")[::2]: cells for first, cells in table.items()
    }
    assert by_name.keys() == {("few", on_the_bond(who)) for who in few} | {
        ("10,000", by) for by in many
    }
    for who, of in few.items():
        n, _, cell = by_name["few", on_the_bond(who)]
        assert int(n) == len(of)
        assert_says(*of_runs(cell, [run["lost"] for run in of]))
    for by, of in many.items():
        n, flows, cell = by_name["10,000", by]
        assert int(n) == len(of)
        assert_says(flows, statistics.median(run["flows"] for run in of))
        assert_says(*of_runs(cell, [run["silent_ms"] for run in of]))


def on_the_bond(who: str) -> str:
    """A contender of few connections, by the name of its row."""
    return "balance-slb" if who == "balance-slb" else "load-based on balance-slb"


def test_failovers_without_the_service() -> None:
    table = rows(FAILOVER, "| userspace datapath, service down | n |")
    found = grouped(raw("causes/failover_userspace.json")["runs"], "connections", "by")
    assert {plain(first) for first in table} == {f"{n:,} connections, {by}" for n, by in found}
    for (connections, by), runs in found.items():
        n, flows, cell = named(table, f"{connections:,} connections, {by}")
        assert int(n) == len(runs)
        assert_says(flows, statistics.median(run["flows"] for run in runs))
        assert_says(*of_runs(cell, [run["silent_ms"] for run in runs]))
        assert all(run["revalidations"]["reconfigure"] for run in runs)


def named(table: dict[str, list[str]], name: str) -> list[str]:
    """The cells of the row with this name."""
    (cells,) = (cells for first, cells in table.items() if plain(first) == name)
    return cells


def test_order_of_revalidations() -> None:
    table = rows(CAUSES, "| the first revalidation began |")
    runs = raw("causes/failover_order.json")["runs"]
    assert len(runs) == 48
    for first, cells in table.items():
        for who, (n, lost) in zip(("balance-slb", "ours"), (cells[:2], cells[2:]), strict=True):
            of = [
                run["lost"]
                for run in runs
                if (run["who"] == "balance-slb") == (who == "balance-slb")
                and began_early(run) == first.startswith("before")
            ]
            assert_says(n, len(of))
            assert_says(*of_runs(lost, of))


def began_early(run: dict[str, Any]) -> bool:
    """Whether the first revalidation began before the new state took effect."""
    sees = "bond_sees" if run["who"] == "balance-slb" else "group_sees"
    return bool(run["revalidation_starts"][0] < run[sees])


def test_an_upstream_switch_that_learns_late() -> None:
    table = rows(CHAOS, "| upstream switch | moves to a new port (n = 2) |")
    found = raw("soak/learning/moves.json")["found_after_ms"]
    assert len(table) == len(found)
    for (there, back), name in zip(table.values(), ("as it is", "no cached flows"), strict=True):
        first, later = sorted(found[name][:2]), found[name][2:]
        assert_says(there, *first)
        assert len(later) == 22
        assert_says(back, min(later), max(later), statistics.median(later))


def test_events_below_tunnels() -> None:
    table = rows(OVERLAYS, "| hosts | service | an uplink fails |")
    runs = raw("overlay/events.json")["runs"]
    assert len(runs) == 97
    assert not any(run["twice"] for run in runs)
    assert all(run["tcp_unbroken"] for run in runs)
    found = grouped(runs, "way", "service")
    names = {"–": "none", "up": "alive", "down": "dead"}
    assert {(plain(way), names[cells[0]]) for (way, cells) in split(table)} == found.keys()
    for way, (service, fails, returns, moves, pause) in split(table):
        of = found[plain(way), names[service]]
        events = grouped(of, "event")
        for cell, event in zip(
            (fails, returns, moves),
            ("an uplink fails", "it returns", "an endpoint moves"),
            strict=True,
        ):
            if cell == "–":
                assert (event,) not in events and event not in events
                continue
            lost = [run["lost"] for run in events[event]]
            assert len(lost) == (9 if "one endpoint" in way else 5)
            assert_says(*of_runs(cell, lost))
        assert_says(pause, max(run["tcp_pause_s"] for run in of))


def split(table: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """The rows of a table of which several have the same first cell."""
    return [(first.partition("\0")[0], cells) for first, cells in table.items()]


def test_translations_and_new_connections() -> None:
    for page, head, file, figures in (
        (CAUSES, "| translated again | n |", "causes/translation.json", ("revalidated_us",)),
        (
            FAILOVER,
            "| thousands of new connections",
            "connections/new_per_second.json",
            ("as it is", "each"),
        ),
        (
            CAUSES,
            "| microseconds for a frame",
            "causes/set_up.json",
            ("new_us", "each_new_us", "cached_us"),
        ),
    ):
        found = grouped(raw(file)["runs"], "by")
        table = rows(page, head)
        by_name = {
            plain(first).removesuffix(", plain uplinks"): cells for first, cells in table.items()
        }
        assert by_name.keys() == found.keys()
        for by, (n, *cells) in by_name.items():
            runs = found[by]
            assert int(n) == len(runs)
            counted = ("lookups", "resubmits", "groups", "learns")[: len(cells) - len(figures)]
            for cell, key in zip(cells, counted, strict=False):
                assert_says(cell, runs[0][key])
            for cell, figure in zip(cells[-len(figures) :], figures, strict=True):
                values = [run[figure] for run in runs]
                if isinstance(values[0], dict):
                    values = [one["most_per_s"] / 1000 for one in values]
                assert_says(*of_runs(cell, values))


def test_another_figure_is_seen() -> None:
    assert_says("2.5, 3.5 ms", 2.46, 3.54)
    with pytest.raises(AssertionError):
        assert_says("2.5, 3.5 ms", 2.44, 3.5)
    with pytest.raises(AssertionError):
        assert_says("0 to 7 ms", 0)


def test_few_connections_over_lacp() -> None:
    table = rows(CAUSES, "| over LACP |")
    runs = raw("causes/few_connections.json")["runs"]
    found = grouped(runs, "scenario", "contender")
    for first, (n, share, move, by_one_link) in table.items():
        scenario, contender = plain(first).rsplit(", ", 1)
        seen = found.pop((scenario, contender))
        assert int(n) == len(seen)
        assert_says(*of_runs(share, [100 * run["share_of_limit"] for run in seen]))
        moved = [run["first_move_s"] for run in seen if run["first_move_s"]]
        assert_says(*of_runs(move, moved))
        assert int(by_one_link) == sum(run["fuller_link_received_ratio"] > 0.99 for run in seen)
    assert not found
