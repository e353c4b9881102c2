"""Rounds of probes: which count, and when a path is broken or mended."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from controller.teaming.foreign_frames import MOST_AT_ONCE, MOST_HEARD
from controller.teaming.path_plan import Path
from controller.teaming.paths import (
    DOUBTED_S,
    INTERVAL_S,
    LOST_AFTER,
    MENDED_AFTER,
    MOST_AWAITED,
    MOST_LONG_QUESTIONS,
    MOST_PROBES,
    PathChecks,
)
from policies.model import OfPort
from policies.path_faults import Fault, PathFault

TEAM = ("a", "b", "c")
PLAN = tuple(sorted(Path(0, 0, x, y) for x in TEAM for y in TEAM if x != y))
CUT_OFF = PathFault(Fault.UNREACHABLE, ("a",))


class Probing:
    """Path checks whose probes take these paths."""

    def __init__(self, plan: tuple[Path, ...] = PLAN) -> None:
        self.checks, self.now_s = PathChecks(), 0.0
        self.checks.follow_config(plan)

    def round(
        self,
        arrives: Callable[[Path], bool],
        proves: bool = True,
        full: frozenset[str] = frozenset(),
        copies: bool = False,
    ) -> None:
        """Run a round in which these probes arrive, and copies of all if `copies` says so."""
        sent = self.checks.begin_round(self.now_s)
        copied = {(path.sender, path.mtu, path.vlan) for path in sent.copied if copies}
        for path in sent.paths:
            if arrives(path):
                self.checks.arrived(path, sent.number)
            if (path.sender, path.mtu, path.vlan) in copied:
                self.checks.arrived(path, sent.number, copy=True)
        if proves:
            self.checks.prove(sent.number, full, self.now_s)
        self.now_s += INTERVAL_S

    def rounds(
        self,
        count: int,
        lost: str = "",
        lose: Callable[[Path], bool] = lambda _: False,
        **how: Any,
    ) -> None:
        """Run rounds in which what the uplink `lost` sends and receives is lost, and what `lose` says."""
        for _ in range(count):
            self.round(lambda p: lost not in (p.sender, p.receiver) and not lose(p), **how)

    def found(self, delay_s: float = 0.0) -> set[PathFault]:
        self.checks.find(TEAM, delay_s, self.now_s)
        return set(self.checks.since_s)


def test_a_single_loss_breaks_nothing() -> None:
    here = Probing()
    for _ in range(5):
        here.rounds(LOST_AFTER - 1, lost="a")
        here.rounds(1)
    assert here.found() == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost_ratio", [*(pytest.param(ratio, marks=pytest.mark.slow) for ratio in (0.05, 0.2)), 0.5]
)
def test_a_network_that_loses_frames_of_all_kinds_is_no_fault(lost_ratio: float) -> None:
    """For an hour. A path that is cut off is found nevertheless."""
    here, chance = Probing(), random.Random(1)
    for _ in range(2 * 3600):
        here.rounds(1, lose=lambda _: chance.random() < lost_ratio)
        assert here.found() == set()
    here.rounds(MOST_AWAITED + 1, lost="a", lose=lambda _: chance.random() < lost_ratio)
    assert here.found() == {CUT_OFF}


def test_a_path_is_broken_after_some_losses_in_a_row_and_mended_after_a_while_without() -> None:
    """What a path loses that turns out to be broken says nothing of others: the next is found as soon."""
    here = Probing()
    for _ in range(3):
        here.rounds(LOST_AFTER, lost="a")
        assert here.found() == set()
        # The next round proves that the last one had its time.
        here.rounds(1, lost="a")
        assert here.found() == {CUT_OFF}
        here.rounds(99, lost="a")
        here.rounds(MENDED_AFTER)
        assert here.found() == {CUT_OFF}
        here.rounds(1)
        assert here.found() == set()


def test_rounds_that_are_not_proved_and_losses_on_a_full_uplink_do_not_count() -> None:
    here = Probing()
    here.rounds(20, lost="a", proves=False)
    here.rounds(2)
    here.rounds(50, lost="a", full=frozenset("a"))
    assert here.found() == set()


def test_rounds_and_their_frames_are_counted_by_what_became_of_them() -> None:
    here = Probing()
    here.rounds(2)
    here.rounds(1, proves=False)
    here.rounds(3, lost="a")
    here.rounds(1, lost="a", full=frozenset("a"))
    # The last round has no other behind it yet. Four of the six probes of a round begin or end at `a`.
    assert here.checks.counts == {
        "judged": 5,
        "void": 1,
        "arrived": 2 * 6 + 3 * 2,
        "lost": 8,
        "full": 4,
    }


def test_a_lost_connection_ends_rows_of_losses_but_no_fault() -> None:
    here = Probing()
    here.rounds(LOST_AFTER + 1, lost="a")
    here.found()
    here.checks.interrupt()
    here.rounds(LOST_AFTER - 1, lost="b")
    assert here.found() == {CUT_OFF}


def test_a_fault_of_a_vlan_stays_for_the_failback_delay() -> None:
    plan = tuple(sorted(Path(0, v, x, y) for v in (10, 20) for x in TEAM for y in TEAM if x != y))
    here = Probing(plan)
    here.rounds(LOST_AFTER + 1, lose=lambda p: p.vlan == 20 and "a" in (p.sender, p.receiver))
    fault = PathFault(Fault.VLAN, ("a",), vlan=20)
    assert here.found(45.0) == {fault}
    here.rounds(MENDED_AFTER + 1)
    assert here.found(45.0) == {fault}
    assert here.checks.is_over(fault)
    here.now_s += 44.0
    assert here.found(45.0) == {fault}
    here.now_s += 2.0
    assert here.found(45.0) == set()


def test_a_long_plan_is_probed_in_parts() -> None:
    plan = tuple(sorted(Path(0, v, x, y) for v in range(50) for x in "ab" for y in "ab" if x != y))
    checks = PathChecks()
    checks.follow_config(plan)
    first, second = (checks.begin_round(n * INTERVAL_S).paths for n in range(2))
    assert (len(first), len(second)) == (MOST_PROBES, MOST_PROBES)
    assert {*first, *second} == set(plan)


HOST = "192.0.2.1"
PAIR = tuple(Path(m, 0, x, y) for m in (0, 1500, 9000) for x, y in ("ab", "ba"))
QUESTIONS = tuple(Path(m, 0, x, HOST, True) for m in (0, 1500, 9000) for x in "ab")


def asked(plan: tuple[Path, ...], count: int) -> list[tuple[Path, ...]]:
    """Of each round, the questions to hosts."""
    checks = PathChecks()
    checks.follow_config(plan)
    rounds = (checks.begin_round(n * INTERVAL_S / 2).paths for n in range(count))
    return [tuple(path for path in paths if path.to_host) for paths in rounds]


def test_a_host_gets_one_question_in_a_round_and_the_short_one_in_every_other() -> None:
    short, medium, long = QUESTIONS[:2], QUESTIONS[2:4], QUESTIONS[4:]
    plan = tuple(sorted(PAIR + QUESTIONS))
    assert asked(plan, 6) == [short, medium, short, long, short, medium]


def test_long_questions_have_rounds_halfway_between() -> None:
    checks = PathChecks()
    checks.follow_config(PAIR)
    checks.begin_round(10.0)
    assert checks.due_s == 10.0 + INTERVAL_S
    checks.follow_config(tuple(sorted(PAIR + QUESTIONS)))
    checks.begin_round(20.0)
    assert checks.due_s == 20.0 + INTERVAL_S / 2


def test_many_long_questions_are_asked_in_parts() -> None:
    hosts = [f"192.0.2.{n}" for n in range(1, 49)]
    plan = tuple(sorted(Path(1500, 0, "a", host, True) for host in hosts))
    rounds = [paths for paths in asked(plan, 6) if paths]
    assert [len(paths) for paths in rounds] == [MOST_LONG_QUESTIONS] * 3
    assert {path for paths in rounds[:2] for path in paths} == set(plan)


@pytest.mark.parametrize("lost", "ab")
def test_an_uplink_without_an_answer_is_found_as_soon_as_without_a_host(lost: str) -> None:
    """Two uplinks, VM ports of two MTUs, and a host: the fault is found as soon as the uplinks miss each other."""
    here = Probing(tuple(sorted(PAIR + QUESTIONS)))
    other, begun_s = "ab".replace(lost, ""), here.now_s
    while not here.checks.unreachable():
        sent = here.checks.begin_round(here.now_s)
        if any(path.to_host and path.sender == other for path in sent.paths):
            here.checks.answered(other, HOST, 0, MAC)
        here.checks.prove(sent.number, (), here.now_s)
        here.checks.find(tuple("ab"), 45.0, here.now_s)
        assert here.now_s - begun_s <= LOST_AFTER * INTERVAL_S
        here.now_s = here.checks.due_s
    assert here.checks.unreachable() == {lost}


def hears(checks: PathChecks, uplink: str, at_s: float, own: bool) -> bool:
    """Whether one more foreign frame is one too many."""
    kind = OfPort(TEAM.index(uplink)), own
    return checks.foreign.is_flooded(kind, uplink, INTERVAL_S, at_s)


def flood(checks: PathChecks, uplink: str, at_s: float, own: bool = True) -> None:
    """One frame too many comes by an uplink."""
    flooded = [hears(checks, uplink, at_s, own) for _ in range(MOST_HEARD + 1)]
    assert flooded == [False] * MOST_HEARD + [True]


@pytest.mark.parametrize("own", [True, False])
def test_while_an_uplink_is_flooded_the_probes_that_it_misses_do_not_count(own: bool) -> None:
    here = Probing()
    for _ in range(20):
        here.rounds(1, lost="a")
        for uplink in "bc":
            flood(here.checks, uplink, here.now_s, own)
        here.checks.foreign.take_again(here.now_s + INTERVAL_S / 2)
    assert here.checks.counts["hindered"] > 20
    assert here.found() == {CUT_OFF}, "it is not flooded itself, so what it misses counts"


def test_the_first_round_after_a_flood_counts() -> None:
    here = Probing()
    for _ in range(20):
        here.rounds(1, lost="a")
        for uplink in TEAM:
            flood(here.checks, uplink, here.now_s)
        here.checks.foreign.take_again(here.now_s)
        assert here.checks.foreign.dropped
        here.checks.foreign.take_again(here.now_s + INTERVAL_S / 2)
        assert not here.checks.foreign.dropped
    assert here.found() == set()
    # The switch takes frames again halfway between the next round and the one after that.
    here.rounds(1 + LOST_AFTER, lost="a")
    assert here.found() == set()
    here.rounds(1, lost="a")
    assert here.found() == {CUT_OFF}


def test_frames_of_one_kind_do_not_stop_others() -> None:
    checks = PathChecks()
    checks.begin_round(0.0)
    flood(checks, "a", INTERVAL_S, own=False)
    assert not hears(checks, "a", INTERVAL_S, own=True)
    assert not hears(checks, "b", INTERVAL_S, own=False)


def test_a_burst_at_the_beginning_of_rounds_hides_probes_of_all_uplinks() -> None:
    """The switch has one queue for what it gives to the service."""
    here = Probing()
    for _ in range(20):
        begun_s = here.now_s
        here.rounds(1, lost="a")
        for number in range(MOST_AT_ONCE + 1):
            hears(here.checks, TEAM[1 + number % 2], begun_s, own=number % 4 < 2)
    assert here.found() == set() and not here.checks.foreign.dropped
    here.rounds(LOST_AFTER + 1, lost="a")
    assert here.found() == {CUT_OFF}


def test_only_the_address_that_is_asked_can_answer() -> None:
    checks = PathChecks()
    checks.follow_config(OF_TWO)
    checks.begin_round(0.0)
    assert checks.answered("a", HOST, 0, MAC)
    checks.begin_round(INTERVAL_S)
    assert not checks.answered("a", HOST, 0, "02:00:00:00:00:02")
    assert checks.answered("a", HOST, 0, MAC)


def test_frames_of_a_round_are_told_from_foreign_ones() -> None:
    checks = PathChecks()
    checks.follow_config(OF_TWO)
    sent = checks.begin_round(0.0)
    path = next(path for path in sent.paths if not path.to_host)
    arrivals = [
        *(checks.arrived(path, sent.number) for _ in range(2)),
        *(checks.arrived(path, sent.number, copy=True) for _ in range(2)),
        *(checks.answered("a", HOST, 0, MAC) for _ in range(2)),
    ]
    assert arrivals == [True, False] * 3
    assert not checks.arrived(path, sent.number + 1)
    assert not checks.answered("b", "192.0.2.9", 0, MAC)


def to_a(path: Path) -> bool:
    return path.receiver == "a"


class Stolen(Probing):
    """The address of `a` is stolen: only copies of probes reach it."""

    @property
    def astray(self) -> set[str]:
        return {name for name in TEAM if self.checks.foreign.seen_on(name, self.now_s)}

    def theft(self, count: int, copies: bool = True, lose: Callable[[Path], bool] = to_a) -> None:
        self.rounds(count, lose=lose, copies=copies)


def test_an_uplink_that_copies_reach_is_not_cut_off_but_its_address_is_stolen() -> None:
    here = Stolen()
    here.theft(100)
    assert here.found() == set()
    assert here.astray == {"a"}
    here.rounds(1)
    here.theft(2)
    assert here.astray == {"a"}, "it is not all over at once"
    here.rounds(8)
    assert here.astray == set()
    here.theft(100)
    here.theft(LOST_AFTER, copies=False)
    assert here.found() == set()
    here.theft(1, copies=False)
    assert here.found() == {CUT_OFF}, "not even copies arrive"


def test_copies_of_single_losses_say_nothing() -> None:
    here, chance = Stolen(), random.Random(1)
    for _ in range(3600):
        here.theft(1, lose=lambda _: chance.random() < 0.2)
        assert not here.astray
    assert here.checks.counts["astray"] > 1000


def test_copies_are_sent_only_for_a_while_after_a_loss() -> None:
    here = Probing()
    assert not here.checks.begin_round(here.now_s).copied
    here.rounds(3, lost="a")
    assert {path.sender for path in here.checks.begin_round(here.now_s).copied} == set(TEAM)
    here.rounds(50, lost="a")
    assert not here.checks.begin_round(here.now_s).copied


def test_thefts_do_not_make_the_network_look_as_if_it_lost_frames() -> None:
    """Otherwise an uplink that is cut off later would be found later."""
    here = Stolen()
    for _ in range(20):
        here.theft(3)
        here.rounds(3)
    here.rounds(LOST_AFTER + 1, lost="a")
    assert here.found() == {CUT_OFF}


def test_when_checks_end_no_fault_is_left() -> None:
    here = Probing()
    here.rounds(LOST_AFTER + 1, lost="a")
    assert here.found(45.0) == {CUT_OFF}
    here.checks.end()
    assert here.found(45.0) == set()


TWO = ("a", "b")
MAC = "02:00:00:00:00:01"
OF_TWO = tuple(
    sorted(
        [Path(0, 0, "a", "b"), Path(0, 0, "b", "a")]
        + [Path(0, 0, uplink, HOST, to_host=True) for uplink in TWO]
    )
)
ASKED = Path(0, 0, "a", HOST, to_host=True)
BETWEEN = PathFault(Fault.UNREACHABLE, TWO, decided=False)


class OfTwo(Probing):
    """Two uplinks that also ask a host."""

    def __init__(self) -> None:
        super().__init__(OF_TWO)
        self.faults: list[set[PathFault]] = []

    def answered(self, count: int, answers: str = "ab", arrive: bool = True) -> None:
        """Run rounds in which the host answers by these uplinks; `arrive`: what uplinks send each other."""
        for _ in range(count):
            began_s = self.now_s
            self.round(lambda path: path.sender in answers if path.to_host else arrive)
            self.checks.find(TWO, 0.0, began_s)
            if not self.faults or set(self.checks.since_s) != self.faults[-1]:
                self.faults.append(set(self.checks.since_s))


def test_a_host_that_answers_again_does_not_make_others_suspect() -> None:
    """It answers by both uplinks before the paths between them are found mended."""
    here = OfTwo()
    here.answered(8, answers="b", arrive=False)
    here.answered(20)
    assert here.faults == [set(), {CUT_OFF}, set()]


def test_an_uplink_stays_at_fault_while_no_host_answers() -> None:
    """A router that restarts says nothing of the uplinks."""
    here = OfTwo()
    here.answered(8, answers="b", arrive=False)
    here.answered(100, answers="", arrive=False)
    here.answered(8, answers="b", arrive=False)
    assert here.faults == [set(), {CUT_OFF}]
    assert here.checks.judges_s(1.0) == float("inf")


def test_an_uplink_by_which_a_host_answers_for_long_is_not_at_fault() -> None:
    """Both uplinks are well, but frames between them are lost."""
    here = OfTwo()
    here.answered(8, answers="b", arrive=False)
    here.answered(4, arrive=False)
    assert here.faults[-1] == {CUT_OFF}
    assert here.now_s < here.checks.judges_s(0.0) <= here.now_s + DOUBTED_S
    here.answered(20, arrive=False)
    assert here.faults == [set(), {CUT_OFF}, {BETWEEN}]
    assert here.checks.judges_s(0.0) == float("inf")


def test_without_a_host_to_ask_nothing_stays_decided() -> None:
    here = OfTwo()
    here.answered(8, answers="b", arrive=False)
    here.checks.follow_config(tuple(path for path in OF_TWO if not path.to_host))
    here.answered(20, arrive=False)
    assert here.faults == [set(), {CUT_OFF}, {BETWEEN}]


def test_all_are_asked_until_the_host_answers_and_again_when_it_does_not() -> None:
    checks, now_s = PathChecks(), 0.0
    checks.follow_config(OF_TWO)
    asked_at = []
    for answers in (False, True, True, False, True, True):
        sent = checks.begin_round(now_s)
        asked_at.append(checks.asked_at(ASKED))
        if answers:
            checks.answered("a", HOST, 0, MAC)
        checks.prove(sent.number, (), now_s)
        now_s += INTERVAL_S
    # A round is judged when the next one has proved itself, which may have been answered or not.
    assert asked_at == [None, None, None, MAC, MAC, None]
    checks.end()
    assert checks.asked_at(ASKED) is None
