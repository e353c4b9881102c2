"""Faults between uplinks whose links stay up, and what path checks say of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from controller.api import history
from tests.switch.bed import Bed, Uplink
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

# A fault as `show` has it: uplink, kind, whether it is decided, and VLAN.
Shown = tuple[str, str, bool, int | None]
# Where the service writes it. (What `topologies.compare` imports does not run with stock Ryu.)
HISTORY = "ovs-lbt-history.jsonl"


def flows(bed: Bed) -> list[str]:
    """The flows that give probes to the service."""
    dumped = bed.ofctl("dump-flows", "cookie=0x6c62740900000000/0xffffffff00000000")
    return [line for line in dumped.splitlines() if "cookie=" in line]


def probes(bed: Bed, kind: str = "") -> int:
    """How many frames of path checks the switch has given to the service; `kind`: only such, as `arp`."""
    of = [flow for flow in flows(bed) if kind in flow]
    return sum(int(flow.partition("n_packets=")[2].partition(",")[0]) for flow in of)


def faults(service: Service, bed: Bed) -> set[Shown]:
    """The faults that `show` names."""
    shown = service.show_json(bed.bridge)
    return {
        (uplink["name"], fault["kind"], fault["decided"], fault["vlan"])
        for uplink in shown["uplinks"]
        for fault in uplink.get("path_faults", ())
    }


def found_after_s(service: Service, bed: Bed, *expected: Shown) -> float:
    """How long it takes from now until the service has found these, and nothing else."""
    began_s = time.monotonic()
    wait_until(lambda: faults(service, bed), "a fault is found")
    took_s = time.monotonic() - began_s
    wait_until(lambda: faults(service, bed) == {*expected}, f"{expected} found, and nothing else")
    return took_s


@contextlib.contextmanager
def checking(service: Service, bed: Bed, *hosts: str) -> Iterator[None]:
    """The bed's uplinks probe each other in this block, and ask these hosts; all of that is answered."""
    service.do("set", "bridge", bed.bridge, "path-check=on")
    ask(service, bed, *hosts)
    try:
        wait_until(lambda: probes(bed) > 2 * len(bed.uplinks), "probes arrive")
        yield
    finally:
        service.do("unset", "bridge", bed.bridge, "path-check")
        bed.ovs.vsctl("remove", "bridge", bed.bridge, "external_ids", "ovs-lbt-path-check-targets")
    wait_until(lambda: not flows(bed), "nothing of path checks is on the switch")
    wait_until(lambda: not faults(service, bed), "no fault is in force")


def ask(service: Service, bed: Bed, *hosts: str) -> None:
    """Have each uplink ask these hosts, and wait until they have answered, by IPv4."""
    if not hosts:
        return
    service.do("set", "bridge", bed.bridge, f"path-check-targets={','.join(hosts)}")
    # By each uplink that is not cut off, more than once.
    answers = 2 * len(hosts) * len(bed.uplinks)
    wait_until(lambda: probes(bed, "arp") > answers, f"{', '.join(hosts)} answer")


def told_faults(ovs: PrivateOvs, since_at: float = 0.0) -> list[dict[str, Any]]:
    """The faults of which the history says since a time, in seconds since the epoch."""
    path = ovs.rundir / HISTORY
    lines = path.read_text().splitlines() if path.exists() else []
    entries = [e for e in map(history.read, lines) if e is not None]
    path_fault = history.Happened.PATH_FAULT
    return [e for e in entries if e["event"] == path_fault and e["at"] >= since_at]


@contextlib.contextmanager
def blocked(bed: Bed, uplink: Uplink, *ways: str) -> Iterator[None]:
    """The switch upstream neither takes nor sends frames by an uplink's port, whose link stays up.

    `ways`: `receive`, `forward` or both.
    """
    end = uplink.upstream_end.interface

    def set_to(flag: str) -> None:
        bed.tor.ovs.run("ovs-ofctl", "-O", "OpenFlow10", "mod-port", bed.upstream, end, flag)

    for way in ways:
        set_to(f"no-{way}")
    try:
        yield
    finally:
        for way in ways:
            set_to(way)
