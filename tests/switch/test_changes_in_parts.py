"""The messages of a bundle are harmless one by one: a frame leaves once whichever of them are in force.

Open vSwitch may make the messages of a bundle visible one after another (`controller/openflow/commands.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.dataplane.pipeline import build
from controller.dataplane.team import Team
from policies.classifiers import Classifier
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.direct import Direct
from tests.switch.frames import ETH_IPV4, UDP
from tests.switch.test_hashing import install, number, team_of
from tests.switch.trace import outputs

CONNECTIONS = 8
OUTSIDER = "02:ee:00:00:00:03"


def whole(team: Team) -> Team:
    """The same team whose VM ports are not split."""
    ports = tuple(replace(port, hashed=None) for port in team.vm_ports)
    return replace(team, vm_ports=ports, hashes=(), off_home_macs={})


def moved(team: Team) -> Team:
    """The same team, each VM port and bucket on the next uplink of its order."""
    ports = tuple(replace(p, order=(*p.order[1:], p.order[0])) for p in team.vm_ports)
    hashes = tuple(
        replace(one, buckets=tuple((*order[1:], order[0]) for order in one.buckets))
        for one in team.hashes
    )
    return replace(team, vm_ports=ports, hashes=hashes)


def leaving(bed: Bed) -> Iterator[tuple[str, list[str]]]:
    """By which ports frames of some connections of each VM leave."""
    for vm in bed.vms:
        port = str(number(bed, vm.port))
        for n in range(CONNECTIONS):
            # In the order in which Open vSwitch reads them: what a field needs comes before it.
            way: dict[str, str | int] = {"dl_src": vm.mac, "dl_dst": OUTSIDER, "eth_type": ETH_IPV4}
            way |= {"nw_proto": UDP, "nw_src": vm.ip, "nw_dst": f"198.51.100.{n}"}
            yield f"{vm}, connection {n}", outputs(bed.ovs, bed.bridge, port, **way)


@on_beds(BedSpec(PLAIN, 3, (None, None), addresses=True))
def test_a_frame_leaves_once_whatever_part_of_a_change_is_in_force(
    bed: Bed, direct: Direct
) -> None:
    split = team_of(bed, Classifier.TRANSPORT)
    steps = {
        "split": build(split),
        "move while split": build(moved(split)),
        "merge": build(whole(moved(split))),
        "move": build(whole(split)),
    }
    install(bed, direct, whole(split))
    uplinks = {uplink.name for uplink in bed.uplinks}
    for step, desired in steps.items():
        kinds = list[str]()
        for kind in direct.install_in_parts(desired):
            kinds.append(kind)
            for frame, left_by in leaving(bed):
                assert len(uplinks & {*left_by}) == 1, f"{step}, after {kinds}: {frame}: {left_by}"
        assert kinds, f"{step} changes nothing"
