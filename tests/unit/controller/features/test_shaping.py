"""Shares, reservations and limits: from the database to uplinks' queues."""

from __future__ import annotations

import re

import pytest

from controller.api.engine_commands import ReadLearned, Shape
from controller.api.events import Device, Request, Shaped, Tick
from controller.config.rows import BridgeRow
from controller.dataplane import htb
from controller.dataplane.htb import DEFAULT_CLASS
from tests.said import pattern
from tests.unit.controller.story import Story
from tests.unit.fake_switch import World, refusal, world
from tests.unit.rows import host, with_interface

MAC = "52:54:00:00:00:0{}"
LEARNED = tuple((10 + n, MAC.format(n), 0) for n in range(4))
CAPACITY_BPS = 100e6


class ShapingStory(Story):
    """With steps about the queues of uplinks."""

    def do_note_queues(self) -> None:
        self._queues = dict(self.shapers)
        self.log.clear()

    def do_shaped(self, *uplinks: str) -> None:
        """The uplinks with queues of ours."""
        assert self.shapers.keys() == {*uplinks}
        ours = {name for name, found in self.queueing.items() if found.is_ours}
        assert ours == {*uplinks}

    def do_class(self, uplink: str, minor: str, *facts: str) -> None:
        """A VM port's class on an uplink: shares, rate_bps, ceil_bps."""
        (leaf,) = (leaf for leaf in self.shapers[uplink].leaves if str(leaf.minor) == minor)
        wanted = dict(fact.split("=") for fact in facts)
        assert {name: str(getattr(leaf, name)) for name in wanted} == wanted

    def do_equal_rates(self, *minors: str) -> None:
        """These classes on eth1 have the same rates, no more together than its capacity."""
        leaves = self.shapers["eth1"].leaves
        rates_bps = [leaf.rate_bps for leaf in leaves if str(leaf.minor) in minors]
        assert len({*rates_bps}) == 1 and sum(rates_bps) <= 1e9

    def do_classes(self, uplink: str, *minors: str) -> None:
        """All classes on an uplink, and for all learned addresses one."""
        shaper = self.shapers[uplink]
        assert [str(leaf.minor) for leaf in shaper.leaves] == [*minors]
        assert shaper.sources == tuple((mac, port) for port, mac, _ in self.switch.learned)
        assert shaper.capacity_bps == 1e9

    def do_queues(self, number: str) -> None:
        """How many queues share the buffer of eth1."""
        assert str(self.shapers["eth1"].queues) == number, self.shapers["eth1"].queues

    def do_queues_as_noted(self) -> None:
        """And nothing else was asked for since then."""
        assert self.shapers == self._queues
        asked = (dict(command.wanted) for command in self.commands(Shape))
        assert all(goal == self._queues for goal in asked)

    def do_not_done(self, *text: str) -> None:
        """What the bridge cannot do."""
        found = self.status.not_done
        assert re.fullmatch(pattern(" ".join(text)), " ".join(found)), found


BOUND = "vnet0.binding=eth1 vnet1.binding=eth1 vnet2.binding=eth1 vnet3.binding=eth1"
BOND = f"bond {BOUND}"
QDISC = "eth1 has qdisc tbf 8001:; remove it, or set ovs-lbt-qdisc=replace"
WORDS = "shares 100, 20 Mbit/s reserved, at most 30 Mbit/s"
STORIES = {
    "no key": f"{BOND} | run 3 | shaped | not-done",
    "a class for each VM port on each uplink": f"""{BOND} vnet0.shares=100 | run 3
        | shaped eth1 eth2
        | classes eth1 10 11 12 13 {DEFAULT_CLASS} | classes eth2 10 11 12 13 {DEFAULT_CLASS}
        | class eth1 10 shares=100 | class eth2 11 shares=50 | class eth2 {DEFAULT_CLASS}
        shares=50""",
    "the last key is removed": f"""{BOND} vnet0.limit-mbps=10 | run 3 | shaped eth1 eth2
        | set vnet0.limit-mbps= | shaped""",
    "limits and reservations": f"""{BOND} vnet0.shares=100 vnet0.reserve-mbps=20 vnet0.limit-mbps=30
        vnet1.limit-mbps=5000 | run 3 | class eth1 10 rate_bps=20000000 ceil_bps=30000000
        | class eth1 11 ceil_bps=1000000000 | ask show | told …{WORDS}… | ask explain vnet0
        | told …{WORDS}… | drops eth1 10 3 | drops eth2 10 4 | run 12
        | metric port_shaped_drops_total{{bridge="br0",port="vnet0"}} 7.0
        | metric port_shaped_drops_total{{bridge="br0",port="vnet1"}} 0.0""",
    "move": f"""{BOND} vnet0.shares=100 | run 3 | note-queues | do move vnet0 eth2 | bound 2111
        | queues-as-noted""",
    "reservations beyond an uplink": f"""{BOND} vnet0.pin=eth1 vnet1.pin=eth1 vnet2.pin=eth1
        vnet0.reserve-mbps=600 vnet1.reserve-mbps=600 vnet2.reserve-mbps=600 | run 3
        | not-done reservations on eth1 total 1800 Mbit/s; expected at most 950
        | equal-rates 10 11 12""",
    "reservations where there is room": f"""{BOND} vnet0.reserve-mbps=450 vnet1.reserve-mbps=450
        vnet2.reserve-mbps=450 | run 3 | carries eth1=3 eth2=1 | not-done""",
    "a qdisc of somebody else": f"""{BOND} | queue eth1 tbf | watch
        | do set interface vnet0 shares=100 | run 60 | shaped eth2 | not-done {QDISC}
        | reported warning br0: not done: {QDISC} | do set interface eth1 qdisc=replace
        | shaped eth1 eth2 | not-done
        | reported warning br0: qdisc of eth1: replaced; it was tbf 8001:""",
    "a service that restarts": f"""{BOND} vnet0.limit-mbps=10 | run 3 | note-queues | restart
        | run 5 | queues-as-noted""",
    **{
        f"observe, {kind}": f"""{kind} {BOUND} vnet0.shares=100 | run 3 | shaped eth1 eth2
        | set mode=observe | run 3 | shaped"""
        for kind in ("bond", "plain")
    },
    "a policy that rewrites addresses": f"""{BOND} policy=dynamic vnet0.shares=100 | run 3
        | not-done shares of vnet0: dynamic rewrites source addresses… | set vnet0.pin=eth1
        | run 3 | not-done""",
    "the kernel datapath": f"{BOND} vnet0.shares=100 | run 3 | queues None",
    # Four VM ports with one uplink each, and what is nobody's on both; addresses may use both.
    "the userspace datapath": f"""{BOND} vnet0.shares=100 :in_userspace=True | run 3 | queues 6
        | set vnet1.unit=source-mac | run 3 | queues 7 | set vnet1.policy=dynamic vnet1.pin=eth1
        | run 3 | queues 6""",
}


@pytest.mark.parametrize("story", STORIES)
def test_queues(story: str) -> None:
    ShapingStory(STORIES[story]).tell()


def shared(row: BridgeRow | None = None, **keys: str) -> World:
    """Two uplinks of 100 Mbit/s; `keys` are of vnet0."""
    row = row or with_interface(host(binding="eth1"), "vnet0", binding="eth1", **keys)
    here = world(row, speed_bps=CAPACITY_BPS, learned=LEARNED)
    return here.start().run_for(3)


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


@pytest.mark.parametrize("shares", ["100", None])
def test_a_detach_that_cannot_read_uplinks_does_not_take_their_queues_for_removed(
    shares: str | None,
) -> None:
    here = shared(shares=shares) if shares else shared()
    here.holds_shaped = True
    here.ask("detach", "br0")
    fails = tuple(Device(name, htb.UNREAD, "tc: not installed") for name in ("eth1", "eth2"))
    here.say(Shaped("br0", fails)).run_for(6)
    reply = here.replies[here.asked]
    if shares:
        text = "bridge br0: queues may stay on eth1, eth2 (tc: not installed); to remove them: tc"
        assert refusal(reply).startswith(text)
    else:
        assert not reply.refused, "there were no queues"


def test_an_uplink_of_unknown_speed_is_reported() -> None:
    row = with_interface(host(binding="eth1"), "vnet0", shares="100")
    here = world(row, speed_bps=0, learned=LEARNED).start().run_for(3)
    assert here.shapers == {}
    found = "capacity of eth1 is unknown; set capacity-mbps, which shares and reservations need"
    assert found in here.status.not_done


def test_an_address_that_two_ports_have_is_of_the_one_that_asks() -> None:
    here = shared(shares="100")
    here.switch.learned = (*LEARNED, (11, MAC.format(0), 7))
    here.run_for(12)
    assert dict(here.shapers["eth1"].sources)[MAC.format(0)] == 10


def test_queues_keep_nothing_busy_while_a_detach_waits_for_a_silent_switch() -> None:
    here = shared(limit_mbps="10")
    here.switches.pop("br0")
    here.engine.handle(Request(7, ("detach", "br0")), here.now_s)
    here.bridge.shaping.read_anew()
    here.engine.handle(Tick(), here.now_s)
    assert here.engine.deadline_s() > here.now_s
