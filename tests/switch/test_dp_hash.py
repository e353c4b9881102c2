"""Buckets picked by the datapath's hash: as many connections as there are, and 256 cached flows.

tests/switch/test_hashing.py says that frames leave as they do by `multipath`. This says what the
datapath's hash is for.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from controller.dataplane.pipeline import build
from controller.dataplane.team import Team
from policies.classifiers import BUCKETS, Classifier
from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Shot, Station, on_beds
from tests.switch.direct import Direct
from tests.switch.test_changes_in_parts import whole
from tests.switch.test_hashing import Left, install, left_by, recognizable, segment, team_of

CONNECTIONS = 1024
PROTOCOLS = (frames.TCP, frames.UDP)
AT_A_TIME = 64
# A busy machine takes longer than the switch's 10 s to send a frame of each connection.
MAX_IDLE_MS = 120_000
on_a_bed = on_beds(BedSpec(PLAIN, 4, (None, None)))


@pytest.fixture
def cached_for_long(bed: Bed) -> Iterator[None]:
    """Cached flows that no frame meets are not removed in between."""
    bed.ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={MAX_IDLE_MS}")
    yield
    bed.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "max-idle")


def hashed_by_the_datapath(bed: Bed, on_a_lag: bool = False) -> Team:
    return team_of(bed, Classifier.TRANSPORT, on_a_lag=on_a_lag, dp_hash=True)


def connections(bed: Bed, vm: Station, protocol: int, count: int = CONNECTIONS) -> list[Shot]:
    """One frame of each of many connections of a VM with an outsider."""
    ports = range(10000, 10000 + count)
    builds = {port: functools.partial(segment, 4, protocol, port) for port in ports}
    return [bed.frame_of(vm, build, story=f"port {port}") for port, build in builds.items()]


def batches(shots: list[Shot]) -> Iterator[list[Shot]]:
    for start in range(0, len(shots), AT_A_TIME):
        yield shots[start : start + AT_A_TIME]


def left_paced(bed: Bed, shots: list[Shot]) -> dict[int, list[Left]]:
    """How each frame left, as `left_by` says. The upstream switch's ports have room for 90 frames."""
    seen: dict[int, list[Left]] = {}
    for batch in batches(shots):
        seen |= left_by(bed, batch)
    return seen


def cached(bed: Bed, sender: Station) -> tuple[list[str], list[str]]:
    """The cached flows for a sender's frames to outsiders: before their hash is known, and after."""
    shown = bed.ovs.run("ovs-appctl", "dpctl/dump-flows", "-m", "--names").splitlines()
    sent = [f for f in shown if f"in_port({sender.port})" in f and "eth_type(0x0800)" in f]
    after = [flow for flow in sent if re.search(r"recirc_id\(0x[1-9a-f]", flow)]
    return [flow for flow in sent if flow not in after], after


@on_a_bed
@pytest.mark.usefixtures("cached_for_long")
@pytest.mark.parametrize("name", ["vm0", "LOCAL"])
def test_many_connections_take_a_cached_flow_for_each_bucket(
    bed: Bed, direct: Direct, name: str
) -> None:
    team = install(bed, direct, hashed_by_the_datapath(bed))
    at = next(i for i, station in enumerate(bed.stations) if str(station) == name)
    sender, home = bed.stations[at], bed.uplinks[at].name
    expected = recognizable(bed, team, sender, home, {u.name: 0 for u in bed.uplinks})
    used: list[list[str]] = []
    for protocol in (frames.TCP, frames.TCP, frames.UDP):
        shots = connections(bed, sender, protocol)
        seen = left_paced(bed, shots)
        # The switch ends a connection that is silent for a minute.
        direct.counters()
        wrong = {
            s.story: c for s in shots if len(c := seen[s.frame_id]) != 1 or c[0] not in expected
        }
        assert not wrong, (
            f"{len(wrong)} of {len(shots)}: {dict(itertools.islice(wrong.items(), 5))}"
        )
        used.append([seen[shot.frame_id][0][0] for shot in shots])
    assert used[0] == used[1], "a connection stays on its uplink"
    for uplinks in used:
        shares = Counter(uplinks)
        deviation = (CONNECTIONS / len(bed.uplinks) * (1 - 1 / len(bed.uplinks))) ** 0.5
        for uplink in bed.uplinks:
            off_by = shares[uplink.name] - CONNECTIONS / len(bed.uplinks)
            assert abs(off_by) < 5 * deviation, shares
    first, after = cached(bed, sender)
    # Each bucket has eight connections, so hardly one has none.
    assert BUCKETS - 10 <= len(after) <= BUCKETS, len(after)
    assert len(first) <= len(PROTOCOLS), first


@on_a_bed
@pytest.mark.usefixtures("cached_for_long")
def test_what_is_cached_of_a_split_drops_nothing_when_it_has_ended(
    bed: Bed, direct: Direct
) -> None:
    """It would drop frames of the next split: for some seconds, the cached flow has the same match."""
    split = install(bed, direct, hashed_by_the_datapath(bed))
    vm = bed.vms[0]
    left_paced(bed, connections(bed, vm, frames.UDP, AT_A_TIME))
    direct.install(build(whole(split)))
    bed.revalidated()
    _, after = cached(bed, vm)
    assert after, "nothing is cached of the split"
    assert [flow for flow in after if "actions:drop" in flow] == []


def uplinks_of(bed: Bed, shots: list[Shot]) -> list[str]:
    """The uplink by which each frame left, once."""
    seen = left_paced(bed, shots)
    wrong = {s.story: c for s in shots if len(c := seen[s.frame_id]) != 1}
    assert not wrong, f"{len(wrong)} of {len(shots)}: {dict(itertools.islice(wrong.items(), 5))}"
    return [seen[shot.frame_id][0][0] for shot in shots]
