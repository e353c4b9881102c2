"""An uplink that returns carries VMs when a frame has arrived on it; one that spanning tree blocks carries none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from tests.said import says
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Uplink, Upstream, run
from tests.switch.path_faults import checking
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from topologies.network.private_ovs import PrivateOvs

FAILBACK_DELAY_S = 1
# Long enough for several polls after the failback delay.
STAYS_AWAY_S = 4.0


@pytest.fixture(params=[BALANCE_SLB, PLAIN])
def placed(
    request: pytest.FixtureRequest, ovs: PrivateOvs, tor: Upstream, service: Service
) -> Iterator[Bed]:
    """A bed with a VM on each uplink."""
    with Bed(ovs, tor, BedSpec(request.param, 2)) as made:
        made.set("bridge", made.bridge, failback_delay_s=FAILBACK_DELAY_S)
        with service.attached(made, "--policy", "originating-port"):
            service.place(made, 0, 1)
            yield made


def make_anew(bed: Bed, uplink: Uplink) -> None:
    """Make an uplink's device anew, as a driver does. At the other end of its cable is nothing then."""
    end = uplink.upstream_end
    at, netns = end.interface, str(end.netns)
    bed.tor.ovs.vsctl("del-port", bed.upstream, at)
    run("ip", "link", "del", uplink.name)
    wait_until(lambda: not bed.carrier(uplink), "the switch knows that it is gone")
    run("ip", "link", "add", uplink.name, "type", "veth", "peer", "name", at, "netns", netns)
    bed._silence(uplink.name)
    run("ip", "link", "set", uplink.name, "up")
    run("ip", "-n", netns, "link", "set", at, "up")
    wait_until(lambda: bed.carrier(uplink), "its link is back")


def arrived(bed: Bed) -> int:
    """How many frames arrive of those that the host sends to each VM, and each VM to the host."""
    (host,) = bed.hosts
    pairs = [pair for vm in bed.vms for pair in ((vm, host), (host, vm))]
    with bed.ears(host.point, *(vm.point for vm in bed.vms)) as ears:
        shots = []
        for sender, receiver in pairs:
            frame_id = next(bed._ids)
            bed.send(sender.point, frames.plain(sender.mac, receiver.mac, 0, frame_id))
            shots.append((str(receiver), frame_id))
        bed.fence()
        ears.until_quiet()
        heard = {(name, f.frame_id) for name, ear in ears.by_name.items() for f in ear.frames()}
        return sum(shot in heard for shot in shots)


def waits(service: Service, bed: Bed, uplink: Uplink) -> str:
    """Why an uplink carries nothing, as `show --json` says."""
    shown = service.show_json(bed.bridge)["uplinks"]
    (found,) = (one for one in shown if one["name"] == uplink.name)
    return str(found.get("waits", ""))


def on(service: Service, bed: Bed) -> list[str]:
    bound = service.bindings(bed)
    return [bound[vm.port] for vm in bed.vms]


@pytest.mark.parametrize("checks", [False, True], ids=["", "path-check"])
def test_vms_return_when_a_frame_has_arrived(placed: Bed, service: Service, checks: bool) -> None:
    bed, (first, second) = placed, placed.uplinks
    with checking(service, bed) if checks else contextlib.nullcontext():
        make_anew(bed, first)

        def away() -> bool:
            return arrived(bed) == 4 and on(service, bed) == [second.name] * 2

        wait_until(lambda: away() and waits(service, bed, first), "it is shown why it waits")
        holds(away, "VMs stay away", STAYS_AWAY_S)
        checked = service.command("check")
        assert checked.returncode != 0 and says(checked.stdout, first.name, "received")
        assert says(service.do("show", bed.bridge), first.name, "received")
        bed.tor.ovs.vsctl("add-port", bed.upstream, first.upstream_end.interface)
        wait_until(lambda: on(service, bed) == [first.name, second.name], "VMs return")
        assert not waits(service, bed, first)
        # By a device that was made anew, Open vSwitch 3.1 receives broadcasts only; so does NORMAL.
        homes = {str(vm): [up.name] for vm, up in zip(bed.vms, bed.uplinks, strict=True)}
        wait_until(lambda: homes.items() <= bed.homes().items(), "their frames leave as before")


@pytest.mark.parametrize("placed", [PLAIN], indirect=True)
def test_an_uplink_that_spanning_tree_blocks_carries_nothing(placed: Bed, service: Service) -> None:
    """Without ovs-lbt, NORMAL forwards by the other uplink."""
    bed, (first, second) = placed, placed.uplinks
    bridges = (bed.tor.ovs, bed.upstream, 0x1000), (bed.ovs, bed.bridge, 0x8000)
    for switch, bridge, priority in bridges:
        switch.vsctl(
            "set", "bridge", bridge, "rstp_enable=true", f"other_config:rstp-priority={priority}"
        )

    def blocked() -> list[Uplink]:
        return [u for u in bed.uplinks if "spanning tree" in waits(service, bed, u)]

    wait_until(lambda: arrived(bed) == 4 and len(blocked()) == 1, "one uplink is blocked")
    (down,) = blocked()
    (up,) = (uplink for uplink in bed.uplinks if uplink != down)
    wait_until(lambda: on(service, bed) == [up.name] * 2, "VMs leave it")
    assert arrived(bed) == 4, "VMs have no network"
    assert service.metric("ovslbt_uplink_up", bridge=bed.bridge, uplink=down.name) == 0
    assert says(service.do("show", bed.bridge), down.name, "blocked")
    found = service.command("check", bed.bridge).stdout
    assert says(found, down.name, "spanning tree")
    (proposed,) = re.findall(
        r"ovs-vsctl (set bridge \S+ rstp_enable=false stp_enable=false)", found
    )
    bed.ovs.vsctl(*proposed.split())
    wait_until(lambda: on(service, bed) == [first.name, second.name], "VMs return")
    assert arrived(bed) == 4
