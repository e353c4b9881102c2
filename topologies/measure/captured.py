"""Frames that pass an interface, with their times on the monotonic clock, by tcpdump."""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from topologies.network import processes

_FILE = struct.Struct("=IHHiIII")
_RECORD = struct.Struct("=IIII")
MAGIC_NS = 0xA1B23C4D
SNAP_BYTES = 64
ETH_IPV4 = 0x0800
START_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `source_ip` is empty unless it is of IPv4."""

    at_s: float
    source: str
    eth_type: int
    source_ip: str = ""


class Capture:
    """What passes one interface, either way; a context manager.

    Raises:
        RuntimeError: tcpdump did not start.
    """

    def __init__(self, interface: str, expression: str, directory: Path) -> None:
        self._interface = interface
        self._path = directory / f"{interface}.pcap"
        self._log = directory / f"{interface}.tcpdump"
        self._command = [
            *("tcpdump", "-i", interface, "-w", str(self._path), "-s", str(SNAP_BYTES), "-U"),
            *("--immediate-mode", "--time-stamp-precision=nano", "-n", expression),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        # tcpdump tells wall time.
        self._monotonic_s = time.monotonic() - time.time()

    def __enter__(self) -> Capture:
        self._process = processes.start(self._command, self._log)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while "listening on" not in (said := self._log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"tcpdump on {self._interface}: {said!r} -> listening")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self._process is not None:
            processes.end(self._process)
            self._process = None

    def frames(self) -> list[Frame]:
        """All of them, in order; after the end."""
        return list(parse(self._path.read_bytes(), self._monotonic_s))


def parse(content: bytes, monotonic_s: float) -> Iterator[Frame]:
    """The frames of a capture; `monotonic_s` is added to their times.

    Raises:
        ValueError: it is no capture with times in nanoseconds, in this machine's byte order.
    """
    if len(content) < _FILE.size or _FILE.unpack_from(content)[0] != MAGIC_NS:
        raise ValueError(f"{content[:4].hex()} -> a capture with times in nanoseconds")
    at = _FILE.size
    while at + _RECORD.size <= len(content):
        second, nanosecond, captured, _ = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        frame = content[at : at + captured]
        at += captured
        if len(frame) < 14 or len(frame) < captured:
            return  # the last one, cut off
        (eth_type,) = struct.unpack_from("!H", frame, 12)
        is_ip = eth_type == ETH_IPV4 and len(frame) >= 30
        yield Frame(
            at_s=second + nanosecond / 1e9 + monotonic_s,
            source=frame[6:12].hex(":"),
            eth_type=eth_type,
            source_ip=".".join(map(str, frame[26:30])) if is_ip else "",
        )
