"""Detects other hosts' frames that disturb path checks: floods, and frames with probe addresses.

On each uplink, the switch passes two kinds of frames to the service: frames to the uplink's own addresses,
and other frames. After a flood of one kind, the switch drops that kind on that uplink until just before the
next round. After that, a few frames show whether the flood is over. The switch has one queue for all frames
that it passes to the service, so a flood during a round may have displaced probes of any uplink.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from policies.model import OfPort

# A kind of frames that the switch passes to the service: the uplink; whether to its own addresses.
Kind = tuple[OfPort, bool]

# More frames of one kind in a round are a flood. Frames that belong to the round are not counted.
MOST_HEARD = 100
# The same after a round that was not proved: the switch or the service is so busy that frames are lost before
# they are counted. A busy service may handle fewer than 200 frames in a second.
MOST_WHILE_LOST = 10
# After a flood, this many frames show that it continues. Even a long flood must not cost much processor time.
MOST_IN_A_TRY = 50
# More frames of all kinds within this time from the beginning of a round are a burst. Open vSwitch's queue
# has room for 100, and its socket for more.
MOST_AT_ONCE, AT_ONCE_S = 150, 0.2
# How long floods and forged frames are reported after they were last detected. A busy machine may not detect
# an ongoing flood for a second or two.
SEEN_S = 3.0
# Stands for an uplink if no uplink has received forged frames, but their effect was detected.
UNSEEN = ""


@dataclass(slots=True)
class ForeignFrames:
    """The floods and forged frames from other hosts on the uplinks of one bridge."""

    # The kinds that the switch drops, and the times when this ends, in seconds of engine time.
    dropped: dict[Kind, float] = field(default_factory=dict)
    # When the last round began, the frames received in the round by kind, and their number at its beginning.
    _began_s: float = 0.0
    _heard: Counter[Kind] = field(default_factory=Counter)
    _at_once: int = 0
    _most_heard: int = MOST_HEARD
    # The start of the last round with a burst, and, by uplink, the end of the last flood that hid probes.
    _burst_s: float = float("-inf")
    _flooded_until_s: dict[str, float] = field(default_factory=dict)
    # When the last frame was seen from the address of an uplink's probes, and on which uplink.
    _seen_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def begin_round(self, now_s: float, previous_proved: bool) -> None:
        self._began_s, self._at_once = now_s, 0
        self._most_heard = MOST_HEARD if previous_proved else MOST_WHILE_LOST
        self._heard.clear()

    def is_flooded(self, kind: Kind, uplink: str, interval_s: float, now_s: float) -> bool:
        """Count a frame that is not part of a round. Return True in a flood: the switch must drop this kind.

        The switch accepts the kind again midway between two rounds (`interval_s` apart), so that flood frames
        are handled before the next probes arrive.
        """
        self._heard[kind] += 1
        self._at_once += now_s < self._began_s + AT_ONCE_S
        if self._at_once > MOST_AT_ONCE:
            self._burst_s = self._began_s
        if self._heard[kind] <= self._most_heard:
            return False
        self.dropped[kind] = self._flooded_until_s[uplink] = self._began_s + 1.5 * interval_s
        return True

    def take_again(self, now_s: float) -> None:
        """Accept frames of dropped kinds again once their drop expires."""
        over = [kind for kind, until_s in self.dropped.items() if now_s >= until_s]
        for kind in over:
            del self.dropped[kind]
            self._heard[kind] = max(0, self._most_heard - MOST_IN_A_TRY)

    def hides(self, uplink: str, at_s: float) -> bool:
        """Whether a flood may have hidden a probe that was sent to `uplink` at `at_s`."""
        in_burst = self._burst_s <= at_s < self._burst_s + 2 * AT_ONCE_S
        return in_burst or at_s < self._flooded_until_s.get(uplink, float("-inf"))

    def is_reported(self, uplink: str, now_s: float) -> bool:
        """Whether a flood has recently hidden probes to an uplink."""
        hid_until_s = self._flooded_until_s.get(uplink, float("-inf"))
        return now_s - SEEN_S < max(self._burst_s + 2 * AT_ONCE_S, hid_until_s)

    def see(self, owner: str, uplink: str, now_s: float) -> None:
        """Note that another host uses the address of `owner`'s probes. `uplink`: UNSEEN if not known."""
        self._seen_s[owner, uplink] = now_s

    def seen_on(self, owner: str, now_s: float) -> tuple[str, ...]:
        """Return the uplinks on which frames noted by `see` have recently arrived. UNSEEN may be among them."""
        seen = self._seen_s.items()
        return tuple(sorted(on for (of, on), at_s in seen if of == owner and now_s < at_s + SEEN_S))

    def heard_again_s(self) -> float:
        """Return when a dropped kind of frame is next accepted again; infinity if none is dropped."""
        return min(self.dropped.values(), default=float("inf"))
