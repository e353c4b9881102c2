"""Sentences with measured figures against the raw figures of docs/results.

Each is written here with its figures computed, as exact as the page writes them. The page must have
it word for word.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from controller.bridge.connection_hash import SILENT_IN_KERNEL, SILENT_IN_USERSPACE
from tests import documents
from tests.unit.docs.figures import grouped, raw


def loads_that_jump_by_seed() -> tuple[str, str]:
    jumps = [seed["jump"] for seed in raw("shift_seeds.json")["seeds"]]
    assert len(jumps) == 20
    ours, bond = (
        [100 * jump[name]["loss_ratio"] for jump in jumps]
        for name in ("adaptive", "balance-slb/1s")
    )
    return "README.md", (
        f"In twenty of them `adaptive` lost {statistics.median(ours):.3f} % at the median and"
        f" {max(ours):.2f} % at most, `balance-slb` at 1 s {statistics.median(bond):.1f} % and"
        f" {max(bond):.0f} %"
    )


def settled_s() -> list[float]:
    runs = scenario("shift", "load jump")["adaptive"]["runs"]
    assert len(runs) == 5
    return [run["settle_s"] for run in runs]


def a_jump_in_readme() -> tuple[str, str]:
    least, most = min(settled_s()), max(settled_s())
    return "README.md", (
        f"`adaptive` had settled a jump of load after {least:.1f} to {most:.1f} s ([five runs]"
    )


def a_jump_in_readme_s_table() -> tuple[str, str]:
    least, most = min(settled_s()), max(settled_s())
    return "README.md", (
        f"in five jumps of load, a full uplink was relieved after {least:.1f} to {most:.1f} s"
    )


def relieved_below_ovn_s(name: str) -> list[float]:
    """After how long `adaptive` had relieved the uplink, for each jump."""
    runs = (run for run in raw(name)["runs"] if run["contender"] == "adaptive")
    return [jump["relieved_after_s"] for run in runs for jump in run["phases"]]


def jumps_below_ovn_in_readme() -> tuple[str, str]:
    found_s = relieved_below_ovn_s("ovn/provider.json")
    assert len(found_s) == 20
    return "README.md", (
        f"(behind a patch port of OVN, after {min(found_s):.1f} to {max(found_s):.1f} s in [twenty jumps]"
    )


def jumps_below_ovn_that_waited_for_peaks() -> tuple[str, str]:
    found_s = relieved_below_ovn_s("ovn/provider_before.json")
    late_s = [one_s for one_s in found_s if one_s > 5.0]
    return "docs/reliability.md", (
        f"{len(late_s)} of {len(found_s)} jumps were relieved only after"
        f" {min(late_s):.1f} to {max(late_s):.1f} s"
    )


def a_week_before_and_after_a_change() -> tuple[str, str]:
    flows = raw("replay/before_and_after.json")["flows"]
    first, second, (before, after) = (
        [one["moves"] for one in flows[number].values()] for number in ("8", "32", "256")
    )
    assert len({*first}) == len({*second}) == 1
    return "docs/benchmarks.md", (
        f"it makes {first[0]} moves before and after, with 8 connections of each VM port,"
        f" {second[0]} with 32, and {before} and {after} with 256"
    )


def a_jump_in_policies() -> tuple[str, str]:
    least, most = min(settled_s()), max(settled_s())
    return "docs/policies.md", (
        f"Five jumps on a real switch were settled after {least:.2f} to {most:.2f} s"
    )


def scenario(layout: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in raw(f"{layout}.json")["scenarios"] if one["name"] == name)
    contenders: dict[str, Any] = found["contenders"]
    return contenders


def endpoints(name: str, contender: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = scenario("overlay", name)[contender]["runs"]
    assert len(runs) == 5
    return runs


def mbps(name: str, contender: str) -> float:
    return statistics.median(run["throughput_bps"] for run in endpoints(name, contender)) / 1e6


def one_endpoint() -> tuple[str, str]:
    one = "one way, one endpoint"
    bond = mbps(one, "balance-slb")
    return "docs/operations.md", (
        f"what eight VMs sent from one endpoint was {mbps(one, 'adaptive') / bond:.2f} times as much"
        f" with `adaptive` as with `balance-slb`, and {mbps(one, 'dynamic') / bond:.2f} times with"
        " `dynamic`"
    )


def split_in_vain() -> tuple[str, str]:
    name = "both ways, one endpoint, VXLAN"
    ours, bond = (endpoints(name, who) for who in ("adaptive", "balance-slb"))
    lost, lost_by_bond = ([100 * run["loss_ratio"] for run in of] for of in (ours, bond))
    moves = statistics.median(run["moves"] for run in ours)
    assert statistics.median(lost_by_bond) == 0
    return "docs/operations.md", (
        f"`adaptive` lost {statistics.median(lost):.1f} % of the packets in {moves:.0f} moves"
        f" ({min(lost):.0f} to {max(lost):.1f} %, n = 5), and `balance-slb` lost none"
        f" ({min(lost_by_bond):.0f} to {max(lost_by_bond):.1f} %)"
    )


def no_gain_from_a_split() -> tuple[str, str]:
    two, one = "both ways, two endpoints, VXLAN", "both ways, one endpoint, VXLAN"
    return "docs/operations.md", (
        f"each direction carried {mbps(one, 'balance-slb'):.1f} Mbit/s with `balance-slb`, and"
        f" {mbps(one, 'adaptive'):.1f} with `adaptive` (n = 5). With two endpoints, the same uplinks"
        f" carried {mbps(two, 'balance-slb'):.1f} and {mbps(two, 'adaptive'):.1f}."
    )


def vxlan() -> tuple[str, str]:
    two, one = "both ways, two endpoints, VXLAN", "both ways, one endpoint, VXLAN"
    starts = [
        run["origin"]["load_average"][0]
        for name in (two, one)
        for who in ("adaptive", "balance-slb")
        for run in endpoints(name, who)
    ]
    return "docs/operations.md", (
        f"VXLAN works like Geneve: {mbps(two, 'adaptive'):.1f} Mbit/s with `adaptive` and two"
        f" endpoints, {mbps(two, 'balance-slb'):.1f} with `balance-slb` and two,"
        f" {mbps(one, 'balance-slb'):.1f} with `balance-slb` and one (same source, n = 5, load"
        f" average {min(starts):.0f} to {max(starts):.0f})"
    )


def rescued() -> tuple[str, str]:
    runs = raw("overlay/rescue.json")["runs"]
    assert [len(of) for of in grouped(runs, "way").values()] == [5, 5]
    after, loads = ([run[key] for run in runs] for key in ("reached_after_s", "load_average"))
    return "docs/operations.md", (
        f"reached the host again {min(after):.1f} to {max(after):.1f} s after the command was typed"
        f" (n = 5 each with IPv4 and IPv6, load average {min(loads):.0f} to {max(loads):.0f};"
    )


def silent_by_multipath_ms(datapath: str) -> list[float]:
    return [
        run["silent_ms"]
        for run in raw(f"causes/failover_{datapath}.json")["runs"]
        if run["by"] == "dynamic, multipath, on balance-slb" and run["connections"] == 10_000
    ]


def failover_by_multipath() -> tuple[str, str]:
    userspace, kernel = (
        f"{statistics.median(of):.0f} ms ({min(of):.0f} to {max(of):.0f}, n = {len(of)})"
        for of in map(silent_by_multipath_ms, ("userspace", "kernel"))
    )
    return "docs/operations.md", (
        f"with 10,000 connections, a failover then took {userspace} on the userspace datapath, and"
        f" {kernel} on the kernel's"
    )


def cost_of_bridges() -> tuple[str, str]:
    found = {row["bridges"]: row for row in raw("scale.json")["rows"]}
    cpu = found[300]["at_rest"]["cpu_ratio"] - found[1]["at_rest"]["cpu_ratio"]
    resident = found[300]["rss_bytes"] - found[1]["rss_bytes"]
    per_bridge = {n: 1000 * found[n]["scrape"]["cpu_s"] / n for n in (10, 100, 300)}
    return "docs/operations.md", (
        f"Each further bridge of 50 ports costs {100 * cpu / 299:.1f} % of a core and"
        f" {resident / 299 / 1e6:.1f} MB. One service uses at most one core. A scrape of its metrics"
        f" takes {per_bridge[10]:.0f} ms of CPU time for each such bridge with 10 of them,"
        f" {per_bridge[100]:.0f} ms with 100 and {per_bridge[300]:.0f} ms with 300."
    )


def a_week_replayed() -> tuple[str, str]:
    found = raw("replay/week.json")
    return "docs/operations.md", (
        f"`adaptive` took {found['replay']['cpu_s']:.0f} s of processor time for the week of"
        f" {found['vm_ports']} VMs"
    )


def excess_by_policy() -> tuple[str, str]:
    flows = raw("replay/policies.json")["flows"]
    sent = {
        name: {f"{100 * one[name]['excess_ratio']['transmit']:.2f}" for one in flows.values()}
        for name in ("adaptive", "load-based")
    }
    (ours,), (theirs,) = sent["adaptive"], sent["load-based"]
    received = {n: 100 * flows["32"][n]["excess_ratio"]["receive"] for n in sent}
    assert max(one["adaptive"]["most_moves_per_mac_180s"] for one in flows.values()) == 2
    return "docs/policies.md", (
        f"with 32 flows each, {ours} % of the bytes sent are above capacity. `load-based` leaves"
        f" {theirs} %. With 8 or 256 flows the result is the same. Of the bytes received,"
        f" {received['adaptive']:.2f} % are above capacity, and {received['load-based']:.2f} % with"
        " `load-based`"
    )


def every_poll_replayed() -> tuple[str, str]:
    peer = raw("replay/week.json")["peer"]
    times = peer["every_poll"]["cpu_s"] / peer["skipping"]["cpu_s"]
    return "docs/operations.md", f"the minute before it took {times:.0f} times as long"


def many_connections() -> tuple[str, str]:
    flows = {
        row["contender"]: one["flows"]
        for row in raw("connections/many.json")["rows"]
        for one in row["sizes"]
        if one["connections"] == 100_000
    }
    return "docs/operations.md", (
        f"100,000 connections took {flows['dynamic']} entries by `dynamic`,"
        f" {flows['adaptive, split']} by a split VM port, and {flows['balance-tcp']} by Open"
        " vSwitch's `balance-tcp`"
    )


def lost(file: str, services: Sequence[str]) -> dict[tuple[str, int], list[float]]:
    """Frames of the probe lost, by contender and connections."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in raw(file)["rows"]:
        for one in row["sizes"]:
            of = [cut["probe_lost"] for cut in one["failovers"] if cut["service"] in services]
            if of:
                found[row["contender"], one["connections"]] = of
    return found


def alive_or_dead() -> tuple[str, str]:
    apart = []
    for file in ("connections/failover.json", "connections/many.json"):
        alive, dead = lost(file, ["alive"]), lost(file, ["dead"])
        for key, of in alive.items():
            assert max(min(of), min(dead[key])) <= min(max(of), max(dead[key])), key
            apart.append(abs(statistics.median(of) - statistics.median(dead[key])))
    return "docs/reliability.md", (
        "the ranges overlap in every row, and the medians differ in either direction, by"
        f" {min(apart):.0f} to {max(apart):.0f}"
    )


def with_many_connections() -> tuple[str, str]:
    alive, dead = (
        {key: f"{statistics.median(of):.0f}" for key, of in lost(file, services).items()}
        for file, services in (
            ("connections/many.json", ["alive", "none"]),
            ("connections/many.json", ["dead"]),
        )
    )

    def with_(size: int) -> str:
        split, lag = ("adaptive, split", size), ("dynamic/lacp", size)
        return (
            f"`balance-tcp` lost {alive['balance-tcp', size]}, `dynamic` {alive['dynamic', size]} and"
            f" {dead['dynamic', size]}, a split VM port {alive[split]} and {dead[split]}, and"
            f" `dynamic/lacp` {alive[lag]} and {dead[lag]}"
        )

    return "docs/reliability.md", (
        f"In the failover with 30,000, with the service alive and dead, {with_(30_000)}; with"
        f" 100,000, {with_(100_000)}."
    )


def flows_by_dp_hash() -> tuple[str, str]:
    flows = {
        (row["contender"], one["connections"]): one["flows"]
        for row in raw("connections.json")["rows"]
        for one in row["sizes"]
        if one["connections"] > 100
    }
    ours = {
        key: count
        for key, count in flows.items()
        if key[0] in ("dynamic", "dynamic/lacp", "adaptive, split")
    }
    shares = [count / flows["balance-tcp", size] for (_, size), count in ours.items()]
    return "docs/benchmarks.md", (
        f"by `dp_hash`, {min(ours.values())} to {max(ours.values())} with 10,000 and 30,000"
        f" connections, {min(shares):.2f} to {max(shares):.2f} of those of `balance-tcp`"
    )


def service_in_two_switches() -> tuple[str, str]:
    contenders = scenario("two_switches", "a switch fails")
    load_s = raw("two_switches.json")["environment"]["pace"]["outage_s"][-1]
    percent = {name: 100 * of.get("cpu_s_ovs-lbt", 0) / load_s for name, of in contenders.items()}
    usual = [percent[name] for name in ("originating-port", "load-based", "adaptive")]
    return "docs/benchmarks.md", (
        f"The service itself takes {min(usual):.1f} to {max(usual):.1f} % of a core, and"
        f" {percent['dynamic']:.1f} with `dynamic`."
    )


def streams_repeated() -> tuple[str, str]:
    (found,) = raw("repeated/set_vs_lbfo.json")["scenarios"]
    texts = {}
    for name in ("set", "dynamic/lacp", "dynamic", "balance-tcp"):
        of = [100 * run["stream_cv"] for run in found["contenders"][name]["runs"]]
        assert len(of) == 3
        texts[name] = f"{statistics.median(of):.2f} % ({min(of):.2f} to {max(of):.2f})"
    return "docs/benchmarks.md", (
        f"`set` {texts['set']}, `dynamic/lacp` {texts['dynamic/lacp']}, `dynamic`"
        f" {texts['dynamic']} and `balance-tcp` {texts['balance-tcp']}."
    )


def throughput_repeated() -> tuple[str, str]:
    (found,) = raw("repeated/set_vs_lbfo.json")["scenarios"]
    runs = [run for of in found["contenders"].values() for run in of["runs"]]
    # The limit is that of two links.
    least = 2 * min(run["share_of_limit"] for run in runs)
    return "docs/benchmarks.md", f"Throughput fell to {100 * least:.0f} % of a link at worst"


def room_of_the_bed() -> tuple[str, str]:
    (found,) = raw("overlay/headroom.json")["scenarios"]
    runs = [run for of in found["contenders"].values() for run in of["runs"]]
    ratios = [of["headroom_ratio"] for of in found["contenders"].values()]
    assert {f"{ratio:.1f}" for ratio in ratios} == {f"{max(ratios):.1f}"}
    starts = [run["origin"]["load_average"][0] for run in runs]
    return "docs/benchmarks.md", (
        f"carried {max(ratios):.1f} times the rate needed in each direction at once (two runs, load"
        f" average {min(starts):.0f} to {max(starts):.0f};"
    )


def new_connections() -> tuple[str, str]:
    runs = raw("connections/new_per_second.json")["runs"]
    starts = [run["load_average"] for run in runs]
    return "docs/reliability.md", (
        f"three of three attempts (load average {min(starts):.0f} to {max(starts):.0f})"
    )


def new_connections_over_normal() -> tuple[str, str]:
    found = grouped(raw("connections/new_per_second.json")["runs"], "by")

    def over(name: str, how: str) -> float:
        most = [
            statistics.median(run[how]["most_per_s"] for run in found[by])
            for by in (f"{name} on balance-slb", "balance-slb")
        ]
        return most[0] / most[1]

    assert over("load-based", "each") == pytest.approx(1, abs=0.005)
    return "docs/reliability.md", (
        f"So `load-based` and `dynamic` with `dp_hash` take {over('load-based', 'as it is'):.2f} and"
        f" {over('dynamic, dp_hash,', 'as it is'):.2f} times as many as NORMAL on the same bond, that"
        " is the next step in the median. `multipath`, where each is an upcall, takes"
        f" {over('dynamic, multipath,', 'as it is'):.2f} times as many, less than the 0.8 that we"
        " wanted. If each connection is translated, `load-based` takes as many as NORMAL, `dp_hash`"
        f" {over('dynamic, dp_hash,', 'each'):.2f} and `multipath`"
        f" {over('dynamic, multipath,', 'each'):.2f} times as many."
    )


def set_up() -> tuple[str, str]:
    found = grouped(raw("causes/set_up.json")["runs"], "by")

    def us(by: str, what: str = "new_us") -> float:
        return statistics.median(run[what] for run in found[by])

    many = grouped(raw("connections/new_per_second.json")["runs"], "by")
    bond, ours = (
        statistics.median(run["as it is"]["most_per_s"] for run in many[by])
        for by in ("balance-slb", "dynamic, multipath, on balance-slb")
    )
    multipath, normal = us("dynamic, multipath, on balance-slb"), us("balance-slb", "each_new_us")
    return "docs/reliability.md", (
        f"With `multipath` a new connection takes {multipath:.1f} us, and {normal:.1f} us with NORMAL if it"
        f" also has to translate each; a cached frame takes {us('balance-slb', 'cached_us'):.1f}. Our"
        f" tables add {multipath - normal:.1f} us, of which learning is"
        f" {multipath - us('the same, learning nothing'):.1f}, and four look-ups with two resubmits"
        f" {multipath - us('the same, four look-ups fewer'):.1f}. To reach 0.8 in the table before,"
        f" {1e6 / ours - 1e6 / (0.8 * bond):.1f} us must go."
    )


def translations() -> tuple[str, str]:
    start = raw("causes/translation.json")["origin"]["load_average"][0]
    return "docs/reliability.md", f"a flow of its own (load average {start:.0f} at the start)"


def links() -> tuple[str, str]:
    found = {seed: raw(f"soak/links/seed-{seed}.json")["kinds"].values() for seed in (5, 9, 12)}
    n = {seed: sum(kind["n"] for kind in kinds) for seed, kinds in found.items()}
    worst = {
        seed: max(kind["flow_lost_ms"]["worst"] for kind in kinds) for seed, kinds in found.items()
    }
    return "docs/reliability.md", (
        f"with BFD at most {max(worst[5], worst[9]):.0f} ms were lost in {n[5] + n[9]} of these"
        f" events, and with LACP at most {worst[12]:.0f} ms in {n[12]}."
    )


def ends_of_a_link() -> tuple[str, str]:
    apart = sorted(
        abs(one["upstream"] - one["here"])
        for one in raw("soak/learning/ends.json")["live_after_ms"]
    )
    return "docs/reliability.md", (
        f"within {apart[-2]:.0f} ms of each other in {len(apart) - 1} of {len(apart)} cases, and"
        f" {apart[-1]:.0f} ms apart in one."
    )


def events_soon_again() -> tuple[str, str]:
    runs = [
        run
        for run in raw("overlay/events_soon_again.json")["runs"]
        if run["event"] == "an uplink fails"
    ]
    # A flow has 250 frames a second.
    silent = {
        key: sum(run["lost_of_a_flow_max"] > 100 for run in of)
        for key, of in grouped(runs, "way", "service").items()
    }
    assert silent["dynamic, one endpoint", "alive"] == 0
    alive, dead = (silent["adaptive, two endpoints", service] for service in ("alive", "dead"))
    return "docs/reliability.md", (
        f"lost for 0.5 s: in {silent['dynamic, one endpoint', 'dead']} of 5 failures with one"
        f" endpoint and the service dead, in {alive} and {dead} of 5 with two endpoints and the"
        f" service alive and dead, and in {silent['balance-slb, one endpoint', 'none']} of 5 below"
        " `balance-slb`."
    )


def cached_flows() -> tuple[str, str]:
    """With 10,000 connections and more, of each run."""
    by = ("on balance-slb", "dp_hash", "dynamic", "dynamic/lacp", "adaptive, split")
    found: dict[str, list[int]] = {"few": [], "dp_hash": []}
    counted = [
        (row["contender"], one["connections"], one["flows"])
        for name in (
            "connections",
            *(f"connections/{n}" for n in ("failover", "failover_again", "many")),
        )
        for row in raw(f"{name}.json")["rows"]
        for one in row["sizes"]
    ]
    counted += [
        (run["by"].partition(" on ")[0].rstrip(","), run["connections"], run["flows"])
        for run in raw("causes/failover_userspace.json")["runs"]
    ]
    for who, connections, flows in counted:
        if connections >= 10_000 and who in ("balance-slb", "load-based"):
            found["few"].append(flows)
        elif connections >= 10_000 and (who in by or who == "dynamic, dp_hash"):
            found["dp_hash"].append(flows)
    few, ours = found["few"], found["dp_hash"]
    us = statistics.median(
        run["revalidated_us"]
        for run in raw("causes/translation.json")["runs"]
        if "dp_hash" in run["by"]
    )
    return "docs/reliability.md", (
        "With 10,000 connections and more, `balance-slb` and `load-based` cache"
        f" {min(few)} to {max(few)} flows, and `dp_hash` {min(ours)} to {max(ours)}, and {max(ours)}"
        f" take {us * max(ours) / 1000:.0f} ms."
    )


def pulled_cables() -> tuple[str, str]:
    run = raw("soak/losses/seed-10.json")
    assert not run["beyond_bounds"]
    cut = run["kinds"]["cable-down"]
    return "docs/reliability.md", (
        f"with a sender at most {1000 * run['sender_late_s']:.0f} ms late, lost nothing beyond a bound,"
        f" and {cut['flow_lost_ms']['worst']:.0f} ms at most in {cut['n']} pulled cables"
    )


def bfd_that_is_not_up_yet() -> tuple[str, str]:
    worst = {
        folder: raw(f"soak/{folder}/seed-9.json")["kinds"]["dark"]["flow_lost_ms"]["worst"]
        for folder in ("before", "busy", "losses")
    }
    return "docs/reliability.md", (
        f"`dark` on a static LAG with BFD: {worst['before']:.0f} and {worst['busy']:.0f} ms of one VM's"
        f" frames instead of 1000 ms, once each in two runs of 500 events; {worst['losses']:.0f} ms at"
        " most in the run above"
    )


def runs_made_again() -> tuple[str, str]:
    runs = raw("paths/faults.json")["runs"]
    again = sum(run["lost_before"] > 0.05 * run["sent_per_s"] for run in runs)
    return "docs/reliability.md", f"does not count and is made again ({again} of {len(runs)} runs)"


def vswitchd_answers_nobody() -> tuple[str, str]:
    (row,) = (row for row in raw("scale.json")["rows"] if row["bridges"] == 300)
    found = row["failover_switch_s"]
    return "docs/reliability.md", (
        f"answered nobody for {found['median']:.2f} s ({found['worst']:.2f} at worst) in each failover"
        " of 300."
    )


def a_poll_of_one_bridge() -> tuple[str, str]:
    found = raw("scale/failovers_garbage.json")
    # Every bridge is polled once a second.
    used = statistics.median(run["cpu_ratio"] for run in found["services"]["now"]["runs"])
    each_ms = 1000 * used / found["bridges"]
    return "docs/reliability.md", (
        f"A poll of one bridge costs the service {each_ms:.1f} ms of CPU time."
    )


def means_on_the_kernel() -> tuple[str, str]:
    found = grouped(raw("causes/failover_kernel.json")["runs"], "by")
    bond, ours, hashed = (
        statistics.mean(run["silent_ms"] for run in found[by])
        for by in ("balance-slb", "load-based on balance-slb", "dynamic, dp_hash, on balance-slb")
    )
    return "docs/reliability.md", (
        f"the means are {bond:.1f} for `balance-slb`, {ours:.1f} for `load-based`, and {hashed:.1f} for"
        " `dynamic` with `dp_hash`"
    )


def failovers_again() -> tuple[str, str]:
    file = "connections/failover_again.json"
    alive, dead, bond = (
        {key: f"{statistics.median(of):.0f}" for key, of in lost(file, [service]).items()}
        for service in ("alive", "dead", "none")
    )
    few, many = ("dynamic", 100), ("dynamic", 10_000)
    first_alive, first_dead = (
        {key: f"{statistics.median(of):.0f}" for key, of in lost(first, [service]).items()}
        for first in ("connections/failover.json",)
        for service in ("alive", "dead")
    )
    return "docs/reliability.md", (
        f"alive and dead {alive[few]} and {dead[few]} with 100 connections ({first_alive[few]} and"
        f" {first_dead[few]} above), {alive[many]} and {dead[many]} with 10,000 ({first_alive[many]} and"
        f" {first_dead[many]} above), `balance-slb` {bond['balance-slb', 100]} and"
        f" {bond['balance-slb', 10_000]}."
    )


def failovers_in_benchmarks() -> tuple[str, str]:
    size = 10_000
    alive, dead = lost("connections.json", ["alive", "none"]), lost("connections.json", ["dead"])

    def told(of: Sequence[float]) -> str:
        return f"{statistics.median(of):.0f} ({min(of):.0f} to {max(of):.0f})"

    def both(name: str) -> tuple[str, str]:
        return told(alive[name, size]), told(dead[name, size])

    dynamic, split, based, lag, multipath = map(
        both,
        ("dynamic", "adaptive, split", "load-based", "dynamic/lacp", "dynamic/lacp+multipath"),
    )
    return "docs/benchmarks.md", (
        f"with 10,000 connections `balance-tcp` {told(alive['balance-tcp', size])}, `balance-slb`"
        f" {told(alive['balance-slb', size])}, `active-backup` {told(alive['active-backup', size])};"
        f" `dynamic` {dynamic[0]} with the service and {dynamic[1]} without, `adaptive` with a split VM"
        f" port {split[0]} and {split[1]}, `load-based` {based[0]} and {based[1]}; `dynamic/lacp`"
        f" {lag[0]} and {lag[1]}, and by `multipath` {multipath[0]} and {multipath[1]}."
    )


def aims_of_overlay() -> tuple[str, str]:
    two, base = "both ways, two endpoints", mbps("both ways, one endpoint", "balance-slb")
    cv = {
        f"{statistics.median(run['spread_cv'] for run in endpoints(two, who)):.3f}"
        for who in ("adaptive", "load-based")
    }
    (same,) = cv
    return "docs/benchmarks.md", (
        f"`adaptive` reached {mbps(two, 'adaptive') / base:.2f} times and `load-based`"
        f" {mbps(two, 'load-based') / base:.2f} times, with a CV of {same} in both directions."
    )


def vxlan_in_benchmarks() -> tuple[str, str]:
    one, base = (
        "one way, one endpoint, VXLAN",
        mbps("both ways, one endpoint, VXLAN", "balance-slb"),
    )
    return "docs/benchmarks.md", (
        "*VXLAN* works like Geneve:"
        f" {mbps('both ways, two endpoints, VXLAN', 'adaptive') / base:.2f} times with two endpoints in"
        f" both directions, and {mbps(one, 'adaptive') / mbps(one, 'balance-slb'):.2f} times with one"
        " that only sends."
    )


def quality_of_placements() -> tuple[str, str]:
    found = raw("placements/quality.json")["quality"]
    return "docs/policies.md", (
        f"on {found['instances']:,} random teams (2 to 8 uplinks, half of them of mixed speeds, 4 to 200"
        " VM ports with heavy-tailed loads), the worst utilization is"
        f" {found['median_ratio']:.3f} × the optimum at the median and {found['p99_ratio']:.3f} × at the"
        " 99th percentile"
    )


def optimum_of_placements() -> tuple[str, str]:
    found = raw("placements/quality.json")["quality"]
    return "docs/policies.md", (
        f"The optimum is an exact solver's in {found['exact']} of them, and a lower bound in the others"
    )


def longest_silence_of_a_switch() -> tuple[str, str]:
    contenders = raw("two_switches.json")["scenarios"][0]["contenders"]
    ms = [one["longest_gap_ms"] for name, one in contenders.items() if name != "manual"]
    return "README.md", (f"is {min(ms):.0f} to {max(ms):.0f} ms by all but placement by hand")


def speed_of_placements() -> tuple[str, str]:
    found = raw("placements/speed.json")["speed"]
    return "docs/policies.md", (
        f"10,000 VM ports on 8 uplinks take {found['median_ms']['10000']:.0f} ms of processor time at the"
        f" median, {found['growth']:.1f} times as long as 2,500"
    )


def streams_through_more_bridges() -> tuple[str, str]:
    where = (
        "from team to team",
        "with a virtual switch at the sender",
        "with a virtual switch on both sides",
    )
    forwarded = {
        name: [
            bridges * statistics.median(run["share_of_limit"] for run in runs)
            for bridges, runs in enumerate(
                (scenario("quad_gbe_team", one)[name]["runs"] for one in where), 2
            )
        ]
        for name in ("dynamic/lacp", "balance-tcp")
    }
    ours, bond = forwarded.values()
    first, second = (", ".join(f"{one:.1f}" for one in found[:2]) for found in (ours, bond))
    fewer = [100 * mine / theirs for mine, theirs in zip(ours[1:], bond[1:], strict=True)]
    return "docs/benchmarks.md", (
        f"Share times bridges, by medians, is {first} and {ours[2]:.1f} by `dynamic/lacp`, and {second} and"
        f" {bond[2]:.1f} by `balance-tcp`. So the uplinks limit the first, and the switch the others, which then"
        f" compare what a frame costs: ours forward {fewer[0]:.0f} and {fewer[1]:.0f} % as many."
    )


def all_by_one_link() -> tuple[str, str]:
    runs = raw("causes/few_connections.json")["runs"]
    large = [run for run in runs if run["scenario"] == "one large VM, SMB"]
    one = sum(run["fuller_link_received_ratio"] > 0.99 for run in large)
    assert one == 7
    return "docs/results/causes/README.md", f"They did in seven of {len(large)}"


def two_vms_in_two_sets() -> tuple[str, str]:
    runs = raw("causes/few_connections.json")["runs"]
    found = grouped([run for run in runs if run["scenario"] == "2 at once, TCP"], "contender")
    first, second = (
        statistics.median(run["share_of_limit"] for run in found["dynamic/lacp"][nine])
        / statistics.median(run["share_of_limit"] for run in found["balance-tcp"][nine])
        for nine in (slice(9), slice(9, 18))
    )
    return "docs/results/causes/README.md", (
        f"were {first:.2f} of those of `balance-tcp` in the first nine runs, and {second:.2f} in the second nine"
    )


def slowdowns_without_a_lag() -> tuple[str, str]:
    numbers = {2: "two", 3: "three", 4: "four"}
    lowest, overlap = [], 0
    for one in raw("flows.json")["scenarios"]:
        p99 = {
            name: [run["slowdown_p99"] for run in found["runs"]]
            for name, found in one["contenders"].items()
            if name not in ("balance-tcp", "oracle")
        }
        best = min(p99, key=lambda name: statistics.median(p99[name]))
        lowest.append(best)
        overlap += max(p99[best]) >= min(p99["balance-slb"])
    assert set(lowest) == {"adaptive", "dynamic"}
    return "README.md", (
        f"all contenders without a LAG in all {numbers[len(lowest)]} scenarios,"
        f" `adaptive` in {numbers[lowest.count('adaptive')]} and"
        f" `dynamic` in {numbers[lowest.count('dynamic')]}. But in {numbers[overlap]} of them the ranges"
        " of the runs overlap those of `balance-slb`"
    )


SENTENCES: tuple[Callable[[], tuple[str, str]], ...] = (
    loads_that_jump_by_seed,
    a_jump_in_readme,
    a_jump_in_readme_s_table,
    a_jump_in_policies,
    a_week_before_and_after_a_change,
    jumps_below_ovn_in_readme,
    jumps_below_ovn_that_waited_for_peaks,
    one_endpoint,
    split_in_vain,
    no_gain_from_a_split,
    vxlan,
    rescued,
    failover_by_multipath,
    cost_of_bridges,
    a_week_replayed,
    every_poll_replayed,
    excess_by_policy,
    many_connections,
    alive_or_dead,
    with_many_connections,
    flows_by_dp_hash,
    service_in_two_switches,
    streams_repeated,
    throughput_repeated,
    room_of_the_bed,
    new_connections,
    new_connections_over_normal,
    set_up,
    translations,
    links,
    ends_of_a_link,
    events_soon_again,
    cached_flows,
    pulled_cables,
    bfd_that_is_not_up_yet,
    runs_made_again,
    vswitchd_answers_nobody,
    a_poll_of_one_bridge,
    means_on_the_kernel,
    failovers_again,
    failovers_in_benchmarks,
    aims_of_overlay,
    vxlan_in_benchmarks,
    quality_of_placements,
    optimum_of_placements,
    longest_silence_of_a_switch,
    speed_of_placements,
    slowdowns_without_a_lag,
    streams_through_more_bridges,
    all_by_one_link,
    two_vms_in_two_sets,
)


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda one: one.__name__)
def test_a_sentence_says_what_was_measured(sentence: Callable[[], tuple[str, str]]) -> None:
    page, text = sentence()
    assert text in " ".join((documents.ROOT / page).read_text().split()), f"{page}: {text}"


def test_show_says_what_was_measured_of_multipath() -> None:
    for told, datapath in ((SILENT_IN_USERSPACE, "userspace"), (SILENT_IN_KERNEL, "kernel")):
        median = statistics.median(silent_by_multipath_ms(datapath))
        assert told.startswith(f"{median:.0f} ms"), datapath
