"""Attach and detach in a world of their own: nothing of others' harmed, nothing left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import (
    Apply,
    Command,
    Prepare,
    ReadInstalled,
    Renew,
    Reply,
    Write,
)
from controller.api.events import (
    Event,
    ForeignFlow,
    ForwardingByOne,
    InstalledRead,
    Request,
    SwitchGone,
    Written,
)
from controller.bridge import inspection
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX
from controller.dataplane import pipeline, tables
from controller.dataplane.specs import GroupSpec
from controller.dataplane.tables import GROUP_IDS, Kind, Register, Table
from controller.dataplane.team import Team
from controller.operations.attach import ATTACH_TIMEOUT_S, Attach
from controller.operations.jobs import Step, Store
from tests.unit.controller.engine.told import desired
from tests.unit.controller.story import Story
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import (
    host,
    plain_uplinks,
    without_us,
)

FOREIGN = (ForeignFlow(200, 1, 0xF0E1, "in_port=7"),)


def test_a_new_fail_mode_has_flushed_before_what_was_encoded_is_installed() -> None:
    here = world(plain_uplinks("standalone"), reads_with_default=4).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    kinds = [type(c) for _, c in here.log if isinstance(c, Prepare | Write | ReadInstalled | Apply)]
    until_flushed = [ReadInstalled] * 4
    assert kinds[: kinds.index(Apply)] == [ReadInstalled, Prepare, Write, *until_flushed]
    assert here.commands(Prepare) == [Prepare(first) for first in here.commands(Apply)[:1]]
    looked_after = kinds[kinds.index(Apply) + 1 :]
    assert Write in looked_after and ReadInstalled in looked_after


@pytest.mark.parametrize("note", ["[]", '{"fail_mode": 1}', '{"fail_mode": "up"}', "[" * 5000, ""])
def test_a_note_is_what_attach_writes_or_bad(note: str) -> None:
    assert len(read_bridge(host(before=note)).errors) == 1


@pytest.mark.parametrize("another", [False, True])
def test_a_purge_takes_the_leaders_name_with_the_last_bridge(another: bool) -> None:
    row = host()
    rows = (row, replace(row, name="br1")) if another else (row,)
    here = World(*rows).start()
    here.ask("detach", "br0", "--purge")
    here.run_for(6)
    written = {s.table for w in here.commands(Write) if isinstance(w, Write) for s in w.settings}
    assert ("Open_vSwitch" in written) is not another


# ---- what is in the way ----------------------------------------------------------------


@pytest.mark.parametrize("on_bond", [True, False])
def test_the_priorities_that_come_before_ours_are_those_of_the_pipeline(on_bond: bool) -> None:
    team = Team(uplinks=(), vm_ports=(), over_normal=on_bond)
    port_flows = pipeline.build(team)
    here = world(host()).start()
    flows = {**port_flows.flows, **here.switches["br0"].flows}
    # Over a bond, others' flows are asked after ours whatever those of unknown ports do.
    lowest = min(
        priority
        for table, priority, match in flows
        if table == Table.CLASSIFY and (not on_bond or "in_port" in dict(match))
    )
    assert lowest == inspection._classify_priority(on_bond)
    tables = {table for table, _, _ in flows} - {Table.CLASSIFY}
    assert tables <= {*inspection.OUR_TABLES}


def test_groups_left_over_by_an_attach_that_was_killed_are_ours_and_repaired() -> None:
    here = world(host()).start()
    here.rows["br0"] = without_us(host())
    here.switches["br0"].groups.pop(max(here.switches["br0"].groups))
    here.restart_service()
    done(here.ask("attach", "br0"))
    assert here.switches["br0"].installed == desired(here)


def test_a_group_that_only_others_use_is_not_ours_even_beside_flows_of_ours() -> None:
    here = world(host()).start()
    flows = tuple(here.switches["br0"].flows.values())
    theirs = GROUP_IDS.start | 0xEE0001
    groups = (*here.switches["br0"].groups.values(), GroupSpec(theirs, "all", ()))
    using = (ForeignFlow(200, 1, 9, "", (theirs,)),)
    assert inspection.foreign_groups(InstalledRead("br0", flows, groups, using)) == (theirs,)
    assert inspection.foreign_groups(InstalledRead("br0", flows, groups)) == ()


# ---- addresses -------------------------------------------------------------------------

MAC, OTHER_MAC, THIRD_MAC = (f"52:54:00:00:00:0{number}" for number in (1, 2, 3))


def seeds(here: World) -> list[tuple[int, int]]:
    """(table, ofport) of the learned flows that were installed, in order."""
    return [
        (flow.table, flow.cookie & 0xFFFF)
        for _, changes in here.applied()
        for flow in changes.add_flows
        if tables.cookie_kind(flow.cookie) is Kind.LEARNED
    ]


def test_what_normal_knew_is_seeded_in_the_bundle_that_takes_its_place() -> None:
    known = ((10, MAC, 0), (1, "52:54:00:00:00:99", 0), (11, OTHER_MAC, 7))
    here = world(without_us(host()), forwarding=known).start()
    done(here.ask("attach", "br0"))
    assert len(here.applied()) == 2
    location, local = int(Table.LOCATION), int(Table.LOCAL_SOURCE)
    assert seeds(here) == [(location, 10), (local, 10), (location, 11), (local, 11)]
    flows = here.applied()[0][1].add_flows
    (seeded,) = (f for f in flows if f.table == Table.LOCATION and f.cookie & 0xFFFF == 10)
    assert seeded.hard_timeout_s == 300
    assert dict(seeded.match) == {"eth_dst": MAC, Register.VLAN: (0, 0xFFF)}


class AttachStory(Story):
    """With steps about what is known of addresses, each as `vnet0/1`: of a port, by a number."""

    def do_others(self) -> None:
        """Other programs have values in the records of the bridge and its bond, too."""
        row = self.rows["br0"]
        bond = replace(row.ports[0], external_ids={"others": "1", PREFIX + "left": "2"})
        ids = {**row.external_ids, "others": "1"}
        self.write(replace(row, ports=(bond, *row.ports[1:]), external_ids=ids))

    def do_only_others(self) -> None:
        """Nothing of ours is left in a record, and all of others."""
        row = self.rows["br0"]
        ids = [row.external_ids, *(port.external_ids for port in row.ports)]
        ids += [interface.external_ids for interface in row.interfaces]
        assert [one for one in ids if one] == [{"others": "1"}] * 2

    def _places(self, known: tuple[str, ...]) -> tuple[tuple[int, str, int], ...]:
        places = (one.split("/") for one in known)
        return tuple((self.named(name), f"52:54:00:00:00:0{n}", 0) for name, n in places)

    def do_know(self, *known: str) -> None:
        """What the switch has learned."""
        self.switch.learned = self._places(known)

    def do_normal_knows(self, *known: str) -> None:
        self.switch.forwarding = self._places(known)

    def do_reboot(self, *heard: str) -> None:
        """It comes back with nothing installed. NORMAL forwards until the service is connected again."""
        self.do_normal_knows(*heard)
        self.restart_switch()

    def do_swap(self, one: str, other: str) -> None:
        """Two ports exchange their numbers while the switch is away."""
        ports, numbers = self.switch.ports, {one: self.named(other), other: self.named(one)}
        self.disconnect()
        self.do_set(*(f"{name}@ofport={number}" for name, number in numbers.items()))
        for name, number in numbers.items():
            ports[number] = replace(ports[number], name=name)
        self.connect()

    def do_next_bundle(self, then: str) -> None:
        """When the switch has carried it out, it flushes all, or does not say what became of it."""
        switch, carry_out = self.switch, self.switch.carry_out

        def carry_out_and(command: Command) -> list[Event]:
            answers = carry_out(command)
            if isinstance(command, Apply):
                switch.carry_out = carry_out  # type: ignore[method-assign]
                if then == "flush":
                    self.do_flush()
                else:
                    switch.holds_answers = True
            return answers

        switch.carry_out = carry_out_and  # type: ignore[method-assign]

    def do_learned(self, *known: str) -> None:
        assert sorted(self.switch.learned) == sorted(self._places(known))

    def do_seeded(self, *names: str) -> None:
        """The VM ports of which learned flows were installed, in both tables."""
        ports = [self.named(name) for name in names]
        both = (int(Table.LOCATION), int(Table.LOCAL_SOURCE))
        assert seeds(self) == [(table, ofport) for ofport in ports for table in both]


FREE = "plain unattached vms=1 :fail_mode=standalone"
AT_PLAIN = "attach br0 uplinks=eth1,eth2"
NOT_INSTALLED = "refused …flows were not installed within 10 s, because the switch did not answer…"
KEYS = 'threshold=60 connection-hash=multipath before={"fail_mode":"secure"}'
KNOWN = {
    "what a late flush took is installed again": f"""{FREE} | next-bundle flush | do {AT_PLAIN}
        | sent Apply Apply Apply | installed""",
    # What was sent may still be installed.
    "an attach that is not confirmed is undone when the switch answers": f"""{FREE} | note-row
        | next-bundle hold | ask {AT_PLAIN} | unanswered | column fail_mode secure
        | run {ATTACH_TIMEOUT_S} | {NOT_INSTALLED} | row-as-noted | ask {AT_PLAIN}
        | refused …; try again later | answer | released""",
    **{
        f"an attach that fails puts back the keys that were there: {team}": f"""{team} {KEYS} | note-row
        | next-bundle hold | ask {attach} threshold=70 | unanswered | column attached True
        | run {ATTACH_TIMEOUT_S} | {NOT_INSTALLED} | row-as-noted"""
        for team, attach in ((FREE, AT_PLAIN), ("bond unattached", "attach br0"))
    },
    "a reading from before a bundle under way is not the detach's own": """bond | run 5 | hold | run 6
        | ask move vnet0 eth2 | unanswered | ask detach br0 | unanswered | answer | run 1 | told …
        | released""",
    "what NORMAL knows is followed while a bond is observed": """bond mode=observe
        | normal-knows vnet0/1 | run 31 | normal-knows vnet1/1 | run 31 | set mode=enforce
        | seeded vnet1""",
    "a switch that restarts, and numbers that change": """bond | know vnet0/1 vnet1/2 | run 31 | reboot
        | learned vnet0/1 vnet1/2 | swap vnet0 vnet1 | learned vnet0/1 vnet1/2""",
    # One that came just before was not read yet, and silent from then on, it would be lost.
    "NORMAL has heard it last": """bond | know vnet0/1 vnet0/2 | run 31 | reboot eth1/1 vnet1/2 vnet1/3
        | learned vnet0/1 vnet1/2 vnet1/3""",
    "one that left": """bond | know vnet0/1 vnet1/2 | run 31 | know vnet1/2 | run 31 | reboot
        | learned vnet1/2""",
    "a port that was removed": """bond | know vnet3/1 | run 31 | del vnet3 | know | watch | add vnet3 13
        | seeded""",
}


CONFIGURED = """bond threshold=60 mode=enforce vm-9c5e-pin=eth1 eth1.role=drained eth1.role-before=active
    eth2.qdisc=replace vnet0.pin=eth1 vnet0.binding=eth1 vnet1.no-such-key=1 | others"""
PURGED = "told br0: ovs-lbt {} removed | only-others | run 60 | only-others"
TWICE = "…vnet0, vnet1, vnet2, vnet3 may receive each frame of mirror m0 (output_vlan 9) twice; use LACP…"
ATTACHED = "told br0: load-based over eth1, eth2, {}"
RECORDS = {
    "a purge": f"""{CONFIGURED} | ask detach br0 --purge | run 1
        | {PURGED.format("flows and keys")}""",
    "a purge after a detach": f"""{CONFIGURED} | do detach br0 | run 1 | keys vnet0 pin=eth1
        | ask detach br0 --purge | run 1 | {PURGED.format("keys")}""",
    "a detach says what it has restored": f"""{FREE} | do {AT_PLAIN} | ask detach br0 | run 5
        | told br0: ovs-lbt flows and keys removed, fail mode standalone restored
        | column fail_mode standalone""",
    "a mirror whose copies come back by a bond": f"""bond unattached :mirrors=9 | watch | ask attach br0
        | refused {TWICE} | check br0 | ask check br0 | told {TWICE} | unwritten | unchanged
        | ask attach br0 mode=observe | told {TWICE}""",
    **{
        f"a mirror that is none of the bond's: {words}": f"""bond unattached :mirrors=9 {words}
        | ask attach br0 mode=observe | {ATTACHED.format("4 VM ports")}
        | do set bridge br0 mode=enforce"""
        for words in (
            "vnet0:tag=5 vnet1:tag=5 vnet2:tag=5 vnet3:tag=5",
            "bond0:trunks=(5,)",
            "bond0:lacp=active",
        )
    },
    "a mirror that plain uplinks would multiply": f"""plain unattached vms=1 :mirrors=9 | watch
        | ask {AT_PLAIN} | refused …m0 sends VLAN 9 on eth1, eth2…loop…trunks without that VLAN…
        | unwritten | set eth2:trunks=(1,2) | ask {AT_PLAIN} | {ATTACHED.format("1 VM ports")}""",
    "a port that NORMAL treats otherwise": f"""plain unattached vms=1 vnet0:tag=5
        vnet0:vlan_mode=dot1q-tunnel | ask {AT_PLAIN} | refused bridge br0: Port vnet0 vlan_mode: …; if
        …: ovs-vsctl set port vnet0 vlan_mode…""",
    "tables with a limit": """bond unattached :flow_tables=(3,) | ask attach br0
        | refused …flow_limit…ovs-vsctl clear bridge br0 flow_tables""",
}
STORIES = KNOWN | RECORDS


@pytest.mark.parametrize("story", STORIES)
def test_attach_and_detach(story: str) -> None:
    AttachStory(STORIES[story]).tell()


def renewed(here: World) -> list[tuple[float, int]]:
    return [(at_s, c.flows[0].cookie & 0xFFFF) for at_s, c in here.log if isinstance(c, Renew)]


def test_the_only_address_of_a_port_is_renewed_well_before_it_ages_out() -> None:
    here = world(host()).start()
    here.switches["br0"].learned = ((10, MAC, 0), (10, MAC, 7))
    here.run_until(700)
    times_s = [at_s for at_s, ofport in renewed(here) if ofport == 10]
    gaps_s = [b - a for a, b in zip([0.0, *times_s], times_s, strict=False)]
    assert times_s and max(gaps_s) < 200 < 700 - min(times_s)
    assert min(gaps_s[1:]) >= 120


def test_nothing_is_renewed_where_many_are_or_the_link_is_down() -> None:
    here = world(host()).start()
    here.switches["br0"].learned = ((10, MAC, 0), (10, OTHER_MAC, 0), (11, THIRD_MAC, 0))
    here.set_link(11, up=False)
    here.run_until(400)
    assert renewed(here) == []


# ---- detach ----------------------------------------------------------------------------


def test_a_detach_looks_first_and_installs_nothing_on_a_switch_that_has_nothing() -> None:
    here = World(host()).start()
    assert here.ask("detach", "br0") is None
    here.switches = world(host()).switches
    here.connect()
    done(here.replies[1])
    assert here.applied() == []
    assert here.engine.fleet.bridges == {} and here.dialled == set()


def test_the_late_answer_to_an_attach_that_was_given_up_ends_nothing() -> None:
    """Its settings were written, and then undone: two answers of the database under one number."""
    here = world(without_us(host())).start()
    jobs, settings = here.engine.jobs, {"settings": (), "undo": (), "undone": "given up"}
    times = {"began_s": here.now_s, "deadline_s": here.now_s + ATTACH_TIMEOUT_S}
    jobs.begin(Attach(jobs, 7, "br0", step=Step.LEAVE, **times, **settings))  # type: ignore[arg-type]
    assert jobs.take_answer(Written(7), here.now_s) == [Reply(7, "given up", refused=True)]
    assert jobs.take_answer(Written(7), here.now_s) == []


def test_a_bridge_that_forwards_by_one_uplink_for_an_earlier_detach_changes_nothing() -> None:
    here = world(host()).start()
    here.switches.pop("br0")
    here.engine.handle(SwitchGone("br0"), here.now_s)
    here.engine.handle(Request(here.asked + 1, ("detach", "br0")), here.now_s)
    for error in (None, "no tool"):
        assert not here.engine.handle(ForwardingByOne("br0", error), here.now_s)
    assert here.engine.jobs.in_hand == {"br0"}


def test_an_error_of_ours_in_a_job_concerns_its_bridge_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = world(host()).start()
    here.expects_failures = True

    def fails(*_: object) -> None:
        raise AssertionError("no such state")

    monkeypatch.setattr(Store, "written", fails)
    answer = here.ask("set", "bridge", "br0", "window-s=20")
    assert answer and answer.refused and "ovs-lbt itself failed" in answer.text
    assert [failure.of for failure in here.failures] == ["bridge br0"]
