"""Learning: behind which VM port an address is, and from whom a VM port may send.

Tables: LEARN, SET_LOCK. Its flows teach LOCATION (where to send frames for the address), LOCAL_SOURCE
(frames from it that come back are ours) and LOCK (it has just announced itself from here).

Invariant: the switch learns only from a VM port that may send from the address, at most
`ADDRESSES_PER_PORT_MAX` addresses on each. What it learned on a port goes with the flow that
taught it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from controller.dataplane.matching import SAME_VLAN, register_values
from controller.dataplane.specs import (
    Action,
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
    LEARNED_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    MULTICAST,
    Register,
    Table,
    learned_cookie,
)
from controller.dataplane.team import KEPT, Team, VmPort


def flows(team: Team) -> Iterator[FlowSpec]:
    for port in team.vm_ports:
        yield from _of(port)


# Kept from one pipeline to the next, because most changes concern few VM ports.
@functools.lru_cache(maxsize=KEPT)
def _of(port: VmPort) -> tuple[FlowSpec, ...]:
    return (*_learn_from(port), *_guard_addresses(port), *_lock(port))


def _learn_from(port: VmPort) -> Iterator[FlowSpec]:
    """Learn the source of every frame that the VM port may send."""
    learn = _learn_source(port)
    lock = (Resubmit(Table.ANNOUNCEMENT), Resubmit(Table.LOCK), Resubmit(Table.SET_LOCK))
    from_port: dict[str, MatchValue] = {Register.VM_PORT.field: port.ofport}
    accepted = [(40, {**from_port, "eth_src": mac}) for mac in port.attached_macs]
    if port.forges:
        accepted.append((10, from_port))
    else:
        # The table drops these frames anyway. The flow counts them.
        yield FlowSpec(Table.LEARN, 10, match(**from_port))
    for priority, sent in accepted:
        yield FlowSpec(Table.LEARN, priority, match(**sent), learn, goto=Table.DESTINATION)
        yield FlowSpec(
            Table.LEARN,
            priority + 10,
            match(eth_dst=MULTICAST, **sent),
            (*learn, *lock),
            goto=Table.DESTINATION,
        )


def _learn_source(port: VmPort) -> tuple[Action, ...]:
    """Actions that learn where the source is, for frames to it and for its own that come back.

    Learned flows have a `hard_timeout`, which each frame from the address starts anew. Frames that
    come back would keep an `idle_timeout` from ending after the address has left.
    """
    learned = learned_cookie(port.ofport, port.vlans)
    return (
        # The switch writes no result where it only traces a frame.
        SetField(Register.LEARNED.field, 1),
        Learn(
            Table.LOCATION,
            learned,
            LEARNED_TIMEOUT_S,
            (
                SAME_VLAN,
                LearnMatch("eth_src", "eth_dst", 48),
                LearnLoad(Register.VM_PORT.field, Register.TARGET.field, 16),
            ),
            delete_learned=True,
            limit=ADDRESSES_PER_PORT_MAX,
        ),
        Learn(
            Table.LOCAL_SOURCE,
            learned,
            LEARNED_TIMEOUT_S,
            (
                SAME_VLAN,
                LearnMatch("eth_src", "eth_src", 48),
                LearnLoad(1, Register.LOCAL.field, 1),
                LearnLoad(Register.VM_PORT.field, Register.BEHIND.field, 16),
            ),
            delete_learned=True,
            limit=ADDRESSES_PER_PORT_MAX,
            success=Register.LEARNED.field,
        ),
    )


def _guard_addresses(port: VmPort) -> Iterator[FlowSpec]:
    """Drop frames from the VM port's own addresses that others send in its VLANs."""
    for mac in port.attached_macs:
        for value in register_values(port.vlans.carried):
            in_vlan = {} if value is None else {Register.VLAN.field: value}
            yield FlowSpec(Table.LEARN, 30, match(eth_src=mac, **in_vlan))


def _lock(port: VmPort) -> Iterator[FlowSpec]:
    """Lock an address that announces itself from here for `LOCK_TIMEOUT_S`.

    Meanwhile the announcement that comes back does not say that the address has moved away.
    """
    lock = Learn(
        Table.LOCK,
        learned_cookie(port.ofport, port.vlans),
        LOCK_TIMEOUT_S,
        (
            SAME_VLAN,
            LearnMatch("eth_src", "eth_src", 48),
            LearnLoad(1, Register.LOCKED.field, 1),
        ),
        limit=ADDRESSES_PER_PORT_MAX,
    )
    announces = {Register.VM_PORT.field: port.ofport, Register.ANNOUNCES.field: 1}
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        yield FlowSpec(
            Table.SET_LOCK,
            10,
            match(**announces, **{Register.LOCKED.field: locked}),
            (lock, Resubmit(table)),
        )
