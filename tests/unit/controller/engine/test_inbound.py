"""What a bridge does about inbound after a move, and what it reads of counters when."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import Observe, ReadInbound, ReadLearned, ReadStats
from controller.bridge.installation import REVALIDATED_AFTER_S
from controller.dataplane import tables
from controller.dataplane.specs import SetField
from controller.dataplane.tables import Register, Table
from controller.dataplane.unicast import opens
from controller.features.inbound_check import KNOWN_AFTER_S, SILENT_S
from policies.model import OfPort
from tests.unit.controller.engine.told import offer
from tests.unit.controller.story import Story
from tests.unit.fake_switch import world
from tests.unit.rows import host

ETH1, ETH2 = 1, 2
VM = OfPort(10)


class InboundStory(Story):
    """With steps about what is sent to vnet0, and by which uplink it comes."""

    def do_move(self, uplink: str) -> None:
        """Move vnet0: the times of what follows count from here."""
        self._moved_s = self.now_s
        self.do_watch()
        self.do_do("move", "vnet0", uplink)

    def _after(self, kind: type) -> list[str]:
        times = (at_s - self._moved_s for at_s, command in self.log if isinstance(command, kind))
        return [f"{at_s:.1f}" for at_s in times]

    def do_frames(self, *times: str) -> None:
        """When learning packets were sent."""
        found = [f"{at_s - self._moved_s:.1f}" for at_s, _ in self.frames()]
        assert found == [*times], found

    def do_reads(self, *times: str) -> None:
        """When counters of inbound were read, those of vnet0 only."""
        found = self._after(ReadInbound)
        assert found == [*times], found
        assert all(command.ofports == (VM,) for command in self.commands(ReadInbound))

    def do_reads_end(self) -> None:
        assert max(map(float, self._after(ReadInbound))) <= SILENT_S

    def do_asks_once(self) -> None:
        """With the bundle, as waiting for its answer first would cost the first learning packet."""
        assert self._after(ReadLearned).count("0.0") == 1

    def do_followed(self, *seconds: str) -> None:
        """After which time inbound has followed, and how often it was announced again, and in vain."""
        found = [
            f"{c.seconds:.1f}" for c in self.commands(Observe) if c.histogram == "inbound_follow"
        ]
        assert found == [*seconds], found

    def do_announced_again(self, again: str, in_vain: str) -> None:
        assert (self.status.reannounced, self.status.not_followed) == (int(again), int(in_vain))

    def do_watched(self, is_watched: str) -> None:
        assert bool(self.commands(ReadInbound)) is (is_watched == "yes")

    def do_known(self, *uplink: str) -> None:
        """The uplink from which alone the switch accepts unicast for vnet0 while it is live."""
        flows = self.switch.installed.flows
        both = (ETH1, ETH2)
        found = [n for n in both if (one := opens(VM, OfPort(n))) == flows.get(one.key)]
        dropping = {
            tables.cookie_inbound(flow.cookie)
            for flow in flows.values()
            if flow.table == Table.INBOUND
            and SetField(Register.TARGET, tables.DONE) in flow.actions
        }
        by = {uplink for ofport, uplink in dropping if ofport == VM}
        assert by == ({*both} - {*found} if found else set())
        assert [f"eth{number}" for number in found] == [*uplink]


# vnet0 is on eth1, and so is what the upstream switch sends it.
TEAM = "bond policy=originating-port vms=1 vnet0.binding=eth1"
RECEIVING = f"{TEAM} | inbound vnet0 1e6 eth1 | run 12"
FOLLOWS = "inbound vnet0 1e6 eth2"
# Such a bond alone drops copies.
BACKUP = f"{TEAM} bond0:bond_mode=active-backup"
STILL = "still arrives on eth1 after repeated learning packets"
STORIES = {
    "follows at once": f"""{RECEIVING} | watched no | move eth2 | asks-once | frames 0.0 | {FOLLOWS}
        | run 20 | reads 0.0 0.5 1.0 | followed 0.5 | frames 0.0 1.0 3.0 | announced-again 0 0""",
    "is announced again until it follows": f"""{RECEIVING} | move eth2 | run 2.6 | {FOLLOWS} | run 20
        | frames 0.0 1.0 2.5 3.0 | followed 3.0 | announced-again 1 0""",
    "never follows": f"""{RECEIVING} | move eth2 | run 20 | frames 0.0 1.0 2.5 3.0 5.0 7.5
        | announced-again 3 1 | followed
        | warned br0: inbound traffic of vnet0 {STILL}; expected on eth2""",
    "nothing comes": f"""{TEAM} | inbound vnet0 0 eth1 | run 12 | move eth2 | run 20 | reads-end
        | frames 0.0 1.0 3.0 | warned""",
    "a port that goes": f"{RECEIVING} | move eth2 | run 1 | del vnet0 | watch | run 9 | watched no",
    "a failover": f"{RECEIVING} | down eth1 | run 0.1 | bound 2 | watched yes",
    "a failover of a LAG": f"{RECEIVING.replace('bond', 'static')} | down eth1 | run 0.1 | bound 2 | watched no",
    "observing": f"{RECEIVING} | set mode=observe | run 5 | watched no",
    **{
        f"copies are dropped once {what}": f"""{BACKUP} | inbound vnet0 {bps} eth1
        | run {after_s - 0.5} | known | run 1.5 | known eth1"""
        for what, bps, after_s in (
            ("inbound comes by the uplink", "1e6", KNOWN_AFTER_S),
            ("there is no inbound", "0", SILENT_S),
        )
    },
    "copies are not dropped while inbound comes by another uplink": f"""{BACKUP}
        | inbound vnet0 1e6 eth2 | run 30 | known | warned …vnet0…eth2… | move eth2 | run 10
        | known eth2""",
    "a failover opens all uplinks, and a service that restarts goes on from the switch": f"""{BACKUP}
        | inbound vnet0 0 eth1 | run 12 | restart | run 1 | known eth1 | unchanged | down eth1
        | run 0.2 | bound 2 | known | run {SILENT_S + 4} | known eth2""",
    "a switch that restarts": f"""{BACKUP} | inbound vnet0 0 eth1 | run 12 | unlearn | forget | run 1
        | known | run {SILENT_S + 1} | known eth1""",
}


@pytest.mark.parametrize("story", STORIES)
def test_inbound(story: str) -> None:
    InboundStory(STORIES[story]).tell()


def test_all_uplinks_are_open_before_a_vm_moves_and_until_inbound_has_followed() -> None:
    here = InboundStory(
        f"{BACKUP} | inbound vnet0 1e6 eth1 | run 12 | known eth1 | move eth2"
    ).tell()
    here.do_bound("2")
    here.do_known()
    (opened_s, opening), (bound_s, _), *_ = here.applied()
    assert not (opening.modify_groups or opening.delete_flows or opening.add_groups)
    assert {flow.table for flow in opening.add_flows} == {Table.INBOUND}
    assert not any(flow.actions for flow in opening.add_flows)
    assert bound_s >= opened_s + REVALIDATED_AFTER_S
    for step in ("run 2", FOLLOWS, "run 2.4", "known", "run 4.5", "known eth2"):
        here.carry_out(step)


def test_flows_are_read_twice_a_second_at_most_and_ports_with_each_poll() -> None:
    here = world(host("load-based", poll_interval_ms="100", window_s="1")).start().run_until(5)
    polls = [(at_s, c.units) for at_s, c in here.log if isinstance(c, ReadStats)]
    units_s = [at_s for at_s, units in polls if units]
    assert 45 <= len(polls) <= 55
    assert 9 <= len(units_s) <= 12
    assert here.bridge.scheduler.last_s == polls[-1][0], "each poll ends with a decision"


def test_settling_ends_with_the_last_move_that_was_needed() -> None:
    row = host("load-based", binding="eth1", window_s="2")
    here = offer(world(row), [3e9] * 3).start().run_until(60)
    made = here.status.moves_applied["threshold"]
    took_s = [c.seconds for c in here.commands(Observe)]
    assert (made, took_s) == (1, [0.0]), "one move is as quick as the switch"
    # Two are a window apart.
    offer(here, [3e9] * 4)
    here.do("move vnet0 eth1").run_for(60)
    assert here.status.moves_applied["threshold"] == made + 2
    (_, took_again_s) = [c.seconds for c in here.commands(Observe)]
    assert 2.0 <= took_again_s <= 5.0
