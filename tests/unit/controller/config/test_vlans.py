"""Sets of VLANs, and what a Port record says a port carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import (
    EVERY_VLAN,
    TRUNK,
    PortVlans,
    VlanSet,
    access,
    blocks,
    carriers,
    classes,
    port_vlans,
)

ids = st.frozensets(st.integers(0, 4095), max_size=20)
ranges = st.builds(lambda a, b: frozenset(range(a, b)), st.integers(0, 4096), st.integers(0, 4096))


@st.composite
def vlan_sets(draw: st.DrawFn) -> VlanSet:
    return VlanSet.of(*(draw(ids) | draw(ranges)))


@given(vlan_sets())
def test_blocks_match_the_vlans_of_a_set_and_no_other(vlans: VlanSet) -> None:
    matched = {v for value, mask in blocks(vlans) for v in range(4096) if v & mask == value}
    assert matched == set(vlans)


@pytest.mark.parametrize(
    ("vlans", "number"),
    [
        (VlanSet(), 0),
        (EVERY_VLAN, 1),
        (VlanSet.of(7), 1),
        (VlanSet.of(*range(64, 128)), 1),
        (EVERY_VLAN - VlanSet.of(0), 12),
        (VlanSet.of(*range(100, 200)), 5),
    ],
    ids=str,
)
def test_ranges_take_few_blocks(vlans: VlanSet, number: int) -> None:
    assert len(blocks(vlans)) == number


@given(st.frozensets(vlan_sets(), max_size=5))
def test_classes_are_all_vlans_once_and_each_lies_in_a_set_as_a_whole(
    sets: frozenset[VlanSet],
) -> None:
    found = classes(sets)
    assert sorted(vlan for vlans in found for vlan in vlans) == list(range(4096))
    assert all(part <= vlans or not part & vlans for part in found for vlans in sets)
    assert len({tuple(part <= vlans for vlans in sets) for part in found}) == len(found)
    assert len(found[0]) == max(map(len, found))


# ---- Port records ----------------------------------------------------------------------

ZERO, TEN, TWENTY = (VlanSet.of(vlan) for vlan in (0, 10, 20))
TAGGED_ONLY = EVERY_VLAN - VlanSet.of(0)


@pytest.mark.parametrize(
    ("record", "meaning"),
    [
        ((None, None, ()), TRUNK),
        ((None, 10, ()), access(10)),
        ((None, 10, (20, 30)), access(10)),
        ((None, None, (10,)), PortVlans(TEN, None)),
        ((None, 0, ()), access(0)),
        (("trunk", None, ()), TRUNK),
        (("trunk", 10, ()), TRUNK),
        (("trunk", None, (0, 10)), PortVlans(VlanSet.of(0) | TEN)),
        (("trunk", None, range(4096)), TRUNK),
        (("trunk", None, (4095,)), PortVlans(VlanSet.of(4095), None)),
        (("access", None, ()), access(0)),
        (("access", 4095, (7,)), access(4095)),
        (("dot1q-tunnel", 10, ()), access(10)),
        (("native-untagged", 10, ()), PortVlans(TAGGED_ONLY, 10)),
        (("native-untagged", 10, (20,)), PortVlans(TEN | TWENTY, 10)),
        (("native-untagged", 10, (0, 20)), PortVlans(TEN | TWENTY, 10)),
        (("native-untagged", 10, (10, 20)), PortVlans(TEN | TWENTY, 10)),
        (("native-untagged", None, ()), PortVlans(untags=True)),
        (("native-untagged", 0, (20,)), PortVlans(ZERO | TWENTY, untags=True, not_flooded=ZERO)),
        (("native-untagged", 0, (0, 20)), PortVlans(ZERO | TWENTY, untags=True)),
        (("native-tagged", 10, ()), PortVlans(TAGGED_ONLY, 10, native_tagged=True)),
        (("native-tagged", 10, (20,)), PortVlans(TEN | TWENTY, 10, native_tagged=True)),
        (("native-tagged", None, ()), TRUNK),
        (("native-tagged", None, (20,)), PortVlans(ZERO | TWENTY, not_flooded=ZERO)),
    ],
    ids=str,
)
def test_a_port_record_means_what_it_means_to_the_switch(
    record: tuple[str | None, int | None, tuple[int, ...]], meaning: PortVlans
) -> None:
    assert port_vlans(*record) == meaning


@pytest.mark.parametrize(
    ("vlans", "forms"),
    [
        (TRUNK, {0: (0, 0), 10: (10, 10)}),
        (access(10), {10: (0, 0)}),
        (port_vlans("native-untagged", 10, ()), {10: (0, 0), 20: (20, 20)}),
        (port_vlans("native-tagged", 10, ()), {10: (0, 10), 20: (20, 20)}),
    ],
    ids=str,
)
def test_tags_in_and_out(vlans: PortVlans, forms: dict[int, tuple[int, int]]) -> None:
    assert {vlan: (vlans.tag_in(vlan), vlans.tag_out(vlan)) for vlan in forms} == forms


# ---- which uplinks carry a port's VLANs ------------------------------------------------

UPLINKS = {
    "every": TRUNK,
    "ten": port_vlans(None, None, (10,)),
    "both": port_vlans(None, None, (10, 20)),
    "untagged": access(0),
}


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (access(10), {"every", "ten", "both"}),
        (access(20), {"every", "both"}),
        (access(0), {"every", "untagged"}),
        (access(30), {"every"}),
        (port_vlans(None, None, (10, 20)), {"every", "both"}),
        (port_vlans(None, None, (10, 30)), {"every"}),
        (TRUNK, set(UPLINKS)),
        (port_vlans("native-untagged", 20, ()), {"every", "both"}),
        (port_vlans("native-tagged", 10, ()), {"every", "ten", "both"}),
        (port_vlans("native-untagged", 10, (20,)), {"every", "both"}),
    ],
)
def test_a_vm_port_may_use_the_uplinks_that_carry_its_vlans(
    port: PortVlans, expected: set[str]
) -> None:
    assert carriers(port, UPLINKS) == expected


def test_where_no_uplink_carries_all_those_that_carry_some_will_do() -> None:
    uplinks = {"ten": access(10), "twenty": access(20), "thirty": access(30)}
    assert carriers(port_vlans(None, None, (10, 20)), uplinks) == {"ten", "twenty"}
    native = port_vlans("native-untagged", 10, (20,))
    assert carriers(native, uplinks) == {"ten"}, "without its native VLAN an uplink is no use"
