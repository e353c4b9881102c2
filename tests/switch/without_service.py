"""Who forwards where there is no service, bonds and our pipelines; and connections, to see what each costs."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from controller.dataplane.pipeline import build
from controller.dataplane.specs import EMPTY
from policies.classifiers import Classifier
from tests.switch import frames
from tests.switch.bed import LACP, Bed, BedSpec, Upstream
from tests.switch.datapath_figures import team
from tests.switch.direct import Direct
from tests.switch.test_hashing import team_of
from tests.switch.wire import sending_socket
from topologies.network.private_ovs import PrivateOvs

BOUND, MULTIPATH, DP_HASH = "bound", "multipath", "dp_hash"
# So that all connections stay cached; Open vSwitch's default is 10 s.
MAX_IDLE_MS = 120_000


@dataclass(frozen=True, slots=True)
class Contender:
    """Who forwards: a bond by itself, or our pipeline without the service."""

    name: str
    team: str
    pipeline: str | None = None

    def __str__(self) -> str:
        return self.name


@contextlib.contextmanager
def bed_of(tor: Upstream, contender: Contender, uplinks: int = 2, vms: int = 1) -> Iterator[Bed]:
    """A bed on a switch of its own, on which a contender forwards and connections stay cached."""
    spec = BedSpec(contender.team, uplinks, (None,) * vms)
    with (
        PrivateOvs(prefix="ovs-lbt-figures-") as ovs,
        Bed(ovs, tor, spec) as bed,
        forwarding(bed, contender),
    ):
        ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={MAX_IDLE_MS}")
        yield bed


@contextlib.contextmanager
def forwarding(bed: Bed, contender: Contender) -> Iterator[None]:
    """Who forwards in this block."""
    if contender.pipeline is None:
        mode = "balance-tcp" if contender.team == LACP else contender.team
        settings = (f"bond_mode={mode}", "other_config:bond-rebalance-interval=0")
        bed.ovs.vsctl("set", "port", bed.bond, *settings)
        bed.introduce_to_normal()
        yield
        return
    with contextlib.closing(Direct(bed)) as direct:
        if contender.pipeline == BOUND:
            made = team(bed)
        else:
            by_dp_hash = contender.pipeline == DP_HASH
            made = team_of(bed, Classifier.TRANSPORT, on_a_lag=bed.spec.is_lag, dp_hash=by_dp_hash)
            if by_dp_hash:
                direct.add_select_group()
        direct.install(build(replace(made, over_normal=bed.spec.on_bond)))
        bed.introduce()
        bed.revalidated()
        yield
        direct.install(EMPTY)


def frame(bed: Bed, connection: int, frame_id: int) -> bytes:
    """A frame of a connection of the first VM."""
    vm, host = bed.vms[0], bed.hosts[0]
    return frames.segment(
        vm.mac,
        host.mac,
        source_ip=f"192.0.2.{1 + connection // 50_000}",
        destination_ip=host.ip,
        ports=(10_000 + connection % 50_000, 443),
        protocol=frames.UDP,
        frame_id=frame_id,
    )


def connect(
    bed: Bed, first: int, end: int, per_s: float, meanwhile: Callable[[], object] = bool
) -> None:
    """Send a frame of each of these connections, and do something `meanwhile` after every 32 of them."""
    with contextlib.closing(sending_socket(bed.vms[0].point)) as out:
        started_s = time.monotonic()
        for number in range(first, end):
            while started_s + (number - first) / per_s > time.monotonic():
                time.sleep(0.0005)
            out.send(frame(bed, number, 1 + number))
            if number % 32 == 0:
                meanwhile()


def cached_flows(bed: Bed) -> list[str]:
    """The flows that the datapath has cached."""
    return bed.ovs.run("ovs-appctl", "dpctl/dump-flows", timeout_s=120).splitlines()


def steps(bed: Bed) -> dict[str, int]:
    """What a frame of a new connection passes: look-ups in tables, groups, and learn actions."""
    vm, host = bed.vms[0], bed.hosts[0]
    frame = f"in_port={vm.port},udp,dl_src={vm.mac},dl_dst={host.mac},nw_src=192.0.2.1"
    frame += f",nw_dst={host.ip},nw_ttl=64,udp_src=10000,udp_dst=443"
    traced = bed.ovs.run("ovs-appctl", "ofproto/trace", bed.bridge, frame)
    told = {
        "lookups": r"\d+\. ",
        "resubmits": r"resubmit\(",
        "groups": "group:",
        "learns": r"learn\(",
    }
    return {
        name: len(re.findall(f"^ *{word}", traced, re.MULTILINE)) for name, word in told.items()
    }


def processor_s(bed: Bed, threads: str = "") -> float:
    """The processor time of ovs-vswitchd's threads, of those whose names begin so."""
    found = Path(f"/proc/{bed.ovs.pid('ovs-vswitchd')}/task").iterdir()
    spent_ns = (
        int((thread / "schedstat").read_text().split()[0])
        for thread in found
        if (thread / "comm").read_text().startswith(threads)
    )
    return sum(spent_ns) / 1e9
