"""Adds the Ethernet headers that tc leaves out of the counters of offloaded flows.

With `hw-offload`, Open vSwitch gives its cached flows to tc, which counts a packet without its
Ethernet header (Open vSwitch, "Flow Hardware offload with Linux TC flower", "Flow bytes count").
Counters of ports include it. Without it, the load of a VM port that sends 64-byte frames would seem
to be less than four fifths of its uplink's load.
"""

from __future__ import annotations

from dataclasses import replace

from controller.api.events import UNSUPPORTED, Sample, UnitCountersRead

# Two addresses and the type. A tag in a frame may be missing as well, which is not documented.
HEADER_BYTES = 14


def with_headers(read: UnitCountersRead) -> UnitCountersRead:
    """Return a reading of flow counters as if tc counted whole frames."""
    return replace(
        read,
        units=tuple((ofport, _whole(sample)) for ofport, sample in read.units),
        buckets=tuple((bucket, _whole(sample)) for bucket, sample in read.buckets),
        address_units=tuple((slot, _whole(sample)) for slot, sample in read.address_units),
    )


def _whole(sample: Sample) -> Sample:
    return sample._replace(
        tx_bytes=_with(sample.tx_bytes, sample.tx_packets),
        rx_bytes=_with(sample.rx_bytes, sample.rx_packets),
    )


def _with(counted: float | None, packets: int) -> float | None:
    if counted is None or UNSUPPORTED in (counted, packets):
        return counted
    return counted + HEADER_BYTES * packets
