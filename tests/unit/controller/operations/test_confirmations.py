"""Changes with --rollback-after: kept if they are confirmed in time, otherwise the bridge is as before."""

from __future__ import annotations

import json

import pytest

from controller.api.engine_commands import Apply, SendFrame, Write
from controller.config.rows import BridgeRow
from controller.dataplane import frames
from controller.dataplane.specs import EMPTY
from controller.operations.unconfirmed import UNCONFIRMED
from controller.text.wording import UNREACHED
from tests.said import says
from tests.unit.fake_switch import World, done, refusal, reports, world
from tests.unit.rows import host, with_ids, without_us

WAIT_S = 60
# What is rolled back, by whom, and until when it could have been confirmed.


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


def waits(here: World) -> list[dict[str, object]]:
    return list(json.loads(done(here.ask("show", "--json"))).get("unconfirmed", []))


# ---- attach -----------------------------------------------------------------------------


def test_an_attach_that_fails_waits_for_nothing_and_leaves_no_trace() -> None:
    here = World(BARE).start()
    assert here.ask("attach", "br0", "--rollback-after", "60") is None
    here.run_until(10)
    assert says(refusal(here.replies[1]), "bridge br0: ", f"10 s, because {UNREACHED}")
    assert here.rows["br0"] == BARE and waits(here) == []
    assert here.engine.fleet.bridges == {} and here.dialled == set()


# ---- detach -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("step_s", [3600.0, -10.0], ids=["forward", "back"])
def test_the_time_to_confirm_stays_the_same_when_the_clock_is_set(step_s: float) -> None:
    here = attached_for_now()
    here.run_for(20)
    (before,) = waits(here)
    (stored,) = here.engine.set_clock(step_s)
    assert isinstance(stored, Write)
    here.write(with_ids(here.rows["br0"], unconfirmed=str(stored.settings[0].value)))
    (after,) = waits(here)
    assert after["left_s"] == before["left_s"] == pytest.approx(WAIT_S - 20, abs=2)
    assert float(str(after["until"])) == pytest.approx(float(str(before["until"])) + step_s)
    here.run_for(30)
    assert attached(here)
    here.run_for(15)
    assert here.rows["br0"] == BARE


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
