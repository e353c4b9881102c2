"""VM ports that `adaptive` splits on a bridge, and merges: when, how, and what stays."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.decisions.scheduler import Scheduler
from controller.teaming import buckets
from controller.teaming.splits import MERGE_AFTER_S, REMEMBERED_S, Splits
from tests.unit.controller.story import ALL_ON_ETH1
from tests.unit.controller.teaming.bucket_story import BucketStory
from tests.unit.fake_switch import Rate, moves

NUMBER = buckets.number_of("adaptive")
# 32 connections, the k-th with 1/k of the first one's traffic.
ZIPF = [1 / k for k in range(1, 33)]
FLOWS = {(37 * n) % 256: weight / sum(ZIPF) for n, weight in enumerate(ZIPF)}
EVEN = dict.fromkeys(range(256), 1 / 256)


class SplitStory(BucketStory):
    """With steps about what is split."""

    def do_hot(self, *bps: str) -> None:
        """What VM ports send, each in turn, by some connections."""
        self.do_loads(*bps)
        self.switch.connections = dict.fromkeys(range(10, 14), FLOWS)

    def do_even(self) -> None:
        """By as many connections in each bucket."""
        self.switch.connections = dict.fromkeys(range(10, 14), EVEN)

    def do_split(self, *names: str) -> None:
        """The VM ports that are split. Without any, no group is left of it."""
        found = [name for name, n in self._vm_ports().items() if self.switch.hash_of(n) == NUMBER]
        assert found == [*names], found
        assert names or not any(group >> 16 == 0x6CE0 + NUMBER for group in self.switch.groups)

    def do_used_at_most(self, ratio: str) -> None:
        used = [uplink.uplink.utilization_ratio for uplink in self.status.uplinks]
        assert max(used) <= float(ratio), used

    def do_on_eth1(self, buckets: str) -> None:
        assert Counter(self.homes("adaptive").values())[1] == pytest.approx(int(buckets), abs=20)


TEAM = f"policy=adaptive poll-interval-ms=1000 {ALL_ON_ETH1}"
BOND = f"bond {TEAM}"
HOT = f"{BOND} | hot 1.4e9 1e8"
STORIES = {
    "one that fits": f"{BOND} | hot 6e8 3e8 2e8 1e8 | run 60 | split | did split=0",
    **{
        f"one with a rule: {rule}": f"{BOND} vnet0.{rule} | hot 1.5e9 | run 20 | split"
        for rule in ("pin=eth1", "exclude=true", "allow=eth1", "limit-mbps=900")
    },
    "a service that restarts, and a switch": f"""{HOT} | run 60 | note-homes | restarts 20 | split vnet0
        | unlearn | forget | run 1 | split vnet0 | homes-as-noted""",
    "a pin": f"{HOT} | run 30 | set vnet0.pin=eth2 | run 2 | split | did merge=1 | explains vnet0 uplink=eth2",
    "another policy, observing, and a port that goes": f"""{HOT} | run 30 | set policy=load-based | run 10
        | split | set policy=adaptive | run 20 | split vnet0 | set mode=observe | run 10 | split
        | set mode=enforce | run 20 | split vnet0 | del vnet0 | run 2 | split""",
    "what is told": f"""{HOT} | run 30 | shows vnet0 reason=split uplink=eth1 split=True
        | shows vnet1 split=None | ask show | told …adaptive: 256 buckets… | ask explain vnet0
        | told …split by connection since…no placement of whole VM ports…""",
}
SLOW = {
    # Nobody is told of what no switch upstream sees.
    "constant load": f"""{HOT} | run 6 | split vnet0 | did split=1 | run 30 | used-at-most 0.85
        | note-homes | run 200 | moves-as-noted | homes-as-noted | explains vnet0 uplink=eth1
        | packets 0""",
    "one that has cooled": f"""{HOT} | run 100 | hot 2e8 1e8 | run 55 | split vnet0 | run 20 | split
        | did merge=1 | note-homes | run 100 | moves-as-noted""",
    "a link that fails takes its buckets along": f"""{BOND} failback-delay-s=5 | hot 1.4e9 1e8 | even
        | run 60 | note-homes | down eth1 | run 1 | shares adaptive eth2=256
        | explains vnet0 uplink=eth2 | up eth1 | run 7 | homes-as-noted | explains vnet0 uplink=eth1""",
    "on an observed bond": f"""{BOND} mode=observe | hot 1.4e9 1e8 | run 60 | split | planned split=1
        | moves | run 60 | planned split=1""",
    "on plain uplinks that are observed from here on": """plain vms=2 policy=adaptive
        poll-interval-ms=1000 vnet0.binding=eth1 vnet1.binding=eth1 | hot 1.4e9 1e8 | run 60
        | split vnet0 | note-homes | set mode=observe | run 30 | hot 1e8 1e8 | run 150 | split vnet0
        | homes-as-noted | metric moves_planned_total{bridge="br0",reason="merge"} 1.0
        | set mode=enforce | run 10 | split vnet0""",
}


@pytest.mark.parametrize(
    "story", [*STORIES, *(pytest.param(s, marks=pytest.mark.slow) for s in SLOW)]
)
def test_split(story: str) -> None:
    SplitStory((STORIES | SLOW)[story]).tell()


def test_it_goes_with_one_bundle_and_with_the_shares_that_suit() -> None:
    here = SplitStory(
        f"{BOND} | hot 1.5e9 1e8 | even | run 6 | on-eth1 128 | used-at-most 0.84"
    ).tell()
    (changes,) = [c for _, c in here.applied() if len(c.add_groups) >= 256]
    assert any(group.group_id == 0x6C00000A for group in changes.modify_groups)


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


def sending(rate: Rate) -> SplitStory:
    here = SplitStory(f"{HOT}").tell()
    here.switch.offered_bps[10] = rate
    return here


@pytest.mark.slow
@settings(max_examples=3)
@given(st.floats(0.5, 100), st.floats(0.1, 0.9), st.floats(11, 19), st.floats(0, 9))
def test_no_square_load_has_it_split_often(
    period_s: float, duty: float, high: float, low: float
) -> None:
    here = sending(lambda now_s: 1e8 * (high if now_s % period_s < duty * period_s else low))
    assert moves(here.run_until(240)).get("split", 0) <= 3


@pytest.mark.slow
def test_noise_moves_no_bucket() -> None:
    random = Random(1)
    here = sending(lambda _: 1.4e9 * (1 + random.uniform(-0.03, 0.03)))
    here.run_until(60)
    before = here.homes()
    here.run_for(100)
    here.do_split("vnet0")
    assert sum(before[bucket] != uplink for bucket, uplink in here.homes().items()) <= 2


def test_a_plan_of_it_is_shown_and_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "decide", lambda *_: [])
    SplitStory(
        f"""{HOT} | run 10 | split | ask plan br0 | told …split…75%… | do apply br0 | split vnet0
        | did split=1 | on-eth1 119"""
    ).tell()
