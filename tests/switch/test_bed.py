"""What tests with frames rest on: doubled and leaked frames are seen, and a LAG is one link."""

from __future__ import annotations

from tests.switch import frames
from tests.switch.bed import PLAIN, STATIC_LAG, Bed, BedSpec, on_beds

LAG = BedSpec(STATIC_LAG, uplinks=3, vm_vlans=(None,))


@on_beds(BedSpec(PLAIN, uplinks=1, vm_vlans=(10, 10, 20), host_vlans=(None, 10)))
def test_sees_duplicates_reflections_and_leaks(bed: Bed) -> None:
    vm, uplink = bed.vms[0], bed.uplinks[0]
    bed.ofctl("add-flow", f"actions={vm.port},{vm.port},{bed.vms[2].port},in_port")
    bed.revalidated()
    shot = bed.shot(uplink.upstream_end, frames.broadcast, "02:ee:00:00:00:01", 10, 10, "one")
    (copies,) = bed.fire([shot]).values()
    assert copies.at == {("vm0", 10): 2, ("vm2", 10): 1, (str(uplink.upstream_end), 10): 1}


@on_beds(LAG)
def test_a_static_lag_is_one_link_to_the_upstream_switch(bed: Bed) -> None:
    """One copy of everything comes down, by several members; what goes up comes back by none."""
    vm, host = bed.vms[0], bed.hosts[0]
    up = f"in_port={vm.port},actions=output:{bed.uplinks[0].name}"
    # What comes by an uplink gets its number as a VLAN, so that it can be told.
    down = [
        f"in_port={u.name},actions=mod_vlan_vid:{i},output:{vm.port}"
        for i, u in enumerate(bed.uplinks, 1)
    ]
    for flow in (up, *down):
        bed.ofctl("add-flow", flow)

    def members_used() -> set[int]:
        builds = [*frames.FLOODED.values(), *([frames.unknown_unicast] * 20)]
        shots = [bed.shot(host.point, b, host.mac, 0, 0, "down") for b in builds]
        copies = [c.at for c in bed.fire(shots).values()]
        assert all(sum(at.values()) == 1 for at in copies), f"not one copy: {copies}"
        return {tag for at in copies for _, tag in at}

    assert members_used() == {1, 2, 3}
    with bed.cable_pulled(bed.uplinks[1]):
        # The upstream switch, too, has seen it.
        bed.revalidated()
        assert members_used() == {1, 3}
    shots = [bed.shot(vm.point, b, vm.mac, 0, 0, "up") for b in frames.FLOODED.values()]
    for shot, copies in zip(shots, bed.fire(shots).values(), strict=True):
        assert copies.at == {(str(bed.uplinks[0].upstream_end), 0): 1}, shot.story
