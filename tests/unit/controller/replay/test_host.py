"""The engine over traces of which the outcome is known by arithmetic."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from controller import cli
from controller.replay.figures import MacMoves, fluid_bound
from controller.replay.host import Host, Options
from controller.replay.run import replay
from controller.replay.switch import Mix, in_buckets
from controller.replay.trace import HostTrace
from controller.text.wording import Refused
from policies.presets import PRESETS
from tests.unit.examples import examples

EXAMPLE = Path(__file__).parents[4] / "docs/examples/replay-trace.csv.gz"
MBPS = 1e6


Sample = Mapping[str, tuple[float, float]]


def trace(*samples: Sample, sample_s: float = 300) -> HostTrace:
    """A host with uplinks of 100 Mbit/s, and loads in Mbit/s."""
    return HostTrace(
        "host",
        100 * MBPS,
        {
            number * sample_s: {p: (tx * MBPS, rx * MBPS) for p, (tx, rx) in loads.items()}
            for number, loads in enumerate(samples)
        },
    )


# Ports are numbered by name behind two uplinks: a and c are on one, b is on the other.
BUSY = {"a": (80, 0), "b": (10, 130), "c": (60, 0)}
QUIET = {"a": (10, 0), "b": (10, 70), "c": (10, 0)}


def figures(of: HostTrace, policy: str, **options: Any) -> dict[str, Any]:
    how = Options(**options)
    return Host(of, policy, how).replay().as_json(fluid_bound([of], how.uplinks))


def test_static_placement_leaves_what_arithmetic_says() -> None:
    found = figures(trace(BUSY, QUIET), "originating-port")
    assert found["excess_ratio"]["transmit"] == pytest.approx(40 / 180)
    assert found["excess_ratio"]["receive"] == pytest.approx(30 / 200)
    assert found["above_threshold_s"] == pytest.approx(300)
    assert found["duration_s"] == pytest.approx(600)
    assert (found["moves"], found["most_moves_per_mac_180s"]) == (0, 0)
    # What is received is 130 % wherever b is, and 70 %.
    assert found["optimality"] == {
        "mean": pytest.approx((140 / 130 + 1) / 2),
        "worst": pytest.approx(140 / 130),
    }


def test_load_based_relieves_after_its_window_and_the_reaction_is_charged() -> None:
    loads = {"a": (40, 0), "b": (5, 0), "c": (65, 0)}
    found = figures(trace(QUIET, loads, QUIET), "load-based")
    assert found["moves"] == found["most_moves_per_mac_180s"] == 1
    excess_s = found["excess_ratio"]["transmit"] * (30 + 110 + 30) / 5 * 300
    assert 10 < excess_s < 35 and excess_s % 1 == pytest.approx(0.25, abs=0.01)


def test_splitting_helps_what_is_sent_and_not_what_is_received() -> None:
    loads = {"a": (150, 130)}
    static = figures(trace(loads), "originating-port")
    split = figures(trace(loads), "dynamic", mix=Mix(flows=256))
    assert static["excess_ratio"]["transmit"] == pytest.approx(50 / 150)
    assert split["excess_ratio"]["transmit"] < 0.05
    assert split["excess_ratio"]["receive"] == static["excess_ratio"]["receive"]
    assert split["most_moves_per_mac_180s"] == 0, "the address stays at its home"


def test_a_vm_port_of_a_trace_may_have_any_name() -> None:
    assert in_buckets(Mix(), "\ud800", "vnet0", 64, True).keys() <= set(range(64))


def random_trace(
    seed: int, samples: int, sample_s: float, ports: int, steady: bool = False
) -> HostTrace:
    """`steady`: loads are nearly those of the sample before."""
    chance = random.Random(seed)

    def load() -> float:
        return min(120.0, 6 * chance.paretovariate(1.0))

    loads = [{f"vm{p}": (load(), load()) for p in range(ports)} for _ in range(samples)]
    for number in range(1, samples if steady else 0):
        loads[number] = {
            port: (tx * chance.uniform(0.98, 1.02), rx * chance.uniform(0.98, 1.02))
            for port, (tx, rx) in loads[number - 1].items()
        }
    return trace(*loads, sample_s=sample_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "samples", "sample_s", "moves"),
    [
        ("originating-port", 4, 60, 0),
        ("load-based", 24, 90, 3),
        ("slb", 5, 45, 1),
        ("dynamic", 4, 30, 1),
        ("adaptive", 8, 40, 5),
    ],
)
def test_skipping_changes_nothing(policy: str, samples: int, sample_s: float, moves: int) -> None:
    made = random_trace(3, samples, sample_s, 6)
    assert alike_with_and_without_skipping(made, policy)["moves"] >= moves


def test_counters_do_not_go_back_while_samples_pass_by() -> None:
    calm = [{port: (tx + n % 2, rx) for port, (tx, rx) in QUIET.items()} for n in range(4)]
    made = trace(*calm, {"a": (40, 0), "b": (5, 0), "c": (65, 0)}, QUIET, sample_s=60)
    how = {"window-s": "5", "poll-interval-ms": "500"}
    assert alike_with_and_without_skipping(made, "load-based", settings=how)["moves"] == 1


@dataclass(frozen=True)
class Made:
    """A trace at random, and what a team has whose engine runs over it."""

    seed: int
    samples: int
    sample_s: float
    uplinks: int
    poll_ms: int
    steady: bool = False

    def is_alike(self, policy: str) -> None:
        made = random_trace(self.seed, self.samples, self.sample_s, 6, steady=self.steady)
        how = {"poll-interval-ms": str(self.poll_ms), "window-s": "5"}
        alike_with_and_without_skipping(made, policy, uplinks=self.uplinks, settings=how)


MADE = st.builds(
    Made,
    seed=st.integers(0, 999),
    samples=st.integers(2, 5),
    sample_s=st.sampled_from([7.3, 19, 30]),
    uplinks=st.integers(2, 3),
    poll_ms=st.sampled_from([100, 200, 250, 300, 500, 700, 1000, 1300, 2000, 2500]),
    steady=st.booleans(),
)


@pytest.mark.parametrize("policy", [name for name, preset in PRESETS.items() if preset.rebalances])
@pytest.mark.slow
# An example is long; a smaller one tells no more.
@settings(max_examples=4, phases=[Phase.generate])
@given(made=MADE)
def test_nor_does_it_on_any_trace(policy: str, made: Made) -> None:
    made.is_alike(policy)


@pytest.mark.parametrize(
    ("policy", "made"),
    [
        # Two placements were as good as each other, and a byte in a reading chose.
        pytest.param("adaptive", Made(98, 5, 30, 3, 2500), marks=pytest.mark.slow),
        pytest.param("adaptive", Made(274, 4, 30, 3, 2000), marks=pytest.mark.slow),
        pytest.param("adaptive", Made(704, 5, 30, 3, 700, steady=True), marks=pytest.mark.slow),
        pytest.param("adaptive", Made(1424, 5, 7.3, 3, 300), marks=pytest.mark.slow),
        # A reading lay at the edge of a window.
        pytest.param("dynamic", Made(82, 4, 30, 3, 200), marks=pytest.mark.slow),
        pytest.param("dynamic", Made(1057, 4, 19, 2, 250), marks=pytest.mark.slow),
        # Flows were not read as long after the last time as ever.
        ("load-based", Made(160, 4, 30, 2, 300)),
        pytest.param("load-based", Made(440, 5, 7.3, 2, 200), marks=pytest.mark.slow),
        # Ports had not been read where a window began.
        pytest.param("load-based", Made(590, 4, 30, 3, 100, steady=True), marks=pytest.mark.slow),
        pytest.param("set", Made(3, 4, 30, 2, 700), marks=pytest.mark.slow),
        pytest.param("set", Made(1018, 5, 30, 3, 100), marks=pytest.mark.slow),
    ],
)
def test_nor_does_it_on_traces_on_which_it_did(policy: str, made: Made) -> None:
    made.is_alike(policy)


def alike_with_and_without_skipping(made: HostTrace, policy: str, **how: Any) -> dict[str, Any]:
    skipped, lived = (figures(made, policy, skips=skips, **how) for skips in (True, False))
    assert skipped["moves"] == lived["moves"]
    assert skipped["most_moves_per_mac_180s"] == lived["most_moves_per_mac_180s"]
    for key, value in skipped.items():
        # Times are sums of intervals.
        assert value == pytest.approx(lived[key], rel=1e-9)
    return skipped


@pytest.mark.slow
def test_a_replay_is_the_same_each_time_and_in_as_many_processes_as_there_are() -> None:
    hosts = [random_trace(1, 3, 60, 4), random_trace(2, 3, 60, 4)]
    hosts[1].name = "host2"
    told: list[float] = []
    once = replay(hosts, ["load-based", "slb"], Options(), told.append, processes=1)
    again = replay(hosts, ["load-based", "slb"], Options(), processes=2)
    assert list(once) == ["load-based", "slb"] and once == again
    assert told == sorted(told) and told[-1] == 1.0


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(
    loads=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.tuples(*[st.floats(0, 300)] * 2), min_size=1),
        min_size=1,
        max_size=4,
    ),
    uplinks=st.integers(2, 4),
)
def test_static_excess_is_that_of_each_sample(loads: list[Sample], uplinks: int) -> None:
    made = trace(*loads)
    found = figures(made, "originating-port", uplinks=uplinks)
    number = {port: n + 1 for n, port in enumerate(made.ports)}
    for direction, name in enumerate(("transmit", "receive")):
        excess = total = 0.0
        for sample in loads:
            carried = [0.0] * uplinks
            for port, load in sample.items():
                carried[(number[port] + uplinks) % uplinks] += load[direction]
            excess += sum(max(0.0, mbps - 100) for mbps in carried)
            total += sum(carried)
        ratio = excess / total if total else 0.0
        assert found["excess_ratio"][name] == pytest.approx(ratio, abs=1e-9)
        sent = [sum(load[direction] for load in sample.values()) for sample in loads]
        least = sum(max(0.0, mbps - 100 * uplinks) for mbps in sent)
        assert found["fluid_bound_ratio"][name] == pytest.approx(
            least / total if total else 0.0, abs=1e-9
        )


def test_most_moves_of_an_address_are_counted_in_any_180_seconds() -> None:
    moves = MacMoves()
    for at_s in (0, 100, 179, 185, 400):
        moves.moved(3, at_s)
    moves.moved(4, 186)
    assert moves.most == 3


def test_a_policy_that_the_team_is_none_for_is_refused() -> None:
    with pytest.raises(
        Refused, match="ip-hash does not support teaming switch-independent; expected teaming"
    ):
        figures(trace(QUIET), "ip-hash")


# ---- the command -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_tells_programs_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(EXAMPLE), "--policy", "originating-port", "--policy", "load-based"]
    assert cli.main([*words, "--processes", "1", "--json", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert list(found) == ["originating-port", "load-based"]
    static, load_based = (found[policy]["excess_ratio"]["transmit"] for policy in found)
    assert 0.05 < load_based < static
    assert found["load-based"]["moves"] > 0 == found["originating-port"]["moves"]
    assert {path.name for path in tmp_path.iterdir()} == {"replay.png", "replay.svg"}
    assert str(tmp_path / "replay.png") in err


def test_the_command_tells_people_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(EXAMPLE), "--policy", "originating-port", "--processes", "1"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert "originating-port        14.82    12.12" in out
    assert max(map(len, out.splitlines())) <= 80 and err == ""


def test_an_unknown_policy_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["replay", str(EXAMPLE), "--policy", "adaptve"])
    assert "adaptve is invalid (did you mean adaptive?)" in capsys.readouterr().err
