"""VMware's IP hash as published, which ours is held against."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address


def ip_hash(
    source: IPv4Address | IPv6Address, destination: IPv4Address | IPv6Address, uplinks: int
) -> int:
    """VMware's "route based on IP hash": which active uplink a pair of addresses uses.

    (source XOR destination) modulo the number of uplinks, as VMware's networking papers
    compute it in their example: 0x41200154, 0x412001A0 and two uplinks give 0, with
    0x412001C3 they give 1. Another paper takes the last octets only, which is the same for
    2, 4 and 8 uplinks. Of IPv6 addresses, the last 32 bits count.
    """
    return ((int(source) ^ int(destination)) & 0xFFFFFFFF) % uplinks
