"""Our source addresses: locally administered, and the same on every start."""

from __future__ import annotations

import functools
import hashlib

from controller.config.values import BridgeConfig
from policies.model import OfPort

MULTICAST_BIT, LOCAL_BIT = 0x01, 0x02
# A flood has addresses compared with these for each frame.
KEPT = 1024


@functools.lru_cache(maxsize=KEPT)
def address_of_ours(*parts: str | None) -> str:
    """A locally administered address that depends on these parts, and on nothing else."""
    known_by = "\0".join(map(str, parts)).encode(errors="surrogatepass")
    first, *others = hashlib.blake2b(known_by, digest_size=6).digest()
    local_unicast = first & ~MULTICAST_BIT | LOCAL_BIT
    return ":".join(f"{octet:02x}" for octet in (local_unicast, *others))


def probe_macs(config: BridgeConfig) -> dict[OfPort, str]:
    """The address from which each uplink is probed, and to which it is probed."""
    return _of_uplinks(config, "probe")


def probe_group(config: BridgeConfig) -> str:
    """The group address to which copies of probes go. No other bridge has it."""
    known = address_of_ours(config.name, *(u.mac for u in config.uplinks), "group")
    return f"{int(known[:2], 16) | MULTICAST_BIT:02x}{known[2:]}"


def question_macs(config: BridgeConfig) -> dict[OfPort, str]:
    """The address from which each uplink queries hosts, and sends copies of probes.

    Both are flooded, queries until the host has answered. In an upstream loop they circulate, and switches
    learn their source on many ports. Probes have other addresses, so that they still arrive.
    """
    return _of_uplinks(config, "question")


def _of_uplinks(config: BridgeConfig, what: str) -> dict[OfPort, str]:
    return {u.ofport: address_of_ours(config.name, u.name, u.mac, what) for u in config.uplinks}
