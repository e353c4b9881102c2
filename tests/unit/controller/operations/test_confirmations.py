"""Changes with --rollback-after: kept if they are confirmed in time, otherwise the bridge is as before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.engine_commands import Apply, Record, SendFrame, Write
from controller.api.history import Happened
from controller.config.rows import BridgeRow
from controller.dataplane import frames
from controller.dataplane.specs import EMPTY
from controller.operations.unconfirmed import GRACE_S, UNCONFIRMED
from controller.text.wording import UNREACHED
from tests.said import says
from tests.unit.fake_switch import World, done, refusal, reports, world
from tests.unit.rows import host, plain_uplinks, with_ids, with_interface, without_us

WAIT_S = 60
# What is rolled back, by whom, and until when it could have been confirmed.
TIMER = "{} rolled back by the timer, not confirmed by 00:01:0{} UTC"
# A bridge with a bond before it is attached.
BARE = without_us(host())


def attached_for_now(row: BridgeRow = BARE, *words: str) -> World:
    """A world in which an attach waits to be confirmed."""
    here = world(row).start()
    done(here.ask("attach", "br0", *words, "--rollback-after", str(WAIT_S)))
    return here


def detached_for_now(row: BridgeRow | None = None) -> World:
    here = world(row or host()).start()
    done(here.ask("detach", "br0", "--rollback-after", str(WAIT_S)))
    return here


def attached(here: World) -> bool:
    return here.rows["br0"].attached


def happened(here: World) -> list[tuple[Happened, str]]:
    ours_only = (Happened.CONFIRMED, Happened.REVERTED)
    entries = [c.entry for c in here.commands(Record) if isinstance(c, Record)]
    return [(e.happened, e.why) for e in entries if e.happened in ours_only]


def waits(here: World) -> list[dict[str, object]]:
    return list(json.loads(done(here.ask("show", "--json"))).get("unconfirmed", []))


# ---- attach -----------------------------------------------------------------------------


@pytest.mark.parametrize("row", [BARE, plain_uplinks("secure")], ids=["bond", "plain"])
def test_an_attach_that_nobody_confirms_is_reverted(row: BridgeRow) -> None:
    row = with_ids(row, threshold="60", vm_9c5e_pin="eth1")
    here = world(row).start()
    uplinks = ["uplinks=eth1,eth2"] if len(row.ports) == 3 else []
    said = done(
        here.ask("attach", "br0", *uplinks, "threshold=70", "--rollback-after", str(WAIT_S))
    )
    assert says(said.splitlines()[-1], "br0", "60 s", "ovs-lbt confirm br0")
    assert waits(here) == [
        {"bridge": "br0", "change": "attach", "until": WAIT_S, "left_s": WAIT_S - here.now_s}
    ]
    here.run_until(WAIT_S + GRACE_S - 0.1)
    assert attached(here)
    here.run_until(WAIT_S + GRACE_S + 1)
    assert here.rows["br0"] == row, "its keys and its fail mode are as before"
    assert here.switches["br0"].installed == EMPTY
    assert here.engine.fleet.bridges == {} and waits(here) == []
    assert happened(here) == [(Happened.REVERTED, TIMER.format("attach", 0))]
    here.log.clear()
    here.run_for(1000)
    assert here.log == []


@pytest.mark.parametrize("words", ["attach br0", "set bridge br0 mode=enforce"])
@pytest.mark.parametrize("early", [False, True], ids=["timer", "operator"])
def test_moves_of_a_rollback_say_who_rolled_what_back(words: str, early: bool) -> None:
    """An operator would look for who asked for them otherwise."""
    what = words.split()[0]
    row = with_ids(host(), mode="observe") if what == "set" else BARE
    bond = row.ports[0]
    members = (bond.interfaces[0], replace(bond.interfaces[1], mac="02:00:00:00:00:02"))
    active = replace(bond, interfaces=members, bond_mode="active-backup", active_mac=members[1].mac)
    here = world(replace(row, ports=(active, *row.ports[1:]))).start()
    done(here.ask(*words.split(), "--rollback-after", str(WAIT_S)))
    here.run_for(5)
    if early:
        here.ask("rollback", "br0")
    here.run_until(WAIT_S + GRACE_S + 5)
    told = f"{what} rolled back by an operator" if early else TIMER.format(what, 0)
    entries = [c.entry for c in here.commands(Record) if isinstance(c, Record)]
    assert [e.why for e in entries if e.happened is Happened.MOVED][
        -1
    ] == f"{told}: NORMAL takes over on eth2"
    assert f"br0: vnet0: eth1 -> eth2 ({told}: NORMAL takes over on eth2)" in reports(here, "info")
    assert happened(here) == [(Happened.REVERTED, told)]


def test_an_attach_that_fails_waits_for_nothing_and_leaves_no_trace() -> None:
    here = World(BARE).start()
    assert here.ask("attach", "br0", "--rollback-after", "60") is None
    here.run_until(10)
    assert says(refusal(here.replies[1]), "bridge br0: ", f"10 s, because {UNREACHED}")
    assert here.rows["br0"] == BARE and waits(here) == []
    assert here.engine.fleet.bridges == {} and here.dialled == set()


# ---- detach -----------------------------------------------------------------------------


@pytest.mark.parametrize("purge", [False, True])
def test_a_detach_that_nobody_confirms_is_reverted(purge: bool) -> None:
    row = with_interface(host(threshold="60", vm_9c5e_pin="eth1"), "eth1", capacity_mbps="1000")
    here = world(row).start()
    here.run_for(1)
    before, installed = here.rows["br0"], here.switches["br0"].installed
    bindings = here.bindings()
    flows, groups = dict(installed.flows), dict(installed.groups)
    here.ask("detach", "br0", *(["--purge"] if purge else []), "--rollback-after", str(WAIT_S))
    said = done(here.replies[here.asked])
    assert says(said.splitlines()[-1], "br0", "60 s", "ovs-lbt confirm br0")
    assert not attached(here) and here.switches["br0"].installed == EMPTY
    (waiting,) = waits(here)
    assert (waiting["bridge"], waiting["change"]) == ("br0", "detach")
    here.run_for(WAIT_S + GRACE_S + 1)
    assert here.rows["br0"] == before
    assert here.bindings() == bindings
    assert (here.switches["br0"].flows, here.switches["br0"].groups) == (flows, groups)
    assert happened(here) == [(Happened.REVERTED, TIMER.format("detach", 1))]


def test_normal_learns_where_silent_vms_are_for_whoever_attaches_again() -> None:
    here = world(host()).start()
    mac = "02:00:00:00:00:0a"
    here.switches["br0"].learned = ((10, mac, 0),)
    here.run_for(20)
    here.log.clear()
    done(here.ask("detach", "br0", "--rollback-after", "60"))
    kinds = [c for _, c in here.log if isinstance(c, Apply | SendFrame)]
    assert isinstance(kinds[-1], SendFrame) and isinstance(kinds[-2], Apply), (
        "NORMAL has taken over"
    )
    assert kinds[-1] == SendFrame("br0", 10, frames.rarp(mac, to_itself=True))
    here.log.clear()
    done(here.ask("confirm", "br0"))
    assert not here.frames()


# ---- set --------------------------------------------------------------------------------


def test_a_rule_of_an_interface_that_is_gone_is_not_restored() -> None:
    here = world(host()).start()
    done(here.ask("set", "interface", "vnet0", "pin=eth1", "--rollback-after", "60"))
    done(here.ask("confirm", "br0"))
    done(here.ask("set", "interface", "vnet0", "pin=eth2", "--rollback-after", "60"))
    here.remove_port("vnet0")
    here.run_for(WAIT_S + GRACE_S)
    writes = [c for c in here.commands(Write) if isinstance(c, Write)]
    assert all(s.record == "br0" for s in writes[-1].settings), writes[-1]
    assert UNCONFIRMED not in here.rows["br0"].external_ids


# ---- whatever fails meanwhile -----------------------------------------------------------


@pytest.mark.parametrize(
    ("start_s", "restart_s"),
    [(0.0, 30.0), (1e9, 0.0), (0.0, 200.0)],
    ids=["meanwhile", "a clock that went back", "after the time"],
)
def test_a_service_that_starts_waits_for_the_rest_and_no_longer(
    start_s: float, restart_s: float
) -> None:
    here = World(BARE, start_s=start_s)
    here.switches = world(BARE).switches
    here.start()
    done(here.ask("attach", "br0", "--rollback-after", "60"))
    here.now_s = here.switches["br0"].now_s = restart_s
    here.restart_service()
    if restart_s < WAIT_S:
        here.run_until(WAIT_S - 1)
        assert attached(here)
    here.run_for(3)
    assert here.rows["br0"] == BARE and here.switches["br0"].installed == EMPTY


def test_it_is_tried_until_the_database_takes_it() -> None:
    here = attached_for_now()
    here.log.clear()
    for second in range(8):
        here.refuse_writes = "ovsdb-server is unreachable"
        here.run_until(60 + second)
    assert attached(here) and not here.applied(), "nothing changes without the database"
    (warning,) = reports(here, "warning")
    assert says(warning, "br0: attach", "not been rolled back", "ovsdb-server is unreachable")
    here.refuse_writes = None
    here.run_until(71)
    assert here.rows["br0"] == BARE


def test_a_detach_that_cannot_be_reverted_yet_is_tried_again_and_can_be_confirmed() -> None:
    here = detached_for_now()
    switch = here.switches.pop("br0")
    here.run_until(80)
    assert not attached(here) and waits(here)
    assert any("not been rolled back" in text for text in reports(here, "warning"))
    here.switches["br0"] = switch
    while here.engine.jobs.in_hand:
        here.run_for(1)
    assert done(here.ask("confirm", "br0")) == "br0: detach confirmed"
    here.run_for(100)
    assert here.rows["br0"] == BARE


def test_what_somebody_spoiled_is_reported_once_and_stops_nothing() -> None:
    here = world(with_ids(host(), unconfirmed="{")).start().run_for(100)
    (warning,) = reports(here, "warning")
    command = "; to remove it: ovs-vsctl remove bridge br0 external_ids ovs-lbt-unconfirmed"
    assert says(warning, "Bridge br0: ", "ovs-lbt-unconfirmed", command)
    assert here.switches["br0"].installed != EMPTY


@pytest.mark.parametrize(
    "text",
    [
        '{"what":"attach","until":1,"seconds":60,"back":[["Bridge","br0","others","1"]]}',
        '{"what":"attach","until":1,"seconds":60,"back":[["QoS","br0","ovs-lbt-policy","1"]]}',
        '{"what":"attach","until":1,"seconds":60,"back":[["Bridge","br0","ovs-lbt-policy",1]]}',
        '{"what":"attach","until":1,"seconds":1e9,"back":[]}',
        '{"what":"reboot","until":1,"seconds":60,"back":[]}',
        "[]",
        "[" * 5000,
        '{"what":"attach","until":"nan","seconds":60,"back":[]}',
        '{"what":"attach","until":1%s,"seconds":60,"back":[]}' % ("0" * 400),
        '{"what":"attach","until":1e300,"seconds":60,"back":[]}',
    ],
)
def test_nothing_but_our_keys_is_ever_restored(text: str) -> None:
    here = world(with_ids(host(), unconfirmed=text)).start().run_for(100)
    assert here.rows["br0"].external_ids[UNCONFIRMED] == text and attached(here)


# ---- plain uplinks never loop -------------------------------------------------------------
