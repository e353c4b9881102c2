"""Bindings and hashing: a VM port's traffic leaves on its bound uplink, or a hash spreads the traffic.

UPLINK_OUT -> the VM port's binding group -> the group's first live uplink; or, if the VM port is hashed:
-> HASH (selects the frame's bucket) -> BUCKET (counts the frame) -> the bucket's group
(its first live uplink) -> OFF_HOME (sends the frame out, with another source address if necessary).

Tables: UPLINK_OUT, HASH, BUCKET, OFF_HOME, IP_NIBBLE; in LEARN and FROM_UPLINK, the flows that drop
frames from our own source addresses. Groups: each VM port's binding group; one group for each bucket
of each hash; the group that selects a bucket with the datapath's hash (dp_hash).

Invariant: a move changes only the VM port's binding group, not flows. If the uplink goes down, the
switch itself fails over to the next uplink in the VM port's order.

Invariant: a frame leaves once, on a live uplink that carries its VLAN. Upstream switches see a VM's
source address on one uplink only.

With dp_hash, the switch caches two flows for a frame, and revalidates them at different times. The second
flow may still forward frames after the last split VM port was merged, or when a VM port is split again.
If the bucket does not exist at that time, a flow sends the frames out on the sender's home uplink.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from controller.config.vlans import TRUNK
from controller.dataplane import specs, tables
from controller.dataplane.normal import by_any_uplink
from controller.dataplane.output import ALWAYS, first_live, leave_by
from controller.dataplane.specs import FlowSpec, GroupSpec, LoadBits, SetField, ToGroup, flow
from controller.dataplane.tables import Group, Kind, Register, Table, icmpv6
from controller.dataplane.team import Hash, Team, VmPort, kept
from policies.classifiers import BUCKETS, Classifier
from policies.model import OfPort

# Open vSwitch's hash fields (flow_hash_fields in lib/flow.c). For IP, CONNECTION covers the addresses,
# the protocol, and the ports of TCP, UDP and SCTP, except in fragments. For all other frames, it covers
# both MAC addresses, VLAN and EtherType.
SOURCE_ADDRESS = "eth_src"
CONNECTION = "symmetric_l3l4+udp"

# The number of low VLAN ID bits that select the hash. A host's VLANs are often consecutive.
VLAN_HASH_BITS = 4
# Up to this number of uplinks, if it is a power of two, flows match the low bits of both addresses:
# N * N flows for each of IPv4 and IPv6. A cached flow then serves all addresses with the same low
# bits.
LOW_BITS_MAX_UPLINKS = 8
# For other numbers of uplinks, one look-up processes this many bits of both addresses.
BITS_AT_A_TIME = 2
ADDRESS_BITS = 32
_REMAINDER_BIT = 2 * BITS_AT_A_TIME
# (EtherType, source field, destination field, type of addresses)
_IP = (
    (tables.ETH_IPV4, "ipv4_src", "ipv4_dst", IPv4Address),
    (tables.ETH_IPV6, "ipv6_src", "ipv6_dst", IPv6Address),
)
BY_HOME = (SetField(Register.TARGET, 0), specs.Resubmit(Table.OFF_HOME))
_TO_BUCKET = specs.Resubmit(Table.BUCKET)
# The group that selects a bucket with the datapath's hash of the connection (dp_hash). It is added with
# OpenFlow 1.5 (openflow/side_connection.py), never changed, and removed like any other group.
SELECT_GROUP = GroupSpec(
    tables.SELECT_GROUP_ID,
    "select",
    tuple(
        specs.Bucket((SetField(Register.BUCKET, bucket), _TO_BUCKET)) for bucket in range(BUCKETS)
    ),
)
# The protocols with ports that the datapath hashes: TCP, UDP and SCTP.
_WITH_PORTS = (6, 17, 132)
# Membership reports. A snooping switch forwards a group's frames to ports that received its reports.
GROUP_REPORTS = (tables.IGMP_MESSAGE, *map(icmpv6, (tables.MLD_V1_REPORT, 132, 143)))
ND_MESSAGES = range(133, 138)  # solicitations, advertisements and redirects


def binding_groups(team: Team) -> Iterator[GroupSpec]:
    for port in team.vm_ports:
        ways = ((uplink, _leave(port, uplink, team)) for uplink in port.order)
        yield first_live(Group.BINDING.id_of(port.ofport), ways, by_any_uplink(port, team))
    if team.over_normal:
        yield ALWAYS


def _leave(port: VmPort, uplink: OfPort, team: Team) -> specs.Actions:
    """Return actions that send a VM port's frames out on `uplink`, or to HASH with `uplink` as home."""
    if port.hashed is None:
        if port.known_on not in (None, uplink):
            # The switch learns that frames for the VM may arrive there, and then sends the frame out.
            return SetField(Register.TARGET, uplink), specs.Resubmit(Table.INBOUND)
        return leave_by(uplink, team)
    # For tunnel endpoints, register LANE gets the first uplink of the order.
    lane = (LoadBits(Register.LANE, 16, 16, port.order[0]),) if team.has_lanes(port.hashed) else ()
    home, hashed = SetField(Register.HOME, uplink), SetField(Register.HASHED, port.hashed)
    return (*lane, home, hashed, specs.Resubmit(Table.HASH))


def flows(team: Team) -> Iterator[FlowSpec]:
    for port in team.vm_ports:
        sent, counts = {Register.VM_PORT: port.ofport}, tables.cookie(Kind.FROM_VM, port.ofport)
        group = ToGroup(Group.BINDING.id_of(port.ofport))
        yield flow(Table.UPLINK_OUT, 10, sent, group, cookie=counts)
    for made in team.hashes:
        yield from _hash_flows(made, team)
        yield from _bucket_flows(made.number, len(made.buckets))
    if team.dp_hash:
        yield flow(Table.BUCKET, 0, {}, *BY_HOME)
    if any(port.hashed is not None for port in team.vm_ports) or team.hashes or team.dp_hash:
        yield from _off_home_flows(team)
        # Drop our own frames that return. No VM may send from these addresses.
        for mac in sorted(set(team.off_home_macs.values())):
            yield flow(Table.FROM_UPLINK, 20, {"eth_src": mac})
            yield flow(Table.LEARN, 60, {"eth_src": mac})


def groups(team: Team) -> Iterator[GroupSpec]:
    """Yield the group of each bucket, which sends frames out on the bucket's first live uplink."""
    for made in team.hashes:
        has_lanes = team.has_lanes(made.number)
        for bucket, order in enumerate(made.buckets):
            yield by_first_live(tables.bucket_group_id(made.number, bucket), order, has_lanes)
    if team.dp_hash:
        # Installed even if no VM port is split, so that a split needs only one bundle.
        yield SELECT_GROUP


@kept
def _bucket_flows(number: int, buckets: int) -> Iterator[FlowSpec]:
    for bucket in range(buckets):
        hashed = {Register.HASHED: number, Register.BUCKET: bucket}
        group, counts = tables.bucket_group_id(number, bucket), tables.bucket_cookie(number, bucket)
        yield flow(Table.BUCKET, 10, hashed, ToGroup(group), cookie=counts)


# Cached, because most moves change few buckets.
@functools.lru_cache(maxsize=16 * BUCKETS)
def by_first_live(group_id: int, order: tuple[OfPort, ...], has_lanes: bool = False) -> GroupSpec:
    """Return a group that sends frames through table OFF_HOME to the first live uplink in `order`.

    `has_lanes`: set register LANE to the first uplink in `order`, even if that uplink is not live.
    """
    lane = (LoadBits(Register.LANE, 0, 16, order[0]),) if has_lanes and order else ()
    to_off_home = specs.Resubmit(Table.OFF_HOME)
    return first_live(
        group_id, ((u, (*lane, SetField(Register.TARGET, u), to_off_home)) for u in order)
    )


# ---- selection of a bucket -------------------------------------------------------------


def _hash_flows(made: Hash, team: Team) -> Iterator[FlowSpec]:
    if not made.buckets:
        yield in_hash(made.number, 0, BY_HOME)
        return
    match made.classifier:
        case Classifier.SOURCE_MAC | Classifier.SOURCE_MAC_VLAN:
            yield from _address_flows(made)
            if not team.hears_everywhere:
                yield from for_the_home_to_hear(made.number, team)
        case Classifier.TRANSPORT:
            yield from _transport_flows(made, team)
        case Classifier.IP_PAIR:
            yield from _ip_pair_flows(made)
        case Classifier.VM_PORT:
            raise ValueError("vm-port is a classifier without buckets")


def _address_flows(made: Hash) -> Iterator[FlowSpec]:
    """Yield flows that hash source addresses. With SOURCE_MAC_VLAN, low VLAN bits select the hash."""
    hashes = 1 << VLAN_HASH_BITS if made.classifier is Classifier.SOURCE_MAC_VLAN else 1
    for bits in range(hashes):
        vlans: specs.Fields = {Register.VLAN: (bits, hashes - 1)} if hashes > 1 else {}
        yield in_hash(made.number, 10, _into(made, SOURCE_ADDRESS, bits), **vlans)


def for_the_home_to_hear(number: int, team: Team) -> Iterator[FlowSpec]:
    """Yield flows for frames that must leave on the uplink where the sender receives multicast."""
    # A snooping switch sends a group's frames to ports that received a report. Reports get one of our
    # source addresses, because upstream switches may know the sender's address on another uplink.
    for report in GROUP_REPORTS:
        for uplink in team.uplinks:
            mac = team.off_home_macs.get(uplink)
            ours = (SetField("eth_src", mac),) if mac else ()
            out = (*ours, *leave_by(uplink, team))
            yield in_hash(number, 30, out, **report, **{Register.HOME: uplink})
    # If a source address is not learned, frames from it that return are not recognized. If such
    # broadcasts left on another uplink than the home, the VM port would receive its own broadcasts.
    yield in_hash(number, 20, BY_HOME, **{Register.LEARNED: 0})


def _transport_flows(made: Hash, team: Team) -> Iterator[FlowSpec]:
    """Yield flows that hash connections; without a LAG, only unicast IP frames that are not ND."""
    if team.dp_hash and len(made.buckets) == BUCKETS:
        yield from _dp_hash_flows(made, team)
    if team.hears_everywhere:
        yield in_hash(made.number, 10, _into(made, CONNECTION))
        return
    yield in_hash(made.number, 0, BY_HOME)
    for eth_type, *_ in _IP:
        connection = _into(made, CONNECTION)
        yield in_hash(made.number, 10, connection, eth_dst=tables.UNICAST, eth_type=eth_type)
    for message in ND_MESSAGES:
        yield in_hash(made.number, 20, BY_HOME, **icmpv6(message))


def _dp_hash_flows(made: Hash, team: Team) -> Iterator[FlowSpec]:
    """Yield flows that let the datapath hash TCP, UDP and SCTP, with 256 cached flows in all.

    Fragments are excluded, because the datapath hashes ports only in the first fragment. Other protocols
    are excluded, because the datapath's hash is the same for all frames that are not IP.
    """
    unicast = {} if team.hears_everywhere else {"eth_dst": tables.UNICAST}
    pick = (ToGroup(tables.SELECT_GROUP_ID),)
    for eth_type, *_ in _IP:
        for protocol in _WITH_PORTS:
            whole = {"eth_type": eth_type, "ip_proto": protocol, "ip_frag": 0}
            yield in_hash(made.number, 15, pick, **unicast, **whole)


def _ip_pair_flows(made: Hash) -> Iterator[FlowSpec]:
    """Yield flows that hash both IP addresses (of IPv6, the low 32 bits), as VMware does."""
    yield in_hash(made.number, 0, BY_HOME)
    count = len(made.buckets)
    if count <= LOW_BITS_MAX_UPLINKS and count.bit_count() == 1:
        yield from _by_low_bits(made)
    else:
        yield from _by_remainder(made)


def _by_low_bits(made: Hash) -> Iterator[FlowSpec]:
    count = len(made.buckets)
    for eth_type, source_field, destination_field, address in _IP:
        for source in range(count):
            for destination in range(count):
                low_bits = {}
                if count > 1:
                    mask = str(address(count - 1))
                    low_bits[source_field] = str(address(source)), mask
                    low_bits[destination_field] = str(address(destination)), mask
                bucket = SetField(Register.BUCKET, source ^ destination)
                yield in_hash(made.number, 10, (bucket, _TO_BUCKET), eth_type=eth_type, **low_bits)


def _by_remainder(made: Hash) -> Iterator[FlowSpec]:
    """Yield flows that compute the bucket by long division of source XOR destination."""
    count = len(made.buckets)
    # Higher bits do not change the remainder of a division by a power of two.
    bits = count.bit_length() - 1 if count.bit_count() == 1 else ADDRESS_BITS
    steps = range(-(-bits // BITS_AT_A_TIME) - 1, -1, -1)
    scratch = Register.IP_HASH
    for eth_type, source, destination, _ in _IP:
        divide: list[specs.Action] = []
        for bit in (BITS_AT_A_TIME * step for step in steps):
            divide.append(specs.CopyBits(source, bit, scratch, 0, BITS_AT_A_TIME))
            divide.append(specs.CopyBits(destination, bit, scratch, BITS_AT_A_TIME, BITS_AT_A_TIME))
            divide.append(specs.Resubmit(Table.IP_NIBBLE))
        remainder = (count - 1).bit_length()
        divide.append(specs.CopyBits(scratch, _REMAINDER_BIT, Register.BUCKET, 0, remainder))
        yield in_hash(made.number, 10, (*divide, _TO_BUCKET), eth_type=eth_type)
    values = 1 << BITS_AT_A_TIME
    for before in range(count):
        for a in range(values):
            for b in range(values):
                seen = before << _REMAINDER_BIT | b << BITS_AT_A_TIME | a
                after = (before * values + (a ^ b)) % count << _REMAINDER_BIT
                hashed = {Register.HASHED: made.number, scratch: seen}
                yield flow(Table.IP_NIBBLE, 10, hashed, SetField(scratch, after))


def _into(made: Hash, fields: str, basis: int = 0) -> specs.Actions:
    assert made.buckets, "a hash has buckets"
    return specs.Multipath(fields, len(made.buckets), Register.BUCKET, basis), _TO_BUCKET


def in_hash(
    number: int, priority: int, actions: specs.Actions, **fields: specs.MatchValue
) -> FlowSpec:
    """Return a flow in table HASH for frames that the hash with this number spreads."""
    return flow(Table.HASH, priority, {**fields, Register.HASHED: number}, *actions)


# ---- output ----------------------------------------------------------------------------


def _off_home_flows(team: Team) -> Iterator[FlowSpec]:
    """Yield flows that send frames out on a bucket's uplink, which may differ from the sender's home.

    Upstream switches know the sender's address on its home. From a frame on another uplink, they would
    learn that the address has moved. So the frame gets our source address for that uplink.
    """
    chosen = {uplink for made in team.hashes for order in made.buckets for uplink in order}
    chosen |= {uplink for address in team.addresses for uplink in address.order}
    rewriting = [made for made in team.hashes if made.classifier is Classifier.TRANSPORT]
    for uplink in team.uplinks:
        # For frames without a bucket, and frames in a VLAN that the bucket's uplink does not carry.
        home = {Register.HOME: uplink}
        out = leave_by(uplink, team)
        yield flow(Table.OFF_HOME, 0, home, *out)
        if uplink not in chosen:
            continue
        for in_vlan in tables.in_vlans(team.uplink_vlans.get(uplink, TRUNK).carried):
            here = {Register.TARGET: uplink, **in_vlan}
            yield flow(Table.OFF_HOME, 10, here, *out)
            if rewriting and uplink in team.off_home_macs:
                yield flow(Table.OFF_HOME, 30, {**here, **home}, *out)
                ours = SetField("eth_src", team.off_home_macs[uplink])
                for made in rewriting:
                    hashed = {**here, Register.HASHED: made.number}
                    yield flow(Table.OFF_HOME, 20, hashed, ours, *out)
