"""What Open vSwitch and the kernel print of flows and arrivals, as numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOOKUPS = re.compile(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)")
_FLOWS = re.compile(r"^ *flows: (\d+)$", re.MULTILINE)
_LIMIT = re.compile(r"\(limit (\d+)\)")
_DUMP = re.compile(r"dump duration *: (\d+)ms")


@dataclass(frozen=True, slots=True)
class Datapath:
    """A datapath's flows at present, and what it has looked up since its start.

    Attributes:
        flows: the cached flows.
        hits: frames for which there was one.
        upcalls: frames for which there was none, so that Open vSwitch translated them.
        lost: frames that were dropped because too many waited for that.
    """

    flows: int
    hits: int
    upcalls: int
    lost: int


@dataclass(frozen=True, slots=True)
class Revalidation:
    """How many flows Open vSwitch allows at present, and how long looking through them took."""

    flow_limit: int
    dump_ms: int


def datapath(shown: str) -> Datapath:
    """What `dpctl/show` prints of one datapath.

    Raises:
        ValueError: it prints something else.
    """
    lookups, flows = _LOOKUPS.search(shown), _FLOWS.search(shown)
    if lookups is None or flows is None:
        raise ValueError(f"dpctl/show: {shown[:200]!r} -> look-ups and flows")
    hits, upcalls, lost = map(int, lookups.groups())
    return Datapath(int(flows[1]), hits, upcalls, lost)


def revalidation(shown: str) -> Revalidation:
    """What `upcall/show` prints of one datapath.

    Raises:
        ValueError: it prints something else.
    """
    limit, dump = _LIMIT.search(shown), _DUMP.search(shown)
    if limit is None or dump is None:
        raise ValueError(f"upcall/show: {shown[:200]!r} -> a limit and a dump duration")
    return Revalidation(int(limit[1]), int(dump[1]))


def udp_drops(table: str) -> dict[int, int]:
    """How many datagrams sockets had no room for, by local port: /proc/net/udp as numbers."""
    found: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        found[port] = found.get(port, 0) + int(fields[-1])
    return found
