"""Buffers of a running program's packet sockets, and of no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from topologies.network import packet_sockets

pytestmark = pytest.mark.mininet

# Two packet sockets and two others; it tells their buffers when asked.
PROGRAM = """
import os, socket, sys
packet = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2)]
other = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)]
pipe = os.pipe()
buffers = (socket.SO_SNDBUF, socket.SO_RCVBUF)
while True:
    for one in (*packet, *other):
        print(*(one.getsockopt(socket.SOL_SOCKET, which) for which in buffers))
    sys.stdout.flush()
    if not sys.stdin.readline():
        break
"""
PACKET, OTHER = 2, 2


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    assert os.geteuid() == 0, f"user id {os.geteuid()} may not open packet sockets; run as root"
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        yield started
        started.terminate()


def _buffers(program: subprocess.Popen[str]) -> list[tuple[int, ...]]:
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(PACKET + OTHER)]
    return [tuple(map(int, line.split())) for line in lines]


def _ask(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def test_packet_sockets_get_larger_buffers_and_others_keep_theirs(
    program: subprocess.Popen[str],
) -> None:
    before = _buffers(program)
    assert packet_sockets.enlarge(program.pid, 1_000_000) == PACKET
    _ask(program)
    after = _buffers(program)
    # The kernel doubles what is asked for, for its own part of it.
    assert after[:PACKET] == [(2_000_000, 2_000_000)] * PACKET
    assert after[PACKET:] == before[PACKET:]
    assert before[0] != after[0]
    assert packet_sockets.enlarge(program.pid) == PACKET
    _ask(program)
    assert _buffers(program)[0] == (2 * packet_sockets.BUFFER_BYTES,) * 2
    assert program.poll() is None, "its sockets still work"


def test_a_process_that_is_gone_is_an_error(program: subprocess.Popen[str]) -> None:
    program.terminate()
    program.wait()
    with pytest.raises(OSError, match="No such process"):
        packet_sockets.enlarge(program.pid)


def test_a_socket_that_is_closed_meanwhile_is_left_out(
    program: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _buffers(program)
    listed = packet_sockets._sockets

    def one_more(pid: int) -> list[int]:
        numbers = listed(pid)
        return [*numbers, max(numbers) + 100]

    monkeypatch.setattr(packet_sockets, "_sockets", one_more)
    assert packet_sockets.enlarge(program.pid, 1_000_000) == PACKET
