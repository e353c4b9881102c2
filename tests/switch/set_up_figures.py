"""What it costs Open vSwitch to forward the first frame of a connection, by our tables and by NORMAL.

`python -m tests.switch.set_up_figures --out docs/results/causes/set_up.json`

ovs-vswitchd stands still while a burst of frames comes, and then works it off at once. So the figure, the
processor time of its main thread for each frame, has no part of how it waits for frames, nor of the sender.
The userspace datapath only: its main thread forwards, and translates frames that have no cached flow.

*As it is*: with the cached flows that Open vSwitch makes by default, which may serve many connections.
*Each*: every connection needs a cached flow of its own (`upcall/disable-megaflows`). Two contenders are not
sound, and show what could be gained at most: one learns nothing, and one leaves out four look-ups.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.dataplane.pipeline import build
from controller.dataplane.specs import EMPTY, FlowSpec, GroupSpec, Learn, Output, Pipeline
from controller.dataplane.tables import HASH_SLOTS, Table
from policies.classifiers import Classifier
from tests.switch import new_connection_figures
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.bench import Bench, table
from tests.switch.direct import Direct
from tests.switch.new_connection_figures import left, made
from tests.switch.test_hashing import team_of
from tests.switch.waiting import wait_until
from tests.switch.wire import sending_socket
from tests.switch.without_service import forwarding, steps
from topologies.connections import sender
from topologies.network.private_ovs import PrivateOvs

CONTENDERS = tuple(one for one in new_connection_figures.CONTENDERS if one.team == BALANCE_SLB)
UNLEARNING, SHORTENED = "the same, learning nothing", "the same, four look-ups fewer"
NAMES = (*(one.name for one in CONTENDERS), UNLEARNING, SHORTENED)
# As many frames as wait in the socket of a port.
BURST, BURSTS = 150, 40
REPEAT = 6
QUIET_S = 0.2
# The last three are microseconds for a frame.
SHOWN = ("lookups", "resubmits", "groups", "learns", "new_us", "each_new_us", "cached_us")


def main() -> int:
    """Measure all of them in turn, and write what was found."""
    bench = Bench("set_up_figures", __doc__, "out/set_up.json", REPEAT, adds=True)
    with bench.begun() as tor:
        for repetition in range(bench.options.repeat):
            # Who comes first is not always the same one.
            for name in NAMES if repetition % 2 == 0 else reversed(NAMES):
                case = {"by": name, "repetition": repetition, "burst": BURST, "bursts": BURSTS}
                bench.run(case, measured, tor, name)
    print(table(bench.runs, ("by",), SHOWN))
    return 0


def measured(tor: Upstream, name: str) -> dict[str, Any]:
    """One run of a contender, on a switch of its own."""
    with (
        PrivateOvs(prefix="ovs-lbt-set-up-") as ovs,
        Bed(ovs, tor, BedSpec(BALANCE_SLB, 2, (None,))) as bed,
        forwards(bed, name),
        contextlib.closing(sending_socket(bed.vms[0].point)) as out,
    ):
        found: dict[str, Any] = {**steps(bed)}
        frames = made(bed, BURST * BURSTS)
        for how in ("", "each_"):
            if how:
                ovs.run("ovs-appctl", "upcall/disable-megaflows")
            ovs.run("ovs-appctl", "revalidator/purge")
            time.sleep(QUIET_S)
            found[f"{how}new_us"] = worked_off_us(bed, frames, out)
            found[f"{how}cached_us"] = worked_off_us(bed, frames, out)
        return found


@contextlib.contextmanager
def forwards(bed: Bed, name: str) -> Iterator[None]:
    """Who forwards in this block."""
    for contender in CONTENDERS:
        if contender.name == name:
            with forwarding(bed, contender):
                yield
            return
    with contextlib.closing(Direct(bed)) as direct:
        team = replace(team_of(bed, Classifier.TRANSPORT), over_normal=True)
        # It has to learn where everybody is first.
        direct.install(build(team))
        bed.introduce()
        bed.revalidated()
        direct.install((unlearning if name == UNLEARNING else shortened)(build(team)))
        bed.revalidated()
        yield
        direct.install(EMPTY)


def unlearning(pipeline: Pipeline) -> Pipeline:
    """It never learns an address. No pipeline may do that: what it has learned would expire."""

    def changed(flow: FlowSpec) -> FlowSpec:
        kept = tuple(action for action in flow.actions if not isinstance(action, Learn))
        return replace(flow, actions=kept) if flow.table == Table.LEARN else flow

    return replace(pipeline, flows={key: changed(flow) for key, flow in pipeline.flows.items()})


def shortened(pipeline: Pipeline) -> Pipeline:
    """Frames of VMs are not looked up, and buckets send them as they are. No pipeline may do that either."""

    def sooner(flow: FlowSpec) -> FlowSpec:
        skips = (flow.table, flow.goto) == (Table.LEARN, Table.DESTINATION)
        return replace(flow, goto=Table.UPLINK_OUT) if skips else flow

    def out(group: GroupSpec) -> GroupSpec:
        if group.group_id >> 16 & 0xFF not in HASH_SLOTS:
            return group
        ports = [bucket.watch_port for bucket in group.buckets]
        assert all(port is not None for port in ports)
        outputs = [(Output(port),) for port in ports if port is not None]
        buckets = zip(group.buckets, outputs, strict=True)
        return replace(group, buckets=tuple(replace(b, actions=actions) for b, actions in buckets))

    return Pipeline(
        {key: sooner(flow) for key, flow in pipeline.flows.items()},
        {key: out(group) for key, group in pipeline.groups.items()},
    )


def worked_off_us(bed: Bed, frames: sender.Frames, out: socket.socket) -> float:
    """Processor time of the main thread for each frame, of one frame of each connection: the median burst."""
    pid = int(bed.ovs.pid("ovs-vswitchd"))
    found = []
    for number in range(BURSTS):
        os.kill(pid, signal.SIGSTOP)
        try:
            before, sent = left(bed), 0
            while sent < BURST:
                sent += frames.send(out, number * BURST + sent, BURST - sent)
            began_ns = spent_ns(pid)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda due=before + BURST: left(bed) >= due, "the burst leaves", interval_s=5e-4)  # type: ignore[misc]
        found.append((spent_ns(pid) - began_ns) / 1e3 / BURST)
    return round(statistics.median(found), 2)


def spent_ns(pid: int) -> int:
    """The processor time of the main thread of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


if __name__ == "__main__":
    sys.exit(main())
