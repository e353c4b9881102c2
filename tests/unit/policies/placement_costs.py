"""What placements cost, counted plainly: what searches for the best one are held against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from policies.model import Rules
from policies.seating import Candidate, exactly

NAMES = ("eth0", "eth1", "eth2")
SETS = st.sampled_from([None, "A", "B", "C"])
AFFINE = st.sampled_from([None, None, "X", "Y"])
NOTHING = st.just(0.0)

Cost = tuple[int, int, int, int, int]
# With what uplinks promise beyond their room before all else, in thousandths of bit/s.
CostWithReservations = tuple[int, int, int, int, int, int]


@st.composite
def candidates(
    draw: st.DrawFn, most: int, reserves_bps: st.SearchStrategy[float] = NOTHING
) -> list[Candidate]:
    """Units with rules of all kinds."""
    found = []
    for number in range(draw(st.integers(1, most))):
        able = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)))
        ranks = tuple(draw(st.integers(0, 2)) for _ in able)
        current = draw(st.sampled_from([None, *NAMES]))
        together, apart, reserve_bps = draw(AFFINE), draw(SETS), draw(reserves_bps)
        rules = Rules(affinity=together, anti_affinity=apart, reserve_bps=reserve_bps)
        found.append(Candidate(f"vm{number}", able, ranks, current, rules))
    return found


def cost(candidates: Iterable[Candidate], placement: Mapping[str, str]) -> Cost:
    """What a placement of all units costs; less is better.

    Members away from their affinity set, pairs of an anti-affinity set on one uplink, ranks of
    preferences, units moved, and how far down the policy's own order each is.
    """
    candidates = list(candidates)
    together: dict[str, list[str]] = defaultdict(list)
    apart: dict[str, list[str]] = defaultdict(list)
    for candidate in candidates:
        if candidate.rules.affinity is not None:
            together[candidate.rules.affinity].append(placement[candidate.name])
        if candidate.rules.anti_affinity is not None:
            apart[candidate.rules.anti_affinity].append(placement[candidate.name])
    chosen = [(c, c.able.index(placement[c.name])) for c in candidates]
    return (
        sum(len(used) - max(Counter(used).values()) for used in together.values()),
        sum(n * (n - 1) // 2 for used in apart.values() for n in Counter(used).values()),
        sum(c.ranks[i] for c, i in chosen),
        sum(c.current not in (None, c.able[i]) for c, i in chosen),
        sum(i for _, i in chosen),
    )


def cost_with_reservations(
    candidates: Iterable[Candidate], placement: Mapping[str, str], rooms_bps: Mapping[str, float]
) -> CostWithReservations:
    candidates = list(candidates)
    promised = Counter[str]()
    for candidate in candidates:
        promised[placement[candidate.name]] += exactly(candidate.rules.reserve_bps)
    over = (all_of_it - exactly(rooms_bps[name]) for name, all_of_it in promised.items())
    return (sum(max(0, more) for more in over), *cost(candidates, placement))
