"""Sets larger buffers on the packet sockets of a running switch.

Open vSwitch's userspace datapath receives on one socket for each port and sends on one socket for
all ports. By default a buffer holds about 90 full frames, fewer than the queues of a real switch.
The default is a setting of the whole machine, so this module leaves it alone and changes the
sockets through their process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
from pathlib import Path

BUFFER_BYTES = 8_000_000
# From the kernel's headers; Python's `socket` does not have these names.
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SYS_PIDFD_GETFD = 438
_LIBC = ctypes.CDLL(None, use_errno=True)


def enlarge(pid: int, buffer_bytes: int = BUFFER_BYTES) -> int:
    """Enlarge the buffers of every packet socket of a process. Returns their number.

    Raises:
        OSError: not permitted, or the kernel is older than 5.6.
    """
    process = os.pidfd_open(pid)
    try:
        return sum(_enlarge(process, number, buffer_bytes) for number in _sockets(pid))
    finally:
        os.close(process)


def _sockets(pid: int) -> list[int]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(link.readlink()).startswith("socket:"):
                found.append(int(link.name))
    return found


def _enlarge(process: int, number: int, buffer_bytes: int) -> bool:
    """Enlarge the buffers of a packet socket. Returns whether the descriptor is one.

    The process may have closed the descriptor since it was listed, as it does with control
    connections all the time.
    """
    copy = _LIBC.syscall(SYS_PIDFD_GETFD, process, number, 0)
    if copy < 0:
        error = ctypes.get_errno()
        if error == errno.EBADF:
            return False
        raise OSError(error, f"descriptor {number} of Open vSwitch: {os.strerror(error)}")
    with socket.socket(fileno=copy) as shared:
        if shared.family != socket.AF_PACKET:
            return False
        for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
            shared.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
        return True
