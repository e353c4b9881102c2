"""What network devices of this host stand for, as the kernel names their ports."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

SYS_CLASS_NET = Path("/sys/class/net")
# The kernel's names of switchdev ports (devlink): `p0` is a port of the card; `pf0` a physical
# function on another host, as on a DPU, `pf0vf1` a virtual function, `pf0sf2` a subfunction. `c1`
# before them is the controller, if there are several.
_PORT = re.compile(r"p\d+(s\d+)?")
_FUNCTION = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?")


class Role(Enum):
    """What a switchdev port stands for."""

    PORT = "port"
    REPRESENTOR = "representor"


def role(device: str, directory: Path = SYS_CLASS_NET) -> Role | None:
    """What a device stands for; None if it is no switchdev port, or not a device of this host."""
    if not device or "/" in device or device.startswith("."):
        return None
    try:
        name = (directory / device / "phys_port_name").read_text().strip()
    except (OSError, ValueError):
        # The kernel answers EOPNOTSUPP for all other devices.
        return None
    if _FUNCTION.fullmatch(name):
        return Role.REPRESENTOR
    return Role.PORT if _PORT.fullmatch(name) else None
