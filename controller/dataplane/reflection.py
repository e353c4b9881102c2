"""Reflection: frames of ours that come back from the network, and addresses that have left.

Tables: REFLECTION, DEPARTURE; in FROM_UPLINK, the flow for multicast.

Invariant: a frame from an uplink whose source is behind a VM port goes no further, unless it
announces that the address has moved away. An address that has announced itself from here in the
last `LOCK_TIMEOUT_S` seconds has not moved away. On a LAG every frame announces it, unless the address
has flooded a frame from here in the last `LAG_LOCK_TIMEOUT_S` seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.dataplane.learning import learn_outside
from controller.dataplane.specs import (
    Actions,
    FlowSpec,
    Learn,
    LearnLoad,
    Match,
    MatchValue,
    Resubmit,
    match,
)
from controller.dataplane.tables import (
    DEPARTED_MAX,
    FROM_SOURCE,
    LEARNED_TIMEOUT_S,
    MULTICAST,
    SAME_VLAN,
    TO_ELSEWHERE,
    TO_SOURCE,
    Kind,
    Register,
    Table,
    cookie,
)
from controller.dataplane.team import Team, kept


def flows(team: Team) -> Iterable[FlowSpec]:
    return _flows(team.hears_everywhere)


def judged(on_a_lag: bool) -> tuple[Match, Actions]:
    """Which frames from a local address can say that it has moved away, and the look-ups that show it."""
    if on_a_lag:
        return (), (Resubmit(Table.LOCK),)
    return match(eth_dst=MULTICAST), (Resubmit(Table.ANNOUNCEMENT), Resubmit(Table.LOCK))


@kept
def _flows(on_a_lag: bool) -> Iterator[FlowSpec]:
    """The same flows for every team of either kind."""
    frames, look_up = judged(on_a_lag)
    moved: dict[str, MatchValue] = {} if on_a_lag else {Register.ANNOUNCES: 1}
    yield FlowSpec(
        Table.FROM_UPLINK,
        10,
        match(eth_dst=MULTICAST),
        (Resubmit(Table.LOCAL_SOURCE),),
        Table.REFLECTION,
    )
    elsewhere = match(**{Register.LOCAL: 0})
    yield FlowSpec(Table.REFLECTION, 10, elsewhere, (learn_outside(),), Table.DELIVERY)
    local = match(**dict(frames), **{Register.LOCAL: 1})
    yield FlowSpec(Table.REFLECTION, 10, local, look_up, Table.DEPARTURE)
    yield FlowSpec(
        Table.DEPARTURE,
        10,
        match(**moved, **{Register.LOCKED: 0}),
        (*_learn_departure(), Resubmit(Table.UNCACHE_FIRST)),
        goto=Table.DELIVERY,
    )
    yield FlowSpec(
        Table.DEPARTURE,
        10,
        match(**moved, **{Register.LOCKED: 1}),
        (Resubmit(Table.UNCACHE_AGAIN),),
    )


def _learn_departure() -> tuple[Learn, Learn]:
    """Overwrite what was learned of an address that has moved away."""
    learned, timeout_s, most = cookie(Kind.LEARNED, 0), LEARNED_TIMEOUT_S, DEPARTED_MAX
    elsewhere = SAME_VLAN, TO_SOURCE, TO_ELSEWHERE
    not_local = SAME_VLAN, FROM_SOURCE, LearnLoad(0, Register.LOCAL, 1)
    return (
        Learn(Table.LOCATION, learned, timeout_s, elsewhere, limit=most),
        Learn(Table.LOCAL_SOURCE, learned, timeout_s, not_local, limit=most),
    )
