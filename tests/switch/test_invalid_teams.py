"""A configuration without a valid team: the last valid one stays in force, also after a restart.

And the commands that messages propose in such a state work there, and lead out of it.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.switch.bed import BALANCE_SLB, LACP, PLAIN, Bed, BedSpec, Upstream, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until

# By what was sent: where copies of it came out.
Delivered = Mapping[str, list[str]]
# A proposed command that changes something.
PROPOSED = re.compile(r"(ovs-(?:vsctl (?!list-)|lbt )[^;]+)")


def second_bond(bed: Bed, upstream: str = "") -> None:
    members = [new_cable(bed, number, upstream or bed.upstream) for number in (7, 8)]
    bed.ovs.vsctl("add-bond", bed.bridge, f"{bed.prefix}b2", *members, "bond_mode=balance-slb")


def shrunk(bed: Bed) -> None:
    bed.ovs.vsctl("del-bond-iface", bed.bond, bed.uplinks[1].name)


def renamed_member(bed: Bed) -> None:
    """An uplink gets another name, as a kernel or a card's new driver gives it."""
    shrunk(bed)
    bed.ovs.vsctl("add-port", bed.bridge, rename(bed))


def renamed_and_added(bed: Bed) -> None:
    """The old name stays in the bond, beside the new one."""
    bed.ovs.vsctl("add-bond-iface", bed.bond, rename(bed))


def listed_and_renamed(bed: Bed) -> None:
    """The same, with uplinks that are listed in their order."""
    names = ",".join(uplink.name for uplink in bed.uplinks)
    bed.ovs.vsctl("set", "bridge", bed.bridge, f'external_ids:ovs-lbt-uplinks="{names}"')
    renamed_and_added(bed)


def renamed_uplink(bed: Bed) -> None:
    bed.ovs.vsctl("del-port", bed.bridge, bed.uplinks[1].name)
    bed.ovs.vsctl("add-port", bed.bridge, rename(bed))


def renamed_behind_the_switch(bed: Bed) -> None:
    """Its record stays, without a device."""
    bed.ovs.vsctl("add-port", bed.bridge, rename(bed))


def rename(bed: Bed) -> str:
    old, new = bed.uplinks[1].name, f"{bed.prefix}n1"
    run("ip", "link", "set", old, "down")
    run("ip", "link", "set", old, "name", new, "up")
    bed._links.append((new, None))
    return new


def new_cable(bed: Bed, number: int, upstream: str) -> str:
    """One more link to an upstream switch."""
    name, end = f"{bed.prefix}u{number}", f"{bed.prefix}t{number}"
    run("ip", "link", "add", name, "type", "veth", "peer", end, "netns", bed.tor.netns)
    bed._links.append((name, None))
    bed._silence(name)
    run("ip", "link", "set", name, "up")
    run("ip", "-n", bed.tor.netns, "link", "set", end, "up")
    bed.tor.ovs.vsctl("add-port", upstream, end)
    return name


CASES: dict[str, tuple[str, Callable[[Bed], None]]] = {
    "a second bond": (BALANCE_SLB, second_bond),
    "a second bond, LACP": (LACP, second_bond),
    "one member left": (BALANCE_SLB, shrunk),
    "one member left, LACP": (LACP, shrunk),
    "a member renamed": (BALANCE_SLB, renamed_member),
    "an uplink renamed": (PLAIN, renamed_uplink),
    "an uplink renamed, its record stays": (PLAIN, renamed_behind_the_switch),
    "a bond beside plain uplinks": (PLAIN, second_bond),
}


@contextlib.contextmanager
def attached(own: Service, tor: Upstream, team: str) -> Iterator[Bed]:
    own.start()
    with Bed(own.ovs, tor, BedSpec(team, 2, (None, None))) as bed:
        bed.set("bridge", bed.bridge, failback_delay_s=0)
        if bed.spec.on_bond:
            bed.introduce_to_normal()
            assert each_once(bed, delivered(bed)), "NORMAL alone"
        own.attach(bed, "--policy", "originating-port")
        yield bed
        own.start()
        own.do("detach", bed.bridge)
        assert "ovs-lbt" not in bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids")


def delivered(bed: Bed) -> Delivered:
    """Where broadcasts come out: those of each VM, and one from the network."""
    shots = {str(station): bed.frame_of(station) for station in (*bed.vms, *bed.hosts)}
    copies = bed.fire(list(shots.values()))
    return {name: copies[shot.frame_id].points for name, shot in shots.items()}


def each_once(bed: Bed, found: Delivered) -> bool:
    """Whether each VM got each broadcast once, and one copy left for the network."""
    vms = {str(vm) for vm in bed.vms}
    for sent, at in found.items():
        left = [point for point in at if point.startswith("upstream end")]
        once = len(at) == len(set(at)) and set(at) & vms == vms - {sent}
        if not once or len(left) != (sent in vms):
            return False
    return True


def never_twice(bed: Bed) -> Delivered:
    found = delivered(bed)
    assert all(len(at) == len(set(at)) for at in found.values()), found
    return found


def errors(own: Service, bed: Bed) -> list[str]:
    found: list[str] = own.show_json(bed.bridge)["config_errors"]
    return found


def restart(own: Service, bed: Bed) -> None:
    own.terminate()
    own.start()
    own.wait_ready(bed)
    bed.settled()


def follow(own: Service, bed: Bed) -> None:
    """Run the first command of a message, after which there are fewer messages."""
    told = errors(own, bed)
    command = next(found[1] for text in told if (found := PROPOSED.search(text)))
    bed.ovs.run(*shlex.split(command))
    wait_until(lambda: len(errors(own, bed)) < len(told), f"{command} ends an error")


@pytest.mark.parametrize("case", CASES)
def test_the_last_valid_team_outlives_a_restart_and_the_proposed_commands_lead_back(
    own: Service, tor: Upstream, case: str
) -> None:
    team, breaks = CASES[case]
    with attached(own, tor, team) as bed:
        breaks(bed)
        wait_until(lambda: PROPOSED.search(str(errors(own, bed))), "a command is proposed")
        bed.settled()
        # LACP begins anew on a port that is a bond no longer.
        wait_until(lambda: each_once(bed, never_twice(bed)), "each broadcast arrives")
        before, told = delivered(bed), errors(own, bed)
        restart(own, bed)
        assert delivered(bed) == before
        assert errors(own, bed) == told
        for _ in range(3):
            if errors(own, bed):
                follow(own, bed)
                wait_until(lambda: own.show_json(bed.bridge)["uplinks"], "there are uplinks")
        wait_until(lambda: own.command("check", bed.bridge).returncode == 0, "check is content")
        assert errors(own, bed) == []
        if bed.spec.has_lacp:
            wait_until(bed.lacp_is_negotiated, "LACP is negotiated again")
        up = [uplink["up"] for uplink in own.show_json(bed.bridge)["uplinks"]]
        assert up == [True, True]
        bed.settled()
        found, vms = never_twice(bed), {str(vm) for vm in bed.vms}
        # The second uplink may have another name.
        assert all(vms - {sent} == set(at) & vms for sent, at in found.items()), found
