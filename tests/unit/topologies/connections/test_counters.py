"""What Open vSwitch and the kernel print, as numbers."""

from __future__ import annotations

import pytest

from topologies.connections.load import flows_and_upcalls, udp_drops

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
  caches:
    masks-cache: size:256
  port 0: ovs-system (internal)
"""
# Two sockets of one port, and one of another, after a line of titles.
UDP = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  100: 00000000:1BBC 00000000:0000 07 00000000:00000500 00:00000000 00000000     0        0 123 2 0000000000000000 41
  101: 0100007F:1BBC 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 124 2 0000000000000000 1
  102: 00000000:1BBD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 125 2 0000000000000000 0
"""


@pytest.mark.parametrize(("shown", "found"), [(USERSPACE, (1011, 45)), (KERNEL, (3, 8))])
def test_datapaths_tell_flows_and_upcalls(shown: str, found: tuple[int, int]) -> None:
    assert flows_and_upcalls(shown) == found


def test_other_answers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dpctl/show .* no look-ups or flows"):
        flows_and_upcalls("no datapath")


def test_drops_are_of_ports() -> None:
    assert udp_drops(UDP) == {7100: 42, 7101: 0}
