"""VMs and a host upstream that reach each other."""

from __future__ import annotations

from collections.abc import Sequence

from tests.switch import frames
from tests.switch.bed import Bed, Shot, Station


def all_are_reached(
    bed: Bed, vms: Sequence[Station], *more: str, flooded: frames.Builder = frames.broadcast
) -> None:
    """They reach each other and the host both ways, by one copy; what is flooded reaches `more` points, too."""
    host = bed.hosts[0]
    # Each frame, the points here where it should come out, and how often it should leave.
    wanted: list[tuple[Shot, list[str], int]] = []
    for vm in vms:
        others = [other for other in vms if other is not vm]
        wanted += [(bed.frame_of(vm, frames.to(one.mac)), [str(one)], 0) for one in others]
        wanted.append((bed.frame_of(host, frames.to(vm.mac)), [str(vm)], 0))
        wanted.append((bed.frame_of(vm, frames.to(host.mac)), [], 1))
        wanted.append((bed.frame_of(vm, flooded), [*map(str, others), *more], 1))
    wanted.append((bed.frame_of(host, flooded), [*map(str, vms), *more], 0))
    copies = bed.fire([shot for shot, _, _ in wanted])
    wrong = []
    for shot, here, leaves in wanted:
        points = copies[shot.frame_id].points
        inside = sorted(point for point in points if point not in bed.ends)
        if (inside, len(points) - len(inside)) != (sorted(here), leaves):
            wrong.append(f"{shot.story}: came out at {points}, expected {here} and {leaves} left")
    assert not wrong, "\n".join(wrong)
