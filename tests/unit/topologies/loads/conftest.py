"""A running server of `traffic.py`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from topologies.loads import traffic


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    """The address of a server that runs in a thread."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        listener.setblocking(False)
        with patch.object(traffic, "LOOK_S", 0.01):
            thread = threading.Thread(target=traffic.serve, args=([listener], stopped.is_set))
            thread.start()
            try:
                yield listener.getsockname()
            finally:
                stopped.set()
                thread.join()
