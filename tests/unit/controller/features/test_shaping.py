"""Shares, reservations and limits: from the database to uplinks' queues."""

from __future__ import annotations

from dataclasses import replace

from controller.api.engine_commands import ReadLearned, Shape
from controller.api.events import Request, Tick
from controller.config.rows import BridgeRow
from controller.dataplane import htb
from controller.dataplane.htb import DEFAULT_CLASS, Found, Leaf
from tests.unit.fake_switch import World, done, refusal, reports, world
from tests.unit.rows import host, with_interface

MAC = "52:54:00:00:00:0{}"
LEARNED = tuple((10 + n, MAC.format(n), 0) for n in range(4))
CAPACITY_BPS = 100e6


def shared(row: BridgeRow | None = None, **keys: str) -> World:
    """Two uplinks of 100 Mbit/s; `keys` are of vnet0."""
    row = row or with_interface(host(binding="eth1"), "vnet0", binding="eth1", **keys)
    here = world(row, speed_bps=CAPACITY_BPS, learned=LEARNED)
    return here.start().run_for(3)


def three_with(**keys: str) -> BridgeRow:
    """A bridge on which vnet0, vnet1 and vnet2 have these keys."""
    row = with_interface(host(binding="eth1"), "vnet0", **keys)
    return with_interface(with_interface(row, "vnet1", **keys), "vnet2", **keys)


def leaves(here: World, uplink: str = "eth1") -> dict[int, Leaf]:
    return {leaf.minor: leaf for leaf in here.shapers[uplink].leaves}


def goals(here: World) -> list[dict[str, htb.Shaper | None]]:
    """What uplinks were asked for, each time."""
    return [dict(command.wanted) for _, command in here.log if isinstance(command, Shape)]


def test_without_any_key_nothing_is_queued() -> None:
    here = shared()
    assert here.shapers == {}
    assert goals(here)
    assert not any(any(goal.values()) for goal in goals(here))


def test_one_key_gives_every_vm_port_a_class_on_every_uplink() -> None:
    here = shared(shares="100")
    for uplink in ("eth1", "eth2"):
        assert leaves(here, uplink).keys() == {10, 11, 12, 13, DEFAULT_CLASS}
        shares = [leaves(here, uplink)[port].shares for port in (10, 11, DEFAULT_CLASS)]
        assert shares == [100, 50, 50]
        assert here.shapers[uplink].sources == tuple((mac, port) for port, mac, _ in LEARNED)
        assert here.shapers[uplink].capacity_bps == CAPACITY_BPS


def test_the_last_key_removed_takes_all_of_it_away() -> None:
    here = shared(limit_mbps="10")
    assert here.shapers.keys() == {"eth1", "eth2"}
    here.write_keys_of("vnet0")
    assert here.shapers == {}
    assert not any(found.is_ours for found in here.queueing.values())


def test_limits_and_reservations_are_ceilings_and_rates() -> None:
    leaf = leaves(shared(reserve_mbps="20", limit_mbps="30"))[10]
    assert (leaf.rate_bps, leaf.ceil_bps) == (20_000_000, 30_000_000)
    assert leaves(shared(limit_mbps="500"))[10].ceil_bps == CAPACITY_BPS


def test_a_move_changes_no_class() -> None:
    here = shared(shares="100", reserve_mbps="20", limit_mbps="30")
    before, asked = dict(here.shapers), len(here.commands(Shape))
    here.do("move vnet0 eth2")
    assert here.bindings()["vnet0"] == "eth2"
    assert here.shapers == before
    assert len(here.commands(Shape)) == asked


def test_reservations_beyond_an_uplink_are_cut_and_reported() -> None:
    here = shared(three_with(pin="eth1", reserve_mbps="60"))
    kept = [leaves(here)[port].rate_bps for port in (10, 11, 12)]
    assert sum(kept) <= CAPACITY_BPS
    assert len(set(kept)) == 1
    (said,) = here.status.not_done
    assert said == "reservations on eth1 total 180 Mbit/s; expected at most 95"


def test_reservations_are_placed_where_there_is_room() -> None:
    here = shared(three_with(binding="eth1", reserve_mbps="45"))
    at = here.bindings()
    assert sorted((at["vnet0"], at["vnet1"], at["vnet2"])) == ["eth1", "eth1", "eth2"]
    assert here.status.not_done == ()


def test_somebodys_own_qdisc_stays_and_is_reported_once() -> None:
    row = with_interface(host(binding="eth1"), "vnet0", shares="100")
    here = world(row, speed_bps=CAPACITY_BPS, learned=LEARNED)
    here.queueing["eth1"] = Found("tbf", 0x8001)
    here.start().run_for(60)
    text = "eth1 has qdisc tbf 8001:; remove it, or set ovs-lbt-qdisc=replace"
    assert here.shapers.keys() == {"eth2"}
    assert [*here.status.not_done] == [text]
    assert reports(here, "warning") == [f"br0: not done: {text}"]
    here.do("set interface eth1 qdisc=replace")
    assert here.shapers.keys() == {"eth1", "eth2"}
    assert here.status.not_done == ()
    assert "br0: qdisc of eth1: replaced; it was tbf 8001:" in reports(here, "warning")


def test_a_service_that_starts_waits_until_it_knows_whose_frames_are_whose() -> None:
    here = shared(limit_mbps="10")
    before = dict(here.shapers)
    here.restart_service().run_for(5)
    assert goals(here)
    assert all(goal == before for goal in goals(here))


def test_keys_removed_while_nobody_looked_are_noticed() -> None:
    here = shared(limit_mbps="10")
    here.rows["br0"] = host(binding="eth1")
    here.restart_service().run_for(5)
    assert here.shapers == {}


def test_an_address_that_is_missing_is_looked_for() -> None:
    here = shared(limit_mbps="10")
    here.switch.learned = LEARNED[1:]
    here.run_for(11)
    assert MAC.format(0) not in dict(here.shapers["eth1"].sources)
    here.switch.learned = LEARNED
    here.log.clear()
    here.run_for(3)
    assert here.commands(ReadLearned)
    assert dict(here.shapers["eth1"].sources)[MAC.format(0)] == 10


def test_uplinks_are_looked_at_again_as_the_switch_returns() -> None:
    here = shared(limit_mbps="10")
    here.disconnect()
    here.shapers.clear()
    here.queueing.clear()
    here.connect()
    assert here.shapers.keys() == {"eth1", "eth2"}


def test_observing_leaves_nothing() -> None:
    here = shared(shares="100")
    here.write_keys(mode="observe").run_for(3)
    assert here.shapers == {}


def test_a_detach_waits_for_uplinks_that_are_being_changed() -> None:
    here = shared()
    here.holds_shaped = True
    here.write_keys_of("vnet0", shares="100")
    assert here.ask("detach", "br0") is None
    here.holds_shaped = False
    here.say(*here.held_shaped).run_for(1)
    assert here.shapers == {}
    assert here.replies[here.asked].refused is False


def test_a_detach_that_cannot_wait_says_what_it_leaves() -> None:
    here = shared(shares="100")
    here.holds_shaped = True
    here.ask("detach", "br0")
    here.run_for(6)
    text = "bridge br0: queues stay on eth1, eth2; to remove them: tc qdisc del dev UPLINK root"
    assert refusal(here.replies[here.asked]).startswith(text)


def test_under_a_policy_that_rewrites_addresses_shares_are_reported() -> None:
    row = with_interface(host("dynamic", binding="eth1"), "vnet0", shares="100")
    (said,) = shared(row).status.not_done
    assert said.startswith("shares of vnet0: dynamic uses other source addresses")
    pinned = with_interface(host("dynamic", binding="eth1"), "vnet0", shares="100", pin="eth1")
    assert shared(pinned).status.not_done == ()


def test_an_uplink_of_unknown_speed_is_reported() -> None:
    row = with_interface(host(binding="eth1"), "vnet0", shares="100")
    here = world(row, speed_bps=0, learned=LEARNED).start().run_for(3)
    assert here.shapers == {}
    found = "capacity of eth1 is unknown; set capacity-mbps, which shares and reservations need"
    assert found in here.status.not_done


def test_queues_share_a_buffer_on_the_userspace_datapath_only() -> None:
    assert shared(shares="100").shapers["eth1"].queues is None
    row = with_interface(host(binding="eth1"), "vnet0", shares="100")
    here = shared(replace(row, in_userspace=True))
    # Four VM ports with one uplink each, and what is nobody's on both.
    assert here.shapers["eth1"].queues == 6
    here.write_keys_of("vnet1", unit="source-mac")
    here.run_for(3)
    assert here.shapers["eth1"].queues == 7, "its addresses may use both uplinks"
    here.write_keys_of("vnet1", unit="source-mac", policy="dynamic", pin="eth1")
    here.run_for(3)
    assert here.shapers["eth1"].queues == 6


def test_an_address_that_two_ports_have_is_of_the_one_that_asks() -> None:
    here = shared(shares="100")
    here.switch.learned = (*LEARNED, (11, MAC.format(0), 7))
    here.run_for(12)
    assert dict(here.shapers["eth1"].sources)[MAC.format(0)] == 10


def test_what_was_said_is_shown() -> None:
    here = shared(shares="100", reserve_mbps="20", limit_mbps="30")
    words = "shares 100, 20 Mbit/s reserved, at most 30 Mbit/s"
    assert words in done(here.ask("show"))
    assert words in done(here.ask("explain", "vnet0")).replace("\n" + " " * 14, " ")
    (status, *_) = here.status.ports
    port = status.port
    assert (port.shares, port.rules.reserve_bps, port.limit_bps) == (100, 20e6, 30e6)
    assert status.shaped_drops == 0


def test_drops_are_summed_over_uplinks() -> None:
    here = shared(shares="100")
    for name in ("eth1", "eth2"):
        here.drops[name] = {10: 3, 11: 1}
    here.run_for(12)
    assert [p.shaped_drops for p in here.status.ports] == [6, 2, 0, 0]
    assert htb.class_minor(10) == 10


def test_queues_keep_nothing_busy_while_a_detach_waits_for_a_silent_switch() -> None:
    here = shared(limit_mbps="10")
    here.switches.pop("br0")
    here.engine.handle(Request(7, ("detach", "br0")), here.now_s)
    here.bridge.shaping.read_anew()
    here.engine.handle(Tick(), here.now_s)
    assert here.engine.deadline_s() > here.now_s
