"""Links of a given speed: HTB on an interface's way out, with a short queue.

OVS removes an interface's qdisc when the interface becomes a port: shape afterwards.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

# What a socket may hold unsent, and what a full frame takes of it: a frame's memory, not
# its length (2304 bytes for 1514).
SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
FOOTPRINT_RATIO = 2304 / 1514
# 200 full frames, as a switch's port has.
QUEUE_BYTES = 300_000
# Enough for the timer's resolution at 1 Gbit/s; small against the queue.
BURST_BYTES = 15_000
# A virtual link's nominal speed, far above what a machine forwards over it.
UNSHAPED_BPS = 10 * 10**9


def is_shaped(rate_bps: int) -> bool:
    """Whether a link of this speed is one that has to be held back."""
    return rate_bps < UNSHAPED_BPS


def queue_bytes(links: int) -> int:
    """How long the queue of each of so many links of one switch may be.

    Open vSwitch's userspace datapath sends by one socket for all ports, and what waits in
    a link's queue still counts as that socket's: were the queues longer than this, frames
    for a link that is idle would be dropped because another's queue is full.
    """
    buffer_bytes = int(SEND_BUFFER.read_text())
    return min(QUEUE_BYTES, int(buffer_bytes / FOOTPRINT_RATIO / max(1, links)))


def shape(interface: str, rate_bps: int, limit_bytes: int) -> None:
    """Limit what leaves by an interface, with a queue of `limit_bytes`.

    Raises:
        RuntimeError: the kernel refused, or the qdisc is not there afterwards.
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
    """Let a limited interface's queue be this long.

    Raises:
        RuntimeError: the kernel refused.
    """
    limit = str(limit_bytes)
    _tc("qdisc", "replace", "dev", interface, "parent", "1:1", "bfifo", "limit", limit)


def require_shaped(interface: str) -> None:
    """Make sure that an interface's limit is in force.

    Raises:
        RuntimeError: it is not, or no longer.
    """
    qdiscs = json.loads(_tc("-j", "qdisc", "show", "dev", interface))
    if not any(qdisc["kind"] == "htb" and qdisc.get("root") for qdisc in qdiscs):
        kinds = [qdisc["kind"] for qdisc in qdiscs]
        raise RuntimeError(f"{interface}: qdisc {kinds} -> htb at the root")


def _tc(*arguments: str) -> str:
    done = subprocess.run(["tc", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"tc {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
