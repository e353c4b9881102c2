"""Which uplink is at fault where frames between uplinks are lost."""

from __future__ import annotations

from itertools import permutations

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


def cut(uplink: str) -> PathFault:
    return PathFault(Fault.UNREACHABLE, (uplink,))


def test_nothing_is_at_fault_while_all_probes_arrive() -> None:
    assert faults(THREE, [passage(THREE), passage(THREE, mtu=1500)]) == frozenset()


def test_of_three_the_one_that_reaches_no_other_is_at_fault() -> None:
    assert faults(THREE, [passage(THREE, "ab", "ba", "ac", "ca")]) == {cut("a")}


def test_a_link_that_only_sends_is_at_fault() -> None:
    assert faults(THREE, [passage(THREE, "ba", "ca")]) == {cut("a")}


def test_of_two_it_cannot_be_known_without_a_host() -> None:
    found = faults(TWO, [passage(TWO, "ab")])
    assert found == {PathFault(Fault.UNREACHABLE, TWO, decided=False)}


def test_of_two_the_one_by_which_no_host_answers_is_at_fault() -> None:
    lost = passage(TWO, "ab", "ba", reaches={"a": False, "b": True})
    assert faults(TWO, [lost]) == {cut("a")}


def test_a_host_that_answers_nobody_decides_nothing() -> None:
    lost = passage(TWO, "ab", "ba", reaches={"a": False, "b": False})
    assert faults(TWO, [lost]) == {PathFault(Fault.UNREACHABLE, TWO, decided=False)}


def test_a_host_is_believed_before_the_majority() -> None:
    """Two uplinks of one switch that has lost its own uplink hear each other."""
    reaches = {"a": False, "b": False, "c": True}
    lost = passage(THREE, "ac", "ca", "bc", "cb", reaches=reaches)
    assert faults(THREE, [lost]) == {cut("a"), cut("b")}


def test_two_halves_of_a_network_are_not_told_apart() -> None:
    lost = [x + y for x, y in permutations(FOUR, 2) if (x in "ab") != (y in "ab")]
    found = faults(FOUR, [passage(FOUR, *lost)])
    assert found == {PathFault(Fault.UNREACHABLE, FOUR, decided=False)}


def test_a_vlan_that_one_lacks_is_its_fault_alone() -> None:
    lost = passage(THREE, "ab", "ba", "ac", "ca", vlan=20)
    expected = PathFault(Fault.VLAN, ("a",), vlan=20)
    assert faults(THREE, [passage(THREE, vlan=10), lost]) == {expected}


def test_who_loses_everything_is_not_told_of_each_vlan_too() -> None:
    lost = ["ab", "ba", "ac", "ca"]
    passages = [passage(THREE, *lost, vlan=vlan, mtu=mtu) for vlan in (10, 20) for mtu in (0, 1500)]
    assert faults(THREE, passages) == {cut("a")}


def test_an_mtu_is_at_fault_where_short_frames_pass() -> None:
    lost = passage(TWO, "ab", "ba", mtu=9000, reaches={"a": True, "b": False})
    expected = PathFault(Fault.MTU, ("b",), vlan=0, mtu=9000)
    assert faults(TWO, [passage(TWO), lost]) == {expected}


@given(
    st.sets(st.sampled_from([x + y for x, y in permutations(FOUR, 2)])),
    st.none() | st.fixed_dictionaries({name: st.booleans() for name in FOUR}),
)
def test_one_uplink_at_least_is_never_at_fault(
    lost: set[str], reaches: dict[str, bool] | None
) -> None:
    found = faults(FOUR, [passage(FOUR, *lost, reaches=reaches)])
    assert {fault.uplinks[0] for fault in found if fault.decided} < set(FOUR)
