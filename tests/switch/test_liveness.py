"""Links that stay up and carry nothing: BFD finds them, and no failback goes to one too early."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from tests.switch import judging
from tests.switch.bed import (
    BALANCE_SLB,
    PLAIN,
    Bed,
    BedSpec,
    Uplink,
    on_beds,
    run,
)
from tests.switch.judging import at_least, at_most, few_twice, judges_time, soon
from tests.switch.service import Service
from tests.switch.traffic import Traffic
from tests.switch.waiting import wait_until

FLOW_PPS = 100
PLACES = (0, 1, 0, 1)
FAILBACK_DELAY_S = 2
# BFD gives a neighbour up after three periods.
BFD_PERIOD_MS = 100
# What is promised.
LEFT_WITHIN_S = 3.0
# A switch upstream that learns before it forwards, ten times as fast as one with the timers of
# the standard (IEEE 802.1D: 15 s listening and 15 s learning), and the default failback delay. Beside
# other tests it is half as fast: a test may get no core for a moment between the two.
LEARNING_S, LEARNING_FAILBACK_DELAY_S = (3.0, 4.5) if judging.benching else (6.0, 9.0)
TWICE_MAX = 2
# So many more frames of each flow prove that it arrives.
ALL_ARRIVE_FRAMES = 20

BEDS = [BedSpec(team, 2, (None,) * len(PLACES)) for team in (PLAIN, BALANCE_SLB)]


@judges_time
@on_beds(*BEDS)
def test_bfd_leaves_a_link_that_carries_nothing(
    attached: Bed, service: Service, record_property: Callable[[str, object], None]
) -> None:
    """The cable stays plugged in, and whatever is put on it is gone, both ways."""
    bed, (first, second) = attached, attached.uplinks
    service.do("set", "bridge", bed.bridge, f"failback-delay-s={FAILBACK_DELAY_S}")
    service.place(bed, *PLACES)
    gaps_s = {}
    with bfd(bed, service):
        with Traffic.of(bed, pps=FLOW_PPS) as alive:
            left_at = left(bed, alive, first)
            wait_until(lambda: silent(service, bed, first) == ["BFD"], "it is said what is silent")
            assert bed.carrier(first), "its link is still there"
            assert "no answer" in service.do("show", bed.bridge)
            assert service.metric("ovslbt_uplink_silent", uplink=first.name) == 1
            assert service.metric("ovslbt_uplink_up", uplink=first.name) == 0
            everyone = {str(s): [second.name] for s in bed.stations}
            wait_until(lambda: bed.homes() == everyone, "all leave it")
            back_s = heal(bed, service, first)
            wait_until(lambda: placed(bed, service), "they return")
            delay_s = time.monotonic() - back_s
        gaps_s["service alive"] = alive.silent_s(left_at)
        told = service.do("history", bed.bridge)
        assert f"no BFD response on {first}" in told and f"the link of {first} went up" in told
        with Traffic.of(bed, pps=FLOW_PPS) as dead:
            with service.dead():
                left_at = left(bed, dead, first)
            heal(bed, service, first)
            wait_until(lambda: placed(bed, service), "they return")
        gaps_s["service dead"] = dead.silent_s(left_at)
    for who, gap_s in gaps_s.items():
        record_property(f"longest silence of a VM, s, {who}", round(gap_s, 3))
    print(f"{bed}: longest silence of a VM: {gaps_s}; failback after {delay_s:.2f} s")
    for traffic in (alive, dead):
        few_twice(traffic.twice(), TWICE_MAX)
    for who, gap_s in gaps_s.items():
        soon(f"longest silence of a VM, {who}", gap_s, LEFT_WITHIN_S)
    at_least("back after, s", delay_s, FAILBACK_DELAY_S / 2, 0)


@judges_time
@on_beds(*BEDS[:1])
def test_no_failback_to_a_port_upstream_that_does_not_forward_yet(
    attached: Bed, service: Service, record_property: Callable[[str, object], None]
) -> None:
    """Nothing is lost from the moment the cable is plugged in until all have returned."""
    bed, (first, _) = attached, attached.uplinks
    service.do("set", "bridge", bed.bridge, f"failback-delay-s={LEARNING_FAILBACK_DELAY_S:g}")
    service.place(bed, *PLACES)
    with Traffic.of(bed, pps=FLOW_PPS) as traffic:
        traffic.go_on(ALL_ARRIVE_FRAMES)
        with bed.cable_pulled(first):
            wait_until(lambda: on_others(bed, service, first), "all leave it")
            traffic.go_on(ALL_ARRIVE_FRAMES)
            set_upstream_port(bed, first, "no-forward", "no-receive")
            plugged_s = time.time()
        time.sleep(max(0.0, plugged_s + LEARNING_S - time.time()))
        assert on_others(bed, service, first), "they returned before it forwarded"
        set_upstream_port(bed, first, "receive", "forward")
        wait_until(lambda: placed(bed, service), "they return")
        traffic.go_on(ALL_ARRIVE_FRAMES)
    gap_s = traffic.silent_s(plugged_s)
    record_property("longest silence of a VM, s", round(gap_s, 3))
    print(f"longest silence of a VM since the cable was plugged in: {gap_s:.3f} s")
    lost = max(traffic.lost_after(plugged_s).values(), default=0)
    few_twice(traffic.twice(), TWICE_MAX)
    # More than that is a blackhole.
    most = FLOW_PPS * LEARNING_S / 2
    at_most("frames lost since the cable was plugged in", lost, 0, most)


# ---- what is done to links -------------------------------------------------------------


@contextlib.contextmanager
def bfd(bed: Bed, service: Service) -> Iterator[None]:
    """BFD watches all uplinks, from both ends; upstream first, as operators are told."""
    begin_bfd(bed)
    wait_until(lambda: service.all_up(bed), "BFD answers everywhere")
    wait_until(lambda: placed(bed, service), "all are where they were put")
    try:
        yield
    finally:
        for uplink in bed.uplinks:
            heals(bed, uplink)
            bed.ovs.vsctl("clear", "interface", uplink.name, "bfd")
            bed.tor.ovs.vsctl("clear", "interface", uplink.upstream_end.interface, "bfd")


def begin_bfd(bed: Bed) -> None:
    words = ["bfd:enable=true", f"bfd:min_rx={BFD_PERIOD_MS}", f"bfd:min_tx={BFD_PERIOD_MS}"]
    for uplink in bed.uplinks:
        bed.tor.ovs.vsctl("set", "interface", uplink.upstream_end.interface, *words)
        bed.ovs.vsctl("set", "interface", uplink.name, *words)
    # It begins with a message each second.
    wait_until(lambda: in_earnest(bed), f"BFD's messages come each {BFD_PERIOD_MS} ms")


def in_earnest(bed: Bed, uplinks: Sequence[Uplink] = ()) -> bool:
    """Whether BFD watches these uplinks (all), from both ends, as often as it is to."""
    wanted = ("Remote Session State: up", f"RX Interval: Approx {BFD_PERIOD_MS}ms")
    watched = uplinks or bed.uplinks
    sides = [(bed.ovs, u.name) for u in watched]
    sides += [(bed.tor.ovs, u.upstream_end.interface) for u in watched]
    said = [ovs.run("ovs-appctl", "bfd/show", name) for ovs, name in sides]
    return all(words in one for one in said for words in wanted)


def swallow(bed: Bed, uplink: Uplink) -> None:
    """From now on, the cable loses all that either end puts on it."""
    for interface, netns in ends(bed, uplink):
        nothing = ["root", "pfifo", "limit", "0"]
        run("tc", "qdisc", "replace", "dev", interface, *nothing, netns=netns)


def heals(bed: Bed, uplink: Uplink) -> None:
    for interface, netns in ends(bed, uplink):
        with contextlib.suppress(AssertionError):
            run("tc", "qdisc", "del", "dev", interface, "root", netns=netns)


def ends(bed: Bed, uplink: Uplink) -> tuple[tuple[str, str | None], ...]:
    return (uplink.name, None), (uplink.upstream_end.interface, bed.tor.netns)


def heal(bed: Bed, service: Service, uplink: Uplink) -> float:
    """The cable carries again, and BFD has found it; when that was, by the monotonic clock."""
    heals(bed, uplink)
    wait_until(lambda: service.uplink(bed, uplink)["up"], f"{uplink} answers")
    return time.monotonic()


def set_upstream_port(bed: Bed, uplink: Uplink, *flags: str) -> None:
    """The switch upstream takes frames from this port, and gives some to it, or does not."""
    for flag in flags:
        port = uplink.upstream_end.interface
        bed.tor.ovs.run("ovs-ofctl", "mod-port", bed.upstream, port, flag)


def left(bed: Bed, traffic: Traffic, uplink: Uplink) -> float:
    """When an uplink began to swallow everything, once all flows arrive all the same."""
    traffic.go_on(ALL_ARRIVE_FRAMES)
    swallowed_at = time.time()
    swallow(bed, uplink)
    traffic.go_on(ALL_ARRIVE_FRAMES)
    return swallowed_at


# ---- what is shown ---------------------------------------------------------------------


def silent(service: Service, bed: Bed, uplink: Uplink) -> object:
    return service.uplink(bed, uplink).get("silent")


def placed(bed: Bed, service: Service) -> bool:
    bindings = service.bindings(bed)
    wanted = {vm.port: bed.uplinks[n].name for vm, n in zip(bed.vms, PLACES, strict=True)}
    return wanted.items() <= bindings.items()


def on_others(bed: Bed, service: Service, uplink: Uplink) -> bool:
    return uplink.name not in service.bindings(bed).values()
