"""A bridge from take-over to the end, through the engine: links, operators, refusals, VM ports.

Tests of one subject are beside this file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.api.engine_commands import Apply
from controller.api.events import (
    BundleDone,
    CommandFailed,
    InstalledRead,
    PortChanged,
    PortRemoved,
    PortState,
)
from controller.api.status import BridgeStatus
from controller.bridge import status
from controller.bridge.bridge import Bridge
from controller.bridge.installation import MOST_EXPECTED, REVALIDATED_AFTER_S
from controller.config.rows import PortRow
from controller.dataplane.specs import Changes
from tests.unit.controller.engine.told import shown
from tests.unit.controller.story import Story
from tests.unit.fake_switch import PLACED, World, world
from tests.unit.rows import host, interface, port, with_interface


class EngineStory(Story):
    def do_swap(self, one: str, other: str) -> None:
        """Two ports exchange their numbers while the switch is away, and the first one loses its link."""
        ports, numbers = self.switch.ports, (self.named(one), self.named(other))
        self.disconnect()
        self.do_flush()
        states = [replace(ports[n], ofport=m, up=n > m) for n, m in (numbers, numbers[::-1])]
        ports.update({state.ofport: state for state in states})
        self.connect()

    def do_flap(self, times: str) -> None:
        for number in range(int(times)):
            self.set_link(1, up=bool(number % 2)).run_for(0.1)

    def do_vm_flaps(self, times: str) -> None:
        """A VM turns its link off and on, as the guest of a container can do it."""
        for number in range(int(times)):
            self.say(PortChanged("br0", replace(self.switch.ports[12], up=number % 2 == 1)))
            self.run_for(REVALIDATED_AFTER_S / 6)

    def do_expected_at_most(self, number: str) -> None:
        """How many moves wait for the switch."""
        assert len(self.bridge.installation.expected) <= int(number)

    def do_present(self, name: str, number: str) -> None:
        """The switch reports a new port: it is there, and not live yet."""
        self.switch.ports[int(number)] = PortState(int(number), name, up=False, speed_bps=0)
        self.say(PortChanged("br0", self.switch.ports[int(number)]))

    def do_recorded_port(self, name: str, number: str) -> None:
        """The database has the port now."""
        row = self.rows["br0"]
        self.write(replace(row, ports=(*row.ports, port(name, int(number)))))

    def do_wakes_at(self, at_s: str) -> None:
        assert self.engine.deadline_s() == float(at_s)

    def do_reused(self, gone: str, name: str) -> None:
        """A VM port goes, and another one comes with its number and new counters."""
        number = self.named(gone)
        self.do_del(gone)
        self.switch.born_s[number] = self.now_s
        self.add_port(port(name, number))

    def do_sends(self, name: str, bps: str) -> None:
        assert self.port_status(name).load.tx_bps == float(bps)


BOUND = "keys vnet{} binding=eth{}".format
STORIES = {
    "a bridge that is attached at the start": f"""bond | installed | bound 1212
        | {" | ".join(map(BOUND, range(4), (1, 2, 1, 2)))}""",
    "what a VM port that has come says is read soon": """bond | run 11 | watch | add vnet9 19 | run 2.1
        | sent ReadInstalled/ReadLearned ReadLearned ReadInstalled ReadLearned | watch
        | run 9 | sent ReadInstalled""",
    # The connection is back before the database says that eth1 and vnet0 are swapped. Otherwise an uplink
    # would be taken for a VM port. eth1 is then the one without a link.
    "ports that are numbered anew": """bond failback-delay-s=45 | swap eth1 vnet0 | empty
        | set eth1@ofport=10 vnet0@ofport=1 | installed | bound 2222 | up eth1 | run 46 | bound 1212""",
    "links that flap while the switch does not answer": f"""bond failback-delay-s=0 | hold | flap 700
        | expected-at-most {MOST_EXPECTED + 4} | down eth1 | answer | run 1 | bound 2222 | up eth1
        | run 60 | bound 1212""",
    "a VM that turns its link off and on delays no change": """bond | watch | down eth1 | vm-flaps 20
        | sent Apply Apply""",
    "a port number that is used again has not sent what the VM before has": """bond | loads 9e8 | run 40
        | reused vnet0 vnet4 | run 3 | sends vnet4 0""",
    "when the engine is to be woken": """bond poll-interval-ms=500 | wakes-at 0 | run 0.1 | wakes-at 0.5
        | gone | wakes-at inf""",
    "a new VM port that is not live yet": """bond | watch | present vnet4 14 | unchanged
        | recorded-port vnet4 14 | order vnet4 12""",
}


@pytest.mark.parametrize("story", STORIES)
def test_engine(story: str) -> None:
    EngineStory(STORIES[story]).tell()


def test_a_flow_that_somebody_removed_is_put_back_and_nothing_else_is_touched() -> None:
    here = world(host()).start()
    first, after_flags = (changes for _, changes in here.applied())
    assert first.add_flows and first.add_groups
    assert not (first.modify_groups or first.delete_flows or first.delete_groups)
    assert len(after_flags) == len(after_flags.add_flows)
    here.log.clear()
    flows = here.switch.flows
    missing = flows.pop(next(key for key in flows if key[0] == 5))
    here.run_for(31)
    ((_, changes),) = here.applied()
    assert changes == Changes(add_flows=(missing,))


def test_who_asks_about_one_bridge_does_not_wait_for_the_status_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []
    as_it_is = status.status

    def look(bridge: Bridge, *told: Any) -> BridgeStatus:
        looked_at.append(bridge.config.name)
        return as_it_is(bridge, *told)

    monkeypatch.setattr(status, "status", look)
    here = World(host(), replace(host(), name="br1")).start()
    assert (shown(here, "br1")["name"], looked_at) == ("br1", ["br1"])


def test_an_answer_to_a_bundle_of_a_connection_before_is_ignored() -> None:
    here = world(host()).start()
    here.switch.holds_answers = True
    here.ask("move", "vnet0", "eth2")
    (bundle,) = here.commands(Apply)[PLACED:]
    here.disconnect().connect()
    here.say(BundleDone("br0", bundle.bundle_id))
    assert here.replies == {}
    here.answer_held()
    assert 1 in here.replies


def test_events_of_a_bridge_that_is_not_ours_are_ignored() -> None:
    here = world(host()).start()
    here.log.clear()
    here.say(PortRemoved("br9", 1), InstalledRead("br9", (), ()), BundleDone("br9", 1))
    here.say(CommandFailed("br9", ValueError("late")))
    assert here.log == []


def test_the_database_is_read_and_never_changed_in_place() -> None:
    row = host()
    before = repr(row)
    world(row).start().do("pin vnet0 eth2").run_for(40)
    assert repr(row) == before


SLOW = interface("eth1", 1, link_speed_bps=1e9)


@pytest.mark.parametrize(
    ("key", "qos_bps", "speed_bps", "capacity_bps"),
    [("500", 2e9, 40e9, 500e6), ("", 2e9, 40e9, 2e9), ("", None, 40e9, 40e9), ("", None, 0, 1e9)],
    ids=["the operator's value", "QoS", "the switch's current speed", "the database's"],
)
def test_the_capacity_is_what_is_known_best(
    key: str, qos_bps: float | None, speed_bps: float, capacity_bps: float
) -> None:
    eth1 = PortRow("eth1", (SLOW,), qos_max_rate_bps=qos_bps)
    row = host(plain=True)
    row = replace(row, ports=tuple(eth1 if p.name == "eth1" else p for p in row.ports))
    row = with_interface(row, "eth1", **({"capacity_mbps": key} if key else {}))
    here = world(row, speed_bps=speed_bps).start()
    first, second = here.bridge.placing.uplinks()
    assert first.capacity_bps == capacity_bps and second.capacity_bps > 0, "so that ratios exist"
