"""Attach and detach in a world of their own: nothing of others' harmed, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.api.engine_commands import (
    Apply,
    Command,
    Connect,
    ForgetForwarding,
    Prepare,
    ReadForwarding,
    ReadInstalled,
    ReadLearned,
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
from controller.config import reader
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow, MirrorRow, PortRow
from controller.dataplane import pipeline, tables
from controller.dataplane.specs import EMPTY, GroupSpec
from controller.dataplane.tables import GROUP_IDS, Kind, Register, Table
from controller.dataplane.team import Team
from controller.operations.attach import ATTACH_TIMEOUT_S, Attach
from controller.operations.jobs import Step, Store
from tests.said import says
from tests.unit.controller.engine.told import desired
from tests.unit.fake_switch import FakeSwitch, World, done, refusal, world
from tests.unit.rows import (
    bridge,
    host,
    interface,
    ours,
    plain_uplinks,
    port,
    two_uplinks,
    with_ids,
    with_interface,
    without_us,
)

FOREIGN = (ForeignFlow(200, 1, 0xF0E1, "in_port=7"),)


def test_attach_reads_first_writes_then_and_is_done_when_everything_is_installed() -> None:
    here = world(without_us(host())).start()
    text = done(here.ask("attach", "br0"))
    assert text == "br0: load-based over eth1, eth2, 4 VM ports"
    written = {"connection-hash": "auto", "team": "bond0/eth1,eth2/"}
    assert here.rows["br0"].external_ids == ours(policy="load-based", **written)
    kinds = [type(c) for _, c in here.log if isinstance(c, Connect | ReadInstalled | Apply)]
    assert kinds == [Connect, ReadInstalled, Apply, Apply], "the second when flags are set"
    assert here.rows["br0"].fail_mode is None, "a bond needs no other fail mode"


def test_a_new_fail_mode_has_flushed_before_what_was_encoded_is_installed() -> None:
    here = world(plain_uplinks("standalone"), reads_with_default=4).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    kinds = [type(c) for _, c in here.log if isinstance(c, Prepare | Write | ReadInstalled | Apply)]
    until_flushed = [ReadInstalled] * 4
    assert kinds[: kinds.index(Apply)] == [ReadInstalled, Prepare, Write, *until_flushed]
    assert here.commands(Prepare) == [Prepare(first) for first in here.commands(Apply)[:1]]
    looked_after = kinds[kinds.index(Apply) + 1 :]
    assert Write in looked_after and ReadInstalled in looked_after


def test_what_a_late_flush_took_is_installed_again() -> None:
    here = at_its_next_bundle(world(plain_uplinks("standalone")).start(), flush)
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    assert len(here.applied()) == 2
    assert here.switches["br0"].installed == desired(here)


def at_its_next_bundle(here: World, act: Callable[[FakeSwitch], None]) -> World:
    """The same world; something will happen to its switch when it has carried out a bundle."""
    switch = here.switches["br0"]
    carry_out = switch.carry_out

    def carry_out_and_act(command: Command) -> list[Event]:
        answers = carry_out(command)
        if isinstance(command, Apply):
            switch.carry_out = carry_out  # type: ignore[method-assign]
            act(switch)
        return answers

    switch.carry_out = carry_out_and_act  # type: ignore[method-assign]
    return here


def flush(switch: FakeSwitch) -> None:
    switch.flows.clear()
    switch.groups.clear()


def hold(switch: FakeSwitch) -> None:
    """It does not say what became of the bundle, nor anything else."""
    switch.holds_answers = True


@pytest.mark.parametrize("note", ["[]", '{"fail_mode": 1}', '{"fail_mode": "up"}', "[" * 5000, ""])
def test_a_note_is_what_attach_writes_or_bad(note: str) -> None:
    assert len(read_bridge(host(before=note)).errors) == 1


# ---- what stays, and purge -------------------------------------------------------------


def configured() -> BridgeRow:
    """With settings of all kinds, as an operator and the service leave them."""
    row = host(threshold="60", mode="enforce")
    row = replace(row, external_ids={**row.external_ids, PREFIX + "vm-9c5e-pin": "eth1"})
    for name, key, value in (
        ("eth1", "role", "drained"),
        ("eth1", "role-before", "active"),
        ("eth2", "qdisc", "replace"),
        ("vnet0", "pin", "eth1"),
        ("vnet0", "binding", "eth1"),
        ("vnet1", "no-such-key", "1"),
    ):
        row = with_interface(row, name, **{key: value})
    others = replace(row.ports[0], external_ids={"others": "1", PREFIX + "left": "2"})
    return replace(
        row, ports=(others, *row.ports[1:]), external_ids={**row.external_ids, "others": "1"}
    )


def ours_in(row: BridgeRow) -> list[str]:
    """All that is left of ours in a bridge's records."""
    records = [row.external_ids, *(port.external_ids for port in row.ports)]
    records += [i.external_ids for port in row.ports for i in port.interfaces]
    return [key for ids in records for key in ids if key.startswith(PREFIX)]


@pytest.mark.parametrize("detached_before", [False, True])
def test_a_purge_leaves_nothing_of_ours_and_all_of_others(detached_before: bool) -> None:
    here = world(configured()).start()
    if detached_before:
        here.ask("detach", "br0")
        here.run_for(1)
        assert ours_in(here.rows["br0"])
    here.ask("detach", "br0", "--purge")
    here.run_for(1)
    removed = "keys" if detached_before else "flows and keys"
    assert done(here.replies[here.asked]) == f"br0: ovs-lbt {removed} removed"
    assert ours_in(here.rows["br0"]) == []
    assert here.rows["br0"].external_ids == {"others": "1"}
    assert here.rows["br0"].ports[0].external_ids == {"others": "1"}
    here.run_for(60)
    assert ours_in(here.rows["br0"]) == [], "and nothing of it comes back"


def test_a_detach_says_what_it_has_restored() -> None:
    here = world(plain_uplinks("standalone")).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    here.ask("detach", "br0")
    here.run_for(5)
    told = "br0: ovs-lbt flows and keys removed, fail mode standalone restored"
    assert done(here.replies[here.asked]) == told and here.rows["br0"].fail_mode == "standalone"


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


# ---- what NORMAL did -------------------------------------------------------------------


def test_a_mirror_whose_copies_come_back_by_a_bond_is_refused() -> None:
    row = replace(without_us(host()), mirrors=(MirrorRow("m0", output_vlan=9),))
    found = "vnet0, vnet1, vnet2, vnet3 may receive each frame of mirror m0 (output_vlan 9) twice; use LACP"
    here = world(row).start()
    assert found in refusal(here.ask("attach", "br0"))
    assert found in done(here.ask("check", "br0"))
    assert here.commands(Write) == [] and here.applied() == []
    for is_told, ports in (
        (True, lambda p: p),
        (False, lambda p: replace(p, tag=5) if p.name.startswith("vnet") else p),
        (False, lambda p: replace(p, trunks=(5,)) if p.name == "bond0" else p),
        (False, lambda p: replace(p, lacp="active") if p.name == "bond0" else p),
    ):
        here = world(replace(row, ports=tuple(map(ports, row.ports)))).start()
        told = done(here.ask("attach", "br0", "mode=observe"))
        assert (found in told) == is_told
        if not is_told:
            done(here.ask("set", "bridge", "br0", "mode=enforce"))


def test_a_mirror_that_plain_uplinks_would_multiply_is_refused() -> None:
    row = replace(plain_uplinks("secure"), mirrors=(MirrorRow("m0", output_vlan=9),))
    here = world(row).start()
    told = refusal(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    assert says(told, "m0 sends VLAN 9 on eth1, eth2", "loop", "trunks without that VLAN")
    assert here.commands(Write) == []
    ports = tuple(replace(p, trunks=(1, 2)) if p.name == "eth2" else p for p in row.ports)
    here = world(replace(row, ports=ports)).start()
    assert "warning" not in done(here.ask("attach", "br0", "uplinks=eth1,eth2"))


def test_a_port_that_is_reserved_for_a_mirror_is_no_vm_port() -> None:
    here = world(
        replace(host(), mirrors=(MirrorRow("m0", "vnet3"), MirrorRow("m1", "gone")))
    ).start()
    assert here.bindings().keys() == {"vnet0", "vnet1", "vnet2"}
    assert here.engine.fleet.status()[0].not_done == ()


def test_ports_that_normal_treats_otherwise_are_told() -> None:
    tunnel = PortRow("vnet0", (interface("vnet0", 10),), tag=5, vlan_mode="dot1q-tunnel")
    row = bridge(*two_uplinks(), tunnel, port("vnet2", 12))
    (warning,) = reader.read_bridge(row).not_done
    here = world(without_us(row)).start()
    assert refusal(here.ask("attach", "br0", "uplinks=eth1,eth2")) == f"bridge br0: {warning}"
    assert says(warning, "Port vnet0 vlan_mode: ", "; if ", ": ovs-vsctl set port vnet0 vlan_mode")
    limited = replace(without_us(host()), flow_tables=(3,))
    told = refusal(world(limited).start().ask("attach", "br0"))
    assert "flow_limit" in told and told.endswith("ovs-vsctl clear bridge br0 flow_tables")


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


def test_a_service_that_starts_on_an_installed_pipeline_does_not_ask_normal() -> None:
    here = world(host()).start()
    here.restart_service()
    assert not here.commands(ReadForwarding)
    assert here.commands(ReadLearned)


def test_what_normal_knows_is_followed_while_a_bond_is_only_observed() -> None:
    here = world(host(mode="observe"), forwarding=((10, MAC, 0),)).start()
    here.switches["br0"].forwarding = ((11, MAC, 0),)
    here.run_for(31)
    here.write(host(mode="enforce"))
    assert seeds(here) == [(int(Table.LOCATION), 11), (int(Table.LOCAL_SOURCE), 11)]


def restart_switch(here: World, *heard_by_normal: tuple[int, str, int]) -> None:
    """It comes back with nothing installed, and NORMAL forwards until the service is connected again."""
    switch = here.disconnect().switches["br0"]
    flush(switch)
    switch.learned, switch.forwarding = (), heard_by_normal
    here.log.clear()
    here.connect()


def test_addresses_survive_a_restart_of_the_switch_and_follow_a_new_number() -> None:
    here = world(host()).start()
    switch = here.switches["br0"]
    switch.learned = ((10, MAC, 0), (11, OTHER_MAC, 0))
    restart_switch(here.run_for(31))
    assert tuple(switch.learned) == ((10, MAC, 0), (11, OTHER_MAC, 0))

    others = [p for p in here.rows["br0"].ports if p.name not in ("vnet0", "vnet1")]
    here.disconnect().write(bridge(*others, port("vnet0", 11), port("vnet1", 10)))
    for ofport, name in ((11, "vnet0"), (10, "vnet1")):
        switch.ports[ofport] = replace(switch.ports[ofport], name=name)
    here.connect()
    assert sorted(switch.learned) == [(10, OTHER_MAC, 0), (11, MAC, 0)]


def test_a_vm_is_where_normal_has_heard_it_last_while_the_switch_restarted() -> None:
    """One that came just before was not read yet, and silent from then on, it would be lost."""
    here = world(host()).start()
    here.switches["br0"].learned = ((10, MAC, 0), (10, OTHER_MAC, 0))
    restart_switch(here.run_for(31), (1, MAC, 0), (11, OTHER_MAC, 0), (11, THIRD_MAC, 0))
    learned = sorted(here.switches["br0"].learned)
    assert learned == [(10, MAC, 0), (11, OTHER_MAC, 0), (11, THIRD_MAC, 0)]


def test_normal_forgets_what_its_bond_would_announce_when_a_member_fails() -> None:
    here = world(without_us(host())).start()
    done(here.ask("attach", "br0"))
    assert len(here.commands(ForgetForwarding)) == 1
    (read_s, installed_s, forgot_s) = (
        next(at_s for at_s, c in here.log if isinstance(c, kind))
        for kind in (ReadForwarding, Apply, ForgetForwarding)
    )
    assert read_s <= installed_s <= forgot_s, "not before it was read and replaced"
    here.disconnect().connect().run_for(31)
    assert len(here.commands(ForgetForwarding)) == 1


def test_an_address_that_left_is_not_brought_back() -> None:
    here = world(host()).start()
    switch = here.switches["br0"]
    switch.learned = ((10, MAC, 0), (11, OTHER_MAC, 0))
    here.run_for(31)
    switch.learned = ((11, OTHER_MAC, 0),)
    restart_switch(here.run_for(31))
    assert tuple(switch.learned) == ((11, OTHER_MAC, 0),)


def test_addresses_of_a_port_that_was_removed_are_forgotten() -> None:
    here = world(host()).start()
    here.switches["br0"].learned = ((13, MAC, 0),)
    here.run_for(31)
    here.remove_port("vnet3")
    here.switches["br0"].learned = ()
    here.log.clear()
    here.add_port(port("vnet3", 13))
    assert seeds(here) == []


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


# ---- what does not answer in time ------------------------------------------------------


def test_an_attach_that_is_not_confirmed_is_undone_and_cleaned_up_when_the_switch_answers() -> None:
    here = at_its_next_bundle(world(plain_uplinks("standalone")).start(), hold)
    assert here.ask("attach", "br0", "uplinks=eth1,eth2") is None
    assert here.rows["br0"].fail_mode == "secure"
    here.run_for(ATTACH_TIMEOUT_S)
    assert "flows were not installed within 10 s, because the switch did not answer" in refusal(
        here.replies[1]
    )
    assert here.rows["br0"] == plain_uplinks("standalone")
    assert "br0" in here.dialled, "what was sent may still be installed"
    assert refusal(here.ask("attach", "br0", "uplinks=eth1,eth2")).endswith("; try again later")
    here.answer_held()
    assert here.switches["br0"].installed == EMPTY
    assert here.engine.fleet.bridges == {} and here.dialled == set()


@pytest.mark.parametrize(
    "row", [plain_uplinks("standalone"), without_us(host())], ids=["plain", "bond"]
)
def test_an_attach_that_fails_puts_back_the_keys_that_were_there(row: BridgeRow) -> None:
    keys = {"threshold": "60", "connection_hash": "multipath", "before": '{"fail_mode": "secure"}'}
    row = with_ids(row, **keys)
    here = at_its_next_bundle(world(row).start(), hold)
    uplinks = ["uplinks=eth1,eth2"] if row.fail_mode else []
    assert here.ask("attach", "br0", *uplinks, "threshold=70") is None
    written = ours(policy="load-based", threshold="70", connection_hash="multipath")
    assert here.rows["br0"].external_ids.items() >= written.items()
    here.run_for(ATTACH_TIMEOUT_S)
    assert "flows were not installed" in refusal(here.replies[1]) and here.rows["br0"] == row


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


def test_a_reading_from_before_a_bundle_under_way_is_not_taken_for_the_detach_s_own() -> None:
    here = world(host()).start()
    here.run_for(5)
    switch = here.switches["br0"]
    switch.holds_answers = True
    here.run_for(6)
    assert here.commands(ReadInstalled), "a reading is under way"
    here.ask("move", "vnet0", "eth1" if here.bindings()["vnet0"] == "eth2" else "eth2")
    assert "br0" in here.outstanding, "and a bundle behind it"
    assert here.ask("detach", "br0") is None
    here.answer_held()
    done(here.replies[2])
    assert switch.installed == EMPTY
