"""The pace of a run: the averaging window, and how long loads, streams and failures last."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """Time scales of a run.

    During a ramp, a mean over the window lags by half the window. The ramp is slow enough that an
    uplink is still well below its capacity when the mean passes the threshold.
    """

    name: str
    window_s: int
    poll_interval_ms: int
    ramp_s: float
    steady_s: float
    # Enough downloads to distinguish a quality of service of 99.9 % from 99.8 %.
    least_downloads: int
    # Parallel streams: warm-up, measured part, cool-down.
    streams_s: tuple[float, float, float] = (5.0, 15.0, 5.0)
    # The same for streams that only the CPU limits.
    bulk_s: tuple[float, float, float] = (2.0, 8.0, 1.0)
    # Streams that start one by one: the step, the time to settle, the measured part.
    steps_s: tuple[float, float, float] = (2.0, 8.0, 8.0)
    # Steady loads: the time to settle, the measured part.
    settling_s: tuple[float, float] = (35.0, 15.0)
    # The times at which a switch fails, it recovers, and the load ends.
    outage_s: tuple[float, float, float] = (8.0, 16.0, 26.0)
    # Load jumps: the longest wait before the jump, and the span that is watched after it.
    shift_s: tuple[float, float] = (10.0, 20.0)
    # An uplink failure: the longest wait before it, the span that is watched after it, and the span
    # without a move before it, which is longer than the rebalance interval of bonds.
    failure_s: tuple[float, float] = (10.0, 40.0)
    still_s: float = 12.0
    # Flows that start at random: before they are measured, measured, and the longest time that those
    # under way have to end. A policy with a window of 30 s is attached 2 s before the first flow, so it
    # has moved once before flows are measured.
    flows_s: tuple[float, float, float] = (28.0, 18.0, 12.0)
    # Many connections: the time in which hardly any flow may be added before they count as cached,
    # that in which new connections are opened, and that in which an uplink is down.
    connections_s: tuple[float, float, float] = (2.0, 3.0, 1.0)

    @property
    def load_s(self) -> float:
        """The duration of a ramping load."""
        return self.ramp_s + self.steady_s


# The poll interval of `adaptive`.
REAL_TIME_POLL_INTERVAL_MS = 100
ACCELERATED = Pace("accelerated", 3, 250, ramp_s=40.0, steady_s=22.0, least_downloads=3000)
# The documented default: a mean over 30 s, and at most one move in 30 s.
FAITHFUL = Pace(
    "faithful",
    30,
    1000,
    ramp_s=340.0,
    steady_s=120.0,
    least_downloads=3000,
    settling_s=(200.0, 30.0),
    flows_s=(100.0, 180.0, 30.0),
)
# Only to check that a bench works: too short for comparable figures.
QUICK = Pace(
    "quick",
    1,
    200,
    ramp_s=14.0,
    steady_s=6.0,
    least_downloads=0,
    streams_s=(1.0, 3.0, 1.0),
    bulk_s=(1.0, 2.0, 1.0),
    steps_s=(1.0, 2.0, 2.0),
    settling_s=(9.0, 4.0),
    outage_s=(3.0, 6.0, 11.0),
    shift_s=(0.5, 6.0),
    failure_s=(0.5, 5.0),
    still_s=2.0,
    flows_s=(2.0, 5.0, 5.0),
    connections_s=(0.5, 0.5, 0.5),
)

PACES = {one.name: one for one in (ACCELERATED, FAITHFUL, QUICK)}


def in_real_time(chosen: Pace) -> Pace:
    """The same pace with the documented window and each contender's default intervals."""
    return replace(chosen, window_s=FAITHFUL.window_s, poll_interval_ms=REAL_TIME_POLL_INTERVAL_MS)
