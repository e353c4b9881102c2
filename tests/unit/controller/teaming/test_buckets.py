"""Policies that hash what VM ports send: shares, failures, restarts, rebalancing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from controller.api.engine_commands import Apply
from controller.api.events import Sample, UnitCountersRead
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow
from controller.teaming import buckets
from tests.unit.fake_switch import World, done, moves, refusal, reports, world
from tests.unit.rows import VMS, backed_up, host, with_ids, with_interface

HASHED = ["address-hash", "dynamic", "set", "slb", "source-mac"]
MAC = "52:54:00:00:00:01"


def team(policy: str, uplinks: int = 2, failback_delay_s: str = "45") -> BridgeRow:
    return host(policy=policy, uplinks=uplinks, failback_delay_s=failback_delay_s)


def homes(here: World, policy: str) -> dict[int, int | None]:
    """The uplink of each bucket on the switch."""
    switch, number = here.switch, buckets.number_of(policy)
    return {bucket: switch.uplink_of_bucket(number, bucket) for bucket in range(256)}


def shares(here: World, policy: str) -> dict[int | None, int]:
    return dict(Counter(homes(here, policy).values()))


@pytest.mark.parametrize("policy", HASHED)
def test_buckets_are_shared_out_and_shown(policy: str) -> None:
    here = world(team(policy)).start()
    assert shares(here, policy) == {1: 128, 2: 128}
    (shown,) = json.loads(done(here.ask("show", "--json")))["bridges"]
    assert shown["buckets"] == {policy: {"eth1": 128, "eth2": 128}}
    assert {p["policy"] for p in shown["ports"]} == {policy}
    assert f"{policy}: 256 buckets, eth1 128, eth2 128" in done(here.ask("show"))


def test_shares_are_those_of_capacity() -> None:
    row = with_interface(team("address-hash"), "eth1", capacity_mbps="30000")
    assert shares(world(row).start(), "address-hash") == {1: 192, 2: 64}


def restart(here: World) -> None:
    """The service starts anew, which moves nothing."""
    installed = here.switch.installed
    here.restart_service().connect().run_for(1)
    assert here.switch.installed == installed
    assert moves(here) == {} and here.commands(Apply) == []


@pytest.mark.parametrize("policy", HASHED)
@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_uplink_that_fails_concerns_its_own_buckets_and_gets_them_back(
    policy: str, restarts: bool
) -> None:
    """Most interfaces have no speed while their link is down: that changes no share."""
    here = world(team(policy, uplinks=3, failback_delay_s="5")).start()
    before = homes(here, policy)
    if restarts:
        restart(here)
    here.set_link(1, up=False, speed_bps=0).run_for(1)
    if restarts:
        restart(here)
    during = homes(here, policy)
    changed = {bucket for bucket in before if before[bucket] != during[bucket]}
    assert changed == {bucket for bucket, uplink in before.items() if uplink == 1}
    taken = Counter(during[bucket] for bucket in changed)
    assert min(taken[2], taken[3]) > len(changed) / 4, "spread over the others"
    here.set_link(1, up=True, speed_bps=0).set_link(1, up=True, speed_bps=10e9).run_for(4)
    assert restarts or homes(here, policy) == during, "not before the delay is over"
    here.run_for(30)
    assert homes(here, policy) == before


def test_an_uplink_out_of_the_team_concerns_its_own_buckets() -> None:
    here = world(with_ids(team("address-hash", uplinks=3), uplinks="eth1,eth2,eth3")).start()
    before = homes(here, "address-hash")
    here.write_keys(uplinks="eth1,eth2").run_for(1)
    after = homes(here, "address-hash")
    changed = [bucket for bucket in before if before[bucket] != after[bucket]]
    assert len(changed) <= Counter(before.values())[3] + 1
    here.write_keys(uplinks="eth1,eth2,eth3").run_for(1)
    assert shares(here, "address-hash") in ({1: 86, 2: 85, 3: 85}, {1: 85, 2: 86, 3: 85})


# ---- rebalancing -----------------------------------------------------------------------


def loaded(policy: str, mbps: float, on: int = 1, count: int = 8) -> World:
    """So many buckets, all at one uplink, send that much each."""
    here = world(team(policy), speed_bps=100e6).start()
    number = buckets.number_of(policy)
    there = [bucket for bucket, uplink in homes(here, policy).items() if uplink == on][:count]
    here.switch.hashed_bps = {(number, b): lambda _: mbps * 1e6 for b in there}
    return here


@pytest.mark.parametrize(("policy", "within_s"), [("dynamic", 6), ("set", 6), ("slb", 13)])
def test_buckets_are_moved_until_uplinks_send_the_same(policy: str, within_s: float) -> None:
    here = loaded(policy, 10).run_for(within_s)
    assert moves(here) == {"rebalance": 4}
    here.run_for(30)
    assert moves(here) == {"rebalance": 4}, "and no further"
    first, second = here.status.uplinks
    assert first.uplink.load.tx_bps == pytest.approx(second.uplink.load.tx_bps)
    assert f"br0: {policy}, 4 buckets: eth1 -> eth2 (rebalance)" in reports(here, "info")


@pytest.mark.parametrize(("policy", "within_s"), [("dynamic", 6), ("slb", 13)])
def test_a_policy_s_own_window_may_be_longer_than_the_bridge_s(
    policy: str, within_s: float
) -> None:
    here = loaded(policy, 10)
    here.write_keys(**{"window-s": "1"}).run_for(within_s)
    assert moves(here) == {"rebalance": 4}


def test_the_static_ones_move_nothing() -> None:
    for policy in ("address-hash", "source-mac"):
        assert moves(loaded(policy, 10).run_for(60)) == {}


def test_a_rebalanced_bucket_stays_where_it_is_over_a_restart() -> None:
    here = loaded("dynamic", 10).run_for(6)
    evened = homes(here, "dynamic")
    here.restart_service().connect().run_for(60)
    assert homes(here, "dynamic") == evened and moves(here) == {}


# ---- who is told -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["slb", "dynamic"])
def test_only_addresses_that_move_are_announced(policy: str) -> None:
    """What is under an address of ours moves without anybody's knowing."""
    here = loaded(policy, 10)
    here.switch.learned = ((10, MAC, 0),)
    here.log.clear()
    here.run_for(14)
    assert moves(here) == {"rebalance": 4}
    assert {ofport for _, ofport in here.frames()} == ({10} if policy == "slb" else set())


# ---- port groups -----------------------------------------------------------------------


def test_an_interface_s_policy_wins_over_the_bridge_s() -> None:
    row = with_interface(host(policy="explicit"), "vnet1", policy="originating-port")
    here = world(row).start()
    assert here.bindings() == {n: "eth2" if n == "vnet1" else "eth1" for n in VMS}
    here.do("set interface vnet2 policy=dynamic")
    assert shares(here, "dynamic") == {1: 128, 2: 128}
    assert "(dynamic)" not in done(here.ask("show")).split("vnet1")[0]
    here.write_keys_of("vnet2").run_for(1)
    assert shares(here, "dynamic") == {None: 256}, "buckets that nobody uses are gone"


# ---- teams that a policy does not work on ----------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("bridge br0 teaming=static", "set does not support teaming static"),
        ("interface eth2 role=standby", "set does not support standby uplinks (eth2)"),
        ("interface eth2 capacity-mbps=100", "set does not support uplinks of 100, 1000 Mbit/s"),
    ],
)
def test_a_change_that_breaks_a_rule_of_set_is_refused(words: str, found: str) -> None:
    row = with_interface(team("set"), "eth1", capacity_mbps="1000")
    here = world(with_interface(row, "eth2", capacity_mbps="1000")).start()
    before = here.rows["br0"]
    told = refusal(here.ask("set", *words.split()))
    assert told.startswith(f"Bridge br0 ovs-lbt-policy: {found}; expected ")
    assert here.rows["br0"] == before


def test_written_straight_to_the_database_it_leaves_the_policy_as_it_was() -> None:
    here = world(host(policy="explicit")).start()
    here.write_keys(policy="ip-hash").run_for(1)
    assert here.status.config.policy == "explicit" and len(here.status.config.errors) == 1
    here.write_keys(teaming="static").run_for(1)
    assert (here.status.config.policy, [*here.status.config.errors]) == ("ip-hash", [])


def test_leaving_for_normal_the_buckets_gather_as_well() -> None:
    here = world(with_ids(backed_up(), policy="dynamic")).start()
    here.write_keys(policy="dynamic", mode="observe").run_for(0.5)
    assert shares(here, "dynamic") == {2: 256}


def test_every_bridge_and_uplink_has_an_address_of_its_own() -> None:
    """Locally administered, unicast, and the same after a restart."""
    rows = [replace(team("dynamic"), name=name) for name in ("br0", "br1")]
    found = [buckets.off_home_macs(read_bridge(row), ()) for row in rows]
    macs = [mac for of_bridge in found for mac in of_bridge.values()]
    assert len(set(macs)) == len(macs) == 4
    assert {int(mac[:2], 16) & 0x03 for mac in macs} == {0x02}
    assert found == [buckets.off_home_macs(read_bridge(row), ()) for row in rows]
    assert buckets.off_home_macs(read_bridge(team("load-based")), ()) == {}


def test_a_bucket_of_no_hash_is_not_counted() -> None:
    here = world(host("ip-hash")).start().run_for(3)
    here.say(UnitCountersRead("br0", (), (((200, 0), Sample(1.0, 5, 0)),)))
    assert here.bindings().keys() == {"vnet0", "vnet1", "vnet2", "vnet3"}
