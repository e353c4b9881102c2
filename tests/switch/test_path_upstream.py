"""Path checks while a switch upstream has lost its own uplink, and what ends on it keeps its links."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.switch.bed import PLAIN, Bed, BedSpec, Upstream, learning_at_once, run
from tests.switch.judging import few_lost, judges_time, soon
from tests.switch.path_faults import checking, found_after_s, told_faults
from tests.switch.service import Service
from tests.switch.traffic import FLOW_PPS, Traffic
from tests.switch.waiting import wait_until

OF_THREE = BedSpec(PLAIN, 3, (None, None), addresses=True)
OF_TWO = BedSpec(PLAIN, 2, (None, None), addresses=True)
# What the documents promise.
FOUND_WITHIN_S = 3.0
# From the finding until VM ports have left: 0.1 s.
LOST_AFTER_MAX = FLOW_PPS // 10


@pytest.fixture(scope="module")
def learning(tor: Upstream) -> Iterator[None]:
    """Switches upstream learn from each frame, as those of hardware do."""
    with learning_at_once(tor.ovs):
        yield


@judges_time
@pytest.mark.usefixtures("learning")
@pytest.mark.parametrize(
    ("bed", "well", "cut", "asks"),
    [
        pytest.param(OF_THREE, (0, 1), (2,), False, id="one-of-three"),
        pytest.param(OF_THREE, (0, 1), (2,), True, id="one-of-three-and-a-host"),
        pytest.param(OF_THREE, (0,), (1, 2), True, id="two-of-three-and-a-host"),
        pytest.param(OF_TWO, (0,), (1,), True, id="one-of-two-and-a-host"),
    ],
    indirect=["bed"],
)
def test_a_switch_that_has_lost_its_own_uplink_is_left(
    attached: Bed, service: Service, well: tuple[int, ...], cut: tuple[int, ...], asks: bool
) -> None:
    bed, hosts = attached, (attached.hosts[0].ip,) if asks else ()
    remaining, lost = ({bed.uplinks[number].name for number in of} for of in (well, cut))
    with (
        switch_upstream(bed, cut) as cut_off,
        checking(service, bed, *hosts),
        contextlib.ExitStack() as mended,
    ):
        service.place(bed, well[0], cut[0])
        before = len(told_faults(bed.ovs))
        with Traffic.of(bed) as traffic:
            traffic.go_on()
            mended.enter_context(cut_off())
            took_s = found_after_s(service, bed, *((u, "unreachable", True, None) for u in lost))
            soon("a switch that has lost its own uplink is found", took_s, FOUND_WITHIN_S)
            wait_until(lambda: {*service.bindings(bed).values()} <= remaining, "all have left")
            # The history is written by a thread of its own. Without a decision, it names no uplink.
            found = wait_until(
                lambda: [e for e in told_faults(bed.ovs)[before:] if e.get("uplink") in lost],
                "the history has it",
            )
            traffic.go_on()
        assert traffic.lost(), "the fault lost nothing, so nothing was tried"
        few_lost(traffic.lost_after(found[-1]["at"]), LOST_AFTER_MAX, FLOW_PPS, "after the finding")


@contextlib.contextmanager
def switch_upstream(
    bed: Bed, numbers: Sequence[int]
) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """In this block, these uplinks end on a switch of their own, which a cable joins to the upstream one.

    What is yielded unplugs that cable in a block. The uplinks keep their links.
    """
    name, at_core, at_switch = (f"{bed.prefix}{letter}0" for letter in "scd")
    netns, ovs, mtu = bed.tor.netns, bed.tor.ovs, f"mtu {bed.spec.mtu_bytes}"
    ends = [bed.uplinks[number].upstream_end.interface for number in numbers]
    cable = [f"link add {at_core} {mtu} type veth peer {at_switch} {mtu}"]
    cable += [f"link set {end} up" for end in (at_core, at_switch)]
    run("ip", "-n", netns, "-batch", "-", stdin="\n".join(cable))

    @contextlib.contextmanager
    def cut_off() -> Iterator[None]:
        run("ip", "-n", netns, "link", "set", at_core, "down")
        try:
            yield
        finally:
            run("ip", "-n", netns, "link", "set", at_core, "up")

    made = ["add-br", name, "--", "set", "bridge", name, bed.tor.setting]
    for bridge, end in ((name, at_switch), (bed.upstream, at_core)):
        made += ["--", "add-port", bridge, end]
    for end in ends:
        made += ["--", "del-port", bed.upstream, end, "--", "add-port", name, end]
    back = [word for end in ends for word in ("--", "add-port", bed.upstream, end)]
    try:
        ovs.vsctl(*made)
        try:
            bed.introduce()
            yield cut_off
        finally:
            ovs.vsctl("del-port", bed.upstream, at_core, "--", "del-br", name, *back)
    finally:
        run("ip", "-n", netns, "link", "del", at_core)
