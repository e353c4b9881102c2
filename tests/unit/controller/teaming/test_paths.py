"""Rounds of probes: which count, and when a path is broken or mended."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

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

HOST, MAC = "192.0.2.1", "02:00:00:00:00:01"
TEAM = ("a", "b", "c")


def between(
    *uplinks: str, mtus: tuple[int, ...] = (0,), vlans: tuple[int, ...] = (0,)
) -> set[Path]:
    return {
        *(Path(m, v, x, y) for m in mtus for v in vlans for x in uplinks for y in uplinks if x != y)
    }


def to_host(*uplinks: str, mtus: tuple[int, ...] = (0,)) -> set[Path]:
    return {Path(m, 0, x, HOST, to_host=True) for m in mtus for x in uplinks}


PLANS = {
    "three": between(*TEAM),
    "three in two VLANs": between(*TEAM, vlans=(10, 20)),
    "two and a host": between("a", "b") | to_host("a", "b"),
    "two": between("a", "b"),
}
OF_TWO = tuple(sorted(PLANS["two and a host"]))
CUT_OFF = PathFault(Fault.UNREACHABLE, ("a",))
FAULTS = {
    "a": CUT_OFF,
    "a,b": PathFault(Fault.UNREACHABLE, ("a", "b"), decided=False),
    "a-in-20": PathFault(Fault.VLAN, ("a",), vlan=20),
}


class Probing:
    """Path checks whose probes take these paths. Each method `do_…` is a step of a story."""

    def __init__(self, plan: str = "three") -> None:
        self.checks, self.now_s, self.delay_s = PathChecks(), 0.0, 0.0
        self.team = TEAM if plan.startswith("three") else TEAM[:2]
        # What is lost besides what a step says, and the faults that were found after each round.
        self.lose: Callable[[Path], bool] = lambda _: False
        self.found: list[set[PathFault]] = []
        self.do_plan(*plan.split())

    def tell(self, steps: str) -> None:
        for step in filter(None, map(str.strip, steps.split("|"))):
            word, *words = step.split()
            try:
                getattr(self, f"do_{word.replace('-', '_')}")(*words)
            except AssertionError as error:
                error.add_note(f"in the step: {step}")
                raise

    # ---- what happens

    def do_plan(self, *words: str) -> None:
        self.checks.follow_config(tuple(sorted(PLANS[" ".join(words)])))

    def do_rounds(self, count: str, *words: str) -> None:
        """Run rounds.

        `lost=a`: what `a` sends and receives is lost, `lost=to-a`: what it receives, `vlan=20`: not in
        VLAN 10, `apart`: all between uplinks. `answers=b`: a host answers by `b` alone. `copied`: copies
        arrive. `unproved`: a round does not prove itself. `full=a`: `a` is full. `flooded=bc`: after each
        round, frames flood `b` and `c`; `burst`: many frames come at once.
        """
        how = dict(word.partition("=")[::2] for word in words)
        for _ in range(int(count)):
            began_s = self.now_s
            sent = self.checks.begin_round(began_s)
            copied = {(path.sender, path.mtu, path.vlan) for path in sent.copied if "copied" in how}
            for path in sent.paths:
                if _arrives(path, how) and not self.lose(path):
                    self.checks.arrived(path, sent.number)
                if (path.sender, path.mtu, path.vlan) in copied:
                    self.checks.arrived(path, sent.number, copy=True)
            if "unproved" not in how:
                self.checks.prove(sent.number, frozenset(how.get("full", "")), began_s)
            if len(self.team) == 2:
                self._find(began_s)
            self.now_s += INTERVAL_S
            for number in range(MOST_AT_ONCE + 1 if "burst" in how else 0):
                hears(self.checks, TEAM[1 + number % 2], began_s, own=number % 4 < 2)
            if "flooded" in how:
                self._flood(how["flooded"], own="others" not in how)

    def _flood(self, uplinks: str, own: bool) -> None:
        foreign = self.checks.foreign
        for uplink in uplinks:
            flood(self.checks, uplink, self.now_s, own)
        foreign.take_again(self.now_s)
        assert foreign.dropped
        foreign.take_again(self.now_s + INTERVAL_S / 2)
        assert not foreign.dropped

    def do_interrupt(self) -> None:
        self.checks.interrupt()

    def do_end(self) -> None:
        self.checks.end()

    def do_delay(self, seconds: str) -> None:
        """The failback delay."""
        self.delay_s = float(seconds)

    def do_wait(self, seconds: str) -> None:
        self.now_s += float(seconds)

    # ---- what must be seen

    def _find(self, now_s: float) -> set[PathFault]:
        self.checks.find(self.team, self.delay_s, now_s)
        found = set(self.checks.since_s)
        if self.found[-1:] != [found]:
            self.found.append(found)
        return found

    def do_found(self, *faults: str) -> None:
        assert self._find(self.now_s) == {FAULTS[one] for one in faults}

    def do_in_turn(self, *faults: str) -> None:
        """What was found since the beginning."""
        assert self.found == [set(), *({FAULTS[one]} if one != "none" else set() for one in faults)]

    def do_over(self, fault: str) -> None:
        assert self.checks.is_over(FAULTS[fault])

    def do_counted(self, *counts: str) -> None:
        """What became of rounds and their frames, all of it."""
        found = self.checks.counts.items()
        assert {f"{kind}={number}" for kind, number in found} == {*counts}

    def do_more_than(self, number: str, kind: str) -> None:
        assert self.checks.counts[kind] > int(number)

    def do_astray(self, *uplinks: str) -> None:
        """Whose addresses seem to be stolen."""
        assert {n for n in TEAM if self.checks.foreign.seen_on(n, self.now_s)} == {*uplinks}

    def do_copies(self, *senders: str) -> None:
        """Of whose probes copies are sent."""
        assert {path.sender for path in self.checks.begin_round(self.now_s).copied} == {*senders}

    def do_judges(self, when: str) -> None:
        """When another judgement is due although no frame came."""
        due_s = self.checks.judges_s(0.0)
        due = self.now_s < due_s <= self.now_s + DOUBTED_S
        assert due if when == "soon" else due_s == float("inf")


def _arrives(path: Path, how: Mapping[str, str]) -> bool:
    if path.to_host:
        return path.sender in how.get("answers", "ab")
    to, lost, other_vlan = "to-" + path.receiver, how.get("lost"), "vlan" in how and path.vlan == 10
    return "apart" not in how and (other_vlan or lost not in (to, path.sender, path.receiver))


BROKEN = f"rounds {LOST_AFTER + 1} lost=a"
# Of two uplinks, a host answers by `b` alone: `a` is at fault.
ONE_ANSWERS = "rounds 8 answers=b apart"
STOLEN = "lost=to-a copied"
STORIES = {
    "a single loss breaks nothing": 5 * f"rounds {LOST_AFTER - 1} lost=a | rounds 1 |" + "found",
    # The round after the last loss proves that it had its time. What a path loses that turns out to be
    # broken says nothing of others: the next is found as soon.
    "broken after some losses in a row and mended after a while without": 3
    * f"""rounds {LOST_AFTER} lost=a | found | rounds 1 lost=a | found a | rounds 99 lost=a
        | rounds {MENDED_AFTER} | found a | rounds 1 | found |""",
    "neither rounds that are not proved nor losses on a full uplink count": """rounds 20 lost=a unproved
        | rounds 2 | rounds 50 lost=a full=a | found""",
    # The last round has no other behind it yet. Four of the six probes of a round begin or end at `a`.
    "rounds and their frames are counted by what became of them": """rounds 2 | rounds 1 unproved
        | rounds 3 lost=a | rounds 1 lost=a full=a | counted judged=5 void=1 arrived=18 lost=8 full=4""",
    "a lost connection ends rows of losses but no fault": f"""{BROKEN} | found a | interrupt
        | rounds {LOST_AFTER - 1} lost=b | found a""",
    "a fault of a VLAN stays for the failback delay": f"""plan three in two VLANs | delay 45 | {BROKEN} vlan=20
        | found a-in-20 | rounds {MENDED_AFTER + 1} | found a-in-20 | over a-in-20 | wait 44
        | found a-in-20 | wait 2 | found""",
    "no fault is left when checks end": f"delay 45 | {BROKEN} | found a | end | found",
    # It is not flooded itself, so what it misses counts.
    "losses of one that is not flooded": """rounds 20 lost=a flooded=bc | found a
        | more-than 20 hindered""",
    "frames of others that flood": "rounds 20 lost=a flooded=bc others | found a",
    # The switch takes frames again halfway between the next round and the one after that.
    "the first round after a flood counts": f"""rounds 20 lost=a flooded=abc | found
        | rounds {1 + LOST_AFTER} lost=a | found | rounds 1 lost=a | found a""",
    # The switch has one queue for what it gives to the service.
    "a burst at the beginning of rounds hides probes of all uplinks": f"""rounds 20 lost=a burst | found
        | {BROKEN} | found a""",
    # It is not all over at once. When not even copies arrive, it is cut off.
    "an uplink that copies reach is not cut off but its address is stolen": f"""rounds 100 {STOLEN} | found
        | astray a | rounds 1 | rounds 2 {STOLEN} | astray a | rounds 8 | astray | rounds 100 {STOLEN}
        | rounds {LOST_AFTER} lost=to-a | found | rounds 1 lost=to-a | found a""",
    "copies are sent only for a while after a loss": """copies | rounds 3 lost=a | copies a b c
        | rounds 50 lost=a | copies""",
    # Otherwise an uplink that is cut off later would be found later.
    "thefts do not make the network look as if it lost frames": 20
    * f"rounds 3 {STOLEN} | rounds 3 |"
    + f"{BROKEN} | found a",
}
STORIES_OF_TWO = {
    # By both uplinks, before the paths between them are found mended.
    "a host that answers again does not make others suspect": f"{ONE_ANSWERS} | rounds 20 | in-turn a none",
    # A router that restarts says nothing of the uplinks.
    "an uplink stays at fault while no host answers": f"""{ONE_ANSWERS} | rounds 100 answers= apart
        | {ONE_ANSWERS} | in-turn a | judges never""",
    # Both uplinks are well, but frames between them are lost.
    "an uplink by which a host answers for long is not at fault": f"""{ONE_ANSWERS} | rounds 4 apart
        | in-turn a | judges soon | rounds 20 apart | in-turn a a,b | judges never""",
    "without a host to ask nothing stays decided": f"""{ONE_ANSWERS} | plan two | rounds 20 apart
        | in-turn a a,b""",
}


@pytest.mark.parametrize("story", STORIES)
def test_three_uplinks(story: str) -> None:
    Probing().tell(STORIES[story])


@pytest.mark.parametrize("story", STORIES_OF_TWO)
def test_two_uplinks_that_also_ask_a_host(story: str) -> None:
    Probing("two and a host").tell(STORIES_OF_TWO[story])


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost_ratio", [*(pytest.param(ratio, marks=pytest.mark.slow) for ratio in (0.05, 0.2)), 0.5]
)
def test_a_network_that_loses_frames_of_all_kinds_is_no_fault(lost_ratio: float) -> None:
    """For an hour. A path that is cut off is found nevertheless."""
    here, chance = Probing(), random.Random(1)
    here.lose = lambda _: chance.random() < lost_ratio
    for _ in range(2 * 3600):
        here.tell("rounds 1 | found")
    here.tell(f"rounds {MOST_AWAITED + 1} lost=a | found a")


def test_a_long_plan_is_probed_in_parts() -> None:
    plan = tuple(sorted(Path(0, v, x, y) for v in range(50) for x in "ab" for y in "ab" if x != y))
    checks = PathChecks()
    checks.follow_config(plan)
    first, second = (checks.begin_round(n * INTERVAL_S).paths for n in range(2))
    assert (len(first), len(second)) == (MOST_PROBES, MOST_PROBES)
    assert {*first, *second} == set(plan)


MTUS = (0, 1500, 9000)
PLANS["two and a host, of three MTUs"] = between("a", "b", mtus=MTUS) | to_host("a", "b", mtus=MTUS)


def asked(plan: tuple[Path, ...], count: int) -> list[tuple[Path, ...]]:
    """Of each round, the questions to hosts."""
    checks = PathChecks()
    checks.follow_config(plan)
    rounds = (checks.begin_round(n * INTERVAL_S / 2).paths for n in range(count))
    return [tuple(path for path in paths if path.to_host) for paths in rounds]


def test_a_host_gets_one_question_in_a_round_and_the_short_one_in_every_other() -> None:
    short, medium, long = (tuple(sorted(to_host("a", "b", mtus=(mtu,)))) for mtu in MTUS)
    plan = tuple(sorted(PLANS["two and a host, of three MTUs"]))
    assert asked(plan, 6) == [short, medium, short, long, short, medium]


def test_many_long_questions_are_asked_in_parts() -> None:
    hosts = [f"192.0.2.{n}" for n in range(1, 49)]
    plan = tuple(sorted(Path(1500, 0, "a", host, True) for host in hosts))
    rounds = [paths for paths in asked(plan, 6) if paths]
    assert [len(paths) for paths in rounds] == [MOST_LONG_QUESTIONS] * 3
    assert {path for paths in rounds[:2] for path in paths} == set(plan)


@pytest.mark.parametrize("lost", "ab")
def test_an_uplink_without_an_answer_is_found_as_soon_as_without_a_host(lost: str) -> None:
    """Two uplinks, VM ports of two MTUs, and a host: the fault is found as soon as the uplinks miss each other."""
    here = Probing("two and a host, of three MTUs")
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


def test_frames_of_one_kind_do_not_stop_others() -> None:
    checks = PathChecks()
    checks.begin_round(0.0)
    flood(checks, "a", INTERVAL_S, own=False)
    assert not hears(checks, "a", INTERVAL_S, own=True)
    assert not hears(checks, "b", INTERVAL_S, own=False)


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


def test_copies_of_single_losses_say_nothing() -> None:
    here, chance = Probing(), random.Random(1)
    here.lose = lambda _: chance.random() < 0.2
    for _ in range(3600):
        here.tell("rounds 1 copied | astray")
    assert here.checks.counts["astray"] > 1000


def test_all_are_asked_until_the_host_answers_and_again_when_it_does_not() -> None:
    checks, now_s = PathChecks(), 0.0
    checks.follow_config(OF_TWO)
    (asks,), asked_at = to_host("a"), []
    for answers in (False, True, True, False, True, True):
        sent = checks.begin_round(now_s)
        asked_at.append(checks.asked_at(asks))
        if answers:
            checks.answered("a", HOST, 0, MAC)
        checks.prove(sent.number, (), now_s)
        now_s += INTERVAL_S
    # A round is judged when the next one has proved itself, which may have been answered or not.
    assert asked_at == [None, None, None, MAC, MAC, None]
    checks.end()
    assert checks.asked_at(asks) is None
