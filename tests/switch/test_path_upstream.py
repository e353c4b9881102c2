"""Two switches upstream, joined by a core: one loses its own uplink, and what ends on it keeps its links."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch.bed import PLAIN, Bed, BedSpec, Upstream, learning_at_once, on_beds
from tests.switch.judging import few_lost, judges_time, soon
from tests.switch.path_faults import (
    TALK_PPS,
    Talk,
    ask,
    checking,
    found_after_s,
    switches_upstream,
    told_faults,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until

OF_THREE = BedSpec(PLAIN, 3, (None, None), addresses=True)
OF_TWO = BedSpec(PLAIN, 2, (None, None), addresses=True)
# What the documents promise.
FOUND_WITHIN_S = 3.0
# From the finding until VM ports have left.
LOST_AFTER_MAX = 10
# So long VMs still talk after that.
TALK_ON_S = 1.0


@pytest.fixture(scope="module")
def learning(tor: Upstream) -> Iterator[None]:
    """Switches upstream learn from each frame, as those of hardware do."""
    with learning_at_once(tor.ovs):
        yield


def at_fault(bed: Bed, *numbers: int) -> set[tuple[str, str, bool, int | None]]:
    return {(bed.uplinks[number].name, "unreachable", True, None) for number in numbers}


@judges_time
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
    attached: Bed,
    service: Service,
    learning: None,
    well: tuple[int, ...],
    cut: tuple[int, ...],
    asks: bool,
) -> None:
    vms, host = attached.vms, attached.hosts[0]
    hosts = (host.ip,) if asks else ()
    with (
        switches_upstream(attached, well, cut) as (_, losing),
        checking(service, attached, *hosts),
    ):
        service.place(attached, well[0], cut[0])
        with Talk(vms, host) as talk:
            before = len(told_faults(attached.ovs))
            with losing.cut_off():
                took_s = found_after_s(service, attached, *at_fault(attached, *cut))
                soon("a switch that has lost its own uplink is found", took_s, FOUND_WITHIN_S)
                remaining = {attached.uplinks[number].name for number in well}
                wait_until(
                    lambda: {*service.bindings(attached).values()} <= remaining, "all have left"
                )
                # The history is written by a thread of its own.
                wait_until(lambda: len(told_faults(attached.ovs)) > before, "the history has it")
                told = told_faults(attached.ovs)[before:]
                talk.until_heard(TALK_ON_S)
                talk.stop()
            found_at = told[0]["at"]
            lost_after = [sum(at > found_at for at in of) for of in talk.lost_at]
            assert any(talk.lost_at), "the fault lost nothing, so nothing was tried"
            assert not talk.silent(TALK_ON_S / 2)
            few_lost(lost_after, LOST_AFTER_MAX, TALK_PPS, "after the finding")


@on_beds(OF_THREE)
def test_two_of_three_outvote_the_third_unless_a_host_is_asked(
    attached: Bed, service: Service
) -> None:
    """Two uplinks end on the switch that is cut off. To them, it is the third one that is."""
    well, cut = (0,), (1, 2)
    with (
        switches_upstream(attached, well, cut) as (_, losing),
        checking(service, attached),
        losing.cut_off(),
    ):
        found_after_s(service, attached, *at_fault(attached, *well))
        ask(service, attached, attached.hosts[0].ip)
        expected = at_fault(attached, *cut)
        found_after_s(service, attached, *expected)
        name = attached.uplinks[0].name
        wait_until(lambda: {*service.bindings(attached).values()} == {name}, "all are there")
