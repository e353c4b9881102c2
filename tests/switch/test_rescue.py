"""A host of plain uplinks whose service cannot start gets its network by one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Upstream
from tests.switch.service import Service
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.test_reconnect import flows_of
from tests.switch.waiting import wait_until

SPEC = BedSpec(PLAIN, 3, (None, None, 10))
OUTSIDER = "02:ee:00:00:00:01"
RESCUE_COOKIE = "0x6c62740400000000"


@pytest.fixture
def dark(own: Service, tor: Upstream) -> Iterator[Bed]:
    """An attached bridge after a boot in which the service did not start."""
    own.start()
    with Bed(own.ovs, tor, SPEC) as bed:
        own.attach(bed, "--policy", "originating-port")
        own.kill()
        bed.restart_switch()
        assert flows_of(bed) == set(), "the test did not make it dark"
        yield bed
        own.start()
        own.do("detach", bed.bridge)


def test_one_uplink_and_all_vm_ports_forward_and_nothing_loops(dark: Bed, own: Service) -> None:
    assert forwarded_by(dark) == {}
    said = own.do("rescue", "--all")
    first, *others = dark.uplinks
    cut_off = ", ".join(u.name for u in others)
    assert said == f"{dark.bridge}: NORMAL forwards on {first.name}; disconnected: {cut_off}\n"
    check_by(dark, 0)


def test_the_first_uplink_with_a_link_is_chosen_and_may_be_chosen_anew(
    dark: Bed, own: Service
) -> None:
    """Also where the bridge speaks OpenFlow 1.3 only, which does not know `no-flood`."""
    dark.ovs.vsctl("set", "bridge", dark.bridge, "protocols=OpenFlow13")
    own.do("rescue", dark.bridge)
    with dark.cable_pulled(dark.uplinks[0]):
        own.do("rescue", dark.bridge)
        check_by(dark, 1)
    assert dark.ovs.vsctl("get", "bridge", dark.bridge, "protocols") == "[OpenFlow13]"


def test_the_service_takes_the_bridge_back(dark: Bed, own: Service) -> None:
    own.do("rescue", dark.bridge)
    assert dark.not_flooded() == {u.name for u in dark.uplinks[1:]}
    own.start()
    own.wait_ready(dark)
    wait_until(lambda: RESCUE_COOKIE not in "".join(flows_of(dark)), "the rescue's flows are gone")
    wait_until(lambda: dark.not_flooded() == set(), "no uplink is kept from flooding any more")
    dark.introduce()
    check_everything(dark, settled_homes(dark))


def test_a_rescued_bridge_is_given_back_without_a_trace(dark: Bed, own: Service) -> None:
    own.do("rescue", dark.bridge)
    own.do("detach", dark.bridge)
    assert (flows_of(dark), dark.not_flooded()) == (set(), set())
    own.start()
    own.attach(dark, "--policy", "originating-port")


def test_what_needs_no_rescue_is_left_alone(own: Service, tor: Upstream) -> None:
    own.start()
    with Bed(own.ovs, tor, SPEC) as plain, Bed(own.ovs, tor, BedSpec(BALANCE_SLB, 2)) as bond:
        own.attach(plain)
        own.attach(bond)
        refused(own, plain.bridge, "ovs-lbt: the service is running; ")
        own.kill()
        before = [flows_of(plain), flows_of(bond)]
        refused(
            own,
            plain.bridge,
            f"ovs-lbt: bridge {plain.bridge} needs no rescue: the ovs-lbt flows are installed",
        )
        refused(
            own,
            bond.bridge,
            f"ovs-lbt: bridge {bond.bridge} needs no rescue: NORMAL forwards on its bond",
        )
        refused(own, "nobridge", "ovs-lbt: no bridge is named nobridge")
        assert own.command("rescue", "--all").returncode == 0
        assert [flows_of(plain), flows_of(bond)] == before
        assert own.command("rescue").returncode == 2
        own.start()


def test_vms_on_a_bond_hear_broadcasts_again(own: Service, tor: Upstream) -> None:
    """Another program has set and removed a controller, and with that all flows, but not the flags of ports."""

    def lose_flows(bed: Bed) -> None:
        own.ovs.vsctl("set-controller", bed.bridge, "tcp:127.0.0.1:1")
        wait_until(lambda: not bed.ofctl("dump-flows").count("NORMAL"), "the flows are gone")
        own.ovs.vsctl("del-controller", bed.bridge)
        wait_until(lambda: "NORMAL" in bed.ofctl("dump-flows"), "NORMAL forwards")
        bed.introduce_to_normal()

    def hear(bed: Bed) -> set[str]:
        return set(bed.comes_out(bed.frame_of(bed.hosts[0])))

    own.start()
    with Bed(own.ovs, tor, BedSpec(BALANCE_SLB, 2)) as bond:
        everybody = {str(station) for station in bond.stations}
        lose_flows(bond)
        assert hear(bond) == everybody
        own.attach(bond)
        own.kill()
        lose_flows(bond)
        assert hear(bond) == set()
        done = f"{bond.bridge}: NORMAL forwards on the bond, and floods to {len(everybody)} VM ports again\n"
        assert own.do("rescue", bond.bridge) == done
        assert hear(bond) == everybody
        refused(
            own,
            bond.bridge,
            f"ovs-lbt: bridge {bond.bridge} needs no rescue: NORMAL forwards on its bond",
        )
        own.start()
        own.wait_ready(bond)
        own.do("detach", bond.bridge)


# ---- what comes out where ----------------------------------------------------------------


def forwarded_by(bed: Bed) -> dict[str, list[str]]:
    """The uplinks by which a broadcast of each VM leaves, of those that do."""
    return {name: by for name, by in bed.homes().items() if by}


def check_by(bed: Bed, number: int) -> None:
    """All stations speak and hear by one uplink; no frame comes back, or in by another one."""
    one = bed.uplinks[number]
    # Frames of before have left flows behind in the switch's cache.
    bed.revalidated()
    assert bed.homes() == {str(s): [one.name] for s in bed.stations}
    shots = {
        bed.shot(u.upstream_end, build, OUTSIDER, vlan, vlan, kind): u is one
        for u in bed.uplinks
        if bed.carrier(u)
        for kind, build in {**frames.FLOODED, **frames.ANNOUNCEMENTS}.items()
        for vlan in (0, 10)
    }
    copies = bed.fire(list(shots))
    for shot, goes_in in shots.items():
        heard = [str(s) for s in bed.stations if s.hears(shot.vlan)] if goes_in else []
        assert copies[shot.frame_id].points == sorted(heard), f"{shot.story} in VLAN {shot.vlan}"
    vm, other = bed.vms[:2]
    to_other = bed.shot(vm.point, frames.to(other.mac), vm.mac, 10, 10, "to a VM")

    def reached() -> list[str]:
        bed.introduce()
        return bed.fire([to_other])[to_other.frame_id].points

    wait_until(lambda: reached() == [str(other)], "a VM that is known gets its frames alone")


def refused(own: Service, bridge: str, beginning: str) -> None:
    done = own.command("rescue", bridge)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(beginning) and done.stderr.count("\n") == 1, done.stderr
