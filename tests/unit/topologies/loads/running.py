"""A running server of `traffic.py`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

from topologies.loads import traffic


@contextlib.contextmanager
def running_server() -> Iterator[tuple[str, int]]:
    """Run a server in a thread. Yields its address."""
    loop = asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        listener.setblocking(False)
        serving = loop.create_task(traffic.serve([listener]))

        def run() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(serving)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            loop.call_soon_threadsafe(serving.cancel)
            thread.join()
    loop.close()
