"""Numbers of the OpenFlow pipeline: table IDs, registers, cookies, group IDs and timeouts.

For the order of the tables, see the drawing in docs/architecture.md. Our flows are those with
`COOKIE_PREFIX`, and our groups are those with IDs in `GROUP_IDS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, StrEnum

from controller.config.vlans import PortVlans, VlanSet, blocks, digest
from controller.dataplane.specs import COOKIE_PREFIX, Fields, LearnLoad, LearnMatch, MatchValue
from policies.model import OFPORT_LOCAL, OfPort

OFPP_LOCAL = 0xFFFFFFFE
OFPP_CONTROLLER = 0xFFFFFFFD
OFPP_NORMAL = 0xFFFFFFFA


class Table(IntEnum):
    """The tables of the pipeline. LOCATION and later tables are look-ups, which return to the caller."""

    CLASSIFY = 0
    LEARN = 1
    FROM_UPLINK = 2
    DESTINATION = 3
    EGRESS = 4
    UPLINK_OUT = 5
    HASH = 6
    REFLECTION = 7
    DEPARTURE = 8
    DELIVERY = 9
    PORT_OUT = 10
    BUCKET = 11
    OFF_HOME = 12
    PRESENT = 13
    ABSENT = 14
    FLOOD = 15
    TO_ENDPOINT = 16
    UNKNOWN_PORT = 17
    MEMBERSHIP = 18
    NO_UPLINK = 19
    LOCATION = 20
    LOCAL_SOURCE = 21
    LOCK = 22
    ANNOUNCEMENT = 23
    SAME_NIBBLE = 24
    GRATUITOUS = 25
    SET_LOCK = 26
    UNCACHE_FIRST = 27
    UNCACHE_AGAIN = 28
    IP_NIBBLE = 29
    INBOUND = 30
    SPOKEN = 31


class Register(StrEnum):
    """Registers, with the names of their match fields. In every register, zero means "not set"."""

    VM_PORT = "reg0"  # ofport of the VM port on which the frame was received
    UPLINK = "reg1"  # ofport of the uplink on which the frame was received
    VLAN = "reg2"  # VLAN ID; 0 for untagged frames
    TARGET = "reg3"  # VM port of the destination address, or ELSEWHERE
    LOCAL = "reg4"  # 1: the source address is behind a VM port
    LOCKED = "reg5"  # 1: the source address was announced from this bridge a moment ago
    ANNOUNCES = "reg6"  # 1: the frame announces its source address
    # Bits 0-3 and 4-7 are compared; bit 8 is set if a pair differed. On a LAG: parts of the addresses.
    NIBBLES = "reg7"
    LEARNED = "reg8"  # 1: the source address has been learned on its VM port
    NORMAL = "reg9"  # 1: the frame is left to NORMAL
    HOME = "reg10"  # the sender's home uplink; in frames from uplinks: the target VM port
    HASHED = "reg11"  # number of the hash that spreads the sender's frames, or ASSIGNED
    BUCKET = "reg12"  # bucket of the frame: the result of the hash in HASHED
    IP_HASH = "reg13"  # bits 0-1 and 2-3: bits of two addresses; bits 4 and above: a remainder
    BEHIND = "reg14"  # VM port on which the source address was learned; set with LOCAL
    # Bits 0-15: the lane of an endpoint's frame (see endpoints.py). Bits 16-31, in frames from endpoints:
    # the first uplink in the endpoint's order.
    LANE = "reg15"


# The field with the reason why a frame is sent to several VM ports. Zero: to at most one.
FLOODED = "metadata"
BY_UPLINK = 1  # an uplink has flooded the frame
REPORT = 2  # a VM port has reported that it is a member of a multicast group

ELSEWHERE = 0xFFFF
# The target of frames that need no further processing. No port has this number.
DONE = 0xFFFD
LEARNED_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 5
# On a LAG, every multicast frame sets a lock. Returning frames arrive within milliseconds.
LAG_LOCK_TIMEOUT_S = 1
# For this time after a frame from an off-home address, frames to the address are accepted on any uplink.
SPOKEN_TIMEOUT_S = 10
# The most addresses that the switch learns on a VM port, and the most that it locks for the port: more
# than nested VMs need. For each new address, the switch counts all known ones, so the number must be
# limited for a VM that makes up addresses.
ADDRESSES_PER_PORT_MAX = 1024
# The most departed addresses that the switch remembers. Only local addresses can depart.
DEPARTED_MAX = 16384
# The most addresses learned from uplinks. Frames to other addresses are also flooded to local VM ports.
OUTSIDE_MAX = 4096
# The most multicast groups that the switch remembers for a VM port, to drop other members' reports.
GROUPS_PER_PORT_MAX = 1024

# The most time for which broadcasts from a new uplink are dropped, until those from the old uplink are
# dropped. The flow's timeout works even if the service stops. OpenFlow has no shorter timeout.
HELD_TIMEOUT_S = 1

COOKIE_PREFIX_MASK = 0xFFFFFF << 40
COOKIE_KIND_MASK = COOKIE_PREFIX_MASK | 0xFF << 32


class Kind(IntEnum):
    """The kind of a flow, a part of its cookie. Unless noted, the cookie's low 16 bits are an ofport."""

    FIXED = 0
    FROM_VM = 1  # counts frames that a VM port sends to uplinks
    TO_VM = 2  # counts frames from uplinks to a VM port
    LEARNED = 3  # added by the switch itself: not compared with the desired flows
    RESCUE = 4  # added by `ovs-lbt rescue`; the service removes it after the service has started
    BUCKET = 5  # counts frames in a hash bucket; low bits: the hash's number and the bucket
    FROM_ADDRESS = 6  # counts frames from an address unit; low bits: the unit's slot
    TO_ADDRESS = 7  # counts frames from uplinks to an address unit; low bits: the unit's slot
    INBOUND = 8  # counts frames from an uplink to a VM port; bits 16 and above: the uplink's ofport
    PROBE = 9  # sends path-check probes, and the answers of queried hosts, to the service
    OUTSIDE = 10  # added by the switch itself: learned outside addresses, and temporary drops
    # Sends other frames of path checks to the service: copies, forged frames, proofs
    AROUND_PROBES = 11


_KINDS = {kind.value: kind for kind in Kind}

GROUP_IDS = range(0x6C000000, 0x6D000000)
# The kinds of bucket groups, one for each hash. The last kind is for address units.
HASH_SLOTS = range(0xE0, 0xF0)


class Group(IntEnum):
    """The kind of a group, a part of its ID. Unless noted, the ID's low 16 bits are an ofport.

    The kinds from 1 on, one for each uplink, deliver frames flooded by that uplink to a VM port.
    """

    BINDING = 0  # sends a VM port's traffic out on its uplink
    LOCAL = 0xF0  # floods to VM ports of a class of VLANs; low bits: the lowest VLAN, and the part
    NORMAL = 0xF1  # passes flooded unicast from an uplink to NORMAL
    UNICAST = 0xF2  # delivers unicast from uplinks to a VM port
    SELECT = 0xF3  # selects a bucket with the datapath's hash; one group, the same on all bridges
    PRESENCE = 0xF4  # continues in PRESENT if a VM port exists and its link is up, else in ABSENT
    LANE = 0xF5  # sends out the frames of a lane, which endpoints.py explains; low bits: its uplink
    TO_ENDPOINT = 0xF6  # accepts a lane's frames from an uplink; low bits: positions of both
    ALWAYS = 0xF7  # always live, for the last buckets of other groups, which watch this group

    def id_of(self, number: int) -> int:
        return _group_id(self, number)


def _group_id(kind: int, number: int) -> int:
    assert 0 <= number < 1 << 16, "a number of 16 bits, as in registers"
    return GROUP_IDS.start | kind << 16 | number


_LOCAL_ANY_VLAN = 0xFFFF
# A message holds 64 kB, and a bucket of these groups takes 48 bytes.
PORTS_PER_LOCAL_GROUP_MAX = 1024
# The switch stops processing a frame after 4096 resubmits, and each VM port needs one of them.
PORTS_PER_VLAN_MAX = 4000
# Takes the place of a hash's number if each address behind the VM port has its own uplink.
ASSIGNED = len(HASH_SLOTS) - 1
# The most addresses with their own uplink.
SLOTS = 1 << 16
SELECT_GROUP_ID, ALWAYS_GROUP_ID = Group.SELECT.id_of(0), Group.ALWAYS.id_of(0)
# A bit in cookies of flows learned from ports that only NORMAL serves. Cookies of other learned flows
# contain an ofport and, in bits 16 to 30, a digest of the VLANs that the port carries.
FROM_NORMAL = 1 << 31
# Bits in cookies of flows for addresses beyond a VM port's limit, and for multicast group members.
BEYOND_LIMIT, MEMBERSHIP = 1 << 17, 1 << 18

MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")
UNICAST = ("00:00:00:00:00:00", "01:00:00:00:00:00")
BROADCAST = "ff:ff:ff:ff:ff:ff"
VLAN_PRESENT = 0x1000
VLAN_ID_BITS = 12
VLAN_ID_MASK = (1 << VLAN_ID_BITS) - 1
# Matches of learned flows: the learned frame's VLAN, and frames to or from the learned source.
SAME_VLAN = LearnMatch(Register.VLAN, Register.VLAN, VLAN_ID_BITS)
TO_SOURCE = LearnMatch("eth_src", "eth_dst", 48)
FROM_SOURCE = LearnMatch("eth_src", "eth_src", 48)
# Registers that learned flows set: the target of a frame, and properties of the frame's source.
TO_SENDER = LearnLoad(Register.VM_PORT, Register.TARGET, 16)
TO_ELSEWHERE = LearnLoad(ELSEWHERE, Register.TARGET, 16)
IS_LOCAL = LearnLoad(1, Register.LOCAL, 1)
IS_LOCKED = LearnLoad(1, Register.LOCKED, 1)
IS_BEHIND_SENDER = LearnLoad(Register.VM_PORT, Register.BEHIND, 16)
ETH_ARP, ETH_RARP, ETH_IPV4, ETH_IPV6 = 0x0806, 0x8035, 0x0800, 0x86DD
ETH_TAGS = (0x8100, 0x88A8)
IGMP, ICMPV6 = 2, 58
MLD_V1_REPORT = 131
ND_ADVERTISEMENT = 136
# A tag of any VLAN.
TAGGED = (VLAN_PRESENT, VLAN_PRESENT)


def icmpv6(message: int) -> Fields:
    """Return match fields for ICMPv6 messages of type `message`."""
    return {"eth_type": ETH_IPV6, "ip_proto": ICMPV6, "icmpv6_type": message}


IGMP_MESSAGE: Fields = {"eth_type": ETH_IPV4, "ip_proto": IGMP}


def delivery_group_id(ofport: int, uplink_index: int) -> int:
    """Return the ID of the group that delivers broadcasts from an uplink to a VM port."""
    assert 0 <= uplink_index < HASH_SLOTS.start - 1, "a group ID for each uplink"
    return _group_id(uplink_index + 1, ofport)


def local_group_id(vlan: int | None, part: int = 0) -> int:
    """Return the ID of a flood group. `vlan`: the lowest of its VLANs (None: all other VLANs)."""
    part_bits = part << VLAN_ID_BITS
    assert 0 <= part_bits < _LOCAL_ANY_VLAN, "the part fits into the ID"
    number = _LOCAL_ANY_VLAN - part_bits if vlan is None else part_bits | vlan
    return Group.LOCAL.id_of(number)


def bucket_group_id(number: int, bucket: int) -> int:
    """Return the ID of a bucket's group. `number`: the number of the hash, from 0 to 14."""
    return _group_id(HASH_SLOTS[number], bucket)


def to_endpoint_group_id(lane_index: int, uplink_index: int) -> int:
    """Return the ID of the group that accepts frames to a lane's addresses (see `endpoints`) from an uplink."""
    assert max(lane_index, uplink_index) < 1 << 8, "each index has eight bits of the ID"
    return Group.TO_ENDPOINT.id_of(lane_index << 8 | uplink_index)


def address_group_id(slot: int) -> int:
    """Return the ID of the group that sends an address unit's frames out on the unit's uplink."""
    return bucket_group_id(ASSIGNED, slot)


def bucket_cookie(number: int, bucket: int) -> int:
    """Return the cookie of the flow that counts a hash bucket's frames. `bucket`: from 0 to 255."""
    assert 0 <= bucket < 1 << 8, "a hash has at most 256 buckets"
    return cookie(Kind.BUCKET, number << 8 | bucket)


def cookie_bucket(value: int) -> tuple[int, int]:
    """Return the hash's number and the bucket in the cookie of a flow of kind BUCKET."""
    return value >> 8 & 0xFF, value & 0xFF


def cookie(kind: Kind, ofport: int) -> int:
    assert 0 <= ofport < 1 << 32, "the kind is in bits 32 and above"
    return COOKIE_PREFIX | kind << 32 | ofport


def cookie_ofport(value: int) -> int:
    """Return the ofport in the cookie of one of our flows; 0 if the cookie contains no port."""
    return value & 0xFFFF


def inbound_cookie(ofport: int, uplink: int) -> int:
    """Return the cookie of the flow that counts frames from an uplink to a VM port."""
    assert 0 <= ofport < 1 << 16, "the uplink is in bits 16 and above"
    return cookie(Kind.INBOUND, uplink << 16 | ofport)


def cookie_inbound(value: int) -> tuple[int, int]:
    """Return the ofports of the VM port and the uplink in the cookie of a flow of kind INBOUND."""
    return value & 0xFFFF, value >> 16 & 0xFFFF


def learned_cookie(ofport: OfPort, vlans: PortVlans) -> int:
    """Return the cookie of flows that the switch learns on a VM port.

    The cookie depends on the port's VLANs. When the VLANs change, the last learn action with the old
    cookie is removed, and the switch then deletes the flows learned with this cookie.
    """
    return cookie(Kind.LEARNED, (digest(vlans) << 16 & ~FROM_NORMAL) | ofport)


def cookie_kind(value: int) -> Kind | None:
    """Return the kind in a flow's cookie; None if another program added the flow."""
    if value & COOKIE_PREFIX_MASK != COOKIE_PREFIX:
        return None
    # A flow with our prefix and an unknown kind is compared like our flows, and therefore removed.
    return _KINDS.get(value >> 32 & 0xFF, Kind.FIXED)


def openflow_port(ofport: int) -> int:
    """Return an ofport's OpenFlow 1.3 port number. That of LOCAL has 32 bits, but only 16 in registers."""
    return OFPP_LOCAL if ofport == OFPORT_LOCAL else ofport


def in_vlans(vlans: VlanSet) -> Iterator[Fields]:
    """Yield matches on register VLAN that together cover `vlans`. An empty match covers any VLAN."""
    for value, mask in blocks(vlans):
        whole = masked(value, ~VLAN_ID_MASK & 0xFFFFFFFF | mask, 0xFFFFFFFF)
        yield {Register.VLAN: whole} if mask else {}


def masked(value: int, mask: int, all_ones: int) -> MatchValue:
    """Return a value with its mask, or only the value if the mask is full, as the switch reports it."""
    return value if mask == all_ones else (value, mask)
