"""Shares, reservations and limits: from the database to uplinks' queues."""

from __future__ import annotations

import re

import pytest

from controller.api.engine_commands import Shape
from controller.api.events import Device, Request, Shaped, Tick
from controller.dataplane import htb
from controller.dataplane.htb import DEFAULT_CLASS
from tests.said import pattern
from tests.unit.controller.story import ALL_ON_ETH1, Story
from tests.unit.fake_switch import world
from tests.unit.rows import host, with_interface

# Of VM ports, up to the last digit.
MAC = "52:54:00:00:00:0"


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

    def do_source(self, mac: str, *port: str) -> None:
        """The VM port whose class frames from an address have, or that it is none's."""
        assert [str(n) for source, n in self.shapers["eth1"].sources if source == mac] == [*port]

    def do_queues_are_lost(self) -> None:
        self.shapers.clear()
        self.queueing.clear()

    def do_hold_queues(self) -> None:
        """What is done to queues takes time."""
        self.holds_shaped = True

    def do_unread_queues(self) -> None:
        """Queues were asked for, and cannot be read."""
        fails = (Device(name, htb.UNREAD, "tc: not installed") for name in ("eth1", "eth2"))
        self.say(Shaped("br0", tuple(fails)))

    def do_release_queues(self) -> None:
        self.holds_shaped = False
        self.say(*self.held_shaped)

    def do_not_done(self, *text: str) -> None:
        """What the bridge cannot do."""
        found = self.status.not_done
        assert re.fullmatch(pattern(" ".join(text)), " ".join(found)), found


BOND = f"bond {ALL_ON_ETH1}"
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
        f"observe, {kind}": f"""{kind} {ALL_ON_ETH1} vnet0.shares=100 | run 3 | shaped eth1 eth2
        | set mode=observe | run 3 | shaped"""
        for kind in ("bond", "plain")
    },
    "a policy that rewrites addresses": f"""{BOND} policy=dynamic vnet0.shares=100 | run 3
        | not-done shares of vnet0: dynamic rewrites source addresses… | set vnet0.pin=eth1
        | run 3 | not-done""",
    "the last key is removed while nobody looks": f"""{BOND} vnet0.limit-mbps=10 | run 3
        | shaped eth1 eth2 | unseen vnet0.limit-mbps= | restart | run 5 | shaped""",
    "an address that is missing is looked for": f"""{BOND} vnet0.limit-mbps=10 | run 3 | unlearn
        | learn vnet1 {MAC}b 0 | run 11 | source {MAC}a | learn vnet0 {MAC}a 0 | run 3
        | source {MAC}a 10""",
    "an address that two ports have is of the one that asks": f"""{BOND} vnet0.shares=100 | run 3
        | learn vnet1 {MAC}a 7 | run 12 | source {MAC}a 10""",
    "a switch that returns without queues": f"""{BOND} vnet0.limit-mbps=10 | run 3 | gone
        | queues-are-lost | back | shaped eth1 eth2""",
    "a detach waits for uplinks that are being changed": f"""{BOND} | run 3 | hold-queues
        | set vnet0.shares=100 | ask detach br0 | unanswered | release-queues | run 1 | shaped
        | told …""",
    "a detach that cannot wait says what it leaves": f"""{BOND} vnet0.shares=100 | run 3 | hold-queues
        | ask detach br0 | run 6 | refused bridge br0: queues stay on eth1, eth2; to remove them: tc
        qdisc del dev UPLINK root…""",
    "a detach that cannot read queues does not take them for removed": f"""{BOND} vnet0.shares=100
        | run 3 | hold-queues | ask detach br0 | unread-queues | run 6 | refused bridge br0: queues
        may stay on eth1, eth2 (tc: not installed); to remove them: tc…""",
    "a detach that cannot read uplinks without queues": f"""{BOND} | run 3 | hold-queues
        | ask detach br0 | unread-queues | run 6 | told …""",
    "the kernel datapath": f"{BOND} vnet0.shares=100 | run 3 | queues None",
    # Four VM ports with one uplink each, and what is nobody's on both; addresses may use both.
    "the userspace datapath": f"""{BOND} vnet0.shares=100 :in_userspace=True | run 3 | queues 6
        | set vnet1.unit=source-mac | run 3 | queues 7 | set vnet1.policy=dynamic vnet1.pin=eth1
        | run 3 | queues 6""",
}


@pytest.mark.parametrize("story", STORIES)
def test_queues(story: str) -> None:
    ShapingStory(STORIES[story]).tell()


def test_an_uplink_of_unknown_speed_is_reported() -> None:
    row = with_interface(host(binding="eth1"), "vnet0", shares="100")
    here = world(row, speed_bps=0).start().run_for(3)
    assert here.shapers == {}
    found = "capacity of eth1 is unknown; set capacity-mbps, which shares and reservations need"
    assert found in here.status.not_done


def test_queues_keep_nothing_busy_while_a_detach_waits_for_a_silent_switch() -> None:
    here = ShapingStory(f"{BOND} vnet0.limit-mbps=10 | run 3").tell()
    here.switches.pop("br0")
    here.engine.handle(Request(7, ("detach", "br0")), here.now_s)
    here.bridge.shaping.read_anew()
    here.engine.handle(Tick(), here.now_s)
    assert here.engine.deadline_s() > here.now_s
