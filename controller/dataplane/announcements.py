"""Recognizes announcements: frames that tell switches where their source address now is.

Tables: ANNOUNCEMENT, SAME_NIBBLE, GRATUITOUS, UNCACHE_FIRST, UNCACHE_AGAIN; all are look-ups.

Invariant: register ANNOUNCES is 1 for RARP, for a neighbor advertisement to a group, and for ARP
about the sender's own address, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.dataplane.specs import (
    Action,
    CopyBits,
    FlowSpec,
    LoadBits,
    Resubmit,
    SetField,
    match,
)
from controller.dataplane.tables import (
    BROADCAST,
    ETH_ARP,
    ETH_RARP,
    MULTICAST,
    ND_ADVERTISEMENT,
    Register,
    Table,
    icmpv6,
)
from controller.dataplane.team import Team, kept


def flows(_team: Team) -> Iterable[FlowSpec]:
    return _flows()


@kept
def _flows() -> Iterator[FlowSpec]:
    """The same flows for every team."""
    announces = SetField(Register.ANNOUNCES, 1)
    yield FlowSpec(
        Table.ANNOUNCEMENT, 10, match(eth_type=ETH_RARP, eth_dst=BROADCAST), (announces,)
    )
    advertises = match(**icmpv6(ND_ADVERTISEMENT), eth_dst=MULTICAST)
    yield FlowSpec(Table.ANNOUNCEMENT, 10, advertises, (announces,))
    compare: list[Action] = []
    for bit in range(0, 32, 4):
        for index, address in enumerate(("arp_spa", "arp_tpa")):
            compare.append(CopyBits(address, bit, Register.NIBBLES, 4 * index, 4))
        compare.append(Resubmit(Table.SAME_NIBBLE))
    yield FlowSpec(
        Table.ANNOUNCEMENT,
        10,
        match(eth_type=ETH_ARP, eth_dst=BROADCAST),
        (*compare, Resubmit(Table.GRATUITOUS)),
    )
    # OpenFlow cannot compare two fields. These 16 flows compare four bits at a time.
    for nibble in range(16):
        same = (nibble << 4 | nibble, 0xFF)
        yield FlowSpec(Table.SAME_NIBBLE, 10, match(**{Register.NIBBLES: same}))
    yield FlowSpec(Table.SAME_NIBBLE, 0, (), (LoadBits(Register.NIBBLES, 8, 1, 1),))
    yield FlowSpec(Table.GRATUITOUS, 10, match(**{Register.NIBBLES: (0, 0x100)}), (announces,))
    # An announcement that is forwarded from the switch's flow cache sets no lock, and the one
    # that comes back from the cache finds none. So with a lock and without one, the result depends
    # on another bit (of pkt_mark, but any would do). When the lock begins or ends, revalidation
    # then finds the cached flow too wide, and deletes it.
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        yield FlowSpec(table, 10, match(pkt_mark=(0, 1 << locked)))
