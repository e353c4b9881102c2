"""Learning: behind which VM port an address is, and from whom a VM port may send.

Tables: LEARN, SET_LOCK. Its flows teach LOCATION (where to send frames for the address), LOCAL_SOURCE
(frames from it that come back are ours), LOCK (it has just announced itself from here) and PORT_OUT
(an uplink is closed for a VM port).

Invariant: the switch learns only from a VM port that may send from the address, at most
`ADDRESSES_PER_PORT_MAX` addresses on each. What it learned on a port goes with the flow that
taught it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.config.vlans import EVERY_VLAN
from controller.dataplane.specs import (
    Actions,
    FlowSpec,
    Learn,
    LearnLoad,
    LearnMatch,
    MatchValue,
    Resubmit,
    SetField,
    match,
)
from controller.dataplane.tables import (
    ADDRESSES_PER_PORT_MAX,
    BEYOND_LIMIT,
    FROM_SOURCE,
    IS_BEHIND_SENDER,
    IS_LOCAL,
    IS_LOCKED,
    LAG_LOCK_TIMEOUT_S,
    LEARNED_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    MULTICAST,
    OUTSIDE_MAX,
    SAME_VLAN,
    TO_ELSEWHERE,
    TO_SENDER,
    TO_SOURCE,
    Kind,
    Register,
    Table,
    cookie,
    in_vlans,
    learned_cookie,
)
from controller.dataplane.team import Team, VmPort, kept
from policies.model import OfPort


def flows(team: Team) -> Iterator[FlowSpec]:
    for port in team.vm_ports:
        yield from _of(port, team.hears_everywhere)
    if not team.hears_everywhere:
        routers = [port for port in team.vm_ports if port.vlans.carried == EVERY_VLAN]
        if len(routers) == len(team.vm_ports):
            yield from _beyond_limit(80, BEYOND_LIMIT)
        else:
            yield from _beyond_limit(80, BEYOND_LIMIT, SAME_VLAN)
            for port in routers:
                yield from _beyond_limit(85, BEYOND_LIMIT | port.ofport, vm_port=port.ofport)


@kept
def _of(port: VmPort, on_a_lag: bool) -> Iterable[FlowSpec]:
    return (*_learn_from(port, on_a_lag), *_guard_addresses(port), *_lock(port, on_a_lag))


def learn_outside() -> Learn:
    """Learn that the source of a frame from an uplink is not behind a VM port here.

    What is learned from a VM port precedes this, so the frame may be one of ours that comes back.
    """
    elsewhere, outside = (SAME_VLAN, TO_SOURCE, TO_ELSEWHERE), cookie(Kind.OUTSIDE, 0)
    return Learn(
        Table.LOCATION, outside, LEARNED_TIMEOUT_S, elsewhere, priority=5, limit=OUTSIDE_MAX
    )


def learn_closed(ofport: OfPort, uplink: OfPort) -> Learn:
    """Learn to drop what an uplink brings for a VM port."""
    ends = (LearnMatch(r, r, 16) for r in (Register.TARGET, Register.UPLINK))
    closed = cookie(Kind.OUTSIDE, uplink << 16 | ofport)
    return Learn(Table.PORT_OUT, closed, LOCK_TIMEOUT_S, (*ends,), True, priority=50, limit=1)


def _beyond_limit(
    priority: int, number: int, *in_vlan: LearnMatch, vm_port: OfPort | None = None
) -> Iterator[FlowSpec]:
    """Learn a source that the limit of its VM port leaves out, `in_vlan` or in no particular VLAN.

    Its frames that come back can then be recognized. A router that has one address in thousands of
    VLANs takes one entry. That is left to VM ports in all VLANs: others could make frames of hosts in
    VLANs that are not theirs count as reflections. Each frame locks the address, because its own locks
    may be left out, too.
    """

    def learn(table: Table, timeout_s: int, *loads: LearnLoad) -> Learn:
        return Learn(
            table,
            cookie(Kind.LEARNED, number),
            timeout_s,
            (*in_vlan, FROM_SOURCE, *loads),
            priority=5,
            limit=ADDRESSES_PER_PORT_MAX,
            success=Register.LEARNED if table == Table.LOCAL_SOURCE else None,
        )

    local = learn(Table.LOCAL_SOURCE, LEARNED_TIMEOUT_S, IS_LOCAL, IS_BEHIND_SENDER)
    lock = learn(Table.LOCK, LOCK_TIMEOUT_S, IS_LOCKED)
    learned, tried = Register.LEARNED, Register.BEHIND
    again = Resubmit(Table.DESTINATION)
    sender = {} if vm_port is None else {Register.VM_PORT: vm_port}
    first = match(**sender, **{learned: 0, tried: 0})
    yield FlowSpec(Table.DESTINATION, priority, first, (local, SetField(tried, 1), again))
    succeeded = match(**sender, **{learned: 1, tried: 1})
    yield FlowSpec(Table.DESTINATION, priority, succeeded, (lock, SetField(tried, 0), again))


def _learn_from(port: VmPort, on_a_lag: bool) -> Iterator[FlowSpec]:
    """Learn the source of every frame that the VM port may send."""
    learn = _learn_source(port)
    lock: Actions = (Resubmit(Table.LOCK), Resubmit(Table.SET_LOCK))
    if not on_a_lag:
        lock = (Resubmit(Table.ANNOUNCEMENT), *lock)
    from_port: dict[str, MatchValue] = {Register.VM_PORT: port.ofport}
    accepted = [(40, {**from_port, "eth_src": mac}) for mac in port.attached_macs]
    if port.forges:
        accepted.append((20 if port.trusted else 10, from_port))
    else:
        # The table drops these frames anyway. The flow counts them.
        yield FlowSpec(Table.LEARN, 10, match(**from_port))
    for priority, sent in accepted:
        yield FlowSpec(Table.LEARN, priority, match(**sent), learn, goto=Table.DESTINATION)
        yield FlowSpec(
            Table.LEARN,
            priority + 5,
            match(eth_dst=MULTICAST, **sent),
            (*learn, *lock),
            goto=Table.DESTINATION,
        )


def _learn_source(port: VmPort) -> Actions:
    """Actions that learn where the source is, for frames to it and for its own that come back.

    Learned flows have a `hard_timeout`, which each frame from the address starts anew. Frames that
    come back would keep an `idle_timeout` from ending after the address has left.
    """
    learned = learned_cookie(port.ofport, port.vlans)
    return (
        # The switch writes no result where it only traces a frame.
        SetField(Register.LEARNED, 1),
        Learn(
            Table.LOCATION,
            learned,
            LEARNED_TIMEOUT_S,
            (SAME_VLAN, TO_SOURCE, TO_SENDER),
            delete_learned=True,
            limit=ADDRESSES_PER_PORT_MAX,
        ),
        Learn(
            Table.LOCAL_SOURCE,
            learned,
            LEARNED_TIMEOUT_S,
            (SAME_VLAN, FROM_SOURCE, IS_LOCAL, IS_BEHIND_SENDER),
            delete_learned=True,
            limit=ADDRESSES_PER_PORT_MAX,
            success=Register.LEARNED,
        ),
    )


def _guard_addresses(port: VmPort) -> Iterator[FlowSpec]:
    """Drop frames from the VM port's own addresses that others send in its VLANs.

    If it is trusted, other trusted ports may use them: their flows have a higher priority.
    """
    for mac in port.attached_macs:
        for in_vlan in in_vlans(port.vlans.carried):
            priority = 18 if port.trusted else 30
            yield FlowSpec(Table.LEARN, priority, match(eth_src=mac, **in_vlan))


def _lock(port: VmPort, on_a_lag: bool) -> Iterator[FlowSpec]:
    """Lock an address that announces itself from here for `LOCK_TIMEOUT_S`.

    Meanwhile the announcement that comes back does not say that the address has moved away. On a LAG
    nothing should come back. So each frame from elsewhere says it there, and each frame that is flooded
    from here locks the address.
    """
    lock = Learn(
        Table.LOCK,
        learned_cookie(port.ofport, port.vlans),
        LAG_LOCK_TIMEOUT_S if on_a_lag else LOCK_TIMEOUT_S,
        (SAME_VLAN, FROM_SOURCE, IS_LOCKED),
        limit=ADDRESSES_PER_PORT_MAX,
    )
    announces = {Register.VM_PORT: int(port.ofport)}
    if not on_a_lag:
        announces[Register.ANNOUNCES] = 1
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        yield FlowSpec(
            Table.SET_LOCK,
            10,
            match(**announces, **{Register.LOCKED: locked}),
            (lock, Resubmit(table)),
        )
