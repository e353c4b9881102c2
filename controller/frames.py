"""Frames we make ourselves."""

from __future__ import annotations

import struct

BROADCAST = b"\xff" * 6
ETH_VLAN, ETH_RARP = 0x8100, 0x8035
REVERSE_REQUEST = 3
MINIMUM_BYTES = 60


def rarp(mac: str, vlan: int | None = None) -> bytes:
    """A learning packet: a broadcast RARP request (RFC 903) by which switches learn `mac`.

    It asks nothing of anybody; hypervisors send the same after a VM's arrival. `vlan` tags
    the frame; None or 0 leaves it untagged.
    """
    source = bytes.fromhex(mac.replace(":", ""))
    tag = struct.pack("!HH", ETH_VLAN, vlan) if vlan else b""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, REVERSE_REQUEST)
    body += source + bytes(4) + source + bytes(4)
    frame = BROADCAST + source + tag + struct.pack("!H", ETH_RARP) + body
    return frame.ljust(MINIMUM_BYTES, b"\0")
