"""Whatever is restarted, stopped or damaged: nothing is lost for good, nothing moves."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator

import pytest

from controller.api.engine_commands import Setting, Write
from controller.ovsdb.database import Database
from tests.said import says
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Upstream, on_beds, run
from tests.switch.judging import few_lost, judges_time, lost_for_want_of_room, soon
from tests.switch.service import Service
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.test_reconnect import flows_of, groups_of, installed
from tests.switch.traffic import FLOW_PPS, Traffic
from tests.switch.waiting import stopped, wait_until
from tests.switch.wire import Stream

SPECS = [BedSpec(team, 2, (None, None, None)) for team in (PLAIN, BALANCE_SLB)]
on_one_bed = on_beds(*SPECS[1:])
PIPELINE_BACK_MAX_S = 0.5
RECONNECT_MAX_S = 2.0
REFUSED_WITHIN_S = 2.0
# Three echo requests of the service's, two seconds apart, and some.
STILL_S = 7.0
# Longer than anything in the service waits. ovs-vswitchd looks for it less and less often.
AWAY_S = 4.0
COOKIE = 0x6C6274 << 40
# Of every kind that there is, and of one that is none; where they do harm and where not.
GARBAGE_FLOWS = [
    f"cookie={COOKIE:#x},table=0,priority=60000,in_port={{uplink}},actions=NORMAL",
    f"cookie={COOKIE | 1 << 32:#x},table=5,priority=77,reg0=9,actions=drop",
    f"cookie={COOKIE | 3 << 32:#x},table=1,priority=77,actions=resubmit(,3)",
    f"cookie={COOKIE | 3 << 32 | 9:#x},table=20,priority=77,reg2=7,actions=load:9->NXM_NX_REG3[]",
    f"cookie={COOKIE | 0x77 << 32:#x},table=9,priority=77,tcp,tp_dst=80,actions=ct(commit)",
    f"cookie={COOKIE | 0xFF << 32:#x},table=3,priority=7,tun_id=5,ct_state=+trk+new,actions=drop",
]
GARBAGE_GROUPS = [
    "group_id=0x6c00beef,type=select,selection_method=dp_hash,bucket=weight:7,actions=drop",
    "group_id=0x6cffffff,type=indirect,bucket=actions=set_queue:1",
]
FOREIGN_FLOW = "cookie=0xf0e1,table=200,priority=7,udp,actions=drop"
FOREIGN_GROUP = "group_id=7,type=indirect,bucket=actions=drop"


@pytest.fixture(scope="module", params=SPECS, ids=str)
def bed(request: pytest.FixtureRequest, own: Service, tor: Upstream) -> Iterator[Bed]:
    """A bed on a switch of its own, attached with a policy that moves nothing by itself."""
    own.start()
    with Bed(own.ovs, tor, request.param) as made:
        own.attach(made, "--policy", "originating-port")
        yield made
        own.start()
        # One that was without a database takes up to 8 s to look for it.
        made.restart_switch()
        own.wait_ready(made)
        own.do("detach", made.bridge)


@pytest.fixture
def service(own: Service) -> Service:
    own.start()
    return own


# ---- the service ------------------------------------------------------------------------


@judges_time
def test_a_service_that_was_killed_is_back_soon_and_new_vms_were_reached_meanwhile(
    bed: Bed, service: Service
) -> None:
    before, vm, host = service.bindings(bed), bed.vms[0], bed.hosts[0]
    newcomer = "02:1b:ff:00:00:01"
    service.kill()
    bed.fire([bed.shot(vm.point, frames.broadcast, newcomer, 0, 0, "a new address")])
    flows = [
        (host.point, frames.udp(host.mac, newcomer)),
        (vm.point, frames.udp(vm.mac, host.mac)),
    ]
    with bed.ears(host.point, *(s.point for s in bed.stations)) as ears:
        at = [ears[vm.point], ears[host.point]]
        with Stream(flows, FLOW_PPS) as stream:
            stream.more(at, 100)
            service.start()
            since_s = time.monotonic()
            service.wait_ready(bed)
            reconnected_s = time.monotonic() - since_s
            stream.more(at, 100)
            stream.stop()
            ears.until_quiet()
        lost = [stream.lost(ear, flow) for flow, ear in enumerate(at)]
        assert not stream.received(ears[bed.vms[1].point], 0), "flooded: nobody learned"
    assert service.bindings(bed) == before
    assert moves(service, bed) == 0
    few_lost(lost, 0, FLOW_PPS)
    soon("all bound", reconnected_s, RECONNECT_MAX_S)


@judges_time
@on_one_bed
def test_a_service_that_stands_still_for_a_while_decides_nothing_of_it(
    bed: Bed, service: Service
) -> None:
    before = service.bindings(bed)
    vm, host = bed.vms[0], bed.hosts[0]
    no_room = bed.turned_away()
    with bed.ears(host.point) as ears, Stream([(vm.point, frames.udp(vm.mac, host.mac))], 100) as s:
        with stopped(service.pid):
            wait_until(lambda: len(s.received(ears[host.point], 0)) > 100 * STILL_S, "a while")
        service.wait_ready(bed)
        s.stop()
        ears.until_quiet()
        lost_for_want_of_room(s.lost(ears[host.point], 0), bed.turned_away() - no_room, 100)
    assert service.bindings(bed) == before
    assert moves(service, bed) == 0


@pytest.mark.parametrize(
    ("bed", "state"),
    [(SPECS[0], "dead"), (SPECS[0], "alive"), (SPECS[1], "dead")],
    ids=str,
    indirect=["bed"],
)
def test_damage_is_repaired_and_what_is_others_stays(
    bed: Bed, service: Service, state: str
) -> None:
    bed.ofctl("add-flow", FOREIGN_FLOW)
    bed.ofctl("add-group", FOREIGN_GROUP)
    flows, groups = flows_of(bed), groups_of(bed)
    with service.dead() if state == "dead" else contextlib.nullcontext():
        uplink = bed.ofport(bed.uplinks[0].name)
        for flow in GARBAGE_FLOWS:
            bed.ovs.run("ovs-ofctl", "add-flow", bed.bridge, flow.format(uplink=uplink))
        for group in GARBAGE_GROUPS:
            bed.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "add-group", bed.bridge, group)
        bed.ofctl("del-groups", f"group_id={max(g for g in groups if g >> 24 == 0x6C)}")
        bed.ofctl("del-flows", "table=9")
        assert len(flows_of(bed) - flows) >= len(GARBAGE_FLOWS) - 1, "the test left no garbage"
    wait_until(lambda: flows_of(bed) == flows, "all flows are as they were")
    wait_until(lambda: groups_of(bed) == groups, "all groups are as they were")
    bed.ofctl("del-flows", "table=200")
    bed.ofctl("del-groups", "group_id=7")


# ---- the switch -------------------------------------------------------------------------


@judges_time
def test_the_pipeline_is_back_as_soon_as_the_switch(bed: Bed, service: Service) -> None:
    before, flows = service.bindings(bed), len(installed(bed))
    took_s = []
    for _ in range(3):
        accepts_at_s = switch_started_again(bed)
        wait_until(lambda: committed(bed, flows), "the pipeline is back", interval_s=0.005)
        took_s.append(time.monotonic() - accepts_at_s)
        bed.local_is_new()
        service.wait_ready(bed)
    assert service.bindings(bed) == before
    assert moves(service, bed) == 0
    bed.introduce()
    check_everything(bed, settled_homes(bed))
    soon("the pipeline is back", sorted(took_s)[1], PIPELINE_BACK_MAX_S)


def test_ports_that_a_restart_numbers_anew_are_known_by_their_names(
    bed: Bed, service: Service
) -> None:
    before = service.bindings(bed)
    names = [bed.uplinks[0].name, bed.vms[0].port, bed.uplinks[1].name]
    old = {n: bed.ofport(n) for n in names}
    new = dict(zip(names, [old[n] for n in names[1:] + names[:1]], strict=True))
    bed.ovs.stop("ovs-vswitchd")
    for name, number in new.items():
        bed.ovs.vsctl("--no-wait", "set", "interface", name, f"ofport_request={number}")
    bed.restart_switch()
    wait_until(lambda: {n: bed.ofport(n) for n in names} == new, "the test numbers them anew")
    service.wait_ready(bed)
    bed.introduce()
    check_everything(bed, settled_homes(bed))
    assert service.bindings(bed) == before
    for name in names:
        bed.ovs.vsctl("clear", "interface", name, "ofport_request")


@judges_time
@on_one_bed
def test_without_the_service_a_restarted_bond_is_on_normal(bed: Bed, service: Service) -> None:
    """As after a boot in which the service cannot start; plain uplinks: test_rescue."""
    with service.dead():
        bed.restart_switch()
        wait_until(lambda: all(len(h) == 1 for h in bed.homes().values()), "NORMAL forwards")
        with Traffic.of(bed, bed.vms[:1]) as traffic:
            traffic.go_on()
    few_lost(traffic.lost(), 0, FLOW_PPS)
    assert not traffic.twice()
    service.wait_ready(bed)


# ---- the database -----------------------------------------------------------------------


@judges_time
@on_one_bed
def test_the_database_is_away_and_comes_back(bed: Bed, service: Service) -> None:
    """ovs-vswitchd itself does nothing meanwhile, so that nothing can be moved either."""
    before, moved = service.bindings(bed), moves(service, bed)
    bed.ovs.stop("ovsdb-server")
    try:
        since_s = time.monotonic()
        refused = service.command("set", "bridge", bed.bridge, "threshold=60")
        refused_s = time.monotonic() - since_s
        assert refused.returncode == 1
        found = "ovs-lbt: database: ovsdb-server is unreachable at unix:"
        assert says(refused.stderr, found, "; start Open vSwitch: ")
        while time.monotonic() - since_s < AWAY_S:
            assert service.metric("ovslbt_port_binding", bridge=bed.bridge) == len(before)
            assert service.bindings(bed) == before
    finally:
        bed.ovs.start_database()
    service.wait_ready(bed)
    wait_until(
        lambda: service.command("set", "bridge", bed.bridge, "threshold=60").returncode == 0,
        "the database is written again",
    )
    assert service.bindings(bed) == before
    assert moves(service, bed) == moved
    soon("refused", refused_s, REFUSED_WITHIN_S)


@on_one_bed
def test_what_nobody_waits_for_is_written_when_the_database_is_back(bed: Bed) -> None:
    """Such as bindings after a failover; the last value counts."""
    database = Database(f"unix:{bed.ovs.rundir}/db.sock", lambda _: None)
    bed.ovs.stop("ovsdb-server")
    wait_until(lambda: not database.is_current, "it is away")
    for value in ("first", "last"):
        setting = Setting("Bridge", bed.bridge, "test-key", value)
        database.write(Write((setting,)))
    bed.ovs.start_database()
    key = ["--if-exists", "get", "bridge", bed.bridge, "external_ids:test-key"]
    wait_until(lambda: bed.ovs.vsctl(*key) == "last", "the last value is written")


# ---- what happens -----------------------------------------------------------------------


def moves(service: Service, bed: Bed) -> float:
    return service.metric("ovslbt_moves_applied_total", bridge=bed.bridge)


def switch_started_again(bed: Bed) -> float:
    """ovs-vswitchd ends and starts; the time at which the bridge accepts connections."""
    bed.ovs.stop("ovs-vswitchd")
    bed.ovs.start_switch()
    path = str(bed.ovs.rundir / f"{bed.bridge}.mgmt")

    def accepts() -> bool:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(path)
            return True
        return False

    wait_until(accepts, "the bridge accepts connections", interval_s=0.001)
    return time.monotonic()


def committed(bed: Bed, flows: int) -> bool:
    """Whether everything is there, and not only what was there first; bundles are atomic."""
    socket_path = str(bed.ovs.rundir / f"{bed.bridge}.mgmt")
    shown = run("ovs-ofctl", "-O", "OpenFlow13", "dump-aggregate", socket_path)
    found = re.search(r"flow_count=(\d+)", shown)
    return found is not None and int(found[1]) >= flows
