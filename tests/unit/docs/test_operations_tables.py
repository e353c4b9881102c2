"""Tables of measured figures in the pages for operators against the raw figures."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from tests.unit.docs.figures import (
    RESULTS,
    assert_says,
    grouped,
    of_runs,
    plain,
    raw,
    rows,
)

DATAPATHS = "docs/guide/datapaths.md"
LOG = re.compile(
    r"(?:PASS|FAIL)  (?P<test>\S+): (?P<what>.+): (?P<found>[\d.]+), limit \S+"
    r"(?: \(n = (?P<n>\d+), median (?P<median>[\d.]+), (?P<least>[\d.]+) to (?P<most>[\d.]+)\))?$"
)


def test_what_one_host_costs() -> None:
    found = raw("scale.json")
    table = rows("docs/guide/install.md", "| | CPU at rest | resident memory |")
    for cells, row in zip(table.values(), (found["rows"][0], found["adaptive"]), strict=True):
        assert_says(cells[0], 100 * row["at_rest"]["cpu_ratio"])
        assert_says(cells[1], row["rss_bytes"] / 1e6)


def logged(name: str, test: str, what: str) -> dict[str, str]:
    """The figure of a log of the kernel's datapath: of a test, and of what it measured."""
    lines = (RESULTS / "kernel" / name).read_text().splitlines()
    (found,) = (
        match.groupdict("")
        for match in map(LOG.search, lines)
        if match and test in match["test"] and match["what"] == what
    )
    return found


def test_what_endpoints_carry() -> None:
    scenarios = {one["name"]: one["contenders"] for one in raw("overlay.json")["scenarios"]}
    table = rows("docs/overlay.md", "| | both directions, Mbit/s each")
    assert len(table) == 7
    for first, (cell,) in table.items():
        endpoints = "two endpoints" if "two endpoints" in first else "one endpoint"
        runs = scenarios[f"both ways, {endpoints}"][first.split("`")[1]]["runs"]
        assert len(runs) == 5
        assert_says(cell, statistics.median(run["throughput_bps"] for run in runs) / 1e6)


def test_losses_while_a_bond_of_linux_becomes_one_of_ours() -> None:
    probes = [probe for run in raw("linux_bond/losses.json")["runs"] for probe in run["probes"]]
    table = rows("docs/guide/linux-bond.md", "| packets lost | to Open vSwitch | back | n |")
    assert len(table) == 4
    for first, (there, back, n) in table.items():
        mode, is_port = first.split("`")[1], "a port of the bridge" in first
        for cell, way in ((there, "there"), (back, "back")):
            lost = [
                probe["lost"]
                for probe in probes
                if probe["mode"] == mode
                and ("a port of the bridge" in probe["what"]) == is_port
                and way in probe["what"]
            ]
            assert len(lost) == 2 * int(n), "two probes each time"
            assert_says(cell, *sorted({min(lost), max(lost)}))


def test_connections_on_the_kernel() -> None:
    found = grouped(raw("connections/kernel.json")["runs"], "connections", "team", "by")
    table = rows(DATAPATHS, "| connections | team | hash | cached flows |")
    assert len(table) == len(found)
    connections = team = ""
    for first, (team_cell, by, *cells) in table.items():
        connections = first.rstrip("\0") or connections
        team = team_cell.lower() or team
        runs = found[int(connections.replace(",", "")), team, plain(by)]
        assert len(runs) == 2
        for cell, key in zip(cells, ("cached_flows", "upcalls", "cpu_s"), strict=False):
            assert_says(cell.replace(",", ""), statistics.median(run[key] for run in runs))
        lost = [run["lost_at_failover"] / run["on_the_uplink"] for run in runs]
        assert_says(cells[-1], statistics.median(lost))


def test_where_datapaths_differ() -> None:
    table = rows(DATAPATHS, "| | kernel, emulated | userspace |")
    says = iter(table.values())
    failures = _judged("kernel/failover.json", 15)
    for parts in (failures[:1], failures[1:3], failures[3:]):
        _assert_says_each(next(says)[0], parts)
    cached = _judged("kernel/cached_failover.json", 9)
    for number in range(0, 6, 2):
        _assert_says_each(next(says)[0], cached[number : number + 2])
    # The limit of each is the median of the bond and 9 ms.
    assert {one["limit"] for one in raw("kernel/cached_failover.json")["figures"]} == {4 + 9}
    runs_of = {row["contender"]: row["sizes"][0] for row in raw("kernel/connections.json")["rows"]}
    for first, name in zip([*table][6:9], ("balance-slb", "load-based", "dynamic"), strict=True):
        assert f"`{name}`" in first
        lost = grouped(runs_of[name]["failovers"], "service")
        _assert_says_each(
            table[first][0], [[run["frames_lost"] for run in runs] for runs in lost.values()]
        )


def _judged(name: str, n: int) -> list[list[float]]:
    """The runs of each figure of tests, n of each."""
    found = [figure["runs"] for figure in raw(name)["figures"]]
    assert all(len(runs) == n for runs in found)
    return found


def _assert_says_each(cell: str, found: Sequence[Sequence[float]]) -> None:
    for part, runs in zip(cell.split(";"), found, strict=True):
        assert_says(*of_runs(part, runs))


def test_moves_and_attaches_on_the_kernel() -> None:
    table = rows(DATAPATHS, "| | kernel, emulated | userspace |")
    (moves,) = (cells[0] for first, cells in table.items() if first.startswith("broadcasts of"))
    what = "frames lost of a flow of 1000 pps, 4 moves"
    beds = ("plain-3-untagged", "balance-slb-2-vlans", "static-lag-3-untagged")
    test = "test_no_copy_twice_while_moves_and_failovers_happen"
    lost = [int(logged("delivery.log", f"{test}[{bed}", what)["found"]) for bed in beds]
    twice = [logged("delivery.log", f"{test}[{bed}", "frames heard twice")["found"] for bed in beds]
    assert_says(moves, *lost, max(map(int, twice)))
    for head, name, bed in (
        ("frames of 1,000 pps lost when a bond", "adoption.log", "balance-slb-2-untagged"),
        ("the same with plain uplinks, median of 15", "attach_plain.log", "plain-2-untagged"),
    ):
        (cell,) = (cells[0] for first, cells in table.items() if first.startswith(head))
        found = [
            logged(name, f"lose_nothing[{bed}", f"frames lost of a flow of 1000 pps, {way}")
            for way in ("attach", "detach")
        ]
        for part, one in zip(cell.split(";"), found, strict=True):
            values = (one["median"], one["least"], one["most"]) if one["n"] else (one["found"],)
            assert one["n"] in ("", "15")
            assert_says(part, *map(float, values))


def test_figures_of_both_datapaths() -> None:
    table = rows(DATAPATHS, "| | kernel, emulated | userspace |")
    for run, column in zip(raw("kernel/figures.json")["runs"], (0, 1), strict=True):
        assert run["datapath"] == ("kernel", "userspace")[column]
        flows = table["a flow's counters change every"][column]
        assert_says(flows, run["counters"]["flows"]["median_s"])
        rules = next(cells for first, cells in table.items() if first.startswith("last frame on"))
        assert rules[column] == "none"
        assert run["change_of_rules"]["last_by_the_old_way_after_s"] == [0.0] * 5
        long = run["mtu"]["2000 bytes"]
        assert (long["arrived"], long["counted_as_dropped"]) == (0, 0)
        tcp = run["tcp"]["offloads on"]
        (share,) = (
            cells for first, cells in table.items() if first.startswith("bytes of that TCP")
        )
        if "failed" in tcp:
            assert table["TCP of a VM with checksum and segmentation offload"][column] == "stalls"
        else:
            assert_says(share[column], tcp["flow_over_port"])


RESTARTS = {
    "ovs-vswitchd is restarted": ("upgrade.log", "restart"),
    "`ovs-ctl restart`, as packages do": ("upgrade.log", "upgrade"),
    "`ovs-ctl force-reload-kmod`": ("reload_module.log", "reload_module"),
}


def test_restarts_of_open_vswitch_on_the_kernel() -> None:
    table = rows(DATAPATHS, "| | `balance-slb` bond alone |")
    assert table.keys() == RESTARTS.keys()
    for first, (bond, attached, uplinks) in table.items():
        assert_restart(first, bond, ("balance-slb",))
        both = [f"balance-slb, service {one}" for one in ("alive", "dead")]
        assert_restart(first, attached, both)
        # Without the service, plain uplinks forward nothing, and the test does not try.
        both = [f"plain, service {one}" for one in ("alive", "dead")]
        assert_restart(
            first,
            uplinks.removesuffix("; forwards nothing"),
            both[: uplinks.count(";") + ("forwards" not in uplinks)],
        )


def assert_restart(row: str, cell: str, whom: Sequence[str]) -> None:
    log, name = RESTARTS[row]
    for part, who in zip(cell.split(";"), whom, strict=True):
        found = logged(log, f"bond[{name}]", f"frames lost of one flow, {name}, {who}")
        assert found["n"] in ("", "5")
        keys = ("median", "least", "most") if found["n"] else ("found",)
        assert_says(part, *(float(found[key]) for key in keys))
