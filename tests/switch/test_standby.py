"""Two services on one host: one leads, the other takes over when that one dies or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from controller.api.engine_commands import Setting, Write
from controller.api.events import DatabaseRead, Event, Leading, Written
from controller.ovsdb.database import Database
from tests.switch.bed import PLAIN, Bed, BedSpec, Upstream
from tests.switch.judging import few_lost, judges_time, soon
from tests.switch.service import Service
from tests.switch.test_reconnect import flows_of, groups_of
from tests.switch.traffic import FLOW_PPS, Traffic
from tests.switch.waiting import holds, stopped, wait_until
from tests.wire.fake_switch import HEADER, HELLO, NOCHANGE, ROLE, ROLE_REPLY, ROLE_REQUEST, message

SPEC = BedSpec(PLAIN, 2, (None, None, None))
TAKEOVER_MAX_S = 2.0
# The audit of who leads, and whatever one who wakes has to do, are over by then.
WAKES_S = 3.0
MOVES = "ovslbt_moves_applied_total"


@pytest.fixture(scope="module")
def pair(own: Service) -> Iterator[tuple[Service, Service]]:
    """Two services beside one Open vSwitch."""
    other = Service(own.ovs, "ovs-lbt-b")
    yield own, other
    other.kill()


@pytest.fixture(scope="module")
def bed(own: Service, tor: Upstream) -> Iterator[Bed]:
    own.start()
    with Bed(own.ovs, tor, SPEC) as made:
        own.attach(made, "--policy", "originating-port")
        yield made


@pytest.fixture
def led(bed: Bed, pair: tuple[Service, Service]) -> tuple[Service, Service]:
    """The one that leads, and the one that stands by."""
    for service in pair:
        service.start()
    wait_until(lambda: leads(pair[0]) != leads(pair[1]), "one of them leads")
    first, second = pair if leads(pair[0]) else pair[::-1]
    wait_until(lambda: leads(first) and not leads(second), "one leads, the other does not")
    first.wait_ready(bed)
    wait_until(lambda: first.name in stands_by(second), "the other knows who leads")
    return first, second


@judges_time
def test_a_leader_that_is_killed_is_followed_at_once(
    bed: Bed, led: tuple[Service, Service]
) -> None:
    leader, standby = led
    before, generation = leader.bindings(bed), last_claim(bed)
    state = flows_of(bed), groups_of(bed)
    with traffic(bed):
        leader.kill()
        took_s = taken_over(bed, standby)
        holds(lambda: leads(standby), "it leads", 1.0)
    assert standby.bindings(bed) == before
    assert standby.metric(MOVES, bridge=bed.bridge) == 0
    assert last_claim(bed) == generation + 1
    assert (flows_of(bed), groups_of(bed)) == state
    soon("taken over", took_s, TAKEOVER_MAX_S)


@judges_time
def test_a_leader_that_is_stopped_is_followed_and_writes_nothing_when_it_wakes(
    bed: Bed, led: tuple[Service, Service]
) -> None:
    leader, standby = led
    before, vm = leader.bindings(bed), bed.vms[0]
    other = next(u for u in bed.uplinks if u.name != before[vm.port])
    try:
        with traffic(bed):
            os.kill(leader.pid, signal.SIGSTOP)
            took_s = taken_over(bed, standby)
            assert standby.bindings(bed) == before
            assert standby.metric(MOVES, bridge=bed.bridge) == 0
            generation = last_claim(bed)
        # Something that the one who sleeps knows nothing of.
        standby.move(vm, other)
        wait_until(lambda: noted(bed)[vm.port] == other.name, "the move is in the database")
        state = flows_of(bed), groups_of(bed), noted(bed)
    finally:
        os.kill(leader.pid, signal.SIGCONT)
    with traffic(bed):
        wait_until(lambda: standby.name in stands_by(leader), "it sees who leads")
        unchanged = "nobody else has changed anything"
        holds(lambda: (flows_of(bed), groups_of(bed), noted(bed)) == state, unchanged, WAKES_S)
    assert leads(standby)
    assert not leads(leader)
    assert last_claim(bed) == generation, "somebody has asked to be master"
    refused = leader.command("move", vm.port, other.name)
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        f"ovs-lbt: this service is on standby; ask the service that leads: {standby.name}@"
    )
    standby.kill()
    again_s = taken_over(bed, leader)
    assert leader.bindings(bed) == {**before, vm.port: other.name}
    leader.move(vm, next(u for u in bed.uplinks if u is not other))
    soon("taken over", took_s, TAKEOVER_MAX_S)
    soon("taken over again", again_s, TAKEOVER_MAX_S)


def test_the_database_says_who_leads_at_this_moment(bed: Bed, led: tuple[Service, Service]) -> None:
    said: queue.SimpleQueue[Event] = queue.SimpleQueue()
    third = Database(f"unix:{bed.ovs.rundir}/db.sock", said.put)
    third.contend()
    assert isinstance(said.get(), DatabaseRead)
    assert said.get() == Leading(False)
    assert not third.confirmed()
    setting = Setting("Bridge", bed.bridge, "ovs-lbt-threshold", "99")
    third.write(Write((setting,), 7))
    assert said.get(timeout=60) == Written(7, "another service leads")
    for service in led:
        service.kill()
    while said.get(timeout=60) != Leading(True):
        pass
    assert third.confirmed()
    answers: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
    with stopped(bed.ovs.pid("ovsdb-server")):
        third.replica.confirm(answers.put)
        assert answers.get(timeout=60) is None
        assert third.confirmed(), "who cannot know goes on"
    assert third._link.stop(5), "it lets go of the lead"


# ---- what is seen -----------------------------------------------------------------------


def leads(service: Service) -> bool:
    return service.metric("ovslbt_leader") == 1


def stands_by(service: Service) -> str:
    """Who leads, as one says that stands by; else nothing."""
    told = json.loads(service.ask("show", "--json"))
    return str(told["leader"]) if told.get("standby") else ""


def taken_over(bed: Bed, service: Service) -> float:
    """How long it takes from now until a service serves a bridge, with all its VM ports."""
    since_s = time.monotonic()

    def serves() -> bool:
        bridges = json.loads(service.ask("show", "--json"))["bridges"]
        return any(
            b["name"] == bed.bridge and b["connected"] and all(p["uplink"] for p in b["ports"])
            for b in bridges
        )

    wait_until(serves, f"{service.name} has taken over", interval_s=0.01)
    polls = "ovslbt_stats_poll_duration_seconds_count"
    wait_until(lambda: service.metric(polls, bridge=bed.bridge) > 0, "it polls", interval_s=0.01)
    return time.monotonic() - since_s


def last_claim(bed: Bed) -> int:
    """The generation by which somebody became the bridge's master last."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(5)
        asking.connect(str(bed.ovs.rundir / f"{bed.bridge}.mgmt"))
        asked = message(ROLE_REQUEST, 2, ROLE.pack(NOCHANGE, 0))
        asking.sendall(message(HELLO, 1) + asked)
        with asking.makefile("rb") as answers:
            while True:
                _, kind, length, _ = HEADER.unpack(answers.read(HEADER.size))
                body = answers.read(length - HEADER.size)
                if kind == ROLE_REPLY:
                    return int(ROLE.unpack(body)[1])


def noted(bed: Bed) -> dict[str, str]:
    """What the database says of where VM ports are."""
    shown = bed.ovs.vsctl("--format=json", "--columns=name,external_ids", "list", "interface")
    rows = json.loads(shown)["data"]
    return {name: dict(ids[1]).get("ovs-lbt-binding", "") for name, ids in rows}


@contextlib.contextmanager
def traffic(bed: Bed) -> Iterator[None]:
    """No frame, in or out, is lost or delivered twice in this block."""
    with Traffic.of(bed) as sent:
        yield
    assert not sent.twice(), "heard twice"
    few_lost(sent.lost(), 0, FLOW_PPS)
