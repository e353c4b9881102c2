"""Open vSwitch flushes all flows when somebody changes a bridge's fail mode or its controllers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.adopting import attached_from_standalone, has_ours
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.judging import at_most, judges_time
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

ON_PLAIN, ON_BOND = (BedSpec(team, 2, (None, None)) for team in (PLAIN, BALANCE_SLB))
on_plain_uplinks = on_beds(ON_PLAIN)
on_a_bond = on_beds(ON_BOND)
FLOW_PPS = 500
# Flows are read every 50 ms while a flush is expected, and then a bundle is sent. Twice where the fail mode
# is set again. Before the service expected flushes, it was up to 10 s.
SILENT_MS, SILENT_ANYWHERE_MS = 200.0, 3000.0
# Nobody listens there.
CONTROLLER = "tcp:127.0.0.1:9"


@judges_time
@on_plain_uplinks
def test_a_fail_mode_that_would_make_a_loop_is_set_again(bed: Bed, service: Service) -> None:
    with attached_from_standalone(bed, service):
        with silent_ms(bed, "plain uplinks, the fail mode is removed"):
            bed.ovs.vsctl("del-fail-mode", bed.bridge)
            wait_until(lambda: bed.fail_mode() == "secure", "the fail mode is set again")
            wait_until(lambda: has_ours_only(bed), "the switch has our flows, and NORMAL is gone")
        assert "fail_mode: changed to standalone after attach; secure" in service.log.read_text()
        assert service.show_json(bed.bridge)["not_done"] == []
        for vm in bed.vms:
            assert len(bed.homes()[str(vm)]) == 1


@judges_time
@on_a_bond
@pytest.mark.parametrize("change", ["fail mode", "controller"])
def test_a_bond_hardly_notices(bed: Bed, service: Service, change: str) -> None:
    service.attach(bed)
    to, back = {
        "fail mode": (("set-fail-mode", bed.bridge, "secure"), ("del-fail-mode", bed.bridge)),
        "controller": (("set-controller", bed.bridge, CONTROLLER), ("del-controller", bed.bridge)),
    }[change]
    for words in (to, back):
        with silent_ms(bed, f"a bond, {words[0]}"):
            bed.ovs.vsctl(*words)
            wait_until(lambda: has_ours(bed), "the switch has our flows")
    service.do("detach", bed.bridge)


@contextlib.contextmanager
def silent_ms(bed: Bed, when: str, limit_ms: float = SILENT_MS) -> Iterator[None]:
    """Judge how long flows from a VM and to it are silent meanwhile."""
    vm, host = bed.vms[0], bed.hosts[0]
    ways = [(vm, host), (host, vm)]
    flows = [(a.point, frames.udp(a.mac, b.mac)) for a, b in ways]
    with bed.ears(vm.point, host.point) as ears, Stream(flows, FLOW_PPS) as stream:
        wait_until(lambda: stream.received(ears[host.point], 0), "frames arrive")
        yield
        at = [ears[b.point] for _, b in ways]
        stream.more(at, FLOW_PPS // 2)
        stream.stop()
        ears.until_quiet()
        lost = [stream.lost(ear, i) for i, ear in enumerate(at)]
    at_most(f"ms silent, {when}", 1000 * max(lost) / FLOW_PPS, limit_ms, SILENT_ANYWHERE_MS)


def has_ours_only(bed: Bed) -> bool:
    return has_ours(bed) and "priority=0 actions=NORMAL" not in bed.ofctl("dump-flows")
