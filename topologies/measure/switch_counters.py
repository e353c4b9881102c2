"""What a running switch counts: packets and look-ups, internal events, and its threads' CPU time."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topologies.network.private_ovs import PrivateOvs

# One line of `coverage/show`: an event, its rates, and how often it happened since the start.
_EVENT = re.compile(r"^(?P<name>\w+)\s.*\stotal: (?P<total>\d+)$", re.MULTILINE)
# One line of `dpif-netdev/pmd-stats-show`; a share in parentheses may follow.
_STATISTIC = re.compile(r"^\s+(?P<name>[\w .\-]+): (?P<value>[\d.]+)(?: \(.*\))?$", re.MULTILINE)
# The kernel cuts names of threads off.
_NAME = re.compile(r"^(revalidator|handler|urcu|pmd|dpdk_watchdog)")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class SwitchCounters:
    """One look at them; all of them only grow.

    Attributes:
        cpu_s: of each kind of thread; `main` forwards on the userspace datapath.
        sleeps: how often the main thread has waited for something to do.
        packets: what the main thread did with packets, by Open vSwitch's own names.
        events: by Open vSwitch's own names.
    """

    cpu_s: Mapping[str, float]
    sleeps: int
    packets: Mapping[str, float]
    events: Mapping[str, int]


def read(ovs: PrivateOvs) -> SwitchCounters:
    """The counters of a switch that runs."""
    pid = ovs.pid("ovs-vswitchd")
    return SwitchCounters(
        cpu_s=threads_cpu_s(pid),
        sleeps=_sleeps(pid),
        packets=main_thread(ovs.run("ovs-appctl", "dpif-netdev/pmd-stats-show")),
        events=events(ovs.run("ovs-appctl", "coverage/show")),
    )


def events(shown: str) -> dict[str, int]:
    """How often each event has happened, by what `coverage/show` prints."""
    return {found["name"]: int(found["total"]) for found in _EVENT.finditer(shown)}


def main_thread(shown: str) -> dict[str, float]:
    """What the main thread did with packets, by what `dpif-netdev/pmd-stats-show` prints.

    Of means there is no difference between two looks: instead of the mean number of look-ups for a
    hit, `subtable lookups` are all of them.
    """
    _, _, of_main = shown.partition("main thread:")
    of_main = re.split(r"^\S", of_main, maxsplit=1, flags=re.MULTILINE)[0]
    counted = {
        found["name"].strip(): float(found["value"]) for found in _STATISTIC.finditer(of_main)
    }
    means = {name: counted.pop(name) for name in list(counted) if name.startswith("avg.")}
    each = means.get("avg. subtable lookups per megaflow hit", 0.0)
    return {**counted, "subtable lookups": each * counted.get("megaflow hits", 0.0)}


def threads_cpu_s(pid: int) -> dict[str, float]:
    """The CPU time of a switch by kind of thread: `main`, `revalidator`, `handler` and others."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            before, _, after = (task / "stat").read_text().rpartition(")")
            fields, name = after.split(), before.partition("(")[2]
            kind = "main" if int(task.name) == pid else "other"
            if kind == "other" and (known := _NAME.match(name)):
                kind = known[1]
            used_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
            found[kind] = found.get(kind, 0.0) + used_s
    return found


def difference(before: SwitchCounters, after: SwitchCounters) -> SwitchCounters:
    """What was counted between two looks; events that did not happen are absent."""
    return SwitchCounters(
        cpu_s={kind: after.cpu_s[kind] - before.cpu_s.get(kind, 0.0) for kind in after.cpu_s},
        sleeps=after.sleeps - before.sleeps,
        packets={n: after.packets[n] - before.packets.get(n, 0.0) for n in after.packets},
        events={
            name: more
            for name, total in after.events.items()
            if (more := total - before.events.get(name, 0))
        },
    )


def _sleeps(pid: int) -> int:
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    (found,) = re.findall(r"^voluntary_ctxt_switches:\s*(\d+)$", status, flags=re.MULTILINE)
    return int(found)
