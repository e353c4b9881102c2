"""Runs `tc` to read and change the queues (qdiscs) of network devices."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from controller.api.engine_commands import Shape
from controller.api.events import Device, Shaped
from controller.dataplane import htb
from controller.dataplane.htb import Found, Host, Shaper
from controller.host import faults
from controller.host.faults import ANOTHER_LEADS, NOT_HERE
from controller.host.programs import run
from controller.text.wording import Refused

SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
DEFAULT_QDISC = Path("/proc/sys/net/core/default_qdisc")
SIOCGIFMTU = 0x8921
# `tc` may take twice as long.
TC_TIMEOUT_S = 5.0
CLASS = re.compile(
    rf"^class htb {htb.HANDLE:x}:(?P<minor>[0-9a-f]+) .*\n.*\(dropped (?P<drops>\d+)", re.MULTILINE
)


class Qdiscs:
    """Carries out `Shape` commands on separate threads, one at a time for each bridge.

    `confirmed` is called just before a change. It returns False if another service leads.
    """

    def __init__(
        self,
        submit: Callable[[Shaped], None],
        beside_the_switch: bool,
        confirmed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._submit = submit
        self._confirmed = confirmed
        self._here = beside_the_switch
        # The last installed queues by device, so that only differences are sent.
        self._known: dict[str, Shaper] = {}

    def start(self, command: Shape) -> None:
        """Carry out a command on a thread, and submit the result."""
        carry_out, failed = partial(self.carry_out, command), partial(_failed, command)
        faults.answered("shaping", f"shape {command.bridge}", carry_out, failed, self._submit)

    def carry_out(self, command: Shape) -> Shaped:
        devices = (
            self._device(name, wanted, name in command.replaces) for name, wanted in command.wanted
        )
        return Shaped(command.bridge, tuple(devices))

    def _device(self, name: str, wanted: Shaper | None, replaces: bool) -> Device:
        if not self._here:
            return Device(name, error=NOT_HERE)
        found, replaced = htb.UNREAD, None
        try:
            found = read(name)
            if wanted is not None and found.is_foreign:
                if not replaces:
                    return Device(name, found)
                replaced = _tc("-j", "qdisc", "show", "dev", name).strip()
            host = Host(_has_fq_codel(), _send_buffer_bytes(), _mtu_bytes(name))
            lines = htb.commands(name, found, wanted, host, self._known.get(name))
            if lines and not self._confirmed():
                raise Refused(ANOTHER_LEADS)
            if lines:
                self._known.pop(name, None)
                _tc("-batch", "-", stdin="\n".join(lines) + "\n")
                found = read(name)
                if wanted is not None and not htb.is_complete(found, wanted, host):
                    raise Refused("the queues on the device differ from the queues set with tc")
        except (OSError, Refused, ValueError, LookupError, TypeError) as error:
            found = Found() if "Cannot find device" in str(error) else found
            return Device(name, found, str(error) or type(error).__name__, replaced)
        if wanted is not None:
            self._known[name] = wanted
        return Device(name, found, replaced=replaced)


def _failed(command: Shape, found: str) -> Shaped:
    devices = (Device(name, htb.UNREAD, found) for name, _ in command.wanted)
    return Shaped(command.bridge, tuple(devices))


def read(device: str) -> Found:
    """Read the queues of a device.

    Raises:
        Refused: the device does not exist, or `tc` is missing.
    """
    qdiscs = json.loads(_tc("-j", "qdisc", "show", "dev", device) or "[]")
    root = next((qdisc for qdisc in qdiscs if qdisc.get("root")), None)
    if root is None:
        return Found()
    found = Found(root["kind"], _number(root["handle"].partition(":")[0]))
    if not found.is_ours:
        return found
    counted = _tc("-s", "class", "show", "dev", device)
    drops = {int(m["minor"], 16): int(m["drops"]) for m in CLASS.finditer(counted)}
    parent = ("parent", f"{htb.HANDLE:x}:")
    filters = json.loads(_tc("-j", "filter", "show", "dev", device, *parent) or "[]")
    queued = (str(q.get("parent", "")) for q in qdiscs if q["handle"] != "0:")
    return replace(
        found,
        marks=_marks(filters),
        minors=frozenset(drops),
        queued=frozenset(_number(q.partition(":")[2]) for q in queued if q.startswith(parent[1])),
        drops=drops,
    )


def _marks(filters: Sequence[dict[str, Any]]) -> tuple[int | None, ...]:
    """Return the digests in the filters, in the order of the filters' numbers."""
    marks: dict[int, int | None] = {}
    for entry in filters:
        options = entry.get("options", {})
        if "handle" in options:
            code = options.get("bytecode", {}).get("insns", [])[:1]
            steps = [(step["code"], step["jt"], step["jf"], step["k"]) for step in code]
            marks[int(options["handle"], 16)] = htb.read_mark(steps)
    return tuple(mark for _, mark in sorted(marks.items()))


def _number(text: str) -> int:
    return int(text or "0", 16)


def _mtu_bytes(device: str) -> int:
    """Return the MTU of a device. In some network namespaces, /sys shows another namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16si", device.encode(), 0)
        answer = fcntl.ioctl(asked, SIOCGIFMTU, request.ljust(40, b"\0"))
    return int(struct.unpack_from("16si", answer)[1])


def _send_buffer_bytes() -> int:
    try:
        return int(SEND_BUFFER.read_text())
    except OSError:
        return Host().send_buffer_bytes


@cache
def _has_fq_codel() -> bool:
    """Whether the kernel has fq_codel, built in or as a module that it loads on demand."""
    try:
        if DEFAULT_QDISC.read_text().strip() == "fq_codel":
            return True
        modules = Path("/lib/modules") / os.uname().release
        lists = (modules / name for name in ("modules.builtin", "modules.dep"))
        return any("sch_fq_codel" in path.read_text() for path in lists if path.exists())
    except OSError:
        return False


def _tc(*words: str, stdin: str | None = None) -> str:
    return run("tc", *words, stdin=stdin, timeout_s=TC_TIMEOUT_S)
