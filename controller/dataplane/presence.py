"""Presence: whether the VM port on which an address was learned is still there, and its link up.

Tables: PRESENT, ABSENT; in REFLECTION, the flows for frames from addresses that were learned on a VM
port. Groups: one for each VM port, its presence.

Invariant: what was learned on a VM port holds while the port is there. From the moment the port or
its link is gone, frames for these addresses go to the network, and frames from these addresses that
come from the network are not reflections. The switch checks this by itself, so that a VM that leaves
while the service is not running is found at its new host even if nobody hears it announce itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from controller.dataplane.output import first_live
from controller.dataplane.reflection import judged
from controller.dataplane.specs import (
    Actions,
    FlowSpec,
    GroupSpec,
    Resubmit,
    SetField,
    ToGroup,
    match,
)
from controller.dataplane.tables import Register, Table, presence_group_id
from controller.dataplane.team import KEPT, Team, VmPort
from policies.model import OFPORT_LOCAL, OfPort


def by_presence(port: VmPort) -> Actions:
    """Actions that continue in table PRESENT or ABSENT. LOCAL is always there."""
    if port.ofport == OFPORT_LOCAL:
        return (Resubmit(Table.PRESENT),)
    return (ToGroup(presence_group_id(port.ofport)),)


def flows(team: Team) -> Iterator[FlowSpec]:
    frames, look_up = judged(team.hears_everywhere)
    announced = (*look_up, Resubmit(Table.DEPARTURE))
    from_vm = match(**{Register.UPLINK: 0})
    yield FlowSpec(Table.PRESENT, 20, from_vm, (Resubmit(Table.PORT_OUT),))
    yield FlowSpec(Table.PRESENT, 10, frames, announced)
    # A departure is learned in either case: the port may return, and the VM has moved all the same.
    unlearned = SetField(Register.LOCAL, 0)
    yield FlowSpec(Table.ABSENT, 20, from_vm, (Resubmit(Table.FLOOD),))
    yield FlowSpec(Table.ABSENT, 10, frames, (unlearned, *announced))
    if team.hears_everywhere:
        # The lock ends too late for an address that leaves with its port.
        gone = match(**{Register.LOCKED: 1, Register.LOCAL: 0})
        yield FlowSpec(Table.DEPARTURE, 15, gone, goto=Table.DELIVERY)
    else:
        yield FlowSpec(Table.ABSENT, 5, (), (Resubmit(Table.DELIVERY),))
        silent = match(**{Register.ANNOUNCES: 0, Register.LOCAL: 0})
        yield FlowSpec(Table.DEPARTURE, 5, silent, goto=Table.DELIVERY)
    for port in team.vm_ports:
        learned = {Register.LOCAL: 1, Register.BEHIND: port.ofport}
        yield FlowSpec(Table.REFLECTION, 20, match(**learned), by_presence(port))


def groups(team: Team) -> Iterator[GroupSpec]:
    for port in team.vm_ports:
        if port.ofport == OFPORT_LOCAL:
            # It leaves only with the bridge. `ovs-ctl restart` cannot restore a bucket that watches it.
            continue
        yield _presence(port.ofport, team.uplinks)


# Kept from one pipeline to the next: a move changes none.
@functools.lru_cache(maxsize=KEPT)
def _presence(ofport: OfPort, uplinks: tuple[OfPort, ...]) -> GroupSpec:
    # The switch takes no bucket that watches nothing. No uplink is live: nowhere to go.
    absent = ((uplink, (Resubmit(Table.ABSENT),)) for uplink in uplinks)
    present = ofport, (Resubmit(Table.PRESENT),)
    return first_live(presence_group_id(ofport), [present, *absent])
