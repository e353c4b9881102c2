"""The TCP ports of flows, which also encode the oracle's placement of each flow.

The port of a client, modulo `PLACES`, is the number of the uplink that the oracle has chosen for the
flow. For every other contender, it is an ordinary port.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

SERVER_PORT = 7300
# A power of two, because a switch matches the lowest bits of a port.
PLACES = 4
FIRST_CLIENT_PORT, LAST_CLIENT_PORT = 10_000, 60_000


def client_ports(clients: Sequence[int], places: Sequence[int]) -> list[int]:
    """A port for each flow, by the number of its client and the uplink chosen by the oracle.

    A client uses a port again only after all others of the same uplink.
    """
    count = (LAST_CLIENT_PORT - FIRST_CLIENT_PORT) // PLACES
    counters: dict[tuple[int, int], itertools.count[int]] = {}
    found = []
    for client, place in zip(clients, places, strict=True):
        number = next(counters.setdefault((client, place), itertools.count())) % count
        found.append(FIRST_CLIENT_PORT + number * PLACES + place)
    return found
