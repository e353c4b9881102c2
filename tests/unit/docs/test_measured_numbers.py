"""Numbers in sentences of the documents against the raw figures of docs/results.

A claim is a page, the words before its numbers, and these numbers, computed. The page must give the
same numbers, as exact as it writes them. The rest of the sentence may change.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from controller.features.connection_hash import SILENT_IN_KERNEL, SILENT_IN_USERSPACE
from tests import documents
from tests.unit.docs.figures import NUMBER, assert_says, grouped, raw, scenario, span

README = "README.md"
DATAPATHS, OVERLAY, POLICIES, ADAPTIVE = (
    f"docs/{name}.md" for name in ("guide/datapaths", "overlay", "policies", "policies/adaptive")
)
CHAOS, FAILOVER, SCALE, LIMITS, HOSTILE, STANDBY = (
    f"docs/reliability/{name}.md"
    for name in ("chaos", "failover", "scale", "limits", "hostile-input", "standby")
)
BOTH_WAYS, ONE_WAY, ONE, TWO = "both ways, ", "one way, ", "one endpoint", "two endpoints"
DP_HASH, MULTIPATH = "dynamic, dp_hash,", "dynamic, multipath,"


def median_and_span(values: Sequence[float]) -> list[float]:
    return [statistics.median(values), *span(values)]


def late_after_moves_back_ms() -> list[float]:
    _, _, *later = raw("soak/learning/moves.json")["found_after_ms"]["as it is"]
    return [len(later), *span(later), statistics.median(later)]


def restarts_of_the_database() -> list[float]:
    found = raw("database/restart.json")["contenders"]
    assert len(found) == 8 and all(len(one["runs"]) == 3 for one in found)
    assert not any(run["lost_before_or_behind"] for one in found for run in one["runs"])
    return span(max(run["silent_s"] for run in one["runs"]) for one in found)


def settled_s() -> list[float]:
    runs = scenario("shift", "load jump")["adaptive"]["runs"]
    assert len(runs) == 5
    return span(run["settle_s"] for run in runs)


def lost_in_jumps() -> list[float]:
    jumps = scenario("shift_seeds", "all jumps")
    ours, bond = (
        [100 * run["loss_ratio"] for run in jumps[name]["runs"]]
        for name in ("adaptive", "balance-slb/1s")
    )
    assert len(ours) == len(bond) == 20
    interval_s = 1
    return [statistics.median(ours), max(ours), interval_s, statistics.median(bond), max(bond)]


def worst_of_jumps() -> list[float]:
    jumps = scenario("shift_seeds", "all jumps")
    worst = [
        100 * max(run[figure] for run in jumps[name]["runs"])
        for name, figure in (
            ("adaptive", "loss_ratio"),
            ("balance-slb/1s", "loss_ratio"),
            ("adaptive", "perfect_loss_ratio"),
        )
    ]
    assert len(jumps["adaptive"]["runs"]) == 20
    interval_s = 1
    return [worst[0], interval_s, *worst[1:]]


def cost_of_one_bridge() -> list[float]:
    (row,) = (row for row in raw("scale.json")["rows"] if row["bridges"] == 1)
    assert (row["ports_each"], row["poll_interval_s"]) == (50, 1.0)
    return [100 * row["at_rest"]["cpu_ratio"], row["rss_bytes"] / 1e6]


def silent_after_a_failure_ms() -> list[float]:
    return [scenario("two_switches", "a switch fails")["load-based"]["failover_ms"]]


def endpoints(name: str, contender: str, figure: str) -> list[float]:
    runs = scenario("overlay", name)[contender]["runs"]
    assert len(runs) == 5
    return [run[figure] for run in runs]


def mbps(name: str, *contenders: str) -> list[float]:
    """What each of them carried, at the median."""
    return [statistics.median(endpoints(name, who, "throughput_bps")) / 1e6 for who in contenders]


def over_the_bond(bond_at: str, at: str, *contenders: str) -> list[float]:
    """What each of them carried, over what the bond did."""
    (bond_mbps,) = mbps(bond_at, "balance-slb")
    return [one / bond_mbps for one in mbps(at, *contenders)]


def split_in_vain() -> list[float]:
    name, n = f"{BOTH_WAYS}{ONE}, VXLAN", 5
    ours, bond = (
        [100 * ratio for ratio in endpoints(name, who, "loss_ratio")]
        for who in ("adaptive", "balance-slb")
    )
    assert statistics.median(bond) == 0
    moves = statistics.median(endpoints(name, "adaptive", "moves"))
    return [statistics.median(ours), moves, *span(ours), n, *span(bond)]


def sizes(file: str) -> dict[tuple[str, int], dict[str, Any]]:
    """What was measured, by contender and number of connections."""
    rows = raw(f"{file}.json")["rows"]
    return {(row["contender"], one["connections"]): one for row in rows for one in row["sizes"]}


def lost(file: str, size: int, service: str, *contenders: str) -> list[list[float]]:
    """Frames of the probe that failovers lost; a bond has no service."""
    found = [sizes(file)[name, size]["failovers"] for name in contenders]
    return [
        [cut["probe_lost"] for cut in of if cut["service"] in (service, "none")] for of in found
    ]


def silent_by_multipath_ms(datapath: str) -> list[float]:
    return [
        run["silent_ms"]
        for run in raw(f"causes/failover_{datapath}.json")["runs"]
        if run["by"] == f"{MULTIPATH} on balance-slb" and run["connections"] == 10_000
    ]


def failover_by_multipath() -> list[float]:
    both = map(silent_by_multipath_ms, ("userspace", "kernel"))
    return [number for of in both for number in (*median_and_span(of), len(of))]


def differences_of_the_datapaths() -> list[float]:
    found = raw("kernel/figures.json")["runs"]
    assert [run["datapath"] for run in found] == ["kernel", "userspace"]
    for run in found:
        assert run["change_of_rules"]["last_by_the_old_way_after_s"] == [0.0] * 5
    assert ["failed" in run["tcp"]["offloads on"] for run in found] == [False, True]
    (counted,) = {round(run["counters"]["flows"]["median_s"], 1) for run in found}
    return [float(counted)]


def bytes_before_segmentation() -> list[float]:
    """How much less a VM port's flow counts than the uplink, on the kernel datapath."""
    return [
        100 - 100 * raw("kernel/figures.json")["runs"][0]["tcp"]["offloads on"]["flow_over_port"]
    ]


def flows_by_dp_hash() -> list[float]:
    found = [scenario("connections", f"{size} connections") for size in ("10,000", "30,000")]
    names = "dynamic", "dynamic/lacp", "adaptive"
    flows = [[one[name]["cached_flows"] for name in ("balance-tcp", *names)] for one in found]
    shares = [count / bond for bond, *ours in flows for count in ours]
    ours = (count for _, *of_ours in flows for count in of_ours)
    return [*span(ours), 10_000, 30_000, *span(shares)]


def new_connections(how: str, *names: str) -> list[float]:
    """How many a second there are at most, over those of NORMAL on the same bond."""
    runs = grouped(raw("connections/new_per_second.json")["runs"], "by")
    bond, *ours = (
        statistics.median(run[how]["most_per_s"] for run in runs[by])
        for by in ("balance-slb", *(f"{name} on balance-slb" for name in names))
    )
    return [one / bond for one in ours]


def cost_of_bridges() -> list[float]:
    found = {row["bridges"]: row for row in raw("scale.json")["rows"]}
    cpu = found[300]["at_rest"]["cpu_ratio"] - found[1]["at_rest"]["cpu_ratio"]
    resident_bytes = found[300]["rss_bytes"] - found[1]["rss_bytes"]
    scrapes = ((1000 * found[n]["scrape"]["cpu_s"] / n, n) for n in (10, 100, 300))
    return [100 * cpu / 299, resident_bytes / 299 / 1e6, *(x for one in scrapes for x in one)]


def cost_of_protection() -> list[float]:
    found = raw("causes/scale_attacks.json")["300 bridges"]
    now, before = found["now"], found["before"]
    return [
        *span(now["cpu_at_rest_percent"]),
        *span(now["failover_ms"]),
        *before["cpu_at_rest_percent"],
        *before["failover_ms"],
    ]


def poll_of_one_bridge_ms() -> list[float]:
    """Every bridge is polled once a second."""
    found = raw("scale/failovers_garbage.json")
    used = statistics.median(run["cpu_ratio"] for run in found["services"]["now"]["runs"])
    return [1000 * used / found["bridges"]]


def lost_after_a_jump() -> list[float]:
    runs = scenario("shift", "load jump")
    names = ("load-based", "balance-slb", "adaptive")
    return [
        100 * statistics.median(run["loss_ratio"] for run in runs[name]["runs"]) for name in names
    ]


def of_whole_run(test: str, *what: str) -> Callable[[], list[float]]:
    """What a whole run of `make bench-times` found: figures of one test, each in all its cases."""
    return lambda: [
        one["found"]
        for figure in what
        for one in raw("times/whole.json")["figures"]
        if test in one["test"] and one["what"] == figure
    ]


def share_of_a_core_in_a_storm() -> list[float]:
    (share,) = of_whole_run("test_hostile.py::test_a_storm", "of a core, the service")()
    return [100 * share]


def limits_that_were_held() -> list[float]:
    kept = [one["kept"] for one in raw("times/whole.json")["figures"]]
    return [sum(kept), len(kept)]


def week(of: Callable[[dict[str, Any]], list[float]]) -> Callable[[], list[float]]:
    return lambda: of(raw("replay/week.json"))


def placements(name: str, of: Callable[[dict[str, Any]], list[float]]) -> Callable[[], list[float]]:
    return lambda: of(raw(f"placements/{name}.json")[name])


DARK = "test_liveness.py::test_bfd_leaves_a_link_that_carries_nothing"
LEADER = "test_standby.py::test_a_leader_that_is"

CLAIMS: tuple[tuple[str, str, Callable[[], Sequence[float]]], ...] = (
    (README, "In twenty generated load jumps, `adaptive` lost", lost_in_jumps),
    (README, "50 VM ports, the service uses", cost_of_one_bridge),
    (README, "that failed interrupted traffic for", silent_after_a_failure_ms),
    (
        OVERLAY,
        "VMs behind one endpoint was",
        lambda: over_the_bond(ONE_WAY + ONE, ONE_WAY + ONE, "adaptive", "dynamic"),
    ),
    (OVERLAY, "connections without gain:", split_in_vain),
    (DATAPATHS, "both datapaths updated flow counters every", differences_of_the_datapaths),
    (DATAPATHS, "The reported load of a VM port that sends TCP is then", bytes_before_segmentation),
    (DATAPATHS, "a failover took", failover_by_multipath),
    ("docs/guide/install.md", "Each further bridge with 50 ports costs", cost_of_bridges),
    (
        "docs/guide/replay.md",
        "The replay with `adaptive` took",
        week(lambda of: [of["replay"]["cpu_s"]]),
    ),
    (POLICIES, "after a load jump,", lost_after_a_jump),
    (ADAPTIVE, "Five load jumps on a real switch were relieved after", settled_s),
    (
        ADAPTIVE,
        "the worst utilization is",
        placements("quality", lambda of: [of["median_ratio"], of["p99_ratio"], 99, of["exact"]]),
    ),
    (
        ADAPTIVE,
        "10000 VM ports on 8 uplinks take",
        placements("speed", lambda of: [of["median_ms"]["10000"], of["growth"]]),
    ),
    (CHAOS, "wrong port for up to a second: in", late_after_moves_back_ms),
    (CHAOS, "the longest time without traffic was", restarts_of_the_database),
    (
        FAILOVER,
        "and `dynamic` with `dp_hash` handle",
        lambda: [
            *new_connections("as it is", "load-based", DP_HASH, MULTIPATH),
            *(0.8, *new_connections("each", DP_HASH, MULTIPATH)),
        ],
    ),
    (
        FAILOVER,
        "a VM receives nothing for at most",
        of_whole_run(DARK, "longest silence of a VM, service alive, s"),
    ),
    (
        FAILOVER,
        "the switch stops using the uplink |",
        of_whole_run(DARK, "longest silence of a VM, service dead, s"),
    ),
    (FAILOVER, "and VM ports return |", of_whole_run(DARK, "back after, s")),
    (
        FAILOVER,
        "no frame to the port before it forwards |",
        of_whole_run("test_no_failback", "frames lost since the cable was plugged in"),
    ),
    (HOSTILE, "no frame to the service, which uses", share_of_a_core_in_a_storm),
    (HOSTILE, "The table shows a run with", lambda: [raw("fuzz/summary.json")["cases"]]),
    (HOSTILE, "each other target,", lambda: [raw("fuzz/summary.json")["seconds"] / 60]),
    (LIMITS, "One complete run of `make bench-times` met", limits_that_were_held),
    (STANDBY, "polls the switch | 2 s |", of_whole_run(f"{LEADER}_killed", "taken over, s")),
    (
        STANDBY,
        "leader stopped (SIGSTOP) | 2 s |",
        of_whole_run(f"{LEADER}_stopped", "taken over, s"),
    ),
    (STANDBY, "and leads again", of_whole_run(f"{LEADER}_stopped", "taken over again, s")),
    (SCALE, "the later version used", cost_of_protection),
    (SCALE, "A poll of one bridge costs the service", poll_of_one_bridge_ms),
    ("docs/benchmarks/shift_seeds.md", "Of the 20 jumps,", worst_of_jumps),
    ("docs/benchmarks/connections.md", "With `dp_hash`, there are", flows_by_dp_hash),
    (
        "docs/benchmarks/overlay.md",
        "`adaptive` reached",
        lambda: over_the_bond(BOTH_WAYS + ONE, BOTH_WAYS + TWO, "adaptive", "load-based"),
    ),
)


@functools.cache
def text(page: str) -> str:
    """A page in one line, without the targets of links and the commas of thousands."""
    line = " ".join((documents.ROOT / page).read_text().split())
    return re.sub(r"(?<=\d),(?=\d{3})", "", re.sub(r"\]\([^)]*\)", "]", line))


@pytest.mark.parametrize(("page", "words", "numbers"), CLAIMS)
def test_a_claim_has_the_numbers_that_were_measured(
    page: str, words: str, numbers: Callable[[], Sequence[float]]
) -> None:
    _, found, after = text(page).partition(words)
    assert found and words not in after, f"{page}: {words} -> there, once"
    due = numbers()
    assert due, "nothing was measured"
    assert_says(" ".join(re.findall(NUMBER, after)[: len(due)]), *due)


def test_show_gives_the_silence_that_was_measured_with_multipath() -> None:
    for told, datapath in ((SILENT_IN_USERSPACE, "userspace"), (SILENT_IN_KERNEL, "kernel")):
        assert_says(told, statistics.median(silent_by_multipath_ms(datapath)))
