"""Policies that hash what VM ports send: shares, failures, restarts, rebalancing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from controller.api.events import Sample, UnitCountersRead
from controller.config.reader import read_bridge
from controller.teaming import buckets
from tests.unit.controller.teaming.bucket_story import BucketStory
from tests.unit.fake_switch import world
from tests.unit.rows import host

HASHED = ["address-hash", "dynamic", "set", "slb", "source-mac"]
# With windows as short as may be, policies have their own.
REBALANCING = (("dynamic", 6), ("set", 6), ("slb", 13))
GIGABIT = "bond policy=set eth1.capacity-mbps=1000 eth2.capacity-mbps=1000"
STORIES = {
    **{
        f"shared out and shown: {policy}": f"""bond policy={policy} | shares {policy} eth1=128 eth2=128
        | shows br0 buckets={{'{policy}':{{'eth1':128,'eth2':128}}}} | shows vnet0 policy={policy}
        | ask show | told …{policy}: 256 buckets, eth1 128, eth2 128…"""
        for policy in HASHED
    },
    "shares are those of capacity": """bond policy=address-hash eth1.capacity-mbps=3000
        | shares address-hash eth1=192 eth2=64""",
    **{
        f"moved until uplinks send the same: {policy}{keys}": f"""bond policy={policy}{keys} | busy 1e8
        | run {within_s} | moves rebalance=4 | run 30 | moves rebalance=4
        | metric bridge_imbalance_ratio{{bridge="br0"}} 0.0
        | reported info br0: {policy}, 4 buckets: eth1 -> eth2 (rebalance)"""
        for policy, within_s in REBALANCING
        for keys in ("", " window-s=1")
    },
    **{
        f"moved by no load: {policy}": f"bond policy={policy} | busy 1e8 | run 60 | moves"
        for policy in ("address-hash", "source-mac")
    },
    "stay where they are over a restart": """bond policy=dynamic | busy 1e8 | run 6 | note-homes
        | restart | run 60 | homes-as-noted | moves""",
    # What is under an address of ours moves without anybody's knowing.
    **{
        f"only addresses that move are announced: {policy}": f"""bond policy={policy} | busy 1e8 | watch
        | run 14 | moves rebalance=4 | announced {told}"""
        for policy, told in (("slb", "vnet0 vnet1 vnet2 vnet3"), ("dynamic", ""))
    },
    "a VM port's policy": """bond policy=explicit vnet1.policy=originating-port | bound 1211
        | do set interface vnet2 policy=dynamic | shares dynamic eth1=128 eth2=128 | set vnet2.policy=
        | run 1 | shares dynamic""",
    **{
        f"a change that breaks a rule of set: {words}": f"""{GIGABIT} | note-row | ask set {words}
        | refused Bridge br0 ovs-lbt-policy: {found}; expected … | row-as-noted"""
        for words, found in (
            ("bridge br0 teaming=static", "set does not support teaming static"),
            ("interface eth2 role=standby", "set does not support standby uplinks (eth2)"),
            (
                *("interface eth2 capacity-mbps=100",),
                "set does not support uplinks of 100, 1000 Mbit/s",
            ),
        )
    },
    "a policy that the teaming does not allow, in the database": """bond policy=explicit
        | set policy=ip-hash | run 1 | shows br0 policy=explicit
        | errors Bridge br0 ovs-lbt-policy: … | set teaming=static | run 1 | shows br0 policy=ip-hash
        | errors""",
    "gathered for NORMAL": """backup policy=dynamic | set mode=observe | run 0.5
        | shares dynamic eth2=256""",
}


@pytest.mark.parametrize("story", STORIES)
def test_buckets(story: str) -> None:
    BucketStory(STORIES[story]).tell()


@pytest.mark.parametrize("policy", HASHED)
@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_uplink_that_fails_concerns_its_own_buckets_and_gets_them_back(
    policy: str, restarts: bool
) -> None:
    restart = "| restarts 1" if restarts else ""
    here = BucketStory(
        f"bond uplinks=3 policy={policy} failback-delay-s=5 {restart} | fail eth1 | run 1 {restart}"
    )
    here.start()
    before = here.homes()
    for step in here.steps:
        here.carry_out(step)
    during = here.homes()
    changed = {bucket for bucket in before if before[bucket] != during[bucket]}
    assert changed == {bucket for bucket, uplink in before.items() if uplink == 1}
    taken = Counter(during[bucket] for bucket in changed)
    assert min(taken[2], taken[3]) > len(changed) / 4, "spread over the others"
    for step in ("up eth1 0", "up eth1 1e9", "run 4"):
        here.carry_out(step)
    assert restarts or here.homes() == during, "not before the delay is over"
    here.run_for(30)
    assert here.homes() == before


def test_every_bridge_and_uplink_has_an_address_of_its_own() -> None:
    """Locally administered, unicast, and the same after a restart."""
    rows = [replace(host("dynamic"), name=name) for name in ("br0", "br1")]
    found = [buckets.off_home_macs(read_bridge(row), ()) for row in rows]
    macs = [mac for of_bridge in found for mac in of_bridge.values()]
    assert len(set(macs)) == len(macs) == 4
    assert {int(mac[:2], 16) & 0x03 for mac in macs} == {0x02}
    assert found == [buckets.off_home_macs(read_bridge(row), ()) for row in rows]
    assert buckets.off_home_macs(read_bridge(host("load-based")), ()) == {}


def test_a_bucket_of_no_hash_is_not_counted() -> None:
    here = world(host("ip-hash")).start().run_for(3)
    here.say(UnitCountersRead("br0", (), (((200, 0), Sample(1.0, 5, 0)),)))
    assert here.bindings().keys() == {"vnet0", "vnet1", "vnet2", "vnet3"}
