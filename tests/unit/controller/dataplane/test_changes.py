"""Desired against installed: nothing more than the difference, in an order that is safe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane.flooding import is_held
from controller.dataplane.pipeline import build, changes, closing
from controller.dataplane.specs import (
    EMPTY,
    Bucket,
    Changes,
    FlowSpec,
    GroupSpec,
    Output,
    Pipeline,
)
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort


def pipeline(*specs: FlowSpec | GroupSpec) -> Pipeline:
    flows = {s.key: s for s in specs if isinstance(s, FlowSpec)}
    groups = {s.group_id: s for s in specs if isinstance(s, GroupSpec)}
    return Pipeline(flows, groups)


def flow(in_port: int, *actions: Output, priority: int) -> FlowSpec:
    return FlowSpec(0, priority, (("in_port", in_port),), actions)


def group(number: int, *ports: int) -> GroupSpec:
    return GroupSpec(number, "all", tuple(Bucket((Output(port),)) for port in ports))


FLOWS = st.builds(
    flow, st.integers(1, 4), st.builds(Output, st.integers(1, 3)), priority=st.sampled_from((1, 2))
)
SPECS = st.lists(
    FLOWS | st.builds(group, st.integers(1, 4), st.integers(1, 3)),
    max_size=8,
).map(lambda specs: pipeline(*specs))


@given(desired=SPECS, installed=SPECS)
def test_applying_the_changes_makes_the_switch_as_desired_and_none_is_too_many(
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
    if desired == EMPTY:
        # All of our flows go, and what the switch has learned meanwhile.
        assert made == Changes(delete_groups=tuple(installed.groups), clear=bool(installed.flows))
    else:
        wanted, there = ({**p.flows, **p.groups} for p in (desired, installed))
        assert len(made) == sum(wanted.get(k) != there.get(k) for k in wanted.keys() | there.keys())


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
