"""Decodes learned flows: which addresses the switch has learned, and where each of them is."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field

from controller.api.events import LearnedRead
from controller.dataplane import tables
from controller.dataplane.specs import LoadBits, MatchValue
from controller.openflow.decode import decode_flow, decode_match, read_flow

# So many addresses are kept of each port, and more while fewer than that are kept of all; never more than
# the last. VMs can make up addresses, and the engine takes time for each.
KEPT_OF_A_PORT, KEPT_OF_ALL, MOST_KEPT = 64, 1 << 14, 1 << 15
COOKIE = struct.Struct("!24xQ")


@dataclass(slots=True)
class Learned:
    """The addresses in the learned flows that were added. These are many: each is read by itself.

    `addresses`: (ofport, MAC, VLAN) of those on VM ports. `from_normal`: of those on ports that only
    NORMAL served; VLAN None: the frames had no tag. `elsewhere`: (MAC, VLAN) of those that were on a
    VM port and have announced themselves elsewhere.
    """

    addresses: set[tuple[int, str, int]] = field(default_factory=set)
    from_normal: set[tuple[int, str, int | None]] = field(default_factory=set)
    elsewhere: set[tuple[str, int]] = field(default_factory=set)
    _of_port: Counter[int] = field(default_factory=Counter)
    _of_all: int = 0

    def add_part(self, stats: bytes) -> None:
        """Read one flow.

        Raises:
            Malformed: lengths inside the flow do not agree.
            ValueError: it matches no single address.
        """
        (found,) = COOKIE.unpack_from(stats)
        ofport = tables.cookie_ofport(found)
        most = MOST_KEPT if self._of_port[ofport] < KEPT_OF_A_PORT else KEPT_OF_ALL
        if tables.cookie_kind(found) is not tables.Kind.LEARNED or self._of_all >= most:
            return
        self._of_port[ofport] += 1
        self._of_all += 1
        flow = read_flow(stats)
        fields = dict(decode_match(flow.match))
        mac, vlan = fields.get("eth_dst"), fields.get(tables.Register.VLAN)
        if not isinstance(mac, str):
            raise ValueError(f"a learned flow with eth_dst {mac} -> one MAC")
        if found & tables.FROM_NORMAL:
            tag = None if vlan is None else _exact(vlan)
            for action in decode_flow(flow).actions:
                if isinstance(action, LoadBits) and action.target == tables.Register.TARGET:
                    self.from_normal.add((action.value, mac, tag))
        elif ofport:
            self.addresses.add((ofport, mac, _exact(vlan or 0)))
        elif found == tables.cookie(tables.Kind.LEARNED, 0):
            self.elsewhere.add((mac, _exact(vlan or 0)))

    def event(self, bridge: str) -> LearnedRead:
        """What was read."""
        from_normal = sorted(self.from_normal, key=lambda a: (a[0], a[1], a[2] or 0))
        return LearnedRead(
            bridge,
            tuple(sorted(self.addresses)),
            tuple(from_normal),
            tuple(sorted(self.elsewhere)),
        )


def _exact(value: MatchValue) -> int:
    """Return a field's value without the mask that the switch may report with it."""
    found = value[0] if isinstance(value, tuple) else value
    return int(found)
