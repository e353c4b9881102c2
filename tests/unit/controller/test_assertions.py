"""Assertions of the core: each of these fails on a planted fault, and its bridge keeps its pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.api.events import Leading, Tick
from controller.api.history import Entry, Happened
from controller.bridge.bridge import Bridge
from controller.config.reader import read_bridge
from controller.config.values import BridgeConfig, UplinkConfig
from controller.dataplane import frames, tables
from controller.dataplane.specs import Changes, FlowSpec, GroupSpec
from controller.dataplane.team import Address, Hash, Team, kept
from controller.operations.attach import Attach
from controller.operations.jobs import Store
from controller.operations.planning import Basis
from controller.teaming.bindings import Bindings
from policies.classifiers import Classifier
from policies.model import Move, OfPort, Reason, Role
from policies.planners import static
from tests.unit.fake_switch import World, world
from tests.unit.rows import host

GROUP, FLOW = GroupSpec(1, "ff", ()), FlowSpec(3, 10, ())
UPLINK = UplinkConfig("eth1", OfPort(1), 1e9, None, Role.ACTIVE)
SLOT = Address(5, OfPort(10), "02:00:00:00:00:01", 0, ())
HASH = Hash(1, Classifier.SOURCE_MAC, ())


def a_team(**fields: object) -> Team:
    return Team((OfPort(1), OfPort(2)), (), **fields)  # type: ignore[arg-type]


def config(*uplinks: UplinkConfig) -> BridgeConfig:
    return replace(read_bridge(host()), uplinks=uplinks, vm_ports=())


def move(name: str = "vnet0", reason: Reason = Reason.THRESHOLD, target: str = "eth2") -> Move:
    return Move(name, "eth1", target, reason)


# A value that contradicts itself.
VALUES: dict[str, Callable[[], object]] = {
    "its home stays": lambda: move(reason=Reason.SPLIT),
    "only a split has shares": lambda: replace(move(), shares=(("eth1", 1.0),)),
    "an entry about moves contains moves": lambda: Entry(Happened.MOVED, 0.0, "br0", "why"),
    "is added and deleted in one bundle": lambda: Changes(add_groups=(GROUP,), delete_groups=(1,)),
    "unique slots": lambda: a_team(addresses=(SLOT, replace(SLOT, ofport=OfPort(11)))),
    "unique hash numbers": lambda: a_team(hashes=(HASH, HASH)),
    "keys are uplinks": lambda: a_team(lanes={OfPort(7): ()}),
    "a group ID for each uplink": lambda: tables.delivery_group_id(10, 223),
    "at most 256 buckets": lambda: tables.bucket_cookie(1, 256),
    "without other bits of the tag": lambda: frames.rarp("02:00:00:00:00:01", 0x1001),
    "goto is a later table": lambda: kept(lambda: [replace(FLOW, goto=2)])(),
    "loads cover at most the window": lambda: Basis(30.0, 31.0, 5.0),
    "a full window is enough": lambda: Basis(30.0, 5.0, 31.0),
    "a capacity, or none known": lambda: replace(UPLINK, capacity_bps=0.0),
    "in the team once": lambda: config(UPLINK, UPLINK),
}


@pytest.mark.parametrize("invariant", VALUES)
def test_a_value_that_contradicts_itself_is_not_made(invariant: str) -> None:
    with pytest.raises(AssertionError, match=invariant):
        VALUES[invariant]()


def served() -> World:
    return world(host()).start()


def bridge_of(here: World) -> Bridge:
    return here.engine.fleet.bridges["br0"]


def time_goes_back(here: World) -> object:
    return here.engine.handle(Tick(), here.now_s - 1.0)


def a_second_bundle(here: World) -> object:
    installation = bridge_of(here).installation
    step = installation.step(replace(installation.desired(), groups={}))
    installation.next_bundle(step)
    return installation.next_bundle(step)


def managed_twice(here: World) -> object:
    return here.engine.fleet.manage(bridge_of(here).config)


def two_attaches(here: World) -> object:
    jobs = here.engine.jobs
    for number in (7, 8):
        kinds = {"settings": (), "undo": (), "began_s": 0.0, "deadline_s": 10.0}
        jobs.begin(Attach(jobs, number, "br0", **kinds))  # type: ignore[arg-type]
    return None


def answered_twice(here: World) -> object:
    job = Store(here.engine.jobs, 7, "br0", then=lambda _now_s: ([], ""))
    here.engine.jobs.begin(job)
    job.give_answer("done", 0.0)
    return job.give_answer("done", 0.0)


def a_standby_that_decides(here: World) -> object:
    config_of = bridge_of(here).config
    here.engine.handle(Leading(leads=False), here.now_s)
    return here.engine.fleet.manage(config_of)


def another_name(here: World) -> object:
    other = replace(bridge_of(here).config, name="br1")
    return bridge_of(here).configure(other, here.now_s)


STATES: dict[str, Callable[[World], object]] = {
    "time never decreases": time_goes_back,
    "one bundle at a time": a_second_bundle,
    "a bridge is managed once": managed_twice,
    "one change at a time": two_attaches,
    "a request is answered once": answered_twice,
    "only the service that leads decides": a_standby_that_decides,
    "a bridge keeps its name": another_name,
}


@pytest.mark.parametrize("invariant", STATES)
def test_a_state_that_cannot_be_is_not_reached(invariant: str) -> None:
    here = served()
    with pytest.raises(AssertionError, match=invariant):
        STATES[invariant](here)


def test_quotas_leave_out_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    uplinks = bridge_of(served()).placing.uplinks()
    monkeypatch.setattr(static, "int", lambda _share: 0, raising=False)
    with pytest.raises(AssertionError, match="every unit has a place"):
        static._quotas(7, uplinks)


def test_a_failed_assertion_concerns_its_bridge_which_keeps_its_pipeline() -> None:
    here = served()
    here.expects_failures = True
    before = dict(here.switches["br0"].flows)
    bridge_of(here).placing._apart = Bindings()
    here.set_link(1, up=False).run_for(5.0)
    assert {failure.of for failure in here.failures} == {"bridge br0"}
    assert "bindings kept apart follow links only" in str(here.failures[0].error)
    assert here.switches["br0"].flows == before
    bridge_of(here).placing._apart = None
    here.run_for(60.0)
    assert here.bindings() == dict.fromkeys(here.bindings(), "eth2"), "it goes on when it can"
