"""Source addresses of frames that ovs-lbt sends: locally administered, and the same on every start."""

from __future__ import annotations

import functools
import hashlib

from controller.config.values import BridgeConfig
from policies.model import OfPort

MULTICAST_BIT, LOCAL_BIT = 0x01, 0x02
# The number of cached addresses: in a flood, the addresses of each frame are compared with ours.
KEPT = 1024


@functools.lru_cache(maxsize=KEPT)
def address_of_ours(*parts: str | None) -> str:
    """Return a locally administered address that depends only on `parts`."""
    known_by = "\0".join(map(str, parts)).encode(errors="surrogatepass")
    first, *others = hashlib.blake2b(known_by, digest_size=6).digest()
    local_unicast = first & ~MULTICAST_BIT | LOCAL_BIT
    return ":".join(f"{octet:02x}" for octet in (local_unicast, *others))


def probe_macs(config: BridgeConfig) -> dict[OfPort, str]:
    """Return the probe address of each uplink, used as source and destination of probes."""
    return _of_uplinks(config, "probe")


def probe_group(config: BridgeConfig) -> str:
    """Return the group address to which copies of probes are sent. No other bridge has this address."""
    known = address_of_ours(config.name, *(u.mac for u in config.uplinks), "group")
    return f"{int(known[:2], 16) | MULTICAST_BIT:02x}{known[2:]}"


def question_macs(config: BridgeConfig) -> dict[OfPort, str]:
    """Return the source address of each uplink for queries to hosts and copies of probes.

    Switches flood copies, and queries until the host has answered. In an upstream loop, these
    frames circulate, so switches learn their source on many ports, but not the source of probes.
    """
    return _of_uplinks(config, "question")


def _of_uplinks(config: BridgeConfig, what: str) -> dict[OfPort, str]:
    return {u.ofport: address_of_ours(config.name, u.name, u.mac, what) for u in config.uplinks}
