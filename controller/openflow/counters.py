"""Decodes the counters of ports, VM ports, buckets and flows in OpenFlow statistics replies.

The framework's parser is not used, because it is slow and polls are frequent.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from controller.api.events import PortCounters, Sample
from controller.dataplane.tables import cookie_bucket, cookie_inbound, cookie_ofport
from controller.openflow import framing
from controller.openflow.messages import ofport_of

# ofp_port_stats and ofp_flow_stats, without the fields that the service does not use.
PORT_STATS = struct.Struct("!I4xQQQQQQ48xII")
FLOW_COUNTS = struct.Struct("!4xII12xQQQ")


class FlowCounts(NamedTuple):
    """The cookie, the age and the counters of a flow."""

    cookie: int
    age_s: float
    packets: int
    bytes: int


def flow_counts(body: bytes) -> list[FlowCounts]:
    """Return the counters of each flow in the body of a flow statistics reply.

    Raises:
        Malformed: the length of a flow does not fit the body.
    """
    found = map(FLOW_COUNTS.unpack_from, framing.split(body, framing.FLOW_LEAST_BYTES))
    return [
        FlowCounts(cookie, sec + nsec / 1e9, packets, count)
        for sec, nsec, cookie, packets, count in found
    ]


def unit_counters(to_vm: bytes, from_vm: bytes) -> tuple[tuple[int, Sample], ...]:
    """Return each VM port's traffic to and from uplinks, as (ofport, sample).

    A sample's time is the age of the flow that counts the VM port's sent traffic. For address
    units, the first value is the slot (see `teaming.address_units`) instead of the ofport.

    Raises:
        Malformed: the length of a flow does not fit the body.
    """
    received = {cookie_ofport(found.cookie): found[2:] for found in flow_counts(to_vm)}
    counted = []
    for cookie, age_s, tx_packets, tx_bytes in flow_counts(from_vm):
        ofport = cookie_ofport(cookie)
        rx_packets, rx_bytes = received.get(ofport, (0, 0))
        counted.append((ofport, Sample(age_s, tx_bytes, rx_bytes, tx_packets, rx_packets)))
    return tuple(counted)


def bucket_counters(body: bytes) -> tuple[tuple[tuple[int, int], Sample], ...]:
    """Return the traffic sent in each bucket, as ((hash, bucket), sample). Received bytes are 0.

    Raises:
        Malformed: the length of a flow does not fit the body.
    """
    return tuple(
        (cookie_bucket(found.cookie), Sample(found.age_s, found.bytes, 0, found.packets))
        for found in flow_counts(body)
    )


def inbound_counters(body: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return tuples (VM port's ofport, uplink's ofport, bytes from the uplink to the VM port).

    Raises:
        Malformed: the length of a flow does not fit the body.
    """
    return tuple((*cookie_inbound(found.cookie), found.bytes) for found in flow_counts(body))


def port_counters(body: bytes) -> tuple[PortCounters, ...]:
    """Return the counters in the body of a port statistics reply.

    Raises:
        Malformed: the last port is incomplete.
    """
    framing.check_rows(len(body), PORT_STATS.size)
    ports = []
    for row in PORT_STATS.iter_unpack(body):
        number, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, sec, nsec = row
        counted = tx_bytes, rx_bytes, tx_dropped, rx_dropped, tx_packets, rx_packets
        # Passed by position, because keywords would double the time.
        ports.append(PortCounters(ofport_of(number), sec + nsec / 1e9, *counted))
    return tuple(ports)
