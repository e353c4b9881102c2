"""`adaptive`: plans moves like `minmax`, and splits VM ports where moves are not enough.

A VM port is split if no placement of whole VM ports keeps uplinks from filling up, and a split is
much better. The traffic that a split VM port sends is spread over buckets. If other VM ports can
move away instead, they are moved. The planner then moves buckets to even out the sent traffic of
uplinks, which moves no address. Received traffic stays on the home uplink, so only sending counts.

Nothing is split while the fullest uplink sends `HIGH_RATIO` of its capacity or less, or if even a
perfect division would gain less than `GAIN_RATIO` of capacity or `GAIN_OF_WORST_RATIO` of the worst
utilization. A VM port that is reported as mergeable would not be split if it were whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies import failover, gain
from policies.gain import HIGH_RATIO
from policies.model import Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.outcome import sent, team_after
from policies.planners import minmax
from policies.verdicts import Verdict

# The least gain of a split: a share of capacity, and a share of the worst utilization without it.
GAIN_RATIO = 0.05
GAIN_OF_WORST_RATIO = 0.1
# A full uplink is relieved by the fewest moves that leave no uplink fuller than this.
ENOUGH_RATIO = 0.7
# If these moves leave an uplink fuller than this, the planner makes a full plan.
NEAR_RATIO = 0.9
# The price of a move: the share of the worst utilization that each must gain, to limit moves at any
# load. `policies.gain` requires a share of capacity, so that nearly idle teams are not changed.
PRICE_RATIO = 0.02
# A VM port is merged if no uplink would then send more than this,
COOL_RATIO = 0.5
# or if a split gains less than this share of what it must.
COOL_GAIN_RATIO = 0.5
# The most VM ports that are split at once.
MOST_AT_ONCE = 8


def plan(snapshot: Snapshot) -> Plan:
    """Return the moves, splits and merges, and the split VM ports that are mergeable."""
    placed = _placed(snapshot)
    left = team_after(snapshot, placed)
    mergeable, merged = _mergeable(left)
    if merged:
        return Plan(moves=(*placed, *merged), mergeable=mergeable)
    left_ratio = gain.worst_ratio(sent(left.uplinks))
    instead, besides = _divided(snapshot, left_ratio), _divided(left, left_ratio)
    least = minmax.LEAST_GAIN_OF_CAPACITY_RATIO
    if instead and (besides is None or instead.ratio - besides.ratio <= least):
        return Plan(moves=instead.moves, mergeable=mergeable)
    return Plan(moves=(*placed, *(besides.moves if besides else ())), mergeable=mergeable)


def relieve(snapshot: Snapshot) -> Plan:
    """Return few moves after which no uplink is near its capacity, or else a full plan."""
    placed = _placed(snapshot, ENOUGH_RATIO)
    if gain.worst_ratio(team_after(snapshot, placed).uplinks) <= NEAR_RATIO:
        return Plan(moves=placed)
    return plan(snapshot)


def verdict(snapshot: Snapshot, unit: str) -> Verdict:
    """Return why a VM port of the snapshot is or is not moved or split."""
    return minmax.verdict(snapshot, unit, gain.worthwhile(plan(snapshot), snapshot))


# ---- moves -----------------------------------------------------------------------------


def _placed(snapshot: Snapshot, enough_ratio: float = 0.0) -> tuple[Move, ...]:
    """Return moves: first of buckets, for sent traffic; then of all units, for both directions."""
    buckets = tuple(unit for unit in snapshot.units if unit.is_bucket)
    if not buckets:
        return minmax.plan(snapshot, enough_ratio, PRICE_RATIO).moves
    sending = replace(snapshot, uplinks=sent(snapshot.uplinks), units=buckets)
    evened = minmax.plan(sending, enough_ratio).moves
    moves = minmax.plan(team_after(snapshot, evened), enough_ratio, PRICE_RATIO).moves
    sources = {unit.name: unit.uplink for unit in snapshot.units}
    targets = {move.unit: move.target for move in (*evened, *moves)}
    return tuple(
        Move(name, str(sources[name]), target, Reason.REBALANCE)
        for name, target in sorted(targets.items())
        if sources[name] != target
    )


# ---- the gain of a split -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Division:
    """VM ports to split, and the worst utilization for sent traffic after the split."""

    moves: tuple[Move, ...]
    ratio: float


@dataclass(frozen=True, slots=True)
class _Level:
    """Load that is spread like a fluid: the utilization of the uplinks that get a share of it."""

    ratio: float
    shares: tuple[tuple[str, float], ...]


def _divided(snapshot: Snapshot, worst_ratio: float) -> _Division | None:
    """Return the fewest VM ports to split that help enough; None if no split does.

    Each is the busiest VM port on the fullest uplink. `worst_ratio`: the worst without a split.
    """
    uplinks = failover.in_service(snapshot.uplinks)
    if len(uplinks) < 2 or worst_ratio <= HIGH_RATIO:
        return None
    whole_bps, spread_bps = _sent(uplinks, snapshot.units)
    able = [u for u in snapshot.units if u.divisible and u.uplink in whole_bps]
    able.sort(key=lambda u: (-u.load.tx_bps, u.name))
    chosen: list[Unit] = []
    found = [(_fullest(uplinks, whole_bps)[0], _level(uplinks, whole_bps, spread_bps))]
    while len(chosen) < MOST_AT_ONCE:
        ratio, fullest = _fullest(uplinks, whole_bps)
        if ratio <= found[-1][1].ratio:
            break
        hottest = next((u for u in able if u.uplink == fullest and u.load.tx_bps > 0.0), None)
        if hottest is None:
            break
        able.remove(hottest)
        chosen.append(hottest)
        whole_bps[fullest] = max(0.0, whole_bps[fullest] - hottest.load.tx_bps)
        spread_bps += hottest.load.tx_bps
        level = _level(uplinks, whole_bps, spread_bps)
        found.append((_fullest(uplinks, whole_bps)[0], level))
    ratios = [max(ratio, level.ratio) for ratio, level in found]
    least = _least_gain_ratio(worst_ratio)
    fewest = next(k for k, ratio in enumerate(ratios) if ratio - min(ratios) < least)
    if not fewest or worst_ratio - ratios[fewest] < least:
        return None
    shares = found[fewest][1].shares
    moves = (_resplit(unit, Reason.SPLIT, shares) for unit in chosen[:fewest])
    return _Division(tuple(moves), ratios[fewest])


def _resplit(unit: Unit, reason: Reason, shares: tuple[tuple[str, float], ...] = ()) -> Move:
    home = str(unit.uplink)
    return Move(unit.name, home, home, reason, shares)


def _least_gain_ratio(worst_ratio: float) -> float:
    return max(GAIN_RATIO, GAIN_OF_WORST_RATIO * worst_ratio)


def _sent(uplinks: Sequence[Uplink], units: Iterable[Unit]) -> tuple[dict[str, float], float]:
    """Return the traffic that each uplink sends outside buckets, and that all buckets send."""
    whole_bps = {uplink.name: uplink.load.tx_bps for uplink in uplinks}
    spread_bps = 0.0
    for unit in units:
        if unit.is_bucket and unit.uplink in whole_bps:
            whole_bps[unit.uplink] -= unit.load.tx_bps
            spread_bps += unit.load.tx_bps
    return {name: max(0.0, bps) for name, bps in whole_bps.items()}, spread_bps


def _fullest(uplinks: Sequence[Uplink], sent_bps: Mapping[str, float]) -> tuple[float, str]:
    return max((sent_bps[u.name] / u.capacity_bps, u.name) for u in uplinks)


def _level(uplinks: Sequence[Uplink], whole_bps: Mapping[str, float], spread_bps: float) -> _Level:
    """Divide the spread load like a fluid over the emptiest uplinks, making them equally full."""
    by_ratio = sorted(uplinks, key=lambda u: (whole_bps[u.name] / u.capacity_bps, u.name))
    sent_bps = capacity_bps = level = 0.0
    for uplink in by_ratio:
        if capacity_bps and whole_bps[uplink.name] / uplink.capacity_bps >= level:
            break
        sent_bps += whole_bps[uplink.name]
        capacity_bps += uplink.capacity_bps
        level = (sent_bps + spread_bps) / capacity_bps
    if spread_bps <= 0.0:
        return _Level(0.0, ())
    added = {u.name: max(0.0, level * u.capacity_bps - whole_bps[u.name]) for u in uplinks}
    total_bps = sum(added.values()) or 1.0
    return _Level(level, tuple((name, bps / total_bps) for name, bps in added.items()))


# ---- merges ----------------------------------------------------------------------


def _mergeable(snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[Move, ...]]:
    """Return the split VM ports that could be merged without harm, and the merges to make now."""
    uplinks = failover.in_service(snapshot.uplinks)
    spread = [u for u in snapshot.units if u.spread and not u.is_bucket]
    if not spread or not uplinks:
        return (), ()
    whole_bps, spread_bps = _sent(uplinks, snapshot.units)
    now_bps = {u.name: u.load.tx_bps - whole_bps[u.name] for u in uplinks}
    mergeable: list[Unit] = []
    for unit in sorted(spread, key=lambda u: (u.spread_bps, u.name)):
        if unit.uplink not in whole_bps:
            continue
        # It is unknown which buckets carry its traffic, so assume the same share of each.
        left_bps = max(0.0, spread_bps - unit.spread_bps)
        left = left_bps / spread_bps if spread_bps else 0.0
        merged_bps = dict(whole_bps)
        merged_bps[unit.uplink] += unit.spread_bps
        sent_bps = {n: merged_bps[n] + left * max(0.0, now_bps[n]) for n in merged_bps}
        worst_ratio = _fullest(uplinks, sent_bps)[0]
        divided = _level(uplinks, whole_bps, spread_bps).ratio
        gain = worst_ratio - max(divided, _fullest(uplinks, whole_bps)[0])
        if worst_ratio > COOL_RATIO and gain > COOL_GAIN_RATIO * _least_gain_ratio(worst_ratio):
            continue
        mergeable.append(unit)
        if unit.merge_due:
            whole_bps, spread_bps = merged_bps, left_bps
            now_bps = {name: left * bps for name, bps in now_bps.items()}
    merged = tuple(_resplit(unit, Reason.MERGE) for unit in mergeable if unit.merge_due)
    return tuple(unit.name for unit in mergeable), merged
