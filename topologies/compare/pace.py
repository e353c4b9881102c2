"""The pace of a run: LBT's window, and a ramp that is slow enough for it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """Time scales of a run.

    While the ramp passes the threshold, a mean over the window lags behind by half the
    window. The ramp is so slow that the uplink is then still clearly below its capacity.
    """

    name: str
    window_s: int
    poll_interval_ms: int
    ramp_s: float
    steady_s: float
    # Enough of them to tell a quality of service of 99.9 % from 99.8 %.
    least_downloads: int
    # Of parallel streams: warm-up, measured part, cool-down.
    streams_s: tuple[float, float, float] = (5.0, 15.0, 5.0)
    # The same for streams that are as fast as the machine.
    bulk_s: tuple[float, float, float] = (2.0, 8.0, 1.0)
    # Of streams added one by one: a step, then time to settle with all, then the measured part.
    steps_s: tuple[float, float, float] = (2.0, 8.0, 8.0)
    # Of steady loads: time to settle, then the measured part.
    settling_s: tuple[float, float] = (35.0, 15.0)
    # When a switch fails, when it returns, and the end.
    outage_s: tuple[float, float, float] = (8.0, 16.0, 26.0)
    # Of loads that change at once: the longest wait before, and how long it is watched.
    shift_s: tuple[float, float] = (10.0, 20.0)
    # Of an uplink that fails: the longest wait before, how long it is watched, and for how long
    # nobody has moved before it: longer than bonds take to look again.
    failure_s: tuple[float, float] = (10.0, 40.0)
    still_s: float = 12.0
    # Of moves at a steady load: how many, and how long each is watched.
    moves: int = 20
    move_s: float = 1.0

    @property
    def load_s(self) -> float:
        """How long a contender is under load."""
        return self.ramp_s + self.steady_s


# As often as the service polls by itself.
REAL_TIME_POLL_INTERVAL_MS = 100
ACCELERATED = Pace("accelerated", 3, 250, ramp_s=40.0, steady_s=22.0, least_downloads=3000)
# The documented default: a mean over 30 s, at most one move in 30 s.
FAITHFUL = Pace(
    "faithful",
    30,
    1000,
    ramp_s=340.0,
    steady_s=120.0,
    least_downloads=3000,
    settling_s=(200.0, 30.0),
)
# To see that everything works; too short to compare anything.
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
    moves=3,
    move_s=0.7,
)


def in_real_time(chosen: Pace) -> Pace:
    """The same pace with the documented window and everybody's own intervals."""
    return replace(chosen, window_s=FAITHFUL.window_s, poll_interval_ms=REAL_TIME_POLL_INTERVAL_MS)
