"""What the two faults of the layout `converged` cost: a switch port with another MTU, or in another VLAN.

`python -m tests.switch.path_figures --out docs/results/paths/faults.json`

The bed has the second host's shape: two uplinks, four VMs in VLAN 30 with an MTU of 9000, and a vNIC each
for management (VLAN 10) and live migration (VLAN 20). The first host's part is that of hosts upstream, one
in each VLAN, which path checks ask. Each VM has two connections with the one in its VLAN, in both
directions. While they run, the switch port of the busiest uplink gets the fault, and its link stays up. On a
LAG, the switch upstream takes a port in another VLAN out of the LAG.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from controller.api import history
from tests import share
from tests.switch import frames, path_faults
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    LACP,
    PLAIN,
    Bed,
    BedSpec,
    Station,
    Uplink,
    Upstream,
    learning_at_once,
    run,
)
from tests.switch.bench import RECEIVED_BYTES, SENT_BYTES, Bench, Run, Shown, counters, table
from tests.switch.service import Service
from tests.switch.waiting import HANG_S, wait_until
from topologies.network.private_ovs import PrivateOvs

UPLINKS, VMS, CONNECTIONS = 2, 4, 2
VM_VLAN, MANAGEMENT_VLAN, MIGRATION_VLAN, ODD_VLAN = 30, 10, 20, 99
VLANS = (VM_VLAN, MANAGEMENT_VLAN, MIGRATION_VLAN)
JUMBO_MTU, STANDARD_MTU = 9000, 1500
# More than an MTU of 1500 lets pass. Few frames that fill an MTU of 9000 fit in a port's socket.
FRAME_BYTES = 3000
MTU, VLAN = "MTU", "VLAN"
FAULTS = (MTU, VLAN)
# Of each flow: what is lost is known to 10 ms.
PPS = 100.0
BEFORE_S, WATCHED_S = 1.0, 6.0
# A flow of which nothing arrives in this last part of the watched time is silent until the fault is mended.
END_S = 1.0
# On a busy machine, sockets of the switch overflow now and then.
LOST_BEFORE_RATIO = 0.05
# What the documents promise.
FOUND_WITHIN_S = 5.0
REPEAT = 5
# Of a run that does not count.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Contender:
    """Who forwards: one of ours, with path checks or without them, or a bond by itself."""

    team: str
    policy: str = ""
    checks: bool = False

    def __str__(self) -> str:
        if self.policy:
            return f"{self.policy}{', path checks' * self.checks}"
        return "balance-tcp" if self.team == LACP else self.team


CONTENDERS = (
    Contender(PLAIN, "load-based", checks=True),
    Contender(PLAIN, "adaptive", checks=True),
    Contender(PLAIN, "dynamic", checks=True),
    Contender(PLAIN, "load-based"),
    Contender(ACTIVE_BACKUP),
    Contender(BALANCE_SLB),
    Contender(LACP),
)


SHOWN: dict[str, Shown] = {
    "detected after, s": "found_after_s",
    "moved after, s": "moved_after_s",
    "frames lost": lambda one: one["lost_until_found"] + one["lost_after"],
    "of these after detection": lambda one: (
        None if one["found_after_s"] is None else one["lost_after"]
    ),
    "nothing lost after, s (–: until it is mended)": "lossless_after_s",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a fault did. Times are in seconds since it began, and None is never.

    Frames of all flows are counted. `lost_after_at_s`: when those were sent that were lost after the finding.
    `silent_at_end`: the flows of which nothing arrived in the last second that was watched.
    """

    found_after_s: float | None
    moved_after_s: float | None
    lossless_after_s: float | None
    lost_before: int
    lost_until_found: int
    lost_after: int
    lost_after_at_s: tuple[float, ...]
    silent_at_end: int
    sent_per_s: float
    sender_late_s: float
    told: tuple[str, ...]


def main() -> int:
    """Measure, and write what was found. Runs are added to those that the file has.

    A run that does not count is written, too, and made again.

    The result is 1 if path checks found a fault too late.
    """
    bench = Bench("path_figures", __doc__, "out/paths/faults.json", REPEAT, adds=True)
    numbers = range(len(CONTENDERS))
    bench.parser.add_argument(
        "--contenders", type=int, nargs="+", default=numbers, help="by number"
    )
    share.give(os.getpid())
    with bench.begun() as tor:
        share.give(tor.ovs.pid("ovs-vswitchd"))
        for contender in (CONTENDERS[number] for number in bench.options.contenders):
            with forwarding(tor, contender) as (bed, service):
                share.give(bed.ovs.pid("ovs-vswitchd"))
                for number, fault in itertools.product(range(bench.options.repeat), FAULTS):
                    case = {"contender": str(contender), "fault": fault, "repetition": number}
                    for attempt in range(ATTEMPTS):
                        case["attempt"] = attempt
                        if counts(bench.run(case, measured, bed, service, contender, fault)):
                            break
    print(table(filter(counts, bench.runs), ("fault", "contender"), SHOWN))
    late = [run for run in bench.runs if is_late(run)]
    for one in late:
        found = one["found_after_s"]
        print(f"{one['contender']}, {one['fault']}: {found} s -> {FOUND_WITHIN_S:g} s")
    return 1 if late else 0


def measured(bed: Bed, service: Service | None, contender: Contender, fault: str) -> Run:
    """What a fault did, as the file has it."""
    return asdict(happen(bed, service, contender, fault))


def counts(made: Mapping[str, Any]) -> bool:
    """Whether the machine had time for the run: hardly anything was lost in the second before the fault."""
    return float(made["lost_before"]) <= LOST_BEFORE_RATIO * made["sent_per_s"] * BEFORE_S


def is_late(made: Mapping[str, Any]) -> bool:
    """Whether path checks have found a fault later than the documents promise, or not at all."""
    after_s = made["found_after_s"]
    checks = any(one.checks and str(one) == made["contender"] for one in CONTENDERS)
    return checks and (after_s is None or after_s > FOUND_WITHIN_S)


# ---- the bed -----------------------------------------------------------------------------


@contextlib.contextmanager
def forwarding(tor: Upstream, contender: Contender) -> Iterator[tuple[Bed, Service | None]]:
    """The bed, with a switch of its own, and the service if it takes part."""
    vlans = (*(VM_VLAN,) * VMS, MANAGEMENT_VLAN, MIGRATION_VLAN)
    spec = BedSpec(contender.team, UPLINKS, vlans, VLANS, JUMBO_MTU, addresses=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(learning_at_once(tor.ovs))
        ovs = stack.enter_context(PrivateOvs(prefix="ovs-lbt-paths-"))
        bed = stack.enter_context(Bed(ovs, tor, spec))
        if contender.policy:
            service = Service(ovs)
            stack.callback(service.kill)
            service.start()
            attach(bed, service, contender)
            yield bed, service
            service.do("detach", bed.bridge)
            return
        if contender.team == LACP:
            for switch in (ovs, tor.ovs):
                switch.vsctl("set", "port", bed.bond, "bond_mode=balance-tcp")
            wait_until(bed.lacp_is_negotiated, "LACP negotiated on all uplinks")
        bed.introduce_to_normal()
        yield bed, None


def attach(bed: Bed, service: Service, contender: Contender) -> None:
    """Attach the bridge. Path checks ask a host in each VLAN, because two uplinks alone decide nothing."""
    bed.set("bridge", bed.bridge, failback_delay_s=1)
    service.attach(bed, "--policy", contender.policy)
    if contender.checks:
        targets = ",".join(f"{host.ip}%{host.vlan}" for host in bed.hosts)
        service.do("set", "bridge", bed.bridge, "path-check=on", f"path-check-targets={targets}")


@contextlib.contextmanager
def faulty(bed: Bed, uplink: Uplink, fault: str) -> Iterator[None]:
    """The switch port of an uplink has another MTU or VLAN in this block; its link stays up."""
    end, netns, tor = uplink.upstream_end.interface, uplink.upstream_end.netns, bed.tor.ovs
    with contextlib.ExitStack() as mended:
        if fault == MTU:
            set_mtu = ("ip", "link", "set", end, "mtu")
            run(*set_mtu, str(STANDARD_MTU), netns=netns)
            mended.callback(run, *set_mtu, str(JUMBO_MTU), netns=netns)
        elif bed.spec.is_lag:
            mended.enter_context(bed.lacp_withdrawn(uplink))
            tor.vsctl("add-port", bed.upstream, end, f"tag={ODD_VLAN}")
            mended.callback(tor.vsctl, "del-port", bed.upstream, end)
        else:
            tor.vsctl("set", "port", end, f"tag={ODD_VLAN}")
            mended.callback(tor.vsctl, "clear", "port", end, "tag")
        yield


# ---- one fault ---------------------------------------------------------------------------


def happen(bed: Bed, service: Service | None, contender: Contender, fault: str) -> Found:
    """Let a fault begin while traffic runs, watch it, and mend it."""
    settle(bed, service, contender)
    with path_faults.Talk(bed.vms[:VMS], bed.hosts[0], PPS, CONNECTIONS, frame) as talk:
        before = carried(bed)
        talk.go_on(BEFORE_S)
        now = carried(bed)
        uplink = max(bed.uplinks, key=lambda one: now[one] - before[one])
        began_at = time.time()
        with faulty(bed, uplink, fault):
            talk.go_on(WATCHED_S)
            while contender.checks and not is_over(told(bed, began_at, uplink)):
                assert time.time() < began_at + HANG_S, f"{fault} on {uplink}: not found"
                talk.go_on(END_S)
            sent = talk.stop()
            entries = told(bed, began_at, uplink) if service else []
    lost = [at for of in talk.lost_at for at in of]
    rate, late_s = 2 * VMS * CONNECTIONS * PPS, round(sent.latest_s, 3)
    silent = len(talk.silent(END_S))
    return judged(lost, silent, entries, began_at, sent_per_s=rate, sender_late_s=late_s)


def judged(
    lost_at: Sequence[float],
    silent_at_end: int,
    entries: Sequence[Mapping[str, Any]],
    began_at: float,
    **sender: float,
) -> Found:
    """What came of a fault. `lost_at`: when each frame was sent that was lost."""
    faults = [one for one in entries if one["event"] == history.Happened.PATH_FAULT]
    found_at = [one["at"] for one in faults]
    moved_at = [one["at"] for one in entries if one["event"] == history.Happened.MOVED]
    of_fault = [at for at in lost_at if at >= began_at - 1 / PPS]
    after = [at for at in of_fault if found_at and at > found_at[0]]
    last_at = max(of_fault, default=began_at)
    return Found(
        found_after_s=round(found_at[0] - began_at, 3) if found_at else None,
        moved_after_s=round(moved_at[-1] - began_at, 3) if moved_at else None,
        lossless_after_s=None if silent_at_end else round(max(0.0, last_at - began_at), 3),
        lost_before=len(lost_at) - len(of_fault),
        lost_until_found=len(of_fault) - len(after),
        lost_after=len(after),
        lost_after_at_s=tuple(sorted({round(at - began_at, 2) for at in after})),
        silent_at_end=silent_at_end,
        told=tuple(one["why"] for one in faults),
        **sender,
    )


def told(bed: Bed, since: float, uplink: Uplink) -> list[dict[str, Any]]:
    """What the history says of a fault of this uplink that concerns VMs, and of what has left it."""
    entries = path_faults.told(bed.ovs, since)
    return [entry for entry in entries if is_fault(entry, uplink) or has_left(entry, uplink)]


def is_over(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a fault was found, and what follows from it was seen in the part that is judged at the end."""
    return bool(entries) and time.time() - entries[-1]["at"] > 2 * END_S


def is_fault(entry: Mapping[str, Any], uplink: Uplink) -> bool:
    """Whether it is a fault of this uplink that is decided, and of no other VLAN than that of the VMs."""
    others = (f"VLAN {vlan} " in entry["why"] for vlan in (MANAGEMENT_VLAN, MIGRATION_VLAN))
    found = entry["event"] == history.Happened.PATH_FAULT
    return found and entry.get("uplink") == uplink.name and not any(others)


def has_left(entry: Mapping[str, Any], uplink: Uplink) -> bool:
    moved = entry["event"] == history.Happened.MOVED
    return moved and any(move.get("source") == uplink.name for move in entry.get("moves", ()))


def settle(bed: Bed, service: Service | None, contender: Contender) -> None:
    """Nothing is in force of the last fault, and both uplinks carry VMs."""
    if service is not None:
        wait_until(lambda: is_well(bed, service), "no fault is in force, and both uplinks are up")
        if contender.policy != "dynamic":
            service.place(bed, *(number % UPLINKS for number in range(VMS)))
    elif contender.team == LACP:
        wait_until(bed.lacp_is_negotiated, "LACP negotiated on all uplinks")
    elif contender.team == BALANCE_SLB:
        for number, vm in enumerate(bed.vms[:VMS]):
            asked = ("ovs-appctl", "bond/hash", vm.mac, str(VM_VLAN))
            bucket = bed.ovs.run(*asked).strip()
            to = bed.uplinks[number % UPLINKS].name
            bed.ovs.run("ovs-appctl", "bond/migrate", bed.bond, bucket, to)
    bed.introduce()
    bed.revalidated()


def is_well(bed: Bed, service: Service) -> bool:
    uplinks = service.show_json(bed.bridge)["uplinks"]
    return all(one["up"] and not one.get("path_faults") for one in uplinks)


def carried(bed: Bed) -> dict[Uplink, int]:
    """How many bytes have passed each uplink, both ways."""
    now = counters()
    return {one: now[one.name][RECEIVED_BYTES] + now[one.name][SENT_BYTES] for one in bed.uplinks}


def frame(a: Station, b: Station, number: int) -> bytes:
    """A frame of a connection of its own. Nobody answers it."""
    return frames.udp(
        a.mac,
        b.mac,
        source_ip=f"192.0.2.{number + 1}",
        destination_ip=f"198.51.100.{number + 1}",
        frame_bytes=FRAME_BYTES,
    )


if __name__ == "__main__":
    sys.exit(main())
