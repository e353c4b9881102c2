"""Numbers of the OpenFlow pipeline: table IDs, registers, cookies, group IDs and timeouts.

See the drawing in docs/architecture.md. All flows with `COOKIE_PREFIX` and all groups in `GROUP_IDS`
are ours, and no others.
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
    """The tables of the pipeline. From LOCATION on, they are look-ups, which return to the caller."""

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
    """Registers and the names of their fields. In every register, zero means "not set"."""

    VM_PORT = "reg0"  # ofport of the VM port on which the frame was received
    UPLINK = "reg1"  # ofport of the uplink on which the frame was received
    VLAN = "reg2"  # VLAN ID; 0 for untagged frames
    TARGET = "reg3"  # VM port of the destination address, or ELSEWHERE
    LOCAL = "reg4"  # 1: the source address is behind a VM port
    LOCKED = "reg5"  # 1: the source address was announced from this bridge a moment ago
    ANNOUNCES = "reg6"  # 1: the frame announces its source address
    NIBBLES = "reg7"  # bits 0-3 and 4-7 are compared; bit 8 is set if a pair differed
    LEARNED = "reg8"  # 1: the source address has been learned on its VM port
    NORMAL = "reg9"  # 1: the frame is left to NORMAL
    HOME = (
        "reg10"  # uplink that the sender's broadcasts use now; from an uplink: the target VM port
    )
    HASHED = "reg11"  # number of the hash that spreads the sender's frames, or ASSIGNED
    BUCKET = "reg12"  # bucket of the frame, the result of that hash
    IP_HASH = "reg13"  # bits 0-1 and 2-3 are of two addresses; from bit 4 on, a remainder
    BEHIND = "reg14"  # VM port on which the source address was learned; set with LOCAL
    # Bits 0-15: the uplink of the off-home address that an endpoint's frame has, or would get off home.
    # Bits 16-31, if an endpoint has sent the frame: the first uplink of the endpoint's order.
    LANE = "reg15"


# A separate field: the reason why a frame goes to several VM ports. Zero: it does not.
FLOODED = "metadata"
BY_UPLINK = 1  # an uplink has flooded the frame
REPORT = 2  # a VM port has reported that it is a member of a multicast group

ELSEWHERE = 0xFFFF
LEARNED_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 5
# On a LAG, every multicast frame sets the lock. Frames that return do so within milliseconds.
LAG_LOCK_TIMEOUT_S = 1
# How long frames to an endpoint's off-home address are accepted on any uplink after a frame from it.
SPOKEN_TIMEOUT_S = 10
# The most addresses that the switch learns on one VM port, and locks for it: more than nested VMs need.
# The switch counts them all for each new address, so a VM that makes up addresses must not have too
# many.
ADDRESSES_PER_PORT_MAX = 1024
# The most departed addresses that the switch remembers. Only local addresses can depart.
DEPARTED_MAX = 16384
# The most addresses learned from uplinks. Frames to other addresses are also flooded to local VM ports.
OUTSIDE_MAX = 4096
# The most groups of a VM port that the switch remembers. Members do not receive reports by others.
GROUPS_PER_PORT_MAX = 1024

# The time for which broadcasts from a new uplink are dropped until the old uplink's are, too. A timeout
# ends this even if the service stops in between. OpenFlow has no shorter timeout.
HELD_TIMEOUT_S = 1

COOKIE_PREFIX_MASK = 0xFFFFFF << 40
COOKIE_KIND_MASK = COOKIE_PREFIX_MASK | 0xFF << 32


class Kind(IntEnum):
    """The kind of a flow, encoded in its cookie. The cookie's low 16 bits are an ofport, unless noted."""

    FIXED = 0
    FROM_VM = 1  # counts frames that a VM port sends to uplinks
    TO_VM = 2  # counts frames from uplinks to a VM port
    LEARNED = 3  # added by the switch itself: never compared
    RESCUE = 4  # added by `ovs-lbt rescue`: the service removes it after its start
    BUCKET = 5  # counts frames in a bucket of a hash; number and bucket instead of the ofport
    FROM_ADDRESS = 6  # counts frames from an address behind a VM port; its slot, not an ofport
    TO_ADDRESS = 7  # counts frames from uplinks to such an address
    INBOUND = 8  # counts frames from one uplink to a VM port; from bit 16 on the uplink's ofport
    PROBE = 9  # sends probes of an uplink's path, and answers, to the service
    OUTSIDE = 10  # added by the switch itself, too: addresses learned from uplinks, and drops
    # Sends other frames for path checks to the service: copies, forged frames, proofs
    AROUND_PROBES = 11


_KINDS = {kind.value: kind for kind in Kind}

GROUP_IDS = range(0x6C000000, 0x6D000000)
# The kinds of the bucket groups of each hash. The last kind is for addresses behind VM ports.
HASH_SLOTS = range(0xE0, 0xF0)


class Group(IntEnum):
    """The kind of a group, encoded in its ID above the low 16 bits, which are an ofport unless noted.

    The kinds from 1 on (one for each uplink) deliver frames that the uplink floods to a VM port.
    """

    BINDING = 0  # sends a VM port's traffic out on its uplink
    LOCAL = 0xF0  # floods to the local VM ports of some VLANs; the first VLAN instead of the ofport
    NORMAL = 0xF1  # passes flooded unicast from an uplink to NORMAL
    UNICAST = 0xF2  # delivers unicast from uplinks to a VM port
    SELECT = 0xF3  # selects a bucket with the datapath's hash; one group, the same on all bridges
    PRESENCE = 0xF4  # continues according to whether a VM port still exists and its link is up
    LANE = 0xF5  # sends out frames from endpoints' off-home addresses for an uplink
    TO_ENDPOINT = 0xF6  # accepts frames to such an address from an uplink; both uplinks by position
    ALWAYS = 0xF7  # always live: other groups watch it in their last bucket

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
# In place of a hash's number: each address behind the VM port has its own uplink.
ASSIGNED = len(HASH_SLOTS) - 1
# The most addresses with their own uplink.
SLOTS = 1 << 16
SELECT_GROUP_ID, ALWAYS_GROUP_ID = Group.SELECT.id_of(0), Group.ALWAYS.id_of(0)
# Set in cookies of flows learned from ports that only NORMAL knows. Cookies of other learned flows
# contain an ofport and, from bit 16 on, a digest of the VLANs that the port carries.
FROM_NORMAL = 1 << 31
# Set in cookies of flows for addresses beyond a VM port's limit, and for members of multicast groups.
BEYOND_LIMIT, MEMBERSHIP = 1 << 17, 1 << 18

MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")
UNICAST = ("00:00:00:00:00:00", "01:00:00:00:00:00")
BROADCAST = "ff:ff:ff:ff:ff:ff"
VLAN_PRESENT = 0x1000
VLAN_ID_BITS = 12
VLAN_ID_MASK = (1 << VLAN_ID_BITS) - 1
# Matches of learned flows: the VLAN of the learned frame, and frames to or from its source.
SAME_VLAN = LearnMatch(Register.VLAN, Register.VLAN, VLAN_ID_BITS)
TO_SOURCE = LearnMatch("eth_src", "eth_dst", 48)
FROM_SOURCE = LearnMatch("eth_src", "eth_src", 48)
# Values that learned flows set: the target of the frame, and facts about its source.
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
    """Match fields for ICMPv6 messages of type `message`."""
    return {"eth_type": ETH_IPV6, "ip_proto": ICMPV6, "icmpv6_type": message}


IGMP_MESSAGE: Fields = {"eth_type": ETH_IPV4, "ip_proto": IGMP}


def delivery_group_id(ofport: int, uplink_index: int) -> int:
    """The ID of the group that delivers broadcasts from an uplink to a VM port."""
    assert 0 <= uplink_index < HASH_SLOTS.start - 1, "a group ID for each uplink"
    return _group_id(uplink_index + 1, ofport)


def local_group_id(vlan: int | None, part: int = 0) -> int:
    """The ID of a group of local VM ports for VLANs from `vlan` on (None: for all other VLANs)."""
    part_bits = part << VLAN_ID_BITS
    assert 0 <= part_bits < _LOCAL_ANY_VLAN, "a VLAN has few parts"
    number = _LOCAL_ANY_VLAN - part_bits if vlan is None else part_bits | vlan
    return Group.LOCAL.id_of(number)


def bucket_group_id(number: int, bucket: int) -> int:
    """The ID of the group that sends a bucket of hash `number` (from 0 to 14) out on its uplink."""
    return _group_id(HASH_SLOTS[number], bucket)


def to_endpoint_group_id(lane_index: int, uplink_index: int) -> int:
    """The ID of the group that accepts a lane's frames from one uplink. Both uplinks by position."""
    assert max(lane_index, uplink_index) < 1 << 8, "each has eight bits of the id"
    return Group.TO_ENDPOINT.id_of(lane_index << 8 | uplink_index)


def address_group_id(slot: int) -> int:
    """The ID of the group that sends frames from an address behind a VM port out on its uplink."""
    return bucket_group_id(ASSIGNED, slot)


def bucket_cookie(number: int, bucket: int) -> int:
    """The cookie of the flow that counts a bucket (from 0 to 255) of a hash."""
    assert 0 <= bucket < 1 << 8, "a hash has at most 256 buckets"
    return cookie(Kind.BUCKET, number << 8 | bucket)


def cookie_bucket(value: int) -> tuple[int, int]:
    """The number of the hash and the bucket in the cookie of a flow of kind BUCKET."""
    return value >> 8 & 0xFF, value & 0xFF


def cookie(kind: Kind, ofport: int) -> int:
    assert 0 <= ofport < 1 << 32, "the kind is above these bits"
    return COOKIE_PREFIX | kind << 32 | ofport


def cookie_ofport(value: int) -> int:
    """The ofport in the cookie of one of our flows; 0: no port."""
    return value & 0xFFFF


def inbound_cookie(ofport: int, uplink: int) -> int:
    """The cookie of the flow that counts frames from an uplink to a VM port."""
    assert 0 <= ofport < 1 << 16, "the uplink is above these bits"
    return cookie(Kind.INBOUND, uplink << 16 | ofport)


def cookie_inbound(value: int) -> tuple[int, int]:
    """The ofports of the VM port and the uplink in the cookie of a flow of kind INBOUND."""
    return value & 0xFFFF, value >> 16 & 0xFFFF


def learned_cookie(ofport: OfPort, vlans: PortVlans) -> int:
    """The cookie of flows that the switch learns on a VM port.

    The cookie depends on the port's VLANs. When these change, the last learn action with the old cookie
    is removed, and with it the flows that were learned.
    """
    return cookie(Kind.LEARNED, (digest(vlans) << 16 & ~FROM_NORMAL) | ofport)


def cookie_kind(value: int) -> Kind | None:
    """The kind in the cookie of one of our flows; None: it is another program's flow."""
    if value & COOKIE_PREFIX_MASK != COOKIE_PREFIX:
        return None
    # Our prefix with an unknown kind: the flow is compared like our flows, and therefore removed.
    return _KINDS.get(value >> 32 & 0xFF, Kind.FIXED)


def openflow_port(ofport: int) -> int:
    """An ofport as encoded in OpenFlow 1.3, where LOCAL has 32 bits; in registers, it has 16."""
    return OFPP_LOCAL if ofport == OFPORT_LOCAL else ofport


def in_vlans(vlans: VlanSet) -> Iterator[Fields]:
    """Matches on register VLAN that together cover `vlans`. An empty match covers any VLAN."""
    for value, mask in blocks(vlans):
        whole = masked(value, ~VLAN_ID_MASK & 0xFFFFFFFF | mask, 0xFFFFFFFF)
        yield {Register.VLAN: whole} if mask else {}


def masked(value: int, mask: int, all_ones: int) -> MatchValue:
    """A value with its mask, as the switch reports it: if the mask is full, the value only."""
    return value if mask == all_ones else (value, mask)
