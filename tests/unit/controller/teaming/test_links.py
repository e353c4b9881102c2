"""When an uplink whose link has returned carries traffic again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.events import PortState
from controller.config.values import UplinkConfig
from controller.teaming.links import ASK_EVERY_S, NEVER_S, Links
from policies.model import OfPort, Role

DELAY_S = 5.0
TEAM = tuple(UplinkConfig(f"eth{n}", OfPort(n), None, None, Role.ACTIVE) for n in (1, 2))
FIRST, SECOND = TEAM


def see(links: Links, number: int, up: bool, now_s: float) -> None:
    links.note_port(PortState(number, f"eth{number}", up, 1e10), now_s)


def receive(links: Links, first: int, second: int, probed: bool = False) -> None:
    links.receive({"eth1": first, "eth2": second}, probed)


def connected(team: tuple[UplinkConfig, ...] = TEAM) -> Links:
    links = Links(DELAY_S, team)
    links.connect([PortState(n, f"eth{n}", True, 1e10) for n in (1, 2)], 0.0)
    return links


def returned() -> Links:
    """eth1 had received 10 frames before its link failed; it has returned at 2 s."""
    links = connected()
    receive(links, 10, 10)
    see(links, 1, up=False, now_s=1.0)
    see(links, 1, up=True, now_s=2.0)
    return links


def usable(links: Links, now_s: float) -> set[str]:
    links.end_delays(now_s)
    return links.usable()


@pytest.mark.parametrize("probed", [False, True])
def test_an_uplink_waits_for_a_frame_while_others_receive_some(probed: bool) -> None:
    links = returned()
    receive(links, 10, 10 if probed else 11, probed)
    assert usable(links, 7.0) == {"eth2"}
    assert "received" in links.why_unused(FIRST, 7.0) and links.why_waiting(FIRST)
    assert links.asks_s == 7.0
    links.note_asked(7.0)
    assert links.asks_s == 7.0 + ASK_EVERY_S
    receive(links, 11, 12, probed)
    assert links.delay_ends_s == 7.0 and usable(links, 8.0) == {"eth1", "eth2"}
    assert not links.why_waiting(FIRST) and links.delay_ends_s == NEVER_S


def test_it_does_not_wait_where_nobody_receives_anything() -> None:
    links = returned()
    receive(links, 10, 10)
    assert not links.why_waiting(FIRST) and usable(links, 7.0) == {"eth1", "eth2"}


def test_it_waits_until_it_is_known_whether_others_receive() -> None:
    assert usable(returned(), 7.0) == {"eth2"}


def test_a_switch_that_counts_no_frames_is_not_waited_for() -> None:
    links = connected()
    see(links, 1, up=False, now_s=1.0)
    see(links, 1, up=True, now_s=2.0)
    assert usable(links, 7.0) == {"eth1", "eth2"}


def test_a_frame_within_the_failback_delay_is_enough() -> None:
    links = returned()
    receive(links, 11, 11)
    assert usable(links, 6.9) == {"eth2"} and usable(links, 7.0) == {"eth1", "eth2"}


def test_the_counters_of_a_device_that_was_made_anew_begin_at_zero() -> None:
    links = returned()
    receive(links, 2, 11)
    assert links.why_waiting(FIRST)
    receive(links, 3, 11)
    assert not links.why_waiting(FIRST)


def test_an_uplink_that_left_the_team_returns_as_from_a_failure() -> None:
    links = returned()
    usable(links, 7.0)
    receive(links, 11, 11)
    links.follow_team((SECOND,), 8.0)
    links.follow_team(TEAM, 9.0)
    receive(links, 11, 12)
    assert usable(links, 20.0) == {"eth2"} and links.why_waiting(FIRST)


def test_both_that_returned_are_used_until_one_is_proven() -> None:
    links = returned()
    see(links, 2, up=False, now_s=2.1)
    see(links, 2, up=True, now_s=2.2)
    assert usable(links, 3.0) == {"eth1", "eth2"}
    receive(links, 10, 11)
    assert usable(links, 8.0) == {"eth2"}


def test_a_blocked_uplink_is_not_up() -> None:
    team = (replace(FIRST, blocked=True), SECOND)
    links = connected(team)
    links.follow_paths(frozenset({"eth1"}), 1.0)
    assert links.usable() == {"eth2"} and not links.up(team[0])
    assert "spanning tree" in links.why_unused(team[0], 1.0)
    links.uplinks = TEAM
    links.follow_paths(frozenset(), 2.0)
    assert usable(links, 6.0) == {"eth2"} and usable(links, 7.0) == {"eth1", "eth2"}


def test_it_waits_no_longer_once_the_uplinks_are_a_lag() -> None:
    """LACP is negotiated again after a fallback: the partner may send nothing by it."""
    links = returned()
    receive(links, 10, 11)
    assert links.why_waiting(FIRST)
    links.forget_received()
    assert not links.why_waiting(FIRST) and usable(links, 7.0) == {"eth1", "eth2"}


def test_it_waits_no_longer_once_it_takes_the_place_of_another_uplink() -> None:
    """Uplinks that never fall back are used when another one fails, whether they have received a frame or not."""
    links = returned()
    links.delay_s = NEVER_S
    receive(links, 10, 11)
    assert links.why_waiting(FIRST) and usable(links, 100.0) == {"eth2"}
    see(links, 2, up=False, now_s=100.0)
    assert usable(links, 100.0) == {"eth1"} and not links.why_waiting(FIRST)
