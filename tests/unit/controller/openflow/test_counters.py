"""Counters are those that the framework reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane.specs import FlowSpec
from controller.openflow import counters
from controller.openflow.framework import ofproto
from controller.openflow.messages import Asked
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import (
    PIPELINE,
    PORT_STATS,
    as_stats,
    multipart,
    parse,
)

LOCAL = ofproto.OFPP_LOCAL


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 0xFF00, LOCAL]),
            *[st.integers(0, 2**64 - 1)] * 12,
            *[st.integers(0, 2**32 - 1)] * 2,
        ),
        max_size=3,
    )
)
def test_ports_are_read_as_the_framework_reads_them(rows: list[tuple[int, ...]]) -> None:
    entries = [PORT_STATS.pack(*row) for row in rows]
    found = counters.port_counters(b"".join(entries))
    expected = parse(multipart(Asked.PORTS, ofproto.OFPMP_PORT_STATS, entries)).body
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.ofport == (OFPORT_LOCAL if theirs.port_no == LOCAL else theirs.port_no)
        assert ours.clock_s == theirs.duration_sec + theirs.duration_nsec / 1e9
        of = (f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "dropped", "packets"))
        for name in of:
            assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize("flow", PIPELINE.flows.values(), ids=lambda f: f"table{f.table}")
def test_counters_of_flows_are_read_as_the_framework_reads_them(flow: FlowSpec) -> None:
    entry = as_stats(flow, count=2**63 + 5, age_s=77.000000123, hard_timeout_s=9)
    message = multipart(Asked.FLOWS, ofproto.OFPMP_FLOW, [entry, entry])
    ours, theirs = counters.flow_counts(entry + entry), parse(message).body
    assert ours == [
        (f.cookie, f.duration_sec + f.duration_nsec / 1e9, f.packet_count, f.byte_count)
        for f in theirs
    ]
