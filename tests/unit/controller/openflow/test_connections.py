"""How soon a bridge that cannot be reached is dialled again, and when its connection is closed."""

from __future__ import annotations

import socket
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.host.sockets import BridgeSocket
from controller.openflow import framework
from controller.openflow.connections import (
    QUICK_RETRIES,
    RETRIES_PER_S,
    RETRY_REMOTE_S,
    SLOW_RETRY_S,
    local_pause_s,
    remote_pause_s,
)

# A restart of Open vSwitch takes less, also on a busy machine.
RESTART_S = 4.0


def test_a_bridge_of_this_host_is_dialled_every_hundredth_of_a_second_while_the_switch_restarts() -> (
    None
):
    pauses_s = [local_pause_s(failures) for failures in range(QUICK_RETRIES)]
    assert set(pauses_s) == {0.01}
    assert sum(pauses_s) >= RESTART_S
    assert local_pause_s(QUICK_RETRIES) == SLOW_RETRY_S


@given(failures=st.integers(0, 10**6), bridges=st.integers(1, 1000))
def test_many_bridges_are_dialled_no_more_often_together(failures: int, bridges: int) -> None:
    pause_s = local_pause_s(failures, bridges)
    assert bridges / pause_s <= RETRIES_PER_S * (1 + 1e-9) or pause_s == SLOW_RETRY_S
    assert local_pause_s(failures) <= pause_s <= SLOW_RETRY_S


def test_a_bridge_elsewhere_is_dialled_less_and_less_often() -> None:
    pauses_s = [remote_pause_s(failures) for failures in range(10)]
    assert tuple(pauses_s[: len(RETRY_REMOTE_S)]) == RETRY_REMOTE_S
    assert all(earlier_s <= later_s for earlier_s, later_s in pairwise(pauses_s))


class _HeldWire(BridgeSocket):
    """A socket on which whoever writes can be held up just before the write."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.holds = False
        self.reached, self.released = threading.Event(), threading.Event()

    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def take(self, data: bytes) -> int:
        self._hold()
        return super().take(data)

    def sendall(self, data: bytes) -> None:
        self._hold()
        super().sendall(data)

    def _hold(self) -> None:
        if self.holds:
            self.reached.set()
            assert self.released.wait(60)


@pytest.mark.parametrize("ended_by", ["the switch", "this service"])
def test_a_connection_is_not_closed_while_somebody_writes_to_it(ended_by: str) -> None:
    """The descriptor's number would be another connection's, which would get the message."""
    ours, switch = socket.socketpair()
    wire = _HeldWire(ours)
    connection = framework.Connection(wire, "br0", "br0")
    serving = threading.Thread(target=connection.serve)
    serving.start()
    assert switch.recv(8)
    wire.holds = True
    writing = threading.Thread(target=connection.send, args=(b"late",))
    writing.start()
    assert wire.reached.wait(60)
    ends = {"the switch": switch.close, "this service": lambda: framework.hang_up(connection)}
    ending = threading.Thread(target=ends[ended_by])
    ending.start()
    serving.join(0.2)
    assert wire.is_open()
    wire.released.set()
    for thread in (writing, ending, serving):
        thread.join(60)
        assert not thread.is_alive()
    assert not wire.is_open()
    switch.close()
