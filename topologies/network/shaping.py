"""Limits the speed of links with HTB on the outgoing side of an interface, and a short queue.

OVS removes an interface's qdisc when the interface becomes a port, so shape it afterwards.
"""

from __future__ import annotations

import json
from pathlib import Path

from topologies.network import processes

# The default send buffer of a socket, and the memory of a frame in it relative to its length (2304
# bytes for 1514).
SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
FOOTPRINT_RATIO = 2304 / 1514
# 200 full frames, as on the port of a switch.
QUEUE_BYTES = 300_000
# It covers the resolution of the timer at 1 Gbit/s, and is small compared to the queue.
BURST_BYTES = 15_000
# The nominal speed of a virtual link, far above the rate that a machine can forward.
UNSHAPED_BPS = 10 * 10**9


def is_shaped(rate_bps: int) -> bool:
    """Whether a link of this speed needs a limit."""
    return rate_bps < UNSHAPED_BPS


def queue_bytes(links: int) -> int:
    """The maximum queue length of each link, if a switch has this number of links.

    Open vSwitch's userspace datapath sends on one socket for all ports. Frames in a link's queue
    still occupy that socket's buffer. With longer queues, the full queue of one link would make the
    switch drop frames for idle links.
    """
    buffer_bytes = int(SEND_BUFFER.read_text())
    return min(QUEUE_BYTES, int(buffer_bytes / FOOTPRINT_RATIO / max(1, links)))


def shape(interface: str, rate_bps: int, limit_bytes: int) -> None:
    """Limit the outgoing rate of an interface, with a queue of `limit_bytes`.

    Raises:
        RuntimeError: the kernel refused, or the qdisc is missing afterwards.
    """
    _tc("qdisc", "replace", "dev", interface, "root", "handle", "1:", "htb", "default", "1")
    burst = str(BURST_BYTES)
    rate = f"{rate_bps}bit"
    _tc(
        *("class", "replace", "dev", interface, "parent", "1:", "classid", "1:1"),
        *("htb", "rate", rate, "ceil", rate, "burst", burst, "cburst", burst),
    )
    set_queue(interface, limit_bytes)
    require_shaped(interface)


def set_queue(interface: str, limit_bytes: int) -> None:
    """Set the queue length of a shaped interface.

    Raises:
        RuntimeError: the kernel refused.
    """
    limit = str(limit_bytes)
    _tc("qdisc", "replace", "dev", interface, "parent", "1:1", "bfifo", "limit", limit)


def require_shaped(interface: str) -> None:
    """Check that an interface is shaped.

    Raises:
        RuntimeError: the interface has no HTB qdisc.
    """
    qdiscs = json.loads(_tc("-j", "qdisc", "show", "dev", interface))
    if not any(qdisc["kind"] == "htb" and qdisc.get("root") for qdisc in qdiscs):
        kinds = [qdisc["kind"] for qdisc in qdiscs]
        raise RuntimeError(f"{interface} has the qdiscs {kinds}; expected htb at the root")


def _tc(*arguments: str) -> str:
    return processes.run("tc", *arguments)
