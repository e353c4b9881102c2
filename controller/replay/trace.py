"""Reads traces of VM ports' traffic from CSV files.

A line has the rates (bit/s) at which a host's VM port sent and received, from `time_s` until the
host's next `time_s`. A host's lines with the same `time_s` are a sample.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TextIO

from controller.config.kinds import LAST_S
from controller.text.wording import one_line, shortened

COLUMNS = ("time_s", "host", "port", "tx_bps", "rx_bps", "uplink_capacity_bps")
# The duration of a host's only sample: the usual interval of recorders.
ONLY_SAMPLE_S = 300.0
# The longest sample, and limits that rates and capacities of real links do not reach.
LONGEST_SAMPLE_S = 31 * 86400.0
MOST_BPS = 1e15
LEAST_CAPACITY_BPS = 1.0
_MOST = {"time_s": LAST_S, "tx_bps": MOST_BPS, "rx_bps": MOST_BPS, "uplink_capacity_bps": MOST_BPS}


class BadTrace(Exception):
    """Raised for data that is not a trace. The text says what was found and what was expected."""

    def __str__(self) -> str:
        return one_line(super().__str__())


@dataclass(slots=True)
class HostTrace:
    """The recorded traffic of one host. A VM port that is not in a sample carried no traffic.

    `capacity_bps`: the capacity of each uplink in each direction.
    """

    name: str
    capacity_bps: float
    # For each start of a sample: (sent, received) in bit/s by VM port.
    samples: dict[float, dict[str, tuple[float, float]]] = field(default_factory=dict)

    @property
    def ports(self) -> list[str]:
        return sorted({port for loads in self.samples.values() for port in loads})

    def intervals(self) -> list[tuple[float, float, dict[str, tuple[float, float]]]]:
        """Return (start, end, rates) of each sample. The last is as long as the one before it."""
        starts = list(self.samples)
        last_s = starts[-1] - starts[-2] if len(starts) > 1 else ONLY_SAMPLE_S
        ends = [*starts[1:], starts[-1] + last_s]
        return list(zip(starts, ends, self.samples.values(), strict=True))


def read(path: Path) -> list[HostTrace]:
    """Read the traces of all hosts in a `.csv` or `.csv.gz` file, sorted by host name.

    Raises:
        BadTrace: the file is not a trace.
        OSError: the file cannot be read.
    """
    try:
        with _opened(path) as lines:
            return parse(lines)
    except (UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError, csv.Error) as error:
        raise BadTrace(f"{path}: {error}; expected a .csv or .csv.gz trace") from error


def _opened(path: Path) -> TextIO:
    # Excel begins a file in UTF-8 with a byte order mark.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def parse(lines: Iterable[str]) -> list[HostTrace]:
    """Parse the traces of all hosts, sorted by host name.

    Raises:
        BadTrace: a line is invalid, or there is no sample.
    """
    rows = csv.reader(lines)
    header = next(rows, [])
    if tuple(header) != COLUMNS:
        _refuse(1, shortened(",".join(header)) or "nothing", "the columns " + ",".join(COLUMNS))
    hosts: dict[str, HostTrace] = {}
    last_s: dict[str, float] = {}
    for row in rows:
        line = rows.line_num
        if len(row) != len(COLUMNS):
            _refuse(line, f"{len(row)} fields", f"{len(COLUMNS)} fields")
        start_s, tx_bps, rx_bps, capacity_bps = (_number(line, row, at) for at in (0, 3, 4, 5))
        name, port = row[1], row[2]
        if not name or not port:
            _refuse(line, "no name", "the names of a host and a port")
        host = hosts.get(name)
        if host is None:
            host = hosts[name] = HostTrace(name, capacity_bps)
        if capacity_bps != host.capacity_bps or capacity_bps < LEAST_CAPACITY_BPS:
            again = host.capacity_bps >= LEAST_CAPACITY_BPS
            least = f"{LEAST_CAPACITY_BPS:g} or more"
            expected = f"{host.capacity_bps:.12g}, as in earlier samples" if again else least
            _refuse(line, f"uplink_capacity_bps {row[5]} of {name}", expected)
        before_s = last_s.get(name, start_s)
        if start_s < before_s:
            expected = f"at least {before_s:.15g}, the previous time of {name}"
            _refuse(line, f"time_s {row[0]}", expected)
        if start_s > before_s + LONGEST_SAMPLE_S:
            expected = f"at most {LONGEST_SAMPLE_S:.0f} s after {before_s:.15g}"
            _refuse(line, f"time_s {row[0]}", expected)
        last_s[name] = start_s
        loads = host.samples.setdefault(start_s, {})
        if port in loads:
            _refuse(line, f"a second line for {port} on {name} at {row[0]}", "one line")
        loads[port] = (tx_bps, rx_bps)
    if not hosts:
        _refuse(2, "the end of the file", "at least one sample")
    return [hosts[name] for name in sorted(hosts)]


def _number(line: int, row: list[str], column: int) -> float:
    name = COLUMNS[column]
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST[name]:
        found = f"{name} {shortened(row[column]) or 'empty'}"
        _refuse(line, found, f"a number from 0 to {_MOST[name]:.12g}")
    return value


def _refuse(line: int, found: str, expected: str) -> NoReturn:
    raise BadTrace(f"line {line}: {found}; expected {expected}")
