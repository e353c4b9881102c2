"""How fast a run goes: LBT's window, and a ramp slow enough for it."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def load_s(self) -> float:
        """How long a contender is under load."""
        return self.ramp_s + self.steady_s


ACCELERATED = Pace("accelerated", 3, 250, ramp_s=40.0, steady_s=22.0, least_downloads=3000)
# The documented default: a mean over 30 s, at most one move in 30 s.
FAITHFUL = Pace("faithful", 30, 1000, ramp_s=340.0, steady_s=120.0, least_downloads=3000)
# To see that everything works; too short to compare anything.
QUICK = Pace("quick", 1, 200, ramp_s=14.0, steady_s=6.0, least_downloads=0)
