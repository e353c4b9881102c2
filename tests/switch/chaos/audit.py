"""What a service that started now would change on the switch: nothing, where all is as it must be.

The engine is the service's own. It is told what the database and the switch say, and what it
would send is looked at and not sent.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.api.engine_commands import (
    Apply,
    Connect,
    ReadForwarding,
    ReadInstalled,
    ReadLearned,
    SetPortFlags,
)
from controller.api.events import (
    DatabaseRead,
    Event,
    ForwardingRead,
    InstalledRead,
    LearnedRead,
    PortFlagsSet,
    PortState,
    SwitchConnected,
)
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow
from controller.dataplane.specs import Changes, FlowSpec
from controller.engine import Engine
from controller.openflow import messages
from controller.ovsdb import records
from tests.switch.bed import Bed
from tests.switch.direct import Direct
from tests.switch.waiting import wait_until

NOW_S = 1000.0
TOLD_MAX = 6


def differences(bed: Bed, homes: Mapping[str, Sequence[str]]) -> list[str]:
    """What is there and should not be, or the other way round.

    `homes`: by VM port, uplinks that may be its home though it is on another one now. That is not
    written down, and says in which order it would take those that serve nobody now.
    """
    try:
        switch = _read(bed)
    except OSError as error:
        return [f"the switch: {error}"]
    row = _row(bed)
    wrong = _compared(switch, row)
    for port, uplinks in homes.items() if wrong else ():
        for uplink in uplinks:
            if len(fewer := _compared(switch, at_home := _bound(row, port, uplink))) < len(wrong):
                wrong, row = fewer, at_home
                break
    more = [f"and {len(wrong) - TOLD_MAX} more"] if len(wrong) > TOLD_MAX else []
    return [*wrong[:TOLD_MAX], *more]


@dataclass(frozen=True, slots=True)
class _Switch:
    """All that a service asks a bridge for."""

    name: str
    ports: tuple[PortState, ...]
    installed: InstalledRead
    learned: LearnedRead
    no_flood: frozenset[int]


def _read(bed: Bed) -> _Switch:
    numbers = {bed.ovs.vsctl("get", "interface", port, "ofport") for port in bed.not_flooded()}
    with contextlib.closing(Direct(bed)) as direct:
        return _Switch(
            bed.bridge,
            tuple(map(messages.port_state, direct.ports())),
            direct.read_installed(),
            direct.learned(),
            frozenset(map(int, numbers)),
        )


def _compared(switch: _Switch, row: BridgeRow) -> list[str]:
    engine, wrong = Engine(), list[str]()
    events: deque[Event] = deque([DatabaseRead((row,))])
    while events:
        for command in engine.handle(events.popleft(), NOW_S):
            match command:
                case Connect():
                    events.append(SwitchConnected(switch.name, switch.ports))
                case ReadInstalled():
                    events.append(switch.installed)
                case ReadLearned():
                    events.append(switch.learned)
                case ReadForwarding():
                    events.append(ForwardingRead(switch.name, ()))
                case SetPortFlags(number=number, no_flood=wanted):
                    if switch.no_flood != wanted:
                        found = sorted(switch.no_flood)
                        wrong.append(f"no-flood is set on {found}; expected {sorted(wanted)}")
                    events.append(PortFlagsSet(switch.name, number, wanted, before=wanted))
                case Apply(changes=changes):
                    wrong += _told(changes)
    return wrong


def _told(changes: Changes) -> list[str]:
    lines = [f"missing: group {group.group_id:#x}" for group in changes.add_groups]
    lines += [f"other than it should be: {group}" for group in changes.modify_groups]
    lines += [f"missing, or not so: {_flow(flow)}" for flow in changes.add_flows]
    lines += [f"too much: {_flow(flow)}" for flow in changes.delete_flows]
    lines += [f"too much: group {group_id:#x}" for group_id in changes.delete_groups]
    return lines


def _flow(flow: FlowSpec) -> str:
    return f"table {int(flow.table)}, priority {flow.priority}, {dict(flow.match)}: {flow.actions}"


def _row(bed: Bed) -> BridgeRow:
    """The bridge's record, read anew."""
    # Not before `controller`, which keeps OVS's library from taking eventlet along.
    from ovsdbapp.backend.ovs_idl import connection, idlutils

    remote = f"unix:{bed.ovs.rundir}/db.sock"
    helper = idlutils.get_schema_helper(remote, "Open_vSwitch")
    for table, columns in records.COLUMNS.items():
        helper.register_columns(table, columns.split())
    replica = connection.OvsdbIdl(remote, helper)
    try:

        def read() -> bool:
            replica.run()
            return bool(replica.has_ever_connected())

        wait_until(read, "the database is read", interval_s=0.002)
        rows = replica.tables["Bridge"].rows.values()
        (row,) = (records._bridge(row) for row in rows if row.name == bed.bridge)
    finally:
        replica.close()
    return row


def _bound(row: BridgeRow, port: str, uplink: str) -> BridgeRow:
    """With another uplink in use by a VM port."""

    def changed(interface: InterfaceRow) -> InterfaceRow:
        keys = {**interface.external_ids, PREFIX + "binding": uplink}
        return replace(interface, external_ids=keys) if interface.name == port else interface

    ports = (replace(p, interfaces=tuple(map(changed, p.interfaces))) for p in row.ports)
    return replace(row, ports=tuple(ports))
