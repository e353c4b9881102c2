"""VM ports that `adaptive` splits on a bridge, and merges: when, how, and what stays."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.engine_commands import Apply, SendFrame
from controller.decisions.scheduler import Scheduler
from controller.teaming import buckets
from controller.teaming.splits import MERGE_AFTER_S, REMEMBERED_S, Splits
from tests.unit.fake_switch import World, done, moves, world
from tests.unit.rows import VMS, host, with_ids

NUMBER = buckets.number_of("adaptive")
# 32 connections, the k-th with 1/k of the first one's traffic.
ZIPF = [1 / k for k in range(1, 33)]
FLOWS = {(37 * n) % 256: weight / sum(ZIPF) for n, weight in enumerate(ZIPF)}
EVEN = dict.fromkeys(range(256), 1 / 256)


def hot(
    *loads_gbps: float | Callable[[float], float],
    flows: dict[int, float] = FLOWS,
    **keys: str,
) -> World:
    """VMs on the first of some uplinks of 10 Gbit/s."""
    keys = {"poll_interval_ms": "1000", **keys}
    here = world(with_ids(host("adaptive", binding="eth1"), **keys))
    for ofport, gbps in enumerate(loads_gbps, 10):
        here.switch.offered_bps[ofport] = offered(gbps)
        here.switch.connections[ofport] = flows
    return here.start()


def offered(gbps: float | Callable[[float], float]) -> Callable[[float], float]:
    return lambda now_s: 1e9 * (gbps(now_s) if callable(gbps) else gbps)


def split(here: World) -> set[int]:
    return {ofport for ofport in range(10, 14) if here.switch.hash_of(ofport) == NUMBER}


def used(here: World) -> list[float]:
    return [uplink.uplink.load.tx_bps / 1e9 for uplink in here.status.uplinks]


def homes(here: World) -> dict[int, int | None]:
    return {bucket: here.switch.uplink_of_bucket(NUMBER, bucket) for bucket in range(256)}


@pytest.mark.slow
def test_a_hot_port_is_split_and_constant_load_stays() -> None:
    here = hot(14.0, 1.0).run_until(6)
    assert split(here) == {10} and moves(here)["split"] == 1
    here.run_for(30)
    assert max(used(here)) <= 8.5
    before, placed = moves(here), homes(here)
    here.run_for(200)
    assert moves(here) == before and homes(here) == placed
    assert here.bindings()["vnet0"] == "eth1", "its home"
    assert not here.commands(SendFrame), "nobody is told of what no switch upstream sees"


def test_it_goes_with_one_bundle_and_with_the_shares_that_suit() -> None:
    here = hot(15.0, 1.0, flows=EVEN).run_until(6)
    (changes,) = [c for _, c in here.applied() if len(c.add_groups) >= 256]
    assert any(group.group_id == 0x6C00000A for group in changes.modify_groups)
    assert Counter(homes(here).values())[1] == pytest.approx(128, abs=20)
    assert max(used(here)) <= 8.4


def test_one_that_fits_is_not_split() -> None:
    here = hot(6.0, 3.0, 2.0, 1.0).run_until(60)
    assert split(here) == set() and "split" not in moves(here)


@pytest.mark.parametrize(
    "keys", [{"pin": "eth1"}, {"exclude": "true"}, {"allow": "eth1"}, {"limit_mbps": "9000"}]
)
def test_one_with_rules_stays_whole(keys: dict[str, str]) -> None:
    here = hot(15.0)
    here.write_keys_of("vnet0", **keys).run_until(20)
    assert split(here) == set()
    assert not any(group >> 16 == 0x6CE0 + NUMBER for group in here.switch.groups)


def test_a_restart_moves_nothing_and_an_empty_switch_gets_it_back() -> None:
    here = hot(14.0, 1.0).run_until(60)
    switch, placed = here.switch, homes(here)
    installed = switch.installed
    here.restart_service().connect().run_for(20)
    assert split(here) == {10} and switch.installed == installed
    assert moves(here) == {} and here.commands(Apply) == []
    here.restart_switch().run_for(1)
    assert split(here) == {10} and homes(here) == placed


def cools(at_s: float, before: float, after: float) -> Callable[[float], float]:
    return lambda now_s: before if now_s < at_s else after


@pytest.mark.slow
def test_it_is_whole_again_when_it_has_cooled() -> None:
    here = hot(cools(100, 14.0, 2.0), 1.0).run_until(155)
    assert split(here) == {10}, "not at once"
    here.run_until(175)
    assert split(here) == set() and moves(here)["merge"] == 1
    assert not any(group >> 16 == 0x6CE0 + NUMBER for group in here.switch.groups)
    before = moves(here)
    here.run_for(100)
    assert moves(here) == before


def test_each_split_within_an_hour_has_it_cool_for_longer() -> None:
    splits, now_s = Splits(), 0.0
    for times in range(4):
        splits.split("vnet0", now_s)
        splits.judge(["vnet0"], ["vnet0"], now_s)
        merge_due_s = now_s + MERGE_AFTER_S * 2**times
        assert splits.next_split_s(now_s) == merge_due_s
        assert splits.due(merge_due_s - 1) == set() and splits.due(merge_due_s) == {"vnet0"}
        now_s = merge_due_s
        splits.merge("vnet0")
    splits.split("vnet0", now_s + REMEMBERED_S)
    splits.judge(["vnet0"], ["vnet0"], now_s + REMEMBERED_S)
    assert splits.next_split_s(now_s + REMEMBERED_S) == now_s + REMEMBERED_S + MERGE_AFTER_S


def test_a_split_that_is_forgotten_may_have_the_next_merge_due() -> None:
    splits = Splits()
    for at_s in (0.0, 10.0):
        splits.split("vnet0", at_s)
    splits.judge(["vnet0"], ["vnet0"], cool_s := REMEMBERED_S - 70)
    assert splits.merge_due_s("vnet0", cool_s) == cool_s + 2 * MERGE_AFTER_S
    assert splits.next_split_s(cool_s) == REMEMBERED_S
    assert splits.due(REMEMBERED_S - 0.1) == set() and splits.due(REMEMBERED_S) == {"vnet0"}


def test_one_that_is_hot_again_cools_anew() -> None:
    splits = Splits()
    splits.split("vnet0", 0.0)
    splits.judge(["vnet0"], ["vnet0"], 0.0)
    splits.judge(["vnet0"], [], 50.0)
    splits.judge(["vnet0"], ["vnet0"], 55.0)
    assert splits.due(60.0) == set() and splits.due(55.0 + MERGE_AFTER_S) == {"vnet0"}


@given(st.lists(st.floats(1, 400), min_size=1, max_size=60))
def test_no_load_has_a_port_split_often(waits_s: list[float]) -> None:
    """It is hot and cool in turns, and split whenever it is hot and whole."""
    splits, now_s, made = Splits(), 0.0, list[float]()
    for turn, wait_s in enumerate(waits_s):
        if turn % 2 == 0 and not splits.names:
            splits.split("vnet0", now_s)
            made.append(now_s)
        splits.judge(["vnet0"], ["vnet0"] if turn % 2 else [], now_s)
        now_s += wait_s
        if splits.due(now_s):
            splits.merge("vnet0")
    for at_s in made:
        assert sum(0.0 <= other - at_s < REMEMBERED_S for other in made) <= 6


@pytest.mark.slow
@settings(max_examples=3)
@given(st.floats(0.5, 100), st.floats(0.1, 0.9), st.floats(11, 19), st.floats(0, 9))
def test_no_square_load_has_it_split_often(
    period_s: float, duty: float, high: float, low: float
) -> None:
    def square(now_s: float) -> float:
        return high if now_s % period_s < duty * period_s else low

    here = hot(square, 1.0).run_until(240)
    assert moves(here).get("split", 0) <= 3


@pytest.mark.slow
def test_noise_moves_no_bucket() -> None:
    random = Random(1)
    here = hot(lambda _: 14.0 * (1 + random.uniform(-0.03, 0.03)), 1.0).run_until(60)
    before = homes(here)
    here.run_for(100)
    changed = sum(before[bucket] != uplink for bucket, uplink in homes(here).items())
    assert split(here) == {10} and changed <= 2


def test_a_pin_merges_it_at_once() -> None:
    here = hot(14.0, 1.0).run_until(30)
    here.write_keys_of("vnet0", pin="eth2").run_for(2)
    assert split(here) == set() and moves(here)["merge"] == 1
    assert here.bindings()["vnet0"] == "eth2"


def test_another_policy_and_observing_a_bond_end_it_and_a_port_that_goes_leaves_nothing() -> None:
    here = hot(14.0, 1.0).run_until(30)
    before = here.rows["br0"]
    for keys in ({"policy": "load-based"}, {"mode": "observe"}):
        here.write(with_ids(before, **keys)).run_for(10)
        assert split(here) == set()
        here.write(before).run_for(20)
        assert split(here) == {10}
    here.remove_port("vnet0").run_for(2)
    assert not any(group >> 16 == 0x6CE0 + NUMBER for group in here.switch.groups)


@pytest.mark.slow
def test_a_link_that_fails_takes_its_buckets_along_and_gets_them_back() -> None:
    here = hot(14.0, 1.0, flows=EVEN, failback_delay_s="5").run_until(60)
    before = homes(here)
    here.set_link(1, up=False).run_for(1)
    assert set(homes(here).values()) == {2} and here.bindings()["vnet0"] == "eth2"
    here.set_link(1, up=True).run_for(7)
    assert homes(here) == before and here.bindings()["vnet0"] == "eth1"


@pytest.mark.slow
def test_observed_it_is_said_and_not_done() -> None:
    here = hot(14.0, 1.0, mode="observe").run_until(60)
    status = here.status
    assert split(here) == set()
    assert status.moves_planned["split"] == 1 and status.moves_applied["split"] == 0
    here.run_for(60)
    assert here.status.moves_planned["split"] == 1


@pytest.mark.slow
def test_what_is_observed_from_here_on_stays_split_on_plain_uplinks() -> None:
    row = host("adaptive", binding="eth1", vms=VMS[:2], plain=True, poll_interval_ms="1000")
    here = world(row)
    here.switch.offered_bps = {10: offered(cools(90, 14.0, 1.0)), 11: offered(1.0)}
    here.switch.connections = {10: FLOWS, 11: FLOWS}
    here.start().run_until(60)
    assert split(here) == {10}
    placed = homes(here)
    here.write_keys(mode="observe").run_until(240)
    assert split(here) == {10} and homes(here) == placed
    assert here.status.moves_planned["merge"] == 1
    here.write_keys(mode="enforce").run_for(10)
    assert split(here) == {10}, "what is in force goes on"


def test_it_is_told() -> None:
    here = hot(14.0, 1.0).run_until(30)
    (shown,) = json.loads(done(here.ask("show", "--json")))["bridges"]
    ports = {port["name"]: port for port in shown["ports"]}
    assert ports["vnet0"]["reason"] == "split" and ports["vnet0"]["uplink"] == "eth1"
    assert ports["vnet0"]["split"] is True and "split" not in ports["vnet1"]
    assert sum(shown["buckets"]["adaptive"].values()) == 256
    explained = done(here.ask("explain", "vnet0"))
    assert "split by connection since" in " ".join(explained.split())
    assert "no placement of whole VM ports" in " ".join(explained.split())


def test_a_plan_of_it_is_shown_and_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "decide", lambda *_: [])
    here = hot(14.0, 1.0).run_until(10)
    assert split(here) == set()
    shown = done(here.ask("plan", "br0"))
    assert "75%" in shown and shown.splitlines()[3].split()[-1] == "split", shown
    here.do("apply br0")
    assert split(here) == {10} and moves(here)["split"] == 1
    assert Counter(homes(here).values())[1] == pytest.approx(119, abs=20), "shares as planned"
