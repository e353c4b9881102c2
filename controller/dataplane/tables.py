"""The map of the pipeline: table ids, registers, cookies, group ids and timeouts.

docs/architecture.md draws it. Our flows have `COOKIE_PREFIX`, our groups are in `GROUP_IDS`;
nothing else on the bridge is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, StrEnum

from controller.config.vlans import PortVlans, VlanSet, blocks
from controller.dataplane.specs import COOKIE_PREFIX, Fields, LearnLoad, LearnMatch, MatchValue
from policies.model import OFPORT_LOCAL, OfPort

OFPP_LOCAL = 0xFFFFFFFE
OFPP_CONTROLLER = 0xFFFFFFFD
OFPP_NORMAL = 0xFFFFFFFA


class Table(IntEnum):
    """What each table does; numbers from LOCATION on are look-ups that return."""

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
    """Registers, by the name of their field. Zero means "not set" in each."""

    VM_PORT = "reg0"  # ofport the frame came in by, when that is a VM port
    UPLINK = "reg1"  # ofport the frame came in by, when that is an uplink
    VLAN = "reg2"  # VLAN id; 0 for untagged frames
    TARGET = "reg3"  # VM port the destination address is behind, or ELSEWHERE
    LOCAL = "reg4"  # 1: the source address is behind a VM port
    LOCKED = "reg5"  # 1: the source address announced itself from here a moment ago
    ANNOUNCES = "reg6"  # 1: the frame announces its source address
    NIBBLES = "reg7"  # bits 0-3 and 4-7 are compared; bit 8 says that some pair differed
    LEARNED = "reg8"  # 1: the source address is among those learned on its VM port
    NORMAL = "reg9"  # 1: the frame is left to NORMAL
    HOME = (
        "reg10"  # uplink that the sender's broadcasts use now; from an uplink: a VM port to go to
    )
    HASHED = "reg11"  # number of the hash that the sender's frames are spread by, or ASSIGNED
    BUCKET = "reg12"  # what that hash makes of the frame
    IP_HASH = "reg13"  # bits 0-1 and 2-3 are of two addresses; from bit 4 on, a remainder
    BEHIND = "reg14"  # VM port the source address was learned on; set with LOCAL
    # Bits 0-15: the uplink whose off-home address an endpoint's frame has, or would have off home.
    # Bits 16-31, if an endpoint has sent it: the uplink that is the endpoint's home while it is live.
    LANE = "reg15"


# A field that no register shares: why a frame goes to several VM ports. Zero: it does not.
FLOODED = "metadata"
BY_UPLINK = 1  # an uplink has flooded it
REPORT = 2  # a VM port reports that it is in a multicast group

ELSEWHERE = 0xFFFF
LEARNED_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 5
# On a LAG, where every multicast frame sets the lock: what comes back does so within milliseconds.
LAG_LOCK_TIMEOUT_S = 1
# For how long after a frame from an off-home address of an endpoint frames to it are taken from any uplink.
SPOKEN_TIMEOUT_S = 10
# How many addresses the switch learns on one VM port, and locks for it: more than VMs nested in a
# VM need. The switch counts them for each new one, so a VM that invents addresses must not have
# too many.
ADDRESSES_PER_PORT_MAX = 1024
# How many addresses the switch remembers as having left. Only local addresses can leave.
DEPARTED_MAX = 16384
# How many addresses the switch learns from uplinks. Frames for others are flooded to local VM ports, too.
OUTSIDE_MAX = 4096
# How many groups of a VM port the switch remembers, so that members do not hear the reports of others.
GROUPS_PER_PORT_MAX = 1024

# What keeps a way closed for broadcasts until the old one is closed, too. It ends by itself, so that a
# VM port is not deaf for longer if the service ends in between. OpenFlow has no shorter timeout.
HELD_TIMEOUT_S = 1

COOKIE_PREFIX_MASK = 0xFFFFFF << 40
COOKIE_KIND_MASK = COOKIE_PREFIX_MASK | 0xFF << 32


class Kind(IntEnum):
    """The kind of a flow, in its cookie; the low 16 bits are the ofport it belongs to."""

    FIXED = 0
    FROM_VM = 1  # counts what a VM port sends to uplinks
    TO_VM = 2  # counts what uplinks bring for a VM port
    LEARNED = 3  # made by the switch itself: never ours to compare
    RESCUE = 4  # made by `ovs-lbt rescue`: the service removes it when it is back
    BUCKET = 5  # counts what a bucket of a hash carries; number and bucket instead of the ofport
    FROM_ADDRESS = 6  # counts what an address behind a VM port sends; its slot, not an ofport
    TO_ADDRESS = 7  # counts what uplinks bring for it
    INBOUND = 8  # counts what one uplink brings for a VM port; from bit 16 on that uplink's ofport
    PROBE = 9  # gives the service what probes of an uplink's path bring
    OUTSIDE = 10  # made by the switch itself, too: which addresses uplinks bring, and what it drops
    # Gives the service what else path checks need: copies, forged frames, proofs
    AROUND_PROBES = 11


_KINDS = {kind.value: kind for kind in Kind}

GROUP_IDS = range(0x6C000000, 0x6D000000)
# The groups of the buckets of each hash; of the last number, those of addresses behind VM ports.
HASH_SLOTS = range(0xE0, 0xF0)


class Group(IntEnum):
    """The kind of a group, in its id; the low 16 bits are the ofport it belongs to, unless stated otherwise.

    Kinds from 1 on deliver frames that one uplink floods to a VM port.
    """

    BINDING = 0  # carries a VM port's traffic to its uplink
    LOCAL = 0xF0  # floods to the local VM ports of some VLANs; the first VLAN instead of the ofport
    NORMAL = 0xF1  # gives NORMAL the unicast that an uplink floods
    UNICAST = 0xF2  # delivers to a VM port the unicast that uplinks bring for it
    SELECT = 0xF3  # picks a bucket by the datapath's hash; one group, the same on all bridges
    PRESENCE = 0xF4  # tells whether a VM port is still there
    LANE = 0xF5  # by it frames leave that have an endpoint's off-home address of an uplink
    TO_ENDPOINT = 0xF6  # takes frames to such an address from one uplink; both uplinks by position
    ALWAYS = 0xF7  # other groups watch this one to do something if no port is live that they watch

    def id_of(self, number: int) -> int:
        return _group_id(self, number)


def _group_id(kind: int, number: int) -> int:
    assert 0 <= number < 1 << 16, "a number of 16 bits, as in registers"
    return GROUP_IDS.start | kind << 16 | number


_LOCAL_ANY_VLAN = 0xFFFF
# A message holds 64 kB, and a bucket of these groups takes 48 bytes.
PORTS_PER_LOCAL_GROUP_MAX = 1024
# The switch ends the translation of a frame after 4096 resubmits, and each VM port takes one of them.
PORTS_PER_VLAN_MAX = 4000
# In place of a hash's number: each address behind the VM port has an uplink of its own.
ASSIGNED = len(HASH_SLOTS) - 1
# How many such addresses there can be.
SLOTS = 1 << 16
SELECT_GROUP_ID, ALWAYS_GROUP_ID = Group.SELECT.id_of(0), Group.ALWAYS.id_of(0)
# In the cookie of what is learned from ports that only NORMAL knows. Cookies of other learned
# flows have an ofport and, from bit 16 on, a digest of the VLANs that it carries.
FROM_NORMAL = 1 << 31
# In the cookies of addresses beyond a VM port's limit, and of members of groups.
BEYOND_LIMIT, MEMBERSHIP = 1 << 17, 1 << 18

MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")
UNICAST = ("00:00:00:00:00:00", "01:00:00:00:00:00")
BROADCAST = "ff:ff:ff:ff:ff:ff"
VLAN_PRESENT = 0x1000
VLAN_ID_BITS = 12
VLAN_ID_MASK = (1 << VLAN_ID_BITS) - 1
# What learned flows match: the VLAN of the frame that taught them, frames to its source, and frames from it.
SAME_VLAN = LearnMatch(Register.VLAN, Register.VLAN, VLAN_ID_BITS)
TO_SOURCE = LearnMatch("eth_src", "eth_dst", 48)
FROM_SOURCE = LearnMatch("eth_src", "eth_src", 48)
# What they set: where to send the frame, and what is known of its source.
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
    """The fields of ICMPv6 messages of a type."""
    return {"eth_type": ETH_IPV6, "ip_proto": ICMPV6, "icmpv6_type": message}


IGMP_MESSAGE: Fields = {"eth_type": ETH_IPV4, "ip_proto": IGMP}


def delivery_group_id(ofport: int, uplink_index: int) -> int:
    """The group that delivers broadcasts from an uplink to a VM port."""
    assert 0 <= uplink_index < HASH_SLOTS.start - 1, "there are ids for so many uplinks"
    return _group_id(uplink_index + 1, ofport)


def local_group_id(vlan: int | None, part: int = 0) -> int:
    """One of the groups of the local VM ports of the VLANs from `vlan` on (None: of all others)."""
    part_bits = part << VLAN_ID_BITS
    assert 0 <= part_bits < _LOCAL_ANY_VLAN, "a VLAN has few parts"
    number = _LOCAL_ANY_VLAN - part_bits if vlan is None else part_bits | vlan
    return Group.LOCAL.id_of(number)


def bucket_group_id(number: int, bucket: int) -> int:
    """The group that carries one bucket of the hash `number` (from 0 to 14) to its uplink."""
    return _group_id(HASH_SLOTS[number], bucket)


def to_endpoint_group_id(lane_index: int, uplink_index: int) -> int:
    """The group that takes frames for a lane from one uplink. Both uplinks by position."""
    assert max(lane_index, uplink_index) < 1 << 8, "each has eight bits of the id"
    return Group.TO_ENDPOINT.id_of(lane_index << 8 | uplink_index)


def address_group_id(slot: int) -> int:
    """The group that sends frames from an address behind a VM port to its uplink."""
    return bucket_group_id(ASSIGNED, slot)


def bucket_cookie(number: int, bucket: int) -> int:
    """The cookie of the flow that counts a bucket (from 0 to 255) of a hash."""
    assert 0 <= bucket < 1 << 8, "a hash has at most 256 buckets"
    return cookie(Kind.BUCKET, number << 8 | bucket)


def cookie_bucket(value: int) -> tuple[int, int]:
    """The hash and the bucket that a flow of kind BUCKET counts."""
    return value >> 8 & 0xFF, value & 0xFF


def cookie(kind: Kind, ofport: int) -> int:
    assert 0 <= ofport < 1 << 32, "the kind is above these bits"
    return COOKIE_PREFIX | kind << 32 | ofport


def cookie_ofport(value: int) -> int:
    """The ofport that one of our flows belongs to; 0: none."""
    return value & 0xFFFF


def inbound_cookie(ofport: int, uplink: int) -> int:
    """The cookie of the flow that counts frames from an uplink to a VM port."""
    assert 0 <= ofport < 1 << 16, "the uplink is above these bits"
    return cookie(Kind.INBOUND, uplink << 16 | ofport)


def cookie_inbound(value: int) -> tuple[int, int]:
    """The VM port and the uplink, by ofport, that a flow of kind INBOUND counts for."""
    return value & 0xFFFF, value >> 16 & 0xFFFF


def learned_cookie(ofport: OfPort, vlans: PortVlans) -> int:
    """The cookie of flows that the switch learns on a VM port.

    It depends on the port's VLANs. When these change, the last flow that taught the old cookie is
    removed, and its learned flows are removed with it.
    """
    return cookie(Kind.LEARNED, (vlans.digest << 16 & ~FROM_NORMAL) | ofport)


def cookie_kind(value: int) -> Kind | None:
    """The kind of one of our flows; None for the flow of another program."""
    if value & COOKIE_PREFIX_MASK != COOKIE_PREFIX:
        return None
    # Our prefix, but an unknown kind: the flow is compared like ours, and so removed.
    return _KINDS.get(value >> 32 & 0xFF, Kind.FIXED)


def openflow_port(ofport: int) -> int:
    """An ofport as OpenFlow 1.3 writes it: LOCAL has 32 bits there, and 16 in registers."""
    return OFPP_LOCAL if ofport == OFPORT_LOCAL else ofport


def in_vlans(vlans: VlanSet) -> Iterator[Fields]:
    """Matches on register VLAN that together cover these VLANs. An empty one matches any VLAN."""
    for value, mask in blocks(vlans):
        whole = masked(value, ~VLAN_ID_MASK & 0xFFFFFFFF | mask, 0xFFFFFFFF)
        yield {Register.VLAN: whole} if mask else {}


def masked(value: int, mask: int, all_ones: int) -> MatchValue:
    """A value with its mask, in the form in which the switch reports it: without a full mask."""
    return value if mask == all_ones else (value, mask)
