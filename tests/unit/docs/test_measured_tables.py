"""Tables of measured figures in the documents against the raw figures of docs/results.

A function of each table says which figures are due in each cell (see `figures.Rows`). The page must have
the same rows and figures, as exact as it writes them. (Generated tables: the tests of what makes them.)
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.unit.docs.figures import (
    NUMBER,
    RESULTS,
    Rows,
    Table,
    assert_cell,
    grouped,
    raw,
    rows,
    scenario,
    span,
)


class Of(NamedTuple):
    """Which figures of a file below docs/results/times are a row's."""

    file: str
    tests: tuple[str, ...]  # parts of the tests' names, one for each column of a median
    what: tuple[str, ...]  # parts of what was measured, one for each median
    scale: float  # of the row's unit in one of the file's


LIMITS, FAILOVER, OVERLAYS, PATH_CHECKS, SCALE, CHAOS, HOSTILE = (
    f"docs/reliability/{name}.md"
    for name in (
        *("limits", "failover", "overlays", "path-checks", "scale", "chaos", "hostile-input"),
    )
)
DATAPATHS = "docs/guide/datapaths.md"
NO_LAG = ("plain-3-untagged", "plain-3-vlans", "balance-slb-2-vlans", "active-backup-2-untagged")
BOTH = ("each uplink fails, service alive", "each uplink fails, service dead")
CONNECTIONS = "lost of a flow of 100 pps, "
BROADCASTS = "lost of a flow of 1000 pps, "
FIRST_AND_SECOND = (BROADCASTS + "each uplink fails", BROADCASTS + "each uplink fails and returns")
REPETITIONS_HEAD = "| what | limit | n |"
DATAPATHS_HEAD = "| | kernel, emulated | userspace |"

REPETITIONS = {
    "attach to plain uplinks, worst flow": Of("adoption", ("plain",), ("pps, attach",), 1),
    "detach from plain uplinks, worst flow": Of("adoption", ("plain",), ("pps, detach",), 1),
    "a VM with eight connections, 30 s, dynamic over balance-slb": Of(
        "hot_vm", ("test_hot_vm",), ("balance-slb, dynamic",), 1
    ),
    "the same, adaptive": Of("hot_vm", ("test_hot_vm",), ("balance-slb, adaptive",), 1),
    "an uplink fails, balance-slb, frames of 1000 per second": Of(
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


def of_row(of: Of, what: str) -> tuple[list[float], list[float]]:
    """The values of a row, in its unit, and the load averages of their measurement."""
    figures = [
        figure
        for figure in raw(f"times/{of.file}.json")["figures"]
        if any(test in figure["test"] for test in of.tests)
        and figure["what"].partition(", median")[0].endswith(what)
    ]
    values = [run * of.scale for f in figures for run in f["runs"] or [f["found"]]]
    if what.endswith("moves"):
        values = [value for value in values if value != WHAT_DOES_NOT_MOVE]
    return values, [f["load_average"] for f in figures]


def repetitions() -> Rows:
    found: Rows = {}
    for row, of in REPETITIONS.items():
        each = [of_row(of, what)[0] for what in of.what]
        every = tuple(span(value for values in each for value in values))
        found[row] = [None, (*map(len, each),), (*map(statistics.median, each),), every, None]
    return found


@pytest.mark.parametrize("row", REPETITIONS)
def test_a_load_average_is_that_of_the_tests_or_of_the_command(row: str) -> None:
    told = [float(one) for one in re.findall(NUMBER, rows(LIMITS, REPETITIONS_HEAD)[row][-1])]
    of = REPETITIONS[row]
    measured = [load for what in of.what for load in of_row(of, what)[1]]
    whole = raw(f"times/{of.file}.json")
    command = [whole["origin"]["load_average"][0], whole["load_average_at_end"][0]]
    # One digit may be cut or rounded.
    room = 0.051 if any(number % 1 for number in told) else 0.51
    assert any(
        all(abs(edge(told) - edge(found)) <= room for edge in (min, max))
        for found in (measured, command, measured + command)
    )


def not_held() -> Rows:
    """The limits that a whole run of `make bench-times` did not hold, and what repetitions found."""
    again: dict[tuple[str, str], list[float]] = {}
    for one in (one for run in raw("times/again.json") for one in run["figures"]):
        again.setdefault((one["test"], one["what"]), []).append(one["found"])
    found: Rows = {}
    for one in raw("times/whole.json")["figures"]:
        if not one["kept"]:
            file, _, name = one["test"].partition("::")
            case = name.partition("[")[2].rstrip("]")
            repeated = again[one["test"], one["what"]]
            if len(repeated) > 1 and len(set(repeated)) == 1:
                repeated_text = f"{repeated[0]:.4g}, {len(repeated)} times"
            else:
                repeated_text = listed(repeated)
            cells = (listed([one["limit"]]), listed([one["found"]]))
            runs = listed(one["runs"] or [one["found"]])
            found[f"{file} | {one['what']} | {case}"] = [*cells, runs, repeated_text]
    return found


def listed(found: Sequence[float]) -> str:
    return ", ".join(f"{one:.4g}" for one in found)


def carrier_loss() -> Rows:
    found: Rows = {}
    for name, contender in scenario("shift", "an uplink fails").items():
        runs = contender["runs"]
        assert len(runs) == 5
        seconds = [[run[of] for run in runs] for of in ("lossless_s", "placed_s")]
        found[name.replace("/1s", ", every 1 s")] = [
            *("never" if min(values) >= 40 else values for values in seconds),
            [100 * run["loss_ratio"] for run in runs],
        ]
    return found


def load_jumps_below_ovn() -> Rows:
    runs = raw("ovn/provider.json")["runs"]
    assert not any(lost for run in runs for lost in run["pings_lost"].values())
    assert not any(run.get("moves_of_idle") for run in runs)
    assert [round(load, 1) for load in span(run["load_average"] for run in runs)] == [0.9, 1.9]
    found: Rows = {}
    for name, of in grouped(runs, "contender").items():
        jumps = [jump for run in of for jump in run["phases"]]
        assert (len(of), len(jumps)) == (5, 20)
        found[name] = [
            [jump["relieved_after_s"] for jump in jumps],
            [100 * max(jump["uplinks_at_end"].values()) for jump in jumps],
            sum(not jump["relieved"] for jump in jumps),
            [run["moves"] for run in of],
            [
                100 * total(run["phases"], "lost_frames") / total(run["phases"], "sent_frames")
                for run in of
            ],
        ]
    return found


def total(of: Iterable[dict[str, Any]], key: str) -> float:
    return float(sum(one[key] for one in of))


def faults_that_keep_the_links_up() -> Rows:
    runs = raw("paths/faults.json")["runs"]
    runs = [run for run in runs if run["lost_before"] <= 0.05 * run["sent_per_s"]]
    found: Rows = {}
    for (fault, contender), of in grouped(runs, "fault", "contender").items():
        after, moved, lossless = (
            [run[key] for run in of]
            for key in ("found_after_s", "moved_after_s", "lossless_after_s")
        )
        lost = [run["lost_after"] for run in of]
        found[f"{fault}, {contender}"] = [
            len(of),
            "–" if None in after else after,
            "–" if None in moved else moved,
            [run["lost_until_found"] + run["lost_after"] for run in of],
            "–" if None in after else lost,
            "when it is fixed" if None in lossless else lossless,
        ]
    return found


def path_checks_on_quiet_networks() -> Rows:
    titles = {
        "storm": "a storm of broadcasts",
        "loop": "a loop",
        "hosts": "many hosts on one segment",
        "load": "all uplinks full",
    }
    found: Rows = {}
    for case, of in grouped(raw("paths/quiet.json")["runs"], "case").items():
        rounds, sent = (
            {k: total((run[of_] for run in of), k) for k in of[0][of_]}
            for of_ in ("rounds", "frames")
        )
        found[titles[case]] = [
            of[0]["hosts"],
            of[0]["uplinks"],
            total(of, "seconds") / 60,
            *(rounds.get(key, 0) for key in ("judged", "void")),
            sum(sent.values()),
            *(sent.get(key, 0) for key in ("lost", "full")),
            sum(len(run["findings"]) for run in of),
            (*span(run["load_average"] for run in of),),
        ]
    return found


LOST = re.compile(r".*: lost \d+ of \d+ frames \((\d+) ms,.* -> at most (\d+) ms")


def exceptions_of_chaos() -> Rows:
    busy = raw("soak/busy/seed-10.json")
    found = [
        (finding["event"], int(told[1]), int(told[2]))
        for finding in busy["beyond_bounds"]
        if (told := LOST.match(finding["what"]))
    ]
    pulled = span(lost_ms for event, lost_ms, _ in found if event.startswith("cable-down "))
    moved = span(lost_ms for _, lost_ms, bound_ms in found if bound_ms == 80)
    up = raw("soak/busy/seed-12.json")["kinds"]["cable-up"]["flow_lost_ms"]["worst"]
    storms = [raw(f"soak/links/seed-{seed}.json")["beyond_bounds"] for seed in (5, 9, 12)]
    assert [one["event"] for of in storms for one in of] == ["storm 2"] * 3
    return {
        "cable-up, LACP, service down": [up, None],
        "storm, plain uplinks, in one event": ["a broadcast arrived twice at three VMs", None],
        "cable-down, and broadcasts to VMs that move, on a busy machine": [
            (*pulled, *moved),
            busy["sender_late_s"],
        ],
    }


def frames_to_vms_that_send_nothing() -> Rows:
    figures = [one for one in raw("times/silent.json")["figures"] if "send_nothing" in one["test"]]
    names = ("balance-slb", "attached bridge, service up")
    return {
        name: [len(figure["runs"]), figure["runs"]]
        for name, figure in zip(names, figures, strict=True)
    }


def cables_pulled_while_vms_send_nothing() -> Rows:
    pulled = raw("soak/silent/now.json")["kinds"]["cable-down"]
    both = (pulled["frames_lost"], pulled["flow_lost_ms"])
    return {str(pulled["n"]): [(one["median"], one["worst"]) for one in both]}


def scale() -> Rows:
    found: Rows = {}
    for row in raw("scale.json")["rows"]:
        rest = row["at_rest"]
        found[str(row["bridges"])] = [
            100 * rest["cpu_ratio"],
            row["rss_bytes"] / 1e6,
            row["threads"],
            *(
                (1000 * rest[of]["median"], 1000 * rest[of]["p99"])
                for of in ("poll_s", "decision_s")
            ),
            1000 * row["failover_s"]["median"],
            row["start_s"],
        ]
    return found


def failovers_of_many_bridges() -> Rows:
    runs = raw("scale/failovers_garbage.json")["services"]["now"]["runs"]
    assert len(runs) == 4
    failovers = [one for run in runs for one in run["failovers"]]
    return {
        str(len(failovers)): [
            *([1000 * one[of] for one in failovers] for of in ("service_s", "whole_s", "switch_s")),
            *([1000 * run["poll_s"][of] for run in runs] for of in ("median", "p99")),
            [100 * run["cpu_ratio"] for run in runs],
        ]
    }


def failovers_with_many_connections() -> Rows:
    found: Rows = {}
    for file in ("connections/failover.json", "connections/many.json"):
        for row in raw(file)["rows"]:
            for one in row["sizes"]:
                lost = grouped(one["failovers"], "service")
                up, down = (
                    [run["probe_lost"] for service in services for run in lost.get(service, ())]
                    for services in (("alive", "none"), ("dead",))
                )
                assert len(up) == 9 and len(down) in (0, 9)
                load = row["origin"]["load_average"][0]
                name = f"{one['connections']:,} connections, {row['contender']}"
                found[name] = [len(up), one["flows"], up, down or "–", load]
    return found


def failovers_on_the_kernel() -> Rows:
    found: Rows = {}
    for who, of in grouped(raw("causes/failover_kernel_few.json")["runs"], "who").items():
        name = "balance-slb" if who == "balance-slb" else "load-based on balance-slb"
        found[f"few connections, {name}"] = [len(of), "–", [run["lost"] for run in of]]
    every = raw("causes/failover_kernel.json")["runs"]
    for by, of in grouped([run for run in every if run["silent_ms"] is not None], "by").items():
        found[f"10,000 connections, {by}"] = silences(of)
    return found


def silences(runs: Sequence[dict[str, Any]]) -> list[Any]:
    flows = statistics.median(run["flows"] for run in runs)
    return [len(runs), flows, [run["silent_ms"] for run in runs]]


def failovers_without_the_service() -> Rows:
    runs = raw("causes/failover_userspace.json")["runs"]
    assert all(run["revalidations"]["reconfigure"] for run in runs)
    found = grouped(runs, "connections", "by")
    return {f"{count:,} connections, {by}": silences(of) for (count, by), of in found.items()}


def upstream_switch_that_learns_late() -> Rows:
    found = raw("soak/learning/moves.json")["found_after_ms"]
    due: Rows = {}
    for row, of in (
        ("Open vSwitch with its flow cache", "as it is"),
        ("without cached flows", "no cached flows"),
    ):
        later = found[of][2:]
        assert len(later) == 22
        due[row] = [(*sorted(found[of][:2]),), (*span(later), statistics.median(later))]
    return due


def events_below_tunnels() -> Rows:
    runs = raw("overlay/events.json")["runs"]
    assert len(runs) == 97
    assert all(run["tcp_unbroken"] and not run["twice"] for run in runs)
    found: Rows = {}
    services = {"none": "–", "alive": "up", "dead": "down"}
    for (way, service), of in grouped(runs, "way", "service").items():
        events = grouped(of, "event")
        lost = [
            [run["lost"] for run in events.get(event, ())]
            for event in ("an uplink fails", "it returns", "an endpoint moves")
        ]
        assert {len(one) for one in lost if one} == {9 if "one endpoint" in way else 5}
        pause_s = max(run["tcp_pause_s"] for run in of)
        found[f"{way} | {services[service]}"] = [*(one or "–" for one in lost), pause_s]
    return found


WORK = ("lookups", "resubmits", "groups", "learns")


def by_contender(file: str, work: Sequence[str], *figures: str) -> Rows:
    """The work for a flow of each contender, and figures of its runs."""
    return {
        by: [len(of), *(of[0][one] for one in work), *([run[one] for run in of] for one in figures)]
        for by, of in grouped(raw(file)["runs"], "by").items()
    }


def new_connections() -> Rows:
    runs = grouped(raw("connections/new_per_second.json")["runs"], "by")
    found = by_contender("connections/new_per_second.json", WORK[:3])
    for by, cells in found.items():
        for how in ("as it is", "each"):
            cells.append([run[how]["most_per_s"] / 1000 for run in runs[by]])
    return found


FUZZED = {
    "bytes from a switch: corrupted, truncated, of any length": ["openflow"],
    "sequences of a switch's messages to a whole service": ["switch events"],
    "frames: probes, replies of hosts, announcements, LLDP": ["frames"],
    "database records, and the replica of the database": ["database", "replica"],
    "command lines, control commands, and the control socket's bytes": [
        *("command line", "commands", "control socket"),
    ],
    "plans during apply, and records of unconfirmed changes": ["plans"],
    "traces, and responses of Prometheus": ["trace", "prometheus"],
    "lines of the history file": ["history"],
}


def fuzzed_cases() -> Rows:
    targets = raw("fuzz/summary.json")["targets"]
    assert {name for names in FUZZED.values() for name in names} == targets.keys()
    return {
        what: [
            sum(targets[name]["cases"] for name in names),
            sum(len(targets[name]["failures"]) for name in names),
        ]
        for what, names in FUZZED.items()
    }


# By the row of README's comparison: the scenario, and the figure with what it is scaled by.
README_ROWS = {
    "loads jump: settled after": ("load jump", "settle_s", 1),
    "loads jump: lost": ("load jump", "loss_ratio", 100),
    "one of unequal uplinks fails: lost": ("an uplink fails", "loss_ratio", 100),
    "one of equal uplinks fails: CPU per Gbit": (
        *("one of equal uplinks fails", "cpu_s_per_gbit", 1),
    ),
}
CONTENDERS = ("load-based", "adaptive", "balance-slb", "balance-slb/1s")


def comparison_with_bonds() -> Rows:
    due: Rows = {}
    for row, (name, figure, scale) in README_ROWS.items():
        found = scenario("shift", name)
        assert all(len(found[one]["runs"]) == 5 for one in CONTENDERS)
        due[row] = [scale * found[one][figure] for one in CONTENDERS]
    return due


def test_readme_names_the_rows_in_which_bonds_win() -> None:
    """`load-based` loses the first two to both bonds; `balance-slb` wins the last one."""
    for row, (load_based, adaptive, *bonds) in comparison_with_bonds().items():
        if row.startswith("loads jump"):
            assert load_based > max(bonds)
        assert (min(bonds) < min(load_based, adaptive)) == row.endswith("CPU per Gbit")


# ---- pages for operators ---------------------------------------------------------------


def what_one_host_costs() -> Rows:
    found = raw("scale.json")
    names = ("one poll a second (the default)", "adaptive, ten polls a second")
    both = (found["rows"][0], found["adaptive"])
    return {
        name: [100 * one["at_rest"]["cpu_ratio"], one["rss_bytes"] / 1e6]
        for name, one in zip(names, both, strict=True)
    }


def what_endpoints_carry() -> Rows:
    due: Rows = {}
    for name, endpoints in (
        *((name, "two endpoints") for name in ("adaptive", "load-based", "dynamic")),
        *((name, "two endpoints") for name in ("balance-slb", "balance-tcp", "active-backup")),
        ("balance-slb", "one endpoint"),
    ):
        runs = scenario("overlay", f"both ways, {endpoints}")[name]["runs"]
        assert len(runs) == 5
        is_bond = name.startswith(("balance", "active"))
        lag = " on a LAG" if name == "balance-tcp" else ""
        row = f"bond with {name}{lag}, {endpoints}" if is_bond else f"{name}, {endpoints}"
        due[row] = [statistics.median(run["throughput_bps"] for run in runs) / 1e6]
    return due


def losses_while_a_bond_of_linux_becomes_one_of_ours() -> Rows:
    probes = [probe for run in raw("linux_bond/losses.json")["runs"] for probe in run["probes"]]
    due: Rows = {}
    for mode, options in (("active-backup", ""), ("802.3ad", ", lacp_rate fast")):
        for where, row in (
            ("", options),
            ("a port of the bridge", ", a port of the bridge with a VM"),
        ):
            ways = [
                [
                    probe["lost"]
                    for probe in probes
                    if probe["mode"] == mode
                    and ("a port of the bridge" in probe["what"]) == bool(where)
                    and way in probe["what"]
                ]
                for way in ("there", "back")
            ]
            # Two probes each time.
            (n,) = {len(lost) // 2 for lost in ways}
            due[mode + row] = [*((*sorted({*span(lost)}),) for lost in ways), n]
    return due


def connections_on_the_kernel() -> Rows:
    due: Rows = {}
    runs = raw("connections/kernel.json")["runs"]
    for (count, team, by), of in grouped(runs, "connections", "team", "by").items():
        assert len(of) == 2
        lost = [run["lost_at_failover"] / run["on_the_uplink"] for run in of]
        each = [[run[key] for run in of] for key in ("cached_flows", "upcalls", "cpu_s")]
        row = f"{count:,} | {team.replace('lacp', 'LACP')} | {by}"
        due[row] = [statistics.median(values) for values in (*each, lost)]
    return due


LOG = re.compile(
    r"(?:PASS|FAIL)  (?P<test>\S+): (?P<what>.+): (?P<found>[\d.]+), limit \S+"
    r"(?: \(n = (?P<n>\d+), median (?P<median>[\d.]+), (?P<least>[\d.]+) to (?P<most>[\d.]+)\))?$"
)


def logged(name: str, test: str, what: str) -> dict[str, str]:
    """A figure of a log of the kernel's datapath: of a test, and of what it measured."""
    lines = (RESULTS / "kernel" / name).read_text().splitlines()
    (found,) = (
        match.groupdict("")
        for match in map(LOG.search, lines)
        if match and test in match["test"] and match["what"] == what
    )
    return found


def logged_runs(name: str, test: str, what: str, n: int) -> list[float]:
    """The least, the median and the most of n runs, or what was found in one."""
    found = logged(name, test, what)
    assert found["n"] in ("", str(n))
    return [float(found[of]) for of in (("least", "median", "most") if found["n"] else ("found",))]


def both_datapaths() -> Rows:
    """The rows have long names, so that they are compared in their order, each by how it begins."""
    failover, cached = judged("kernel/failover.json", 15), judged("kernel/cached_failover.json", 9)
    # The limit of each is the median of the bond and 9 ms.
    assert {one["limit"] for one in raw("kernel/cached_failover.json")["figures"]} == {4 + 9}
    lost = {
        row["contender"]: tuple(
            [run["frames_lost"] for run in runs]
            for runs in grouped(row["sizes"][0]["failovers"], "service").values()
        )
        for row in raw("kernel/connections.json")["rows"]
    }
    figures = raw("kernel/figures.json")["runs"]
    assert [run["datapath"] for run in figures] == ["kernel", "userspace"]
    for run in figures:
        assert run["change_of_rules"]["last_by_the_old_way_after_s"] == [0.0] * 5
        long = run["mtu"]["2000 bytes"]
        assert (long["arrived"], long["counted_as_dropped"]) == (0, 0)
    tcp = [run["tcp"]["offloads on"] for run in figures]
    due: tuple[tuple[Any, ...], ...] = (
        ("frames lost when an uplink loses its carrier", failover[0], None),
        ("the same loss on an attached bridge", (failover[1], failover[2]), None),
        ("frames lost to silent VMs", (failover[3], failover[4]), None),
        ("10,000 cached connections", (cached[0], cached[1]), None),
        ("the same, dynamic", (cached[2], cached[3]), None),
        ("the same, adaptive", (cached[4], cached[5]), None),
        ("100 cached connections", lost["balance-slb"], None),
        ("the same, load-based", lost["load-based"], None),
        ("the same, dynamic", lost["dynamic"], None),
        ("broadcasts of 1,000 pps lost in 4 moves, worst VM", moves_on_the_kernel(), None),
        ("frames of 1,000 pps lost when a bond", attaches("adoption.log", "balance-slb"), None),
        ("the same with plain uplinks", attaches("attach_plain.log", "plain"), None),
        ("a port's counters change", None, None),
        (
            "a flow's counters change every",
            *(run["counters"]["flows"]["median_s"] for run in figures),
        ),
        ("last frame on the old uplink", "none", "none"),
        ("2,000-byte frame", "dropped, in no counter", "dropped, in no counter"),
        ("TCP of a VM", *("stalls" if "failed" in one else "works" for one in tcp)),
        ("bytes of that TCP", *("-" if "failed" in one else one["flow_over_port"] for one in tcp)),
        ("another bridge's VXLAN traffic", None, None),
    )
    names = rows(DATAPATHS, DATAPATHS_HEAD)
    assert all(name.startswith(one[0]) for name, one in zip(names, due, strict=True))
    return {name: list(cells) for name, (_, *cells) in zip(names, due, strict=True)}


def judged(name: str, n: int) -> list[list[float]]:
    """The runs of each figure of tests, n of each."""
    found = [figure["runs"] for figure in raw(name)["figures"]]
    assert {len(runs) for runs in found} == {n}
    return found


def moves_on_the_kernel() -> tuple[float, ...]:
    """What VMs of three beds lost in moves, and what they received twice in any."""
    test = "test_no_copy_twice_while_moves_and_failovers_happen"
    lost, twice = (
        [
            float(logged("delivery.log", f"{test}[{bed}", what)["found"])
            for bed in ("plain-3-untagged", "balance-slb-2-vlans", "static-lag-3-untagged")
        ]
        for what in ("frames lost of a flow of 1000 pps, 4 moves", "frames heard twice")
    )
    return (*lost, max(twice))


def attaches(log: str, bed: str) -> tuple[list[float], ...]:
    """What an attach and a detach lost."""
    flow = "frames lost of a flow of 1000 pps"
    test = f"lose_nothing[{bed}-2-untagged"
    return tuple(logged_runs(log, test, f"{flow}, {way}", n=15) for way in ("attach", "detach"))


RESTARTS = {
    "ovs-vswitchd is restarted": ("upgrade.log", "restart"),
    "ovs-ctl restart, as packages do": ("upgrade.log", "upgrade"),
    "ovs-ctl force-reload-kmod": ("reload_module.log", "reload_module"),
}


def restarts_of_open_vswitch() -> Rows:
    due: Rows = {}
    for row, (log, name) in RESTARTS.items():
        bond, up, down, plain_up, *plain_down = (
            logged_runs(log, f"bond[{name}]", f"frames lost of one flow, {name}, {who}", n=5)
            for who in (
                *("balance-slb", "balance-slb, service alive", "balance-slb, service dead"),
                "plain, service alive",
                # Without the service, plain uplinks forward nothing, and the test does not try.
                *(["plain, service dead"] if name != "restart" else []),
            )
        )
        uplinks = (plain_up, *plain_down) if plain_down else f"{plain_up[0]:.0f}; forwards nothing"
        due[row] = [bond, (up, down), uplinks]
    return due


TABLES = (
    Table(LIMITS, REPETITIONS_HEAD, repetitions),
    Table(LIMITS, "| test in `tests/switch` or `tests/mininet` | what | case |", not_held, names=3),
    Table(FAILOVER, "| | no loss after | placed after |", carrier_loss),
    Table(OVERLAYS, "| contender | relieved after, s |", load_jumps_below_ovn),
    Table(
        PATH_CHECKS, "| fault, contender | n | detected after, s |", faults_that_keep_the_links_up
    ),
    Table(PATH_CHECKS, "| case | hosts | uplinks |", path_checks_on_quiet_networks),
    Table(CHAOS, "| event | loss | why |", exceptions_of_chaos),
    Table(FAILOVER, "| frames to VMs that send nothing", frames_to_vms_that_send_nothing),
    Table(FAILOVER, "| cables pulled |", cables_pulled_while_vms_send_nothing),
    Table(SCALE, "| bridges | CPU at rest", scale),
    Table(SCALE, "| failovers | service's part", failovers_of_many_bridges),
    Table(FAILOVER, "| userspace datapath | n | cached flows |", failovers_with_many_connections),
    Table(FAILOVER, "| kernel datapath, service down | n |", failovers_on_the_kernel),
    Table(FAILOVER, "| userspace datapath, service down | n |", failovers_without_the_service),
    Table(
        CHAOS, "| upstream switch | moves to a new port (n = 2)", upstream_switch_that_learns_late
    ),
    Table(OVERLAYS, "| hosts | service | an uplink fails |", events_below_tunnels, names=2),
    Table(FAILOVER, "| thousands of new connections", new_connections),
    Table(HOSTILE, "| what is fuzzed | cases | failed |", fuzzed_cases),
    Table("README.md", "| |`load-based`|", comparison_with_bonds),
    Table("docs/guide/install.md", "| | CPU at rest | resident memory |", what_one_host_costs),
    Table("docs/overlay.md", "| | both directions, Mbit/s each", what_endpoints_carry),
    Table(
        "docs/guide/linux-bond.md",
        "| packets lost | to Open vSwitch | back | n |",
        losses_while_a_bond_of_linux_becomes_one_of_ours,
    ),
    Table(DATAPATHS, "| connections | team | hash | cached flows |", connections_on_the_kernel, 3),
    Table(DATAPATHS, DATAPATHS_HEAD, both_datapaths),
    Table(DATAPATHS, "| | `balance-slb` bond alone |", restarts_of_open_vswitch),
)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.due.__name__)
def test_a_table_has_the_rows_and_figures_that_were_measured(table: Table) -> None:
    due, found = table.due(), rows(table.page, table.head, table.names)
    assert found.keys() == due.keys()
    for row, cells in found.items():
        for cell, figures in zip(cells, due[row], strict=True):
            assert_cell(cell, figures)


def test_path_checks_find_nothing_on_quiet_networks() -> None:
    runs = raw("paths/quiet.json")["runs"]
    assert not any(run["findings"] for run in runs)
    assert sum(run["seconds"] for run in runs if run["case"] == "load") >= 3600
    many = [run["more"] for run in runs if run["case"] == "hosts"]
    assert many and not any(more["silent"] for more in many)
    assert not any(fault["found_elsewhere"] for more in many for fault in more["faults"])
