"""Frames of other hosts that disturb path checks: too many, or from the addresses of probes.

The switch passes the service frames of two kinds on each uplink: those to the uplink's own addresses, and
others. A flood of one kind makes the switch drop that kind on that uplink until just before the next round.
Then either the flood is over, or the next few frames show that it is not. The switch has one queue for all
frames that it passes to the service, so a flood together with the probes of a round may have displaced
probes of any uplink.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from policies.model import OfPort

# Frames that the switch gives to the service: on an uplink, and whether to its own addresses.
Kind = tuple[OfPort, bool]

# More frames of one kind in a round are a flood. What belongs to the round is not counted.
MOST_HEARD = 100
# After a flood, so many show that it goes on. A flood must not cost much processor time however long it lasts.
MOST_IN_A_TRY = 50
# So many, of all kinds, within this time from the beginning of a round are a burst. Open vSwitch's queue has
# room for 100, and its socket for more.
MOST_AT_ONCE, AT_ONCE_S = 150, 0.2
# For how long after the last sign of them floods and forged frames are reported. A busy machine may hear
# nothing of a flood that goes on for a second or two.
SEEN_S = 3.0
# In place of the uplink that has received forged frames: none has, but they have had their effect.
UNSEEN = ""


@dataclass(slots=True)
class ForeignFrames:
    """What the frames on the uplinks of one bridge say of other hosts."""

    # The kinds that the switch drops, and until when, in seconds of engine time.
    dropped: dict[Kind, float] = field(default_factory=dict)
    # When the last round began, how many have come in it, and how many of them at its beginning.
    _began_s: float = 0.0
    _heard: Counter[Kind] = field(default_factory=Counter)
    _at_once: int = 0
    # When the last round with a burst began, and until when the last flood on each uplink hid probes.
    _burst_s: float = float("-inf")
    _flooded_until_s: dict[str, float] = field(default_factory=dict)
    # When the last frame was seen from the address of an uplink's probes, and on which uplink.
    _seen_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def begin_round(self, now_s: float) -> None:
        self._began_s, self._at_once = now_s, 0
        self._heard.clear()

    def is_flooded(self, kind: Kind, uplink: str, interval_s: float, now_s: float) -> bool:
        """Count a frame that belongs to no round. True: there are too many; the switch must drop its kind.

        The switch accepts it again halfway between two rounds, `interval_s` apart, so that frames of a flood
        are handled before the probes of other uplinks arrive.
        """
        self._heard[kind] += 1
        self._at_once += now_s < self._began_s + AT_ONCE_S
        if self._at_once > MOST_AT_ONCE:
            self._burst_s = self._began_s
        if self._heard[kind] <= MOST_HEARD:
            return False
        self.dropped[kind] = self._flooded_until_s[uplink] = self._began_s + 1.5 * interval_s
        return True

    def take_again(self, now_s: float) -> None:
        """Take the kinds again whose time is over."""
        over = [kind for kind, until_s in self.dropped.items() if now_s >= until_s]
        for kind in over:
            del self.dropped[kind]
            self._heard[kind] = MOST_HEARD - MOST_IN_A_TRY

    def hides(self, uplink: str, at_s: float) -> bool:
        """Whether a flood may have hidden a probe to an uplink that was sent at this time."""
        in_burst = self._burst_s <= at_s < self._burst_s + 2 * AT_ONCE_S
        return in_burst or at_s < self._flooded_until_s.get(uplink, float("-inf"))

    def is_reported(self, uplink: str, now_s: float) -> bool:
        """Whether a flood has hidden probes to an uplink of late."""
        hid_until_s = self._flooded_until_s.get(uplink, float("-inf"))
        return now_s - SEEN_S < max(self._burst_s + 2 * AT_ONCE_S, hid_until_s)

    def see(self, owner: str, uplink: str, now_s: float) -> None:
        """Another host sends from the address of `owner`'s probes. `uplink`: it has received that; or UNSEEN."""
        self._seen_s[owner, uplink] = now_s

    def seen_on(self, owner: str, now_s: float) -> tuple[str, ...]:
        """The uplinks on which such frames have recently arrived, and UNSEEN."""
        seen = self._seen_s.items()
        return tuple(sorted(on for (of, on), at_s in seen if of == owner and now_s < at_s + SEEN_S))

    def heard_again_s(self) -> float:
        """When the next kind is taken again; infinity if none is dropped."""
        return min(self.dropped.values(), default=float("inf"))
