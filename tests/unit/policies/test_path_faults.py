"""Which uplink is at fault where frames between uplinks are lost."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.path_faults import Fault, Passage, PathFault, faults

TWO, THREE, FOUR = ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")


def passage(
    uplinks: tuple[str, ...],
    *lost: str,
    vlan: int = 0,
    mtu: int = 0,
    reaches: dict[str, bool] | None = None,
) -> Passage:
    """`lost`: pairs that lose frames, as "ab" for those from a to b."""
    passes = {(x, y): f"{x}{y}" not in lost for x, y in permutations(uplinks, 2)}
    return Passage(vlan, mtu, passes, reaches or {})


def undecided(*uplinks: str) -> PathFault:
    return PathFault(Fault.UNREACHABLE, uplinks, decided=False)


A, B = (PathFault(Fault.UNREACHABLE, (uplink,)) for uplink in "ab")
# Which hosts answer by which uplinks.
ONLY_B, NOBODY = {"a": False, "b": True}, {"a": False, "b": False}
HALVES = [x + y for x, y in permutations(FOUR, 2) if (x in "ab") != (y in "ab")]
CUT_A = ("ab", "ba", "ac", "ca")
CASES: dict[str, tuple[list[Passage], set[PathFault]]] = {
    "all probes arrive": ([passage(THREE), passage(THREE, mtu=1500)], set()),
    "one of three reaches no other": ([passage(THREE, *CUT_A)], {A}),
    "one of three only sends": ([passage(THREE, "ba", "ca")], {A}),
    "of two, it cannot be known without a host": ([passage(TWO, "ab")], {undecided(*TWO)}),
    "no host answers by one of two": ([passage(TWO, "ab", "ba", reaches=ONLY_B)], {A}),
    "a host that answers nobody decides nothing": (
        [passage(TWO, "ab", "ba", reaches=NOBODY)],
        {undecided(*TWO)},
    ),
    # Two uplinks of one switch that has lost its own uplink hear each other.
    "a host is believed before the majority": (
        [passage(THREE, "ac", "ca", "bc", "cb", reaches={**NOBODY, "c": True})],
        {A, B},
    ),
    "two halves of a network": ([passage(FOUR, *HALVES)], {undecided(*FOUR)}),
    "a VLAN that one lacks": (
        [passage(THREE, vlan=10), *(passage(THREE, *CUT_A, vlan=20, mtu=m) for m in (0, 1500))],
        {PathFault(Fault.VLAN, ("a",), vlan=20)},
    ),
    "who loses everything is not told of each VLAN, too": (
        [passage(THREE, *CUT_A, vlan=vlan, mtu=mtu) for vlan in (10, 20) for mtu in (0, 1500)],
        {A},
    ),
    "an MTU where short frames pass": (
        [passage(TWO), passage(TWO, "ab", "ba", mtu=9000, reaches={"a": True, "b": False})],
        {PathFault(Fault.MTU, ("b",), vlan=0, mtu=9000)},
    ),
}


@pytest.mark.parametrize(("passages", "found"), CASES.values(), ids=CASES)
def test_who_is_at_fault(passages: list[Passage], found: set[PathFault]) -> None:
    uplinks = {uplink: None for pair in passages[0].passes for uplink in pair}
    assert faults(tuple(uplinks), passages) == found


@given(
    st.sets(st.sampled_from([x + y for x, y in permutations(FOUR, 2)])),
    st.none() | st.fixed_dictionaries({name: st.booleans() for name in FOUR}),
)
def test_one_uplink_at_least_is_never_at_fault(
    lost: set[str], reaches: dict[str, bool] | None
) -> None:
    found = faults(FOUR, [passage(FOUR, *lost, reaches=reaches)])
    assert {fault.uplinks[0] for fault in found if fault.decided} < set(FOUR)
