"""When `load-based` moves a VM port: above the threshold, and a window after the last move."""

from __future__ import annotations

import pytest

from controller.bridge.installation import REVALIDATED_AFTER_S
from controller.dataplane.tables import HELD_TIMEOUT_S
from tests.unit.controller.engine.told import offer, ramp
from tests.unit.fake_switch import PLACED, moves, world
from tests.unit.rows import host


def test_the_published_ramp_gives_exactly_two_moves_at_the_expected_times() -> None:
    """0.07 Gbit/s more each second; the mean over 30 s is the load of 15 s ago.

    It passes 7.5 Gbit/s at 122.1 s, and 10 Gbit/s, three quarters of which are on eth1, at
    157.9 s; uplinks are judged by half a second before, which is the poll before.
    """
    here = ramp().run_until(400)
    moved = [(at_s, changes) for at_s, changes in here.applied() if at_s > 0]
    steps = [124, 124 + REVALIDATED_AFTER_S, 159, 159 + REVALIDATED_AFTER_S]
    assert [at_s for at_s, _ in moved] == pytest.approx(steps)
    assert moves(here) == {"threshold": 2}
    assert sorted(here.bindings().values()) == ["eth1", "eth1", "eth2", "eth2"]
    loads = [uplink.uplink.load.tx_bps / 1e9 for uplink in here.status.uplinks]
    assert loads == pytest.approx([6.5, 6.5])


def test_each_move_is_a_few_groups_and_for_a_moment_one_flow() -> None:
    """The flow keeps the new way closed for broadcasts, and ends by itself if nobody removes it."""
    here = ramp().run_until(400)
    steps = [changes for _, changes in here.applied()[PLACED:]]
    for first, second in zip(steps[::2], steps[1::2], strict=True):
        assert 1 <= len(first.modify_groups) <= 1 + 2
        (closed,) = first.add_flows
        assert closed.hard_timeout_s == HELD_TIMEOUT_S and not closed.actions
        assert len(first) == len(first.modify_groups) + 1
        assert second.delete_flows == (closed,) and len(second) == 1


def test_a_manual_move_starts_a_new_window() -> None:
    """The mean still holds what the moved VM port sent; it must not cost another one its place.

    A burst of two seconds; the operator moves a VM port in the middle of it.
    """
    here = world(host(binding="eth1"))
    here.switch.offered_bps = {
        10 + i: lambda t: (3.9 if 40 <= t < 42 else 1.8) * 1e9 for i in range(4)
    }
    here.start().run_until(41)
    here.do("move vnet3 eth2")
    assert moves(here) == {"manual": 1}
    here.run_until(100)
    assert moves(here) == {"manual": 1}


def test_a_window_begins_with_enforcing() -> None:
    """Under NORMAL all was on eth1; what that loaded says nothing of our bindings."""
    here = offer(world(host(mode="observe")), [3e9] * 4).start().run_until(100)
    here.switch.sent_bytes[1] = here.switch.sent_bytes.get(1, 0) + 9e9 / 8 * 60
    here.run_until(101)
    here.do("set bridge br0 mode=enforce").run_for(31)
    assert moves(here) == {}
