"""Desired against installed: nothing more than the difference, in an order that is safe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane.diff import changes, closing
from controller.dataplane.flooding import is_held
from controller.dataplane.pipeline import build
from controller.dataplane.specs import (
    EMPTY,
    Bucket,
    Changes,
    FlowSpec,
    GroupSpec,
    Output,
    Pipeline,
    ToGroup,
)
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort


def pipeline(*specs: FlowSpec | GroupSpec) -> Pipeline:
    flows = {s.key: s for s in specs if isinstance(s, FlowSpec)}
    groups = {s.group_id: s for s in specs if isinstance(s, GroupSpec)}
    return Pipeline(flows, groups)


def flow(in_port: int, *actions: Output | ToGroup, priority: int = 10) -> FlowSpec:
    return FlowSpec(0, priority, (("in_port", in_port),), actions)


def group(number: int, *ports: int) -> GroupSpec:
    return GroupSpec(number, "all", tuple(Bucket((Output(port),)) for port in ports))


def test_what_is_as_it_should_be_costs_nothing() -> None:
    same = pipeline(flow(1, Output(2)), group(1, 2))
    assert not changes(same, same)
    assert len(changes(same, same)) == 0


def test_an_empty_switch_gets_everything() -> None:
    made = changes(pipeline(flow(1, ToGroup(1)), group(1, 2)), EMPTY)
    assert made == Changes(add_groups=(group(1, 2),), add_flows=(flow(1, ToGroup(1)),))
    assert len(made) == 2


def test_nothing_wanted_takes_everything_away() -> None:
    made = changes(EMPTY, pipeline(flow(1, ToGroup(1)), group(1, 2)))
    assert made == Changes(delete_groups=(1,), clear=True), (
        "and what the switch has learned meanwhile"
    )


def test_a_group_that_differs_is_modified_in_place() -> None:
    assert changes(pipeline(group(1, 2)), pipeline(group(1, 3))) == Changes(
        modify_groups=(group(1, 2),)
    )


def test_a_flow_that_differs_is_overwritten_not_deleted() -> None:
    made = changes(pipeline(flow(1, Output(2))), pipeline(flow(1, Output(3))))
    assert made == Changes(add_flows=(flow(1, Output(2)),))


def test_a_flow_of_another_priority_is_another_flow() -> None:
    old, new = flow(1, priority=10), flow(1, priority=20)
    assert changes(pipeline(new), pipeline(old)) == Changes(add_flows=(new,), delete_flows=(old,))


def test_one_flow_that_is_missing_is_all_that_is_added() -> None:
    whole = [flow(i, Output(9)) for i in range(20)]
    made = changes(pipeline(*whole), pipeline(*whole[:7], *whole[8:]))
    assert made == Changes(add_flows=(whole[7],))


SPECS = st.lists(
    st.builds(flow, st.integers(1, 4), st.builds(Output, st.integers(1, 3)))
    | st.builds(group, st.integers(1, 4), st.integers(1, 3)),
    max_size=8,
).map(lambda specs: pipeline(*specs))


@given(desired=SPECS, installed=SPECS)
def test_applying_the_changes_makes_the_switch_as_desired(
    desired: Pipeline, installed: Pipeline
) -> None:
    made = changes(desired, installed)
    groups, flows = dict(installed.groups), dict(installed.flows)
    for one in made.add_groups:
        assert one.group_id not in groups, "a switch refuses a group that exists"
        groups[one.group_id] = one
    for one in made.modify_groups:
        assert one.group_id in groups, "a switch refuses to modify what it has not"
        groups[one.group_id] = one
    for spec in made.add_flows:
        flows[spec.key] = spec
    for spec in made.delete_flows:
        del flows[spec.key]
    if made.clear:
        flows.clear()
    for group_id in made.delete_groups:
        del groups[group_id]
    assert Pipeline(flows, groups) == desired
    specs = [*desired.flows, *desired.groups, *installed.flows, *installed.groups]
    assert len(made) <= len(specs) + made.clear
    assert made.clear == (desired == EMPTY and bool(installed.flows))


MOVED, FROM, TO = OfPort(10), OfPort(1), OfPort(2)


def after_a_move(live: set[int]) -> tuple[Pipeline, Pipeline]:
    """The first step of a move, and what is desired."""
    uplinks = (FROM, TO)
    before = build(Team(uplinks, (VmPort(MOVED, uplinks),)))
    desired = build(Team(uplinks, (VmPort(MOVED, uplinks[::-1]),)))
    return closing(desired, before, live), desired


def test_the_first_step_of_a_move_keeps_the_new_way_closed() -> None:
    first, desired = after_a_move({FROM, TO})
    held = [flow for flow in first.flows.values() if is_held(flow)]
    assert len(held) == 1 and first.groups == desired.groups
    assert closing(desired, first, {FROM, TO}) == desired


def test_after_a_failure_the_way_that_the_switch_has_opened_stays_open() -> None:
    """With a second step, broadcasts would be lost once more, 30 ms after the switch failed over."""
    first, desired = after_a_move({TO})
    assert first == desired
