"""Determines whether a device of this host is a representor, and whether it can offload flows."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import re
import socket
import struct
from pathlib import Path

SYS_CLASS_NET = Path("/sys/class/net")
# The kernel's names of switchdev ports (devlink): `p0` is a port of the card, `pf0` a physical
# function on another host (as on a DPU), `pf0vf1` a virtual function, and `pf0sf2` a subfunction. With
# several controllers, these names begin with the controller's, for example `c1`.
_PORT = re.compile(r"p\d+(s\d+)?")
_FUNCTION = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?")
# ethtool's requests (linux/ethtool.h): number and names of the kernel's features, a device's features.
_SIOCETHTOOL = 0x8946
_GET_SET_INFO, _GET_STRINGS, _GET_FEATURES = 0x37, 0x1B, 0x3A
_FEATURES_SET = 4
_NAME = "32s"
_OFFLOADS_TC = b"hw-tc-offload"
# These devices do not have the feature, but the devices below them offload their tc flows.
_STACKED_DRIVERS = ("bonding", "team", "802.1Q VLAN Support", "macvlan", "bridge", "openvswitch")


def is_representor(device: str, directory: Path = SYS_CLASS_NET) -> bool | None:
    """Whether `device` is a representor (True) or a switchdev NIC's physical port (False).

    None: the device is not a switchdev port, or does not exist on this host.
    """
    if not device or "/" in device or device.startswith("."):
        return None
    try:
        name = (directory / device / "phys_port_name").read_text().strip()
    except (OSError, ValueError):
        # The kernel answers EOPNOTSUPP for all other devices.
        return None
    if _FUNCTION.fullmatch(name):
        return True
    return False if _PORT.fullmatch(name) else None


def offloads(device: str, driver: str | None) -> bool | None:
    """Whether a device of this host can offload tc flows, even if offload is disabled.

    `driver`: the driver's name in the database. Return None if the ability is unknown.
    """
    if driver is None or driver in _STACKED_DRIVERS:
        return None
    try:
        feature = _feature()
        if feature is None:
            return None
        block, bit = divmod(feature, 32)
        answer = _asked(device, struct.pack("=II", _GET_FEATURES, block + 1), 16 * (block + 1))
    except (OSError, ValueError):
        return None
    available, _, active, _ = struct.unpack_from("=IIII", answer, 8 + 16 * block)
    return bool((available | active) >> bit & 1)


@functools.cache
def _feature() -> int | None:
    """Return the number of the tc offload feature, the same for all devices; None if it does not exist."""
    answer = _asked("lo", struct.pack("=IIQ", _GET_SET_INFO, 0, 1 << _FEATURES_SET), 4)
    (count,) = struct.unpack_from("=I", answer, 16)
    asked = struct.pack("=III", _GET_STRINGS, _FEATURES_SET, count)
    answer = _asked("lo", asked, struct.calcsize(_NAME) * count)
    padded = struct.unpack_from(_NAME * count, answer, len(asked))
    names = [name.partition(b"\0")[0] for name in padded]
    return names.index(_OFFLOADS_TC) if _OFFLOADS_TC in names else None


def _asked(device: str, request: bytes, more_bytes: int) -> bytes:
    """Send an ethtool request, and return its buffer, which then contains the kernel's answer.

    Raises:
        OSError: the device does not exist, or does not support the request.
    """
    buffer = ctypes.create_string_buffer(request, len(request) + more_bytes)
    named = struct.pack("16sP", device.encode()[:15], ctypes.addressof(buffer)).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        fcntl.ioctl(kernel, _SIOCETHTOOL, named)
    return buffer.raw
