"""Open vSwitch is restarted or upgraded under traffic: hardly more is lost than with a bond of its own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.switch import datapath
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Upstream, upstream_ovs
from tests.switch.judging import OUTAGE_S, at_most, judges_time, repetitions
from tests.switch.service import Service
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.test_reconnect import flows_of, groups_of
from tests.switch.traffic import FLOW_PPS, Traffic
from tests.switch.waiting import wait_until
from tests.switch.wire import inside

RUNS_IN_BENCH = 5
BOND = BedSpec(BALANCE_SLB, 2, (None, None))
OURS = (BedSpec(PLAIN, 2, (None, None)), BOND)
MODULE = Path("/sys/module/openvswitch")
OVS_SAVE = "/usr/share/openvswitch/scripts/ovs-save"
# Frames of each flow before Open vSwitch stops, and after it forwards again.
FRAMES_BEFORE, FRAMES_AFTER = 100, 500
# Of the bond's median. Both wait for the same daemons; runs of one team differ by more.
LOST_MORE_MAX_RATIO = 1.2


def restart(bed: Bed) -> None:
    """As `systemctl restart ovs-vswitchd` does: no flow is saved."""
    bed.ovs.stop("ovs-vswitchd")
    start_switch(bed)


def upgrade(bed: Bed, meanwhile: Callable[[], None] = lambda: None) -> None:
    """As `ovs-ctl restart` does, in the same order: the database first, and flows are saved and restored."""
    saved = save_and_stop(bed)
    restore_flows(bed, saved, meanwhile)


def reload_module(bed: Bed) -> None:
    """As `ovs-ctl force-reload-kmod` does. Where others may use the module, only the datapath is new."""
    saved = save_and_stop(bed)
    bed.ovs.run("ovs-dpctl", "del-dp", "system@ovs-system")
    if datapath.MODULE_IS_OURS:
        bed.ovs.run("rmmod", "openvswitch")
        assert not MODULE.exists()
        bed.ovs.run("modprobe", "openvswitch")
    restore_flows(bed, saved)


WAYS = [restart, upgrade, *([reload_module] if datapath.NAME == "kernel" else [])]


@pytest.fixture
def upstream(tor: Upstream, way: Callable[[Bed], None]) -> Iterator[Upstream]:
    """The switch upstream: in userspace where the module is reloaded, which it would use otherwise."""
    if way.__name__ != "reload_module":
        yield tor
        return
    with upstream_ovs("usr", datapath.USERSPACE_SETTING) as made:
        yield made
    if datapath.MODULE_IS_OURS:
        # An ovs-vswitchd asks a module that was loaded anew by numbers of the one before, in vain.
        tor.ovs.stop("ovs-vswitchd")
        with inside(tor.netns):
            tor.ovs.start_switch()


@judges_time
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_hardly_more_is_lost_than_with_a_bond(
    own: Service, upstream: Upstream, way: Callable[[Bed], None]
) -> None:
    """Afterwards, flows, groups and bindings are as before, and everything arrives once."""
    own.start()
    lost: dict[str, list[int]] = {"balance-slb": []}
    for _ in range(repetitions(1, RUNS_IN_BENCH)):
        with Bed(own.ovs, upstream, BOND) as bond:
            bond.introduce()
            lost["balance-slb"].append(most_lost(bond, way))
        for spec in OURS:
            with Bed(own.ovs, upstream, spec) as bed:
                own.attach(bed, "--policy", "originating-port")
                for who, count in lost_by_ours(own, bed, way):
                    lost.setdefault(f"{spec.team}, {who}", []).append(count)
                bed.introduce()
                check_everything(bed, settled_homes(bed))
                own.do("detach", bed.bridge)
    by_bond, outage = statistics.median(lost["balance-slb"]), OUTAGE_S * FLOW_PPS
    for who, runs in lost.items():
        what = f"frames lost of one flow, {way.__name__}, {who}"
        print(f"{what}: {runs}")
        at_most(what, statistics.median(runs), by_bond * LOST_MORE_MAX_RATIO, outage, runs)


def test_the_service_leaves_a_bridge_alone_until_its_flows_are_restored(
    own: Service, tor: Upstream
) -> None:
    """Otherwise Open vSwitch's scripts would add groups that exist, and give up."""
    own.start()
    with Bed(own.ovs, tor, BOND) as bed:
        own.attach(bed, "--policy", "originating-port")
        before = own.bindings(bed), flows_of(bed), groups_of(bed)

        def is_left_alone() -> None:
            wait_until(lambda: "flow-restore-wait" in own.do("show", bed.bridge), "show says so")
            refused = f"{bed.bridge}: Open vSwitch is waiting for its scripts to restore the flows"
            wait_until(lambda: refused in own.log.read_text(), "the service has tried to connect")
            assert groups_of(bed) == {}

        upgrade(bed, is_left_alone)
        bed.local_is_new()
        own.wait_ready(bed)
        assert "flow-restore-wait" not in own.do("show", bed.bridge)
        assert (own.bindings(bed), flows_of(bed), groups_of(bed)) == before
        own.do("detach", bed.bridge)


def test_a_group_that_selects_by_dp_hash_has_its_method_again(own: Service, tor: Upstream) -> None:
    """Open vSwitch's scripts save groups in OpenFlow 1.4, which does not have the method."""
    own.start()
    with Bed(own.ovs, tor, BOND) as bed:
        own.attach(bed, "--policy", "dynamic")
        bed.set("bridge", bed.bridge, connection_hash="dp_hash")
        wait_until(lambda: selects_by_dp_hash(bed), "the group is there")
        upgrade(bed)
        bed.local_is_new()
        own.wait_ready(bed)
        wait_until(lambda: selects_by_dp_hash(bed), "the group has its method again")
        with own.dead():
            upgrade(bed)
            bed.local_is_new()
            assert not selects_by_dp_hash(bed), (
                "the scripts save more: say so in docs/guide/upgrade.md"
            )
        own.wait_ready(bed)
        wait_until(lambda: selects_by_dp_hash(bed), "the service gives it back")
        own.do("detach", bed.bridge)


def selects_by_dp_hash(bed: Bed) -> bool:
    groups = bed.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "dump-groups", bed.bridge)
    return "selection_method=dp_hash" in groups


def lost_by_ours(
    service: Service, bed: Bed, way: Callable[[Bed], None]
) -> Iterator[tuple[str, int]]:
    """What is lost with the service, and without it where the switch can forward then."""
    before = service.bindings(bed), flows_of(bed), groups_of(bed)
    yield "service alive", most_lost(bed, way)
    service.wait_ready(bed)
    assert (service.bindings(bed), flows_of(bed), groups_of(bed)) == before
    # Plain uplinks without their flows would be a loop: the bridge forwards nothing then.
    if bed.spec.on_bond or way is not restart:
        with service.dead():
            yield "service dead", most_lost(bed, way)
            if way is not restart:
                assert (flows_of(bed), groups_of(bed)) == before[1:], "without the service"
        service.wait_ready(bed)
        assert (service.bindings(bed), flows_of(bed), groups_of(bed)) == before


def most_lost(bed: Bed, way: Callable[[Bed], None]) -> int:
    """Frames lost of the flow that lost most, between each VM and the host, both ways."""
    with Traffic.of(bed) as traffic:
        traffic.go_on(FRAMES_BEFORE)
        way(bed)
        traffic.go_on(FRAMES_AFTER)
    bed.local_is_new()
    assert not traffic.twice()
    return max(traffic.lost().values(), default=0)


def save_and_stop(bed: Bed) -> str:
    """The script that restores flows and groups, made by Open vSwitch's own. Only the database runs then."""
    script = bed.ovs.run("sh", OVS_SAVE, "save-flows", bed.bridge)
    bed.ovs.stop("ovsdb-server")
    bed.ovs.start_database()
    bed.ovs.stop("ovs-vswitchd")
    return script


def restore_flows(bed: Bed, script: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """`meanwhile` is called when the switch is there and waits for its flows."""
    waiting = "other_config:flow-restore-wait=true"
    bed.ovs.vsctl("--no-wait", "set", "open_vswitch", ".", waiting)
    start_switch(bed)
    meanwhile()
    # Not only its status: the script ends with another command.
    said = bed.ovs.run("sh", "-c", f"{{\n{script}\n}} 2>&1")
    assert said == "", said
    bed.ovs.vsctl("remove", "open_vswitch", ".", "other_config", "flow-restore-wait")


def start_switch(bed: Bed) -> None:
    """Return when the bridges are configured, as ovs-vswitchd does when it detaches."""
    bed.ovs.start_switch()
    socket = bed.ovs.rundir / f"{bed.bridge}.mgmt"
    wait_until(socket.is_socket, f"{bed.bridge} is back", interval_s=0.002)
