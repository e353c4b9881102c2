"""The bench of many connections: its contenders, its datagrams, and its counters."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from topologies.connections import command, contenders, sender
from topologies.connections.contenders import Unread
from topologies.connections.load import flows_and_upcalls, lost_after, udp_drops
from topologies.connections.sender import Sender
from topologies.loads.probing import FlowResult


@pytest.mark.parametrize("name", ["dynamic+md5", "dynamic+", "balance-tcp+dp_hash"])
def test_only_ours_have_a_hash_to_choose(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"expected POLICY\+multipath, POLICY\+dp_hash, POLICY\+auto"
    ):
        contenders.contender(name)


def test_every_contender_is_known_and_only_adaptive_is_split() -> None:
    made = {name: contenders.contender(name) for name in command.CONTENDERS}
    split = [name for name, one in made.items() if isinstance(one, Unread) and one.splits]
    assert split == ["adaptive", "adaptive+multipath"]
    assert [made[name].name for name in split] == ["adaptive, split", "adaptive+multipath, split"]
    assert made["dynamic/lacp+multipath"].name == "dynamic/lacp+multipath"
    ours = [name for name, one in made.items() if isinstance(one, Unread)]
    assert ours == ["load-based", "dynamic", "dynamic/lacp", "dynamic/lacp+multipath", *split]


def test_datagrams_have_the_ports_of_their_connection() -> None:
    found = sender.datagram(5, 142)
    assert struct.unpack("!HHHH", found[:8]) == (1029, 7100, 108, 0)
    assert len(found) == 142 - 14 - 20
    assert sender.ports(sender.SOURCE_PORTS) == (1024, 7101)
    assert sender.first_of_next_port(sender.SOURCE_PORTS) == sender.SOURCE_PORTS
    assert sender.first_of_next_port(1) == sender.SOURCE_PORTS


@pytest.fixture(autouse=True)
def _at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rates begin at this time."""
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: 0.0))


def test_kept_connections_take_turns() -> None:
    sent: list[int] = []
    one = Sender(sent.append)
    one.keep(3, 1000)
    one.round(0.0055)
    one.round(0.0085)
    assert sent == [0, 1, 2, 0, 1, 2, 0, 1]
    one.keep(2, 1000)
    one.round(0.0035)
    assert sent[8:] == [0, 1, 0], "fewer from now on"


def test_connections_are_opened_once_and_in_order_when_there_is_room() -> None:
    sent: list[int] = []
    room = 2

    def send(connection: int) -> None:
        if len(sent) == room:
            raise BlockingIOError
        sent.append(connection)

    one = Sender(send)
    one.open(10, 16, 1000)
    one.round(0.0055)
    assert one.next == 12
    room = 100
    for tick in range(6, 20):
        one.round(tick / 1000)
    assert sent == [10, 11, 12, 13, 14, 15]
    assert one.next == 16


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


def test_only_what_is_lost_by_the_failure_counts() -> None:
    arrivals = [(number, 10 + number / 1000) for number in range(100) if number not in (3, 52, 53)]
    heard = FlowResult(102, 10.0, 10.1, arrivals[2:])
    assert lost_after(heard, 10.05) == 4, "two after the failure, and two at the end"
    assert heard.lost == 7


def test_a_late_datagram_does_not_hide_a_loss() -> None:
    heard = FlowResult(6, 0.0, 0.006, [(0, 0.001), (2, 0.002), (1, 0.0021), (5, 0.02)])
    assert lost_after(heard, 0.0025) == 2


def test_a_probe_that_nobody_has_heard_tells_nothing() -> None:
    with pytest.raises(RuntimeError, match=r"no datagram .* arrived before"):
        lost_after(FlowResult(5, 0.0, 0.005, [(4, 0.004)]), 0.003)
