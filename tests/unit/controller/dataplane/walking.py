"""Where a pipeline may send a frame of which little is known: every flow that it might match."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controller.config.vlans import PortVlans
from controller.dataplane.specs import (
    Action,
    CopyBits,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LoadBits,
    MatchValue,
    Multipath,
    Output,
    Pipeline,
    PopVlan,
    PushVlan,
    Resubmit,
    SetField,
    ToGroup,
)
from controller.dataplane.tables import FLOODED, VLAN_PRESENT, Register, Table, openflow_port
from controller.dataplane.team import VmPort
from tests.unit.simulator import as_number, frame

Known = dict[str, MatchValue]
Copy = tuple[int, int]


@dataclass(frozen=True)
class Walk:
    """A pipeline by tables, highest priority first, and what is known wherever one has been."""

    tables: Mapping[int, list[FlowSpec]]
    groups: Mapping[int, GroupSpec]
    been: set[tuple[int, frozenset[tuple[str, MatchValue]]]] = field(default_factory=set)
    set_in: dict[int, set[str]] = field(default_factory=dict)


def walk(installed: Pipeline) -> Walk:
    flows = sorted(installed.flows.values(), key=lambda f: (f.table, -f.priority))
    by_table = itertools.groupby(flows, key=lambda f: f.table)
    return Walk({table: list(found) for table, found in by_table}, installed.groups)


def number(name: str, value: MatchValue) -> int:
    assert not isinstance(value, tuple)
    return as_number(name, value)


def contradicts(flow: FlowSpec, known: Known) -> bool:
    """Whether a frame of which that much is known cannot match."""
    for name, wanted in flow.match:
        if name not in known:
            continue
        if isinstance(wanted, tuple):
            value, mask = wanted
            if number(name, known[name]) & number(name, mask) != number(name, value):
                return True
        elif number(name, known[name]) != number(name, wanted):
            return True
    return False


def outputs(installed: Walk, table: int, known: Known) -> Iterator[Copy]:
    """Every port that a frame may leave by, and the tag it then has; 0: none.

    It takes each flow that it might match, down to one that it must match. Of the frame
    only its tag, its way in and perhaps its destination are known, and after a look-up
    nothing is known of the registers that it may have set.
    """
    here = (table, frozenset(known.items()))
    if here in installed.been:
        return
    installed.been.add(here)
    # What one of them alone makes a frame take a flow above.
    taken: set[tuple[str, MatchValue]] = set()
    for flow in installed.tables.get(table, ()):
        if contradicts(flow, known) or not taken.isdisjoint(flow.match):
            continue
        open_ = [pair for pair in flow.match if pair[0] not in known]
        if len(open_) == 1:
            taken.update(open_)
        exactly = {name: v for name, v in flow.match if not isinstance(v, tuple)}
        after = {**known, **exactly}
        for action in flow.actions:
            yield from _acted(installed, action, after)
        if flow.goto is not None:
            assert flow.goto > flow.table, f"{flow} goes backwards"
            yield from outputs(installed, flow.goto, after)
        if known.keys() >= {name for name, _ in flow.match}:
            return


def _acted(installed: Walk, action: Action, known: Known) -> Iterator[Copy]:
    tag = number("vlan_vid", known["vlan_vid"])
    match action:
        case Output(port=port):
            yield port, tag & ~VLAN_PRESENT
        case ToGroup(group_id=group_id):
            for bucket in installed.groups[group_id].buckets:
                inside = dict(known)
                for inner in bucket.actions:
                    yield from _acted(installed, inner, inside)
        case SetField(field=field, value=value):
            assert field != "vlan_vid" or tag, "the switch sets only a tag that is there"
            known[field] = value
        case PushVlan():
            assert not tag, "two tags"
            known["vlan_vid"] = VLAN_PRESENT
        case PopVlan():
            assert tag, "no tag to take off"
            known["vlan_vid"] = 0
        case CopyBits(source="vlan_tci", target=target):
            known[target] = tag & ~VLAN_PRESENT
        case CopyBits(target=target) | LoadBits(target=target) | Multipath(target=target):
            known.pop(target, None)
        case Resubmit(table=table):
            yield from outputs(installed, table, dict(known))
            for set_there in _set_in(installed, table):
                known.pop(set_there, None)
        case Learn(table=table):
            look_ups = (Table.LOCATION, Table.LOCAL_SOURCE, Table.LOCK, Table.SPOKEN)
            # What is learned there does nothing.
            shut = (Table.MEMBERSHIP, Table.PORT_OUT, Table.INBOUND)
            loads = [spec for spec in action.specs if isinstance(spec, LearnLoad)]
            assert table in look_ups or (table in shut and not loads)


def _set_in(installed: Walk, table: int) -> set[str]:
    """The fields that flows of a table, or those learned into it, may set."""
    if table in installed.set_in:
        return installed.set_in[table]
    fields = installed.set_in[table] = set()
    for flow in itertools.chain.from_iterable(installed.tables.values()):
        for action in flow.actions:
            if isinstance(action, Learn) and action.table == table:
                fields |= {s.target for s in action.specs if isinstance(s, LearnLoad)}
            if flow.table == table and isinstance(action, SetField):
                fields.add(action.field)
            if flow.table == table and isinstance(action, CopyBits | LoadBits):
                fields.add(action.target)
            if flow.table == table != Table.CLASSIFY and isinstance(action, Resubmit):
                fields |= _set_in(installed, action.table)
    return fields


def from_port(installed: Pipeline, ofport: int, tag: int, **frame: str) -> set[Copy]:
    registers = dict.fromkeys((FLOODED, *Register), 0)
    known: Known = {"in_port": openflow_port(ofport), "vlan_vid": tag, **registers, **frame}
    return set(outputs(walk(installed), Table.CLASSIFY, known))


def vlan_meant(vlans: PortVlans, tag: int) -> int | None:
    """The VLAN of a frame that comes in by such a port; None: it is not taken."""
    if tag in (0, VLAN_PRESENT):
        return vlans.native
    vlan = tag & ~VLAN_PRESENT
    return vlan if vlans.takes_tagged and vlan in vlans.carried else None


def taken(flows: list[FlowSpec], port: VmPort, vlan: int, **fields: str | int) -> bool:
    """Whether a frame that a VM port sends is taken, by the flows that learn."""
    registers = {Register.VM_PORT: port.ofport, Register.VLAN: vlan}
    known: Known = dict(frame(**fields, **registers))
    flow = next((f for f in flows if not contradicts(f, known)), None)
    return flow is not None and flow.goto is not None
