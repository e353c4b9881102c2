"""VMware's load-based teaming, rule by rule, on the numbers its authors published."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import failover
from policies.model import Load, Move, OfPort, Plan, Reason, Role, Rules, Snapshot, Unit, Uplink
from policies.planners.threshold import relieve_saturated, rest, verdict
from policies.verdicts import Rest, Standing, Verdict, WhyAtRest
from tests.unit.policies.units import changed

GBPS = 1e9


def uplink(name: str, capacity_gbps: float = 10, **fields: object) -> Uplink:
    return replace(Uplink(name, OfPort(int(name[-1])), capacity_gbps * GBPS), **fields)  # type: ignore[arg-type]


def sending(name: str, on: str, gbps: float, **fields: object) -> Unit:
    unit = Unit(name, 100, uplink=on, load=Load(tx_bps=gbps * GBPS))
    return changed(unit, **fields)


def receiving(name: str, on: str, gbps: float) -> Unit:
    return sending(name, on, 0, load=Load(rx_bps=gbps * GBPS))


def team(*members: Uplink | Unit, threshold_ratio: float = 0.75) -> Snapshot:
    """A team whose uplinks carry what their VM ports exchange."""
    uplinks = tuple(m for m in members if isinstance(m, Uplink))
    units = tuple(m for m in members if isinstance(m, Unit))
    return carrying(Snapshot(uplinks, units, threshold_ratio))


def carrying(snapshot: Snapshot) -> Snapshot:
    def loaded(one: Uplink) -> Uplink:
        loads = [unit.load for unit in snapshot.units if unit.uplink == one.name]
        return replace(one, load=sum(loads, one.load))

    return replace(snapshot, uplinks=tuple(map(loaded, snapshot.uplinks)))


def after(snapshot: Snapshot, move: Move) -> Snapshot:
    """The team once a move is made and loads have stayed as they were."""
    moved = next(unit for unit in snapshot.units if unit.name == move.unit)
    change = {move.source: Load() - moved.load, move.target: moved.load}
    return replace(
        snapshot,
        uplinks=tuple(
            replace(u, load=u.load + change.get(u.name, Load())) for u in snapshot.uplinks
        ),
        units=tuple(
            replace(u, uplink=move.target) if u.name == move.unit else u for u in snapshot.units
        ),
    )


# ---- which port, in which direction, to which uplink -------------------------------------

TWO = (uplink("eth1"), uplink("eth2"))
PAIR = (sending("vm1", "eth1", 4), sending("vm2", "eth1", 4))
KEPT = (sending("pinned", "eth1", 4, pin="eth1"), sending("excluded", "eth1", 4, excluded=True))
HELD = sending("vm2", "eth1", 4, allowed=frozenset({"eth1"}))
STUCK = Plan(unrelieved=("eth1",))


def loaded(name: str, tx_gbps: float, rx_gbps: float = 0, capacity_gbps: float = 10) -> Uplink:
    """An uplink with traffic of no VM port."""
    return uplink(name, capacity_gbps, load=Load(tx_gbps * GBPS, rx_gbps * GBPS))


def moved(unit: str, target: str, source: str = "eth1", unrelieved: tuple[str, ...] = ()) -> Plan:
    return Plan((Move(unit, source, target, Reason.THRESHOLD),), unrelieved)


CASES = {
    "only where it is allowed": (
        team(
            *(*TWO, loaded("eth3", 1), HELD),
            sending("vm1", "eth1", 5, allowed=frozenset({"eth1", "eth3"})),
        ),
        moved("vm1", "eth3"),
    ),
    "nowhere if it is allowed nowhere else": (team(loaded("eth1", 5), uplink("eth2"), HELD), STUCK),
    "the busiest that fits": (
        team(
            *(uplink("eth1"), loaded("eth2", 5), sending("big", "eth1", 4)),
            *(sending("middle", "eth1", 2.4), sending("small", "eth1", 2)),
        ),
        moved("middle", "eth2"),
    ),
    "of equal ones the first by name": (
        team(*TWO, *(sending(name, "eth1", 2) for name in ("vm3", "vm1", "vm2", "vm4"))),
        moved("vm1", "eth2"),
    ),
    "one that is alone, if another uplink can take it": (
        team(uplink("eth1"), uplink("eth2", 40), sending("vm1", "eth1", 8)),
        moved("vm1", "eth2"),
    ),
    "neither a pinned nor an excluded one": (team(*TWO, *KEPT), STUCK),
    "a free one beside them": (
        team(*TWO, *KEPT, sending("free", "eth1", 0.1)),
        moved("free", "eth2"),
    ),
    "no idle one, as that would help nobody": (
        team(loaded("eth1", 9), uplink("eth2"), sending("idle", "eth1", 0)),
        STUCK,
    ),
    "for received traffic alone": (
        team(*TWO, *(receiving(f"vm{i}", "eth1", 2) for i in range(4))),
        moved("vm0", "eth2"),
    ),
    "by the direction that is saturated": (
        team(
            *(*TWO, receiving("server", "eth1", 5)),
            *(sending("backup-1", "eth1", 4.4), sending("backup-2", "eth1", 4.5)),
        ),
        moved("backup-2", "eth2"),
    ),
    "none that loads only the other direction": (
        team(*TWO, sending("held", "eth1", 8, pin="eth1"), receiving("server", "eth1", 5)),
        STUCK,
    ),
    "within the threshold in both directions": (
        team(
            *(uplink("eth1"), loaded("eth2", 0, 3.6), loaded("eth3", 3.5, 3.5)),
            Unit("vm1", 5, uplink="eth1", load=Load(tx_bps=4 * GBPS, rx_bps=4 * GBPS)),
            sending("vm2", "eth1", 4),
        ),
        moved("vm1", "eth3"),
    ),
    "up to the threshold exactly": (
        team(uplink("eth1"), loaded("eth2", 3.5), *PAIR),
        moved("vm1", "eth2"),
    ),
    "not beyond it": (team(uplink("eth1"), loaded("eth2", 3.51), *PAIR), STUCK),
    # 8 Gbit/s are too much for 10 and little for 40; 3 of 40 is emptier than 1 of 10.
    "by shares of capacity": (
        team(uplink("eth1"), loaded("eth2", 1), loaded("eth3", 3, capacity_gbps=40), *PAIR),
        moved("vm1", "eth3"),
    ),
    "of equally good targets to the first by name": (
        team(
            *(uplink("eth3"), uplink("eth2"), uplink("eth1")),
            *(sending("vm1", "eth3", 4), sending("vm2", "eth3", 4)),
        ),
        moved("vm1", "eth1", "eth3"),
    ),
    "to no standby, drained, unused or dead uplink": (
        team(
            *(uplink("eth1"), uplink("eth9", usable=False), *PAIR),
            *(uplink(f"eth{i}", role=role) for i, role in enumerate(Role, 2) if role != "active"),
        ),
        STUCK,
    ),
    "from the most utilized that can be relieved": (
        team(
            *(*TWO, uplink("eth3"), sending("huge", "eth1", 9.5)),
            *(sending("vm1", "eth2", 4), sending("vm2", "eth2", 4)),
        ),
        moved("vm1", "eth3", "eth2", unrelieved=("eth1",)),
    ),
    "by all traffic, also that of no VM port": (
        team(loaded("eth1", 7), uplink("eth2"), sending("vm1", "eth1", 0.6)),
        moved("vm1", "eth2"),
    ),
    "what nobody accounts for holds no port well below it": (
        team(loaded("eth1", 3), uplink("eth2"), sending("vm1", "eth1", 6)),
        moved("vm1", "eth2"),
    ),
}


@pytest.mark.parametrize(("crowded", "plan"), CASES.values(), ids=CASES)
def test_the_move_that_relieves(crowded: Snapshot, plan: Plan) -> None:
    assert relieve_saturated(crowded) == plan


def test_a_port_that_is_counted_late_is_not_moved_in_vain() -> None:
    alone = team(uplink("eth1"), uplink("eth2"), sending("vm1", "eth1", 8))
    late = replace(alone, units=(sending("vm1", "eth1", 7),))
    assert relieve_saturated(late) == Plan(unrelieved=("eth1",))
    assert verdict(late, "vm1") == Verdict(Standing.NO_ROOM, None, {"eth2": 0.8})


# ---- what stands against a move --------------------------------------------------------


def test_each_rule_that_keeps_a_port_says_so() -> None:
    crowded = team(
        uplink("eth1"),
        uplink("eth2", load=Load(tx_bps=4 * GBPS)),
        sending("big", "eth1", 4),
        sending("fits", "eth1", 3),
        sending("small", "eth1", 2),
        sending("idle", "eth1", 0.01),
        sending("pinned", "eth1", 2, pin="eth1"),
        sending("elsewhere", "eth2", 0.5),
    )
    made = Move("fits", "eth1", "eth2", Reason.THRESHOLD)
    assert {unit.name: verdict(crowded, unit.name) for unit in crowded.units} == {
        "big": Verdict(Standing.NO_ROOM, None, {"eth2": 0.85}),
        "fits": Verdict(Standing.MOVES, made, {"eth2": 0.75}),
        "small": Verdict(Standing.LATER, made, {"eth2": 0.65}),
        "idle": Verdict(Standing.TOO_SMALL, None, {"eth2": 0.451}),
        "pinned": Verdict(Standing.HELD),
        "elsewhere": Verdict(Standing.BELOW, None, {"eth1": 1.151}),
    }


def test_a_team_at_rest_says_why() -> None:
    quiet = team(uplink("eth1"), uplink("eth2"), sending("vm1", "eth2", 3))
    assert rest(quiet) == Rest(WhyAtRest.BELOW, "eth2")
    stuck = team(uplink("eth1"), uplink("eth2"), sending("vm1", "eth2", 9))
    assert rest(stuck) == Rest(WhyAtRest.UNRELIEVED, "eth2", unrelieved=("eth2",))
    assert rest(Snapshot((), ())) == Rest(WhyAtRest.BELOW)


# ---- whatever the loads ----------------------------------------------------------------

LOADS = st.builds(
    Load,
    tx_bps=st.floats(0, 20 * GBPS, allow_subnormal=False),
    rx_bps=st.floats(0, 20 * GBPS, allow_subnormal=False),
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    names = [f"eth{i}" for i in range(draw(st.integers(2, 5)))]
    uplinks = [
        Uplink(
            name,
            OfPort(i + 1),
            draw(st.sampled_from((1, 10, 25, 40))) * GBPS,
            role=draw(st.sampled_from(Role)),
            usable=draw(st.booleans()),
            load=draw(LOADS),
        )
        for i, name in enumerate(names)
    ]
    units = [
        Unit(
            f"vm{i}",
            100 + i,
            uplink=draw(st.sampled_from(names)),
            load=draw(LOADS),
            rules=Rules(pin=draw(st.none() | st.sampled_from(names))),
            excluded=draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 8)))
    ]
    return carrying(Snapshot(tuple(uplinks), tuple(units), draw(st.sampled_from((0.1, 0.75, 1)))))


@given(snapshots())
def test_at_most_one_move_from_above_the_threshold_to_what_stays_below(before: Snapshot) -> None:
    plan = relieve_saturated(before)
    assert len(plan.moves) <= 1
    for move in plan.moves:
        uplinks = {u.name: u for u in before.uplinks}
        unit = next(u for u in before.units if u.name == move.unit)
        target = {u.name: u for u in after(before, move).uplinks}[move.target]
        assert unit.movable and unit.uplink == move.source != move.target
        assert uplinks[move.source].usable
        assert uplinks[move.source].utilization_ratio > before.threshold_ratio
        assert target.name in [u.name for u in failover.in_service(before.uplinks)]
        assert target.utilization_ratio <= before.threshold_ratio


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_listed_does_not_matter(
    snapshot: Snapshot, random: Random
) -> None:
    uplinks, units = list(snapshot.uplinks), list(snapshot.units)
    random.shuffle(uplinks)
    random.shuffle(units)
    shuffled = replace(snapshot, uplinks=tuple(uplinks), units=tuple(units))
    assert relieve_saturated(shuffled) == relieve_saturated(snapshot)


@given(snapshots())
def test_fed_its_own_result_it_comes_to_rest(snapshot: Snapshot) -> None:
    moved = set()
    while (plan := relieve_saturated(snapshot)).moves:
        (move,) = plan.moves
        assert move.unit not in moved, "no port moves twice under the same load"
        moved.add(move.unit)
        snapshot = after(snapshot, move)


@given(snapshots())
def test_a_verdict_is_what_the_planner_does(snapshot: Snapshot) -> None:
    """What is said of a unit holds: also of the planner that may move nothing else."""
    first = relieve_saturated(snapshot).moves[:1]
    for unit in snapshot.units:
        said = verdict(snapshot, unit.name)
        moves_it = tuple(move for move in first if move.unit == unit.name)
        assert (said.standing is Standing.MOVES) == bool(moves_it)
        if said.standing in (Standing.MOVES, Standing.LATER):
            assert (said.move,) == first
        else:
            assert said.move is None
        alone = tuple(u if u is unit else replace(u, excluded=True) for u in snapshot.units)
        could = bool(relieve_saturated(replace(snapshot, units=alone)).moves)
        assert could == (said.standing in (Standing.MOVES, Standing.LATER))


@given(snapshots())
def test_a_team_is_at_rest_for_the_reason_it_gives(snapshot: Snapshot) -> None:
    plan, said = relieve_saturated(snapshot), rest(snapshot)
    assert said.unrelieved == plan.unrelieved
    above = [u for u in snapshot.uplinks if u.usable and u.utilization_ratio > 0]
    over = [u for u in above if u.utilization_ratio > snapshot.threshold_ratio]
    if not plan.moves:
        assert (said.why is WhyAtRest.BELOW) == (not over)
