"""What a bridge does about inbound after a move, and what it reads of counters when."""

from __future__ import annotations

from dataclasses import replace

from controller.api.engine_commands import Observe, ReadInbound, ReadLearned, ReadStats
from controller.bridge.installation import REVALIDATED_AFTER_S
from controller.dataplane import tables
from controller.dataplane.specs import SetField
from controller.dataplane.tables import Register, Table
from controller.dataplane.unicast import opens
from controller.features.inbound_check import KNOWN_AFTER_S, SILENT_S
from policies.model import OfPort
from tests.unit.controller.engine.told import offer
from tests.unit.fake_switch import World, reports, world
from tests.unit.rows import host

MAC = "52:54:00:00:00:10"
ETH1, ETH2 = 1, 2
VM = OfPort(10)


def receiving(bps: float = 1e6, teaming: str = "switch-independent") -> World:
    """vnet0 is on eth1, and so is what the upstream switch sends it."""
    here = world(host("originating-port", binding="eth1", teaming=teaming))
    here.switch.learned = ((10, MAC, 0),)
    here.switch.inbound_bps[10], here.switch.comes_by[10] = (lambda _: bps), ETH1
    here.start().run_until(12)
    return here


def move(here: World, follows_after_s: float | None = 0.0) -> float:
    """Move vnet0 to eth2; when that was."""
    moved_s = here.now_s
    here.do("move vnet0 eth2")
    if follows_after_s is not None:
        here.run_until(moved_s + follows_after_s)
        here.switch.comes_by[10] = ETH2
    here.run_until(moved_s + 20)
    return moved_s


def frames_after(here: World, moved_s: float) -> list[float]:
    return [round(at_s - moved_s, 3) for at_s, _ in here.frames() if at_s >= moved_s]


def observed(here: World) -> list[Observe]:
    return here.commands(Observe)


def test_inbound_that_follows_is_observed_once_and_read_until_it_has() -> None:
    here = receiving()
    assert not here.commands(ReadInbound)
    moved_s = move(here)
    reads = [(at_s - moved_s, c.ofports) for at_s, c in here.log if isinstance(c, ReadInbound)]
    assert reads == [(0.0, (10,)), (0.5, (10,))]
    assert observed(here) == [Observe("br0", "inbound_follow", 0.5)]
    assert frames_after(here, moved_s) == [0.0, 1.0, 3.0], "nothing is said beyond that"
    assert here.status.reannounced == 0


def test_inbound_that_stays_is_announced_again_until_it_follows() -> None:
    here = receiving()
    moved_s = move(here, follows_after_s=2.7)
    assert frames_after(here, moved_s) == [0.0, 1.0, 2.5, 3.0]
    assert observed(here) == [Observe("br0", "inbound_follow", 3.0)]
    status = here.status
    assert (status.reannounced, status.not_followed) == (1, 0)


def test_inbound_that_never_follows_is_told_of_once() -> None:
    here = receiving()
    moved_s = move(here, follows_after_s=None)
    assert frames_after(here, moved_s) == [0.0, 1.0, 2.5, 3.0, 5.0, 7.5]
    status = here.status
    assert (status.reannounced, status.not_followed) == (3, 1)
    assert not observed(here)
    still = "still arrives on eth1 after repeated learning packets"
    found = f"br0: inbound traffic of vnet0 {still}; expected on eth2"
    assert reports(here, "warning").count(found) == 1


def test_nothing_comes_and_nothing_is_said() -> None:
    here = receiving(bps=0.0)
    moved_s = move(here, follows_after_s=None)
    assert frames_after(here, moved_s) == [0.0, 1.0, 3.0]
    assert not reports(here, "warning")
    read_s = [at_s for at_s, c in here.log if isinstance(c, ReadInbound)]
    assert max(read_s) <= moved_s + SILENT_S


def test_a_failover_is_watched_too_and_a_lag_never() -> None:
    for teaming, watched in (("switch-independent", True), ("static", False)):
        here = receiving(teaming=teaming)
        here.set_link(ETH1, up=False)
        here.run_for(0.1)
        assert here.bindings()["vnet0"] == "eth2"
        assert bool(here.commands(ReadInbound)) is watched, teaming


def test_with_a_move_it_is_asked_once_what_to_announce() -> None:
    """With the bundle, as waiting for its answer first would cost the first learning packet."""
    here = receiving()
    moved_s = here.now_s
    here.do("move vnet0 eth2")
    read_s = [at_s for at_s, c in here.log if isinstance(c, ReadLearned)]
    assert read_s.count(moved_s) == 1
    assert frames_after(here, moved_s) == [0.0]


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
    took_s = [c.seconds for c in observed(here)]
    assert (made, took_s) == (1, [0.0]), "one move is as quick as the switch"
    # Two are a window apart.
    offer(here, [3e9] * 4)
    here.do("move vnet0 eth1").run_for(60)
    assert here.status.moves_applied["threshold"] == made + 2
    (_, took_again_s) = [c.seconds for c in observed(here)]
    assert 2.0 <= took_again_s <= 5.0


def test_observing_nothing_settles_and_nothing_is_watched() -> None:
    here = receiving()
    here.write_keys(mode="observe")
    here.run_for(5)
    assert not here.commands(ReadInbound)


# ---- an active-backup bond, which alone drops copies -------------------------------------


def backup(bps: float = 0.0) -> World:
    """An active-backup bond; vnet0 is on eth1, and so is what the upstream switch sends it."""
    row = host("originating-port", binding="eth1")
    ports = (replace(p, bond_mode="active-backup") if p.name == "bond0" else p for p in row.ports)
    here = world(replace(row, ports=tuple(ports)))
    here.switch.learned = ((10, MAC, 0),)
    here.switch.inbound_bps[10], here.switch.comes_by[10] = (lambda _: bps), ETH1
    return here.start()


def known_on(here: World) -> int | None:
    """The uplink from which alone the switch accepts unicast for vnet0 while it is live."""
    flows = here.switch.installed.flows
    found = [
        uplink for uplink in (ETH1, ETH2) if (o := opens(VM, OfPort(uplink))) == flows.get(o.key)
    ]
    dropping = {
        tables.cookie_inbound(flow.cookie)
        for flow in flows.values()
        if flow.table == Table.INBOUND and SetField(Register.TARGET, tables.DONE) in flow.actions
    }
    by = {uplink for ofport, uplink in dropping if ofport == VM}
    assert by == ({ETH1, ETH2} - {*found} if found else set())
    return found[0] if found else None


def test_copies_are_dropped_once_inbound_comes_by_the_uplink_or_there_is_none() -> None:
    for bps, after_s in ((1e6, KNOWN_AFTER_S), (0.0, SILENT_S)):
        here = backup(bps)
        assert known_on(here.run_until(after_s - 0.5)) is None
        assert known_on(here.run_until(after_s + 1)) == ETH1


def test_copies_are_not_dropped_while_inbound_comes_by_another_uplink() -> None:
    here = backup(1e6)
    here.switch.comes_by[10] = ETH2
    assert known_on(here.run_until(30)) is None
    (warning,) = reports(here, "warning")
    assert "vnet0" in warning and "eth2" in warning
    here.switch.comes_by[10] = ETH2
    here.do("move vnet0 eth2")
    assert known_on(here.run_for(10)) == ETH2


def test_all_uplinks_are_open_before_a_vm_moves_and_until_inbound_has_followed() -> None:
    here = backup(1e6).run_until(12)
    assert known_on(here) == ETH1
    began = len(here.applied())
    moved_s = here.now_s
    here.do("move vnet0 eth2")
    assert here.switch.uplink_of(VM) == ETH2 and known_on(here) is None
    (opened_s, opening), (bound_s, _), *_ = here.applied()[began:]
    assert not (opening.modify_groups or opening.delete_flows or opening.add_groups)
    assert {flow.table for flow in opening.add_flows} == {Table.INBOUND}
    assert not any(flow.actions for flow in opening.add_flows)
    assert bound_s >= opened_s + REVALIDATED_AFTER_S
    here.run_until(moved_s + 2)
    here.switch.comes_by[10] = ETH2
    assert known_on(here.run_until(moved_s + 4.5)) is None
    assert known_on(here.run_until(moved_s + 9)) == ETH2


def test_a_failover_opens_all_uplinks_and_a_restarted_service_goes_on_from_the_switch() -> None:
    here = backup().run_until(12)
    here.restart_service()
    here.run_for(1)
    assert known_on(here) == ETH1 and not here.applied()
    here.set_link(ETH1, up=False)
    here.run_for(0.2)
    assert here.bindings()["vnet0"] == "eth2" and known_on(here) is None
    assert known_on(here.run_for(SILENT_S + 4)) == ETH2


def test_a_restarted_switch_knows_nothing() -> None:
    here = backup().run_until(12).restart_switch()
    assert known_on(here.run_for(1)) is None
    assert known_on(here.run_for(SILENT_S + 1)) == ETH1
