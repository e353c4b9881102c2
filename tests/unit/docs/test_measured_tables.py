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

from tests import documents
from tests.switch.chaos import losses
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
    """Which figure of a file below docs/results/times is a row's."""

    file: str
    test: str  # a part of the test's name
    what: str  # the end of what was measured


LIMITS, FAILOVER, OVERLAYS, PATH_CHECKS, SCALE, CHAOS, HOSTILE = (
    f"docs/reliability/{name}.md"
    for name in (
        *("limits", "failover", "overlays", "path-checks", "scale", "chaos", "hostile-input"),
    )
)
DATAPATHS = "docs/guide/datapaths.md"
REPETITIONS_HEAD = "| what | limit | n |"
DATAPATHS_HEAD = "| | kernel, emulated |"

REPETITIONS = {
    "attach to plain uplinks, worst flow": Of("adoption", "plain", "pps, attach"),
    "detach from plain uplinks, worst flow": Of("adoption", "plain", "pps, detach"),
    "a VM with eight connections, 30 s, dynamic over balance-slb": Of(
        "hot_vm", "test_hot_vm", "balance-slb, dynamic"
    ),
    "the same, adaptive": Of("hot_vm", "test_hot_vm", "balance-slb, adaptive"),
    "an uplink fails, balance-slb, frames of 1000 per second": Of(
        "failover", "failover", "frames lost, balance-slb"
    ),
    "the same, service up": Of("failover", "failover", "service alive"),
    "the same, service down": Of("failover", "failover", "service dead"),
}


def of_row(of: Of) -> tuple[list[float], list[float]]:
    """The values of a row, and the load averages of their measurement."""
    figures = [
        figure
        for figure in raw(f"times/{of.file}.json")["figures"]
        if of.test in figure["test"] and figure["what"].partition(", median")[0].endswith(of.what)
    ]
    values = [run for f in figures for run in f["runs"] or [f["found"]]]
    return values, [f["load_average"] for f in figures]


def repetitions() -> Rows:
    found: Rows = {}
    for row, of in REPETITIONS.items():
        values, _ = of_row(of)
        found[row] = [None, len(values), statistics.median(values), (*span(values),), None]
    return found


@pytest.mark.parametrize("row", REPETITIONS)
def test_a_load_average_is_that_of_the_tests_or_of_the_command(row: str) -> None:
    told = [float(one) for one in re.findall(NUMBER, rows(LIMITS, REPETITIONS_HEAD)[row][-1])]
    of = REPETITIONS[row]
    _, measured = of_row(of)
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
            found[f"{file} | {one['what']} | {case}"] = [*cells, repeated_text]
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
        after, moved, lossless, lost_later, lost_before = (
            [run[key] for run in of]
            for key in (
                *("found_after_s", "moved_after_s", "lossless_after_s"),
                *("lost_after", "lost_until_found"),
            )
        )
        if not contender.endswith("path checks"):
            # The page says that these lose frames until the port is fixed.
            assert None in lossless or contender == "balance-tcp"
            continue
        lost = [sum(both) for both in zip(lost_before, lost_later, strict=True)]
        found[f"{fault}, {contender}"] = [len(of), after, moved, lost, lost_later, lossless]
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
    for row in raw("connections/many.json")["rows"]:
        assert 1.8 < row["origin"]["load_average"][0] < 3.8
        for one in row["sizes"]:
            lost = grouped(one["failovers"], "service")
            up, down = (
                [run["probe_lost"] for service in services for run in lost.get(service, ())]
                for services in (("alive", "none"), ("dead",))
            )
            assert len(up) == 9 and len(down) in (0, 9)
            name = f"{one['connections']:,} connections, {row['contender']}"
            found[name] = [one["flows"], up, down or "–"]
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
    found = grouped([run for run in runs if run["connections"] == 10_000], "by")
    return {f"10,000 connections, {by}": silences(of) for by, of in found.items()}


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


WORK = ("lookups", "resubmits", "groups")


def new_connections() -> Rows:
    found: Rows = {}
    for by, of in grouped(raw("connections/new_per_second.json")["runs"], "by").items():
        most = [[run[how]["most_per_s"] / 1000 for run in of] for how in ("as it is", "each")]
        found[by] = [len(of), *(of[0][one] for one in WORK), *most]
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
    runs = [run for run in raw("connections/kernel.json")["runs"] if run["connections"] == 10_000]
    for (team, by), of in grouped(runs, "team", "by").items():
        assert len(of) == 2
        lost = [run["lost_at_failover"] / run["on_the_uplink"] for run in of]
        each = [[run[key] for run in of] for key in ("cached_flows", "cpu_s")]
        row = f"10,000 | {team.replace('lacp', 'LACP')} | {by}"
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
    due: tuple[tuple[str, Any], ...] = (
        ("frames lost when an uplink loses its carrier", failover[0]),
        ("the same loss on an attached bridge", (failover[1], failover[2])),
        ("frames lost to silent VMs", (failover[3], failover[4])),
        ("10,000 cached connections", (cached[0], cached[1])),
        ("the same, dynamic", (cached[2], cached[3])),
        ("the same, adaptive", (cached[4], cached[5])),
        ("broadcasts of 1,000 pps lost in 4 moves, worst VM", moves_on_the_kernel()),
        ("frames of 1,000 pps lost when a bond", attaches("adoption.log", "balance-slb")),
        ("the same with plain uplinks", attaches("attach_plain.log", "plain")),
    )
    names = rows(DATAPATHS, DATAPATHS_HEAD)
    assert all(name.startswith(one[0]) for name, one in zip(names, due, strict=True))
    return {name: [cell] for name, (_, cell) in zip(names, due, strict=True)}


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
    Table(FAILOVER, "| userspace datapath | cached flows |", failovers_with_many_connections),
    Table(FAILOVER, "| kernel datapath, service down | n |", failovers_on_the_kernel),
    Table(FAILOVER, "| userspace datapath, service down | n |", failovers_without_the_service),
    Table(OVERLAYS, "| hosts | service | an uplink fails |", events_below_tunnels, names=2),
    Table(FAILOVER, "| thousands of new connections", new_connections),
    Table(HOSTILE, "| what is fuzzed | cases | failed |", fuzzed_cases),
    Table("README.md", "| |`load-based`|", comparison_with_bonds),
    Table("docs/guide/install.md", "| | CPU at rest | resident memory |", what_one_host_costs),
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


def test_chaos_md_has_the_bounds_and_losses_of_chaos() -> None:
    text = (documents.ROOT / CHAOS).read_text()
    assert losses.with_table(text) == text, "again: python -m tests.switch.chaos.losses"
