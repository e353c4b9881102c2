"""Reads the IP addresses of this host's network devices from the kernel, and follows their changes.

Addresses are read with rtnetlink(7) when the service starts, and again whenever the kernel reports a
change of addresses or devices. There is no polling.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator

from controller.api.events import AddressesRead
from controller.host import faults

# From linux/rtnetlink.h, linux/if_addr.h and linux/netlink.h.
LINK_GROUP, IPV4_GROUP, IPV6_GROUP = 0x1, 0x10, 0x100
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWADDR, RTM_GETADDR = 20, 22
REQUEST_DUMP = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2
# Addresses with this scope or a narrower scope cannot be reached from other networks.
SCOPE_LINK = 253
# The header of a message: length, type, flags, sequence number, port; of an address: family, prefix
# length, flags, scope, device; of an attribute: length, type.
MESSAGE = struct.Struct("=IHHII")
ADDRESS = struct.Struct("=BBBBI")
ATTRIBUTE = struct.Struct("=HH")
BUFFER_BYTES = 1 << 16
# Starting VMs change many devices in a short time. These changes are read together.
SETTLE_S = 0.2


def start(submit: Callable[[AddressesRead], None]) -> None:
    """Start a thread that submits the addresses immediately and after each change."""
    faults.lasting("addresses", "addresses", lambda: _follow(submit))


def _follow(submit: Callable[[AddressesRead], None]) -> None:
    last: AddressesRead | None = None
    with _netlink(LINK_GROUP | IPV4_GROUP | IPV6_GROUP) as changes:
        while True:
            if (read := read_addresses()) != last:
                last = read
                submit(read)
            _receive(changes)
            time.sleep(SETTLE_S)
            while _receive(changes, socket.MSG_DONTWAIT):
                pass


def read_addresses() -> AddressesRead:
    """Read the current addresses of all devices, in the kernel's order.

    Raises:
        OSError: the kernel does not report the addresses.
    """
    found: dict[str, list[str]] = {}
    with _netlink() as asked:
        asked.send(MESSAGE.pack(MESSAGE.size + 4, RTM_GETADDR, REQUEST_DUMP, 1, 0) + bytes(4))
        done = False
        while not done:
            for kind, body in parts(asked.recv(BUFFER_BYTES), MESSAGE):
                if kind == NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "addresses of devices")
                done |= kind == NLMSG_DONE
                if kind == RTM_NEWADDR and (pair := address(body)) is not None:
                    # A device may be removed while it is being read.
                    with contextlib.suppress(OSError):
                        found.setdefault(socket.if_indextoname(pair[0]), []).append(pair[1])
    return AddressesRead({device: tuple(of) for device, of in found.items()})


def parts(data: bytes, header: struct.Struct) -> Iterator[tuple[int, bytes]]:
    """Split a datagram into messages, or a message into attributes.

    Each part has a header with its length and type. Yield the type and the data after the header.
    """
    while len(data) >= header.size:
        length, kind, *_ = header.unpack_from(data)
        if not header.size <= length <= len(data):
            return
        yield kind, data[header.size : length]
        # The next part begins at a multiple of 4 bytes.
        data = data[length + 3 & ~3 :]


def address(body: bytes) -> tuple[int, str] | None:
    """Return the device number and the address in a message; None if the address is link-local."""
    family, _, _, scope, device = ADDRESS.unpack_from(body)
    if scope >= SCOPE_LINK or family not in (socket.AF_INET, socket.AF_INET6):
        return None
    values = dict(parts(body[ADDRESS.size :], ATTRIBUTE))
    # On a point-to-point link, IFA_ADDRESS is the address of the peer.
    value = values.get(IFA_LOCAL, values.get(IFA_ADDRESS))
    return None if value is None else (device, socket.inet_ntop(family, value))


def _netlink(groups: int = 0) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    opened.bind((0, groups))
    return opened


def _receive(changes: socket.socket, flags: int = 0) -> bool:
    """Return whether the kernel has reported a change, or lost a report because the buffer was full."""
    try:
        return bool(changes.recv(BUFFER_BYTES, flags))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
        return True
