"""Many connections: their datagrams, the counters of a datapath, and the loss of a failure."""

from __future__ import annotations

import struct

import pytest

from topologies.loads.connections import flows_and_upcalls, lost_after
from topologies.loads.probing import FlowResult
from topologies.loads.traffic import NUMBER, SOURCE_PORTS, in_turn


def test_datagrams_take_turns_on_their_connections() -> None:
    def ports(number: int, connections: int) -> tuple[int, int]:
        payload = bytearray(NUMBER.pack(number).ljust(100))
        found = in_turn(payload, connections, 7100)
        assert found[8:] == payload
        source, destination, length, checksum = struct.unpack("!HHHH", found[:8])
        assert (length, checksum) == (108, 0)
        return source, destination

    assert [ports(number, 3) for number in (0, 2, 3, 4)] == [
        *((1024, 7100), (1026, 7100), (1024, 7100), (1025, 7100))
    ]
    assert ports(SOURCE_PORTS, SOURCE_PORTS + 1) == (1024, 7101)
    assert ports(SOURCE_PORTS - 1, SOURCE_PORTS + 1) == (61_023, 7100)


USERSPACE = """\
netdev@ovs-netdev:
  lookups: hit:123 missed:45 lost:6
  flows: 1011
  port 0: ovs-netdev (tap)
"""
KERNEL = """\
system@ovs-system:
  lookups: hit:9 missed:8 lost:7
  flows: 3
  masks: hit:20 total:2 hit/pkt:1.18
  cache: hit:5 hit-rate:29.41%
"""


@pytest.mark.parametrize(("shown", "found"), [(USERSPACE, (1011, 45)), (KERNEL, (3, 8))])
def test_datapaths_tell_flows_and_upcalls(shown: str, found: tuple[int, int]) -> None:
    assert flows_and_upcalls(shown) == found
    with pytest.raises(ValueError, match=r"dpctl/show .* no look-ups or flows"):
        flows_and_upcalls("no datapath")


def test_only_what_is_lost_by_the_failure_counts() -> None:
    arrivals = [(number, 10 + number / 1000) for number in range(100) if number not in (3, 52, 53)]
    heard = FlowResult(102, 10.0, 10.1, arrivals[2:])
    assert lost_after(heard, 10.05) == 4, "two after the failure, and two at the end"
    assert heard.lost == 7


def test_a_late_datagram_does_not_hide_a_loss() -> None:
    heard = FlowResult(6, 0.0, 0.006, [(0, 0.001), (2, 0.002), (1, 0.0021), (5, 0.02)])
    assert lost_after(heard, 0.0025) == 2
    with pytest.raises(RuntimeError, match=r"no datagram .* arrived before"):
        lost_after(FlowResult(5, 0.0, 0.005, [(4, 0.004)]), 0.003)
