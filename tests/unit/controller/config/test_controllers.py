"""What bridges say of their controllers: fail mode, what a change of it flushes, versions of OpenFlow."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.engine_commands import ReadInstalled, Write
from controller.bridge.installation import AUDIT_INTERVAL_S, FLUSHED_WITHIN_S
from controller.config import controllers
from controller.config.rows import PREFIX, BridgeRow, MirrorRow
from tests.said import says
from tests.unit.controller.engine.told import desired, shown
from tests.unit.fake_switch import World, done, reports, world
from tests.unit.rows import bridge, host, ours, plain_uplinks, port, without_us

CONTROLLER = ("tcp:192.0.2.1:6653",)


def attached(before: str | None = None) -> World:
    """A bridge on plain uplinks, attached by command; its fail mode before."""
    here = world(plain_uplinks(before)).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    here.run_for(1)
    here.log.clear()
    return here


def settled(**columns: object) -> World:
    """A bridge on a bond whose next audit is not due; columns of its record."""
    here = world(replace(host(), **columns)).start()  # type: ignore[arg-type]
    here.run_for(AUDIT_INTERVAL_S + 1)
    here.log.clear()
    return here


def change(here: World, **columns: object) -> None:
    here.write(replace(here.rows["br0"], **columns))  # type: ignore[arg-type]


def readings(here: World) -> int:
    return len(here.commands(ReadInstalled))


@pytest.mark.parametrize(
    "changes",
    [
        [{"fail_mode": "secure"}],
        [{"fail_mode": "secure"}, {"fail_mode": None}],
        [{"controllers": CONTROLLER}],
        [{"controllers": CONTROLLER}, {"controllers": ()}],
    ],
)
def test_what_a_change_flushes_is_read_again_at_once_and_installed(
    changes: list[dict[str, object]],
) -> None:
    here = settled()
    for columns in changes:
        here.log.clear()
        change(here, **columns)
        here.run_for(0.2)
        switch = here.switches["br0"]
        switch.flows.clear()
        here.run_for(0.2)
        assert switch.installed == desired(here)
        here.run_for(FLUSHED_WITHIN_S)
        many = readings(here)
        here.run_for(AUDIT_INTERVAL_S - 1)
        assert readings(here) <= many + 1, "as often as before"


def test_a_switch_that_is_slow_to_answer_is_asked_once_at_a_time() -> None:
    here = settled()
    here.switches["br0"].holds_answers = True
    change(here, fail_mode="secure")
    here.run_for(1)
    assert readings(here) == 1
    here.switches["br0"].holds_answers = False
    here.answer_held()
    here.run_for(1)
    assert readings(here) > 5


@pytest.mark.parametrize(
    "columns",
    [
        {"mcast_snooping_enable": True},
        {"mirrors": (MirrorRow("m"),)},
        {"datapath_id": "00000000000000aa"},
        {"controllers": ("ptcp:6654", *CONTROLLER)},
    ],
    ids=str,
)
def test_other_changes_and_a_second_controller_flush_nothing(columns: dict[str, object]) -> None:
    here = settled(controllers=CONTROLLER)
    change(here, **columns)
    here.run_for(FLUSHED_WITHIN_S)
    assert readings(here) == 0


def test_flows_that_somebody_deletes_are_installed_again_with_the_next_poll() -> None:
    here = settled().run_for(0.5)
    here.log.clear()
    switch = here.switches["br0"]
    switch.flows.clear()
    here.run_for(here.engine.fleet.bridges["br0"].config.poll_interval_s + 0.1)
    assert switch.installed == desired(here)
    assert readings(here) == 1


@pytest.mark.parametrize("changed_to", [None, "standalone"])
def test_the_fail_mode_that_attach_has_set_is_set_again_and_told(changed_to: str | None) -> None:
    here = attached("standalone")
    change(here, fail_mode=changed_to)
    assert here.rows["br0"].fail_mode == "secure"
    (warning,) = (text for text in reports(here, "warning") if "is set again" in text)
    assert warning.startswith("Bridge br0 fail_mode: changed to standalone after attach; secure")
    here.run_for(60)
    assert len([w for w in here.commands(Write) if "fail_mode" in str(w)]) == 1
    assert readings(here) > 1, "what the changes have flushed is read"
    done(here.ask("detach", "br0"))
    assert here.rows["br0"].fail_mode == "standalone"


def test_a_service_that_was_dead_meanwhile_sets_it_again() -> None:
    here = attached("standalone")
    here.rows["br0"] = replace(here.rows["br0"], fail_mode=None)
    here.restart_service()
    assert here.rows["br0"].fail_mode == "secure"


def test_one_that_was_secure_before_attach_is_the_operator_s_and_told() -> None:
    here = attached("secure")
    change(here, fail_mode=None)
    assert here.rows["br0"].fail_mode is None
    (told,) = shown(here)["not_done"]
    assert says(told, "Bridge br0 fail_mode: standalone", "secure", "loop")


def test_neither_attach_nor_a_bond_is_warned_of() -> None:
    here = world(plain_uplinks("standalone")).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    on_bond = world(host()).start()
    assert on_bond.rows["br0"].fail_mode is None
    for one in (here, on_bond):
        assert not [text for text in reports(one, "warning") if "fail_mode" in text]


def test_a_bridge_that_has_lost_its_bond_has_no_uplinks_to_warn_of() -> None:
    row = bridge(port("vnet0", 10))
    here = world(row).start()
    assert here.engine.fleet.status()[0].not_done == ()
    ids = ours(policy="load-based", uplinks="eth1,eth2")
    vm, eth1, eth2 = port("vnet0", 10), port("eth1", 1), port("eth2", 2)
    here = world(bridge(vm, eth1, eth2, ids=ids)).start()
    here.write(bridge(vm, eth1, ids=ids))
    (text,) = here.engine.fleet.status()[0].not_done
    assert "form a loop" in text, "when it is back"


def test_a_bridge_that_is_not_attached_keeps_its_fail_mode() -> None:
    row = replace(plain_uplinks(), external_ids={PREFIX + "before": '{"fail_mode": null}'})
    here = world(row).start()
    here.write(replace(row, fail_mode="standalone"))
    assert here.rows["br0"] == replace(row, fail_mode="standalone")


@pytest.mark.parametrize(
    "allowed", [(), ("OpenFlow13",), ("OpenFlow10", "OpenFlow13", "OpenFlow15")]
)
def test_nothing_is_said_of_a_bridge_that_allows_ours_or_all(allowed: tuple[str, ...]) -> None:
    row = BridgeRow("br0", protocols=allowed)
    assert controllers.is_allowed(row)
    assert controllers.refusal(row) is None
    assert not list(controllers.not_done(row, 0))


def test_attach_is_refused_with_the_command_that_allows_it_and_nothing_changes() -> None:
    row = replace(without_us(host()), protocols=("OpenFlow10", "OpenFlow14"))
    here = world(row).start()
    reply = here.ask("attach", "br0", "policy=load-based")
    assert reply and reply.refused
    command = "ovs-vsctl add bridge br0 protocols OpenFlow13"
    assert says(reply.text, "bridge br0 allows only OpenFlow10, OpenFlow14; ", command)
    assert here.rows["br0"] == row
    assert not here.dialled


def test_an_attached_bridge_tells_it_and_keeps_what_it_has() -> None:
    here = world(host()).start()
    change(here, protocols=("OpenFlow10",))
    here.disconnect()
    (told,) = shown(here)["not_done"]
    assert says(told, "Bridge br0 protocols: OpenFlow10", "OpenFlow13")
    findings = json.loads(done(here.ask("check", "br0", "--json")))["findings"]
    (away,) = (one for one in findings if one["check"] == "not-connected")
    assert says(
        away["text"], "not connected", "lack OpenFlow13; ", "add bridge br0 protocols OpenFlow13"
    )
    change(here, protocols=())
    here.connect()
    assert shown(here)["connected"] and shown(here)["not_done"] == []


@pytest.mark.parametrize(
    ("target", "listens_at"),
    [
        ("ssl:192.0.2.9:6653", {"192.0.2.9", "0.0.0.0", "lbt1"}),
        ("tcp:192.0.2.9", {"192.0.2.9", "0.0.0.0", "lbt1"}),
        ("tcp:lbt1:6653", {"192.0.2.9", "0.0.0.0", "lbt1"}),
        ("tcp:[2001:db8::9]:6653", {"0.0.0.0", "lbt1"}),
        *((other, set()) for other in ("tcp:192.0.2.9:6633", "ptcp:6653", "tcp:[", "tcp:")),
    ],
)
def test_a_controller_is_the_service_if_address_and_port_are(
    target: str, listens_at: set[str]
) -> None:
    for address in ("192.0.2.9", "0.0.0.0", "lbt1"):
        assert controllers.is_ours(target, (address, 6653)) == (address in listens_at)
    assert not controllers.is_ours(target, None)
