"""The bench of `shift`: a load jump on one uplink, an uplink failure, and single moves."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from topologies import layouts
from topologies.compare.expectation import (
    Expectation,
    against_peers,
    at_most,
    better,
    is_ours,
    is_peer,
    none,
)
from topologies.compare.figures import Figures, Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.failure_load import NEAR_RATIO, FailureLoad
from topologies.loads.load import Load, Stage
from topologies.loads.move_load import MoveLoad
from topologies.loads.shift_load import Rates, ShiftLoad

CONTENDERS = ("manual", "load-based", "adaptive", "balance-slb", "balance-slb/1s")
# Contenders for moves on command. A move is the same under every policy, and this policy makes no moves.
MOVED = ("originating-port", "balance-slb")
JUMP, MOVES, FULL_MOVES = "load jump", "moves", "moves off a full uplink"
FAILURE, EQUAL_FAILURE = "an uplink fails", "one of equal uplinks fails"
# Together with the streams of the moved VM, this exceeds the uplink's capacity.
BUSY_RATIO = 0.8
EVEN_RATIO, HOT_RATIO, COLD_RATIO = 0.10, 0.29, 0.04
OURS, PEER = "adaptive", "balance-slb/1s"
MOST_SETTLE_S = 1.0
MOST_LOSS_RATIO = 0.001
MOST_MOVES = 4
# The speeds of three uplinks, of which the last fails. The twelve VMs send 70 % of the remaining
# capacity.
FAILURE_SPEEDS_MBPS = {FAILURE: (100, 50, 50), EQUAL_FAILURE: (75, 75, 75)}
FAILURE_RATES_MBPS = (18, 15, 13, 12, 11, 9, 7, 6, 5, 4, 3, 2)
MOST_RESTORE_S = 5.0


def scenarios(options: Options) -> list[Scenario]:
    """The load jump, the uplink failure, and moves off an idle and off a full uplink."""
    layout = layouts.shift()
    speed_bps = layout.capacity_bps(layout.nodes(Role.UPLINK)[0])
    rates = Rates(EVEN_RATIO * speed_bps, HOT_RATIO * speed_bps, COLD_RATIO * speed_bps)
    longest_wait_s, watched_s = options.pace.shift_s
    return [
        Scenario(
            name=JUMP,
            what=f"Each of eight VMs sends {EVEN_RATIO:.0%} of an uplink's speed. Then the four VMs of"
            f" one uplink send {HOT_RATIO:.0%} and the others {COLD_RATIO:.0%}. Losses and"
            f" reordering are measured for {watched_s:.0f} s after the jump, which is also the time"
            " of a contender that does not settle.",
            layout=layout,
            load=functools.partial(
                ShiftLoad, rates=rates, max_wait_s=longest_wait_s, watched_s=watched_s
            ),
            contenders=CONTENDERS,
        ),
        *(_failure(name, speeds, options) for name, speeds in FAILURE_SPEEDS_MBPS.items()),
        *(
            Scenario(
                name=name,
                what="A VM with TCP streams and datagrams in both directions is moved back and forth"
                f" {options.pace.moves} times, with ovs-lbt move or bond/migrate. {more}",
                layout=layout,
                load=functools.partial(
                    MoveLoad,
                    moves=options.pace.moves,
                    interval_s=options.pace.move_s,
                    busy_bps=busy_ratio * speed_bps,
                ),
                contenders=MOVED,
            )
            for name, busy_ratio, more in (
                (MOVES, 0.0, "Calm is a span of the same length without moves."),
                (
                    FULL_MOVES,
                    BUSY_RATIO,
                    f"Another VM sends {BUSY_RATIO:.0%} on one uplink. The figures are of the moves off"
                    " that uplink.",
                ),
            )
        ),
    ]


def _failure(name: str, speeds_mbps: tuple[int, int, int], options: Options) -> Scenario:
    fast_mbps, _, slow_mbps = speeds_mbps
    mixed = layouts.mixed_speed(
        slow_uplinks=2, vms=len(FAILURE_RATES_MBPS), uplink_mbps=fast_mbps, slow_mbps=slow_mbps
    )
    layout = Layout("shift", mixed.graph)
    longest_wait_s, watched_s = options.pace.failure_s

    def load(stage: Stage) -> Load:
        return FailureLoad(
            stage,
            [mbps * 1e6 for mbps in FAILURE_RATES_MBPS],
            stage.layout.nodes(Role.UPLINK)[-1],
            stable_s=options.pace.still_s,
            max_wait_s=longest_wait_s,
            watched_s=watched_s,
        )

    return Scenario(
        name=name,
        what=f"Twelve VMs send between {min(FAILURE_RATES_MBPS)} and {max(FAILURE_RATES_MBPS)}"
        f" Mbit/s on uplinks of {', '.join(map(str, speeds_mbps))} Mbit/s. One uplink of"
        f" {slow_mbps} Mbit/s loses its carrier. No loss: the time after which everything arrives."
        f" Placed: the time after which no uplink has more than {NEAR_RATIO:.1f} times the"
        " total load over the remaining capacity. A contender that does not get there has the"
        f" {watched_s:.0f} s that are watched.",
        layout=layout,
        load=load,
        contenders=CONTENDERS[1:],
    )


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """`adaptive` settles soon, with few moves and little loss, and sooner than the fastest bond."""
    found: list[Expectation] = []
    for result in results:
        contenders = result.medians()
        if result.scenario.name == JUMP:
            found += _settled(contenders)
            found += against_peers(result.scenario.name, contenders)
        elif result.scenario.name in FAILURE_SPEEDS_MBPS:
            found += _restored(result.scenario.name, contenders)
        else:
            found += _harmless(result.scenario.name, contenders)
    return found


def _settled(contenders: Mapping[str, Figures]) -> list[Expectation]:
    """The conditions on the load jump, for medians of the runs."""
    if OURS not in contenders:
        return []
    ours = contenders[OURS]
    limits = (
        (f"settled within {MOST_SETTLE_S:.1f} s", "settle_s", MOST_SETTLE_S, "{:.2f} s"),
        (
            f"at most {MOST_LOSS_RATIO:.1%} of the packets lost",
            "loss_ratio",
            MOST_LOSS_RATIO,
            "{:.3%}",
        ),
        (f"at most {MOST_MOVES} moves", "moves", MOST_MOVES, "{:g}"),
    )
    found = [
        at_most(f"{OURS}: {what}", ours[name], most, shown) for what, name, most, shown in limits
    ]
    if PEER in contenders:
        peer = contenders[PEER]
        found += [
            better(f"{OURS}: {what} than {PEER}", ours[name], peer[name], shown, or_equal=or_equal)
            for what, name, shown, or_equal in (
                ("settled sooner", "settle_s", "{:.2f} s", False),
                ("fewer packets lost", "loss_ratio", "{:.3%}", False),
                ("no more moves", "moves", "{:g}", True),
            )
        ]
    return found


def _restored(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """The conditions on the uplink failure, for medians of the runs."""
    if OURS not in contenders:
        return []
    ours_s = contenders[OURS]["restored_s"]
    what = f"nothing lost and placed by capacity within {MOST_RESTORE_S:.1f} s"
    return [
        at_most(f"{scenario}, {OURS}: {what}", ours_s, MOST_RESTORE_S, "{:.2f} s"),
        *(
            better(
                f"{scenario}, {OURS}: sooner than {peer}",
                *(ours_s, contenders[peer]["restored_s"], "{:.2f} s"),
            )
            for peer in filter(is_peer, contenders)
        ),
    ]


def _harmless(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Expect a move of our policies to cost TCP no more than a move of a bond."""
    found = []
    for name, ours in contenders.items():
        if not is_ours(name):
            continue
        found.append(none(f"{scenario}, {name}: no duplicates", {"": ours["duplicated"]}))
        again = "retransmissions_per_move"
        found += [
            better(
                f"{scenario}, {name}: no more retransmissions per move than {peer}",
                *(ours[again], contenders[peer][again], "{:.2f}"),
                or_equal=True,
            )
            for peer in filter(is_peer, contenders)
        ]
    return found


def draw(results: Sequence[Result], directory: Path) -> list[Path]:
    """Draw each contender's uplinks around the load jump and around the failure."""
    from topologies.reports import pictures  # needs matplotlib, which is optional

    paths: list[Path] = []
    for result in results:
        if result.scenario.name == JUMP:
            paths += pictures.around(result, directory, "shift", "load jump")
        elif result.scenario.name == FAILURE:
            paths += pictures.around(result, directory, "failure", "failure")
    return paths


PLAN = Plan(scenarios, expectations, draw=draw, real_time=True, campaign_runs=5)
