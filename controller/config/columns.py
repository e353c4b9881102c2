"""Reports the Open vSwitch settings that the NORMAL action follows but ovs-lbt does not.

docs/reference/openvswitch.md also describes other settings, from `tests/reference/columns.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from controller.config.rows import BridgeRow, PortRow
from controller.text.wording import quoted

# What ovs-lbt does: something different than NORMAL, or it refuses some values at the attach.
DIFFERENT, REFUSED = "different", "refused"
# A table, and below it the rows `WHAT NAME...: WORDS`. A NAME with a dot is a key of `other_config`.
# Names with a condition are reported: `=VALUE` if they have this value, `!=DEFAULT` if they are set
# to another value. A bond is a port with several interfaces.
_LIST = """
Bridge
different stp_enable=true rstp_enable=true: while the service is down, VM ports stay on an uplink \
that spanning tree blocks
different mcast_snooping_enable=true: multicast reaches every VM port in its VLAN, not only group members
different flood_vlans!=: in these VLANs, ovs-lbt learns addresses instead of flooding
different .mac-aging-time!=300: learned addresses expire after 300 s
different .mac-table-size!=8192: the number of learned addresses is limited for each VM port instead
different .forward-bpdu=true: on a LAG, LACP frames and BPDUs from VMs are not sent to the network
refused flow_tables!=: a flow_limit also limits the ovs-lbt flows; to remove it: ovs-vsctl clear \
bridge NAME flow_tables
Port
different .priority-tags!=never: frames without a VLAN are sent without a priority tag
refused vlan_mode=dot1q-tunnel: tagged frames from the port would be dropped; if the port sends no \
tagged frames: ovs-vsctl set port NAME vlan_mode=access
Bond
different .bond-hash-basis!=0 .bond-rebalance-interval!=10000 .lb-output-action=true: the policy of \
ovs-lbt selects the uplinks
different .bond-primary!=: the policy of ovs-lbt selects the uplinks; see role=standby
different bond_updelay!=0: failback-delay-s of the bridge applies instead
different bond_downdelay!=0: traffic leaves an uplink as soon as its link is down
different .all-members-active=true: each broadcast from the network is delivered only once
"""
_NAME = re.compile(r"(\.?)([\w-]+)(?:(!?=)(\S*))?")


class Name(NamedTuple):
    """A column, or a key of `other_config`, and the values that are reported.

    `condition`: "=": `value` is reported; "!=": every other value is; "": no value is reported.
    """

    is_key: bool
    name: str
    condition: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"other_config:{self.name}" if self.is_key else self.name

    def is_reported(self, record: BridgeRow | PortRow) -> bool:
        """Whether this setting of a record has a value that is reported."""
        if not self.condition:
            return False
        found = record.other_config.get(self.name) if self.is_key else getattr(record, self.name)
        text = str(found or "").lower()
        return (text == self.value) if self.condition == "=" else text not in ("", self.value)


class Row(NamedTuple):
    """How ovs-lbt treats some settings of a table (DIFFERENT or REFUSED), and why."""

    table: str
    what: str
    names: tuple[Name, ...]
    words: str


def rows(listed: str) -> Iterator[Row]:
    """Parse the rows of a list in the format of `_LIST`."""
    table = ""
    for line in listed.strip().splitlines():
        head, colon, words = line.partition(": ")
        if not colon:
            table = line
            continue
        what, *names = head.split()
        yield Row(table, what, tuple(map(_name, names)), words)


def _name(text: str) -> Name:
    found = _NAME.fullmatch(text)
    assert found is not None, f"{text!r} is not a column or a key"
    dot, name, condition, value = found.groups(default="")
    return Name(bool(dot), name, condition, value)


ROWS = tuple(rows(_LIST))


def reported(row: BridgeRow, what: str) -> Iterator[str]:
    """Report the settings of a bridge and its ports that ovs-lbt treats as `what`, e.g. REFUSED."""
    bonds = tuple(port for port in row.ports if len(port.interfaces) > 1)
    records: dict[str, tuple[BridgeRow | PortRow, ...]] = {
        "Bridge": (row,),
        "Port": row.ports,
        "Bond": bonds,
    }
    for of in ROWS:
        found = records.get(of.table, ()) if of.what == what else ()
        for name, record in itertools.product(of.names, found):
            if name.is_reported(record):
                table = "Bridge" if record is row else "Port"
                words = of.words.replace("NAME", quoted(record.name))
                yield f"{table} {record.name} {name}: {words}"
