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


class TwoLinks:
    """The links of eth1 and eth2. Each method `do_…` is a step of a story; times are in seconds."""

    def __init__(self) -> None:
        self.links = Links(DELAY_S, TEAM)
        self.links.connect([PortState(n, f"eth{n}", True, 1e10) for n in (1, 2)], 0.0)

    def tell(self, steps: str) -> None:
        for step in map(str.split, steps.split("|")):
            getattr(self, f"do_{step[0].replace('-', '_')}")(*step[1:])

    def do_link(self, number: str, state: str, at_s: str) -> None:
        port = PortState(int(number), f"eth{number}", state == "up", 1e10)
        self.links.note_port(port, float(at_s))

    def do_receive(self, first: str, second: str, probed: str = "") -> None:
        """How many frames both have received."""
        self.links.receive({"eth1": int(first), "eth2": int(second)}, bool(probed))

    def do_team(self, at_s: str, *names: str) -> None:
        self.links.follow_team(tuple(one for one in TEAM if one.name in names), float(at_s))

    def do_never_falls_back(self) -> None:
        self.links.delay_s = NEVER_S

    def do_lag(self) -> None:
        """LACP is negotiated again after a fallback: the partner may send nothing by an uplink."""
        self.links.forget_received()

    def do_usable(self, at_s: str, *names: str) -> None:
        self.links.end_delays(float(at_s))
        assert self.links.usable() == {*names}, f"at {at_s} s"

    def do_waits(self, why: str = "") -> None:
        """Whether eth1 waits for a frame."""
        assert bool(self.links.why_waiting(TEAM[0])) is (why == "yes")

    def do_asks(self) -> None:
        """It asks for a frame when the delay is over, and again."""
        assert "received" in self.links.why_unused(TEAM[0], 7.0) and self.links.asks_s == 7.0
        self.links.note_asked(7.0)
        assert self.links.asks_s == 7.0 + ASK_EVERY_S

    def do_delay_ends(self, at_s: str) -> None:
        assert self.links.delay_ends_s == float(at_s)


FLAP = "link 1 down 1 | link 1 up 2"
RETURNED = f"receive 10 10 | {FLAP}"
BOTH = "usable 7 eth1 eth2"
STORIES = {
    **{
        f"waits for a frame while others receive some: {how}": f"""{RETURNED} | receive {received}
        | usable 7 eth2 | waits yes | asks | receive {then} | delay-ends 7 | usable 8 eth1 eth2
        | waits no | delay-ends inf"""
        for how, received, then in (
            ("frames of others", "10 11", "11 12"),
            ("probes", "10 10 probed", "11 12 probed"),
        )
    },
    "nobody receives anything": f"{RETURNED} | receive 10 10 | waits no | {BOTH}",
    "whether others receive is not known": f"{RETURNED} | usable 7 eth2",
    "a switch that counts no frames": f"{FLAP} | {BOTH}",
    "a frame within the failback delay": f"{RETURNED} | receive 11 11 | usable 6.9 eth2 | {BOTH}",
    # Counters begin at zero.
    "a device that was made anew": f"{RETURNED} | receive 2 11 | waits yes | receive 3 11 | waits no",
    "an uplink that left the team": f"""{RETURNED} | usable 7 eth2 | receive 11 11 | team 8 eth2
        | team 9 eth1 eth2 | receive 11 12 | usable 20 eth2 | waits yes""",
    "both returned, until one is proven": f"""{RETURNED} | link 2 down 2.1 | link 2 up 2.2
        | usable 3 eth1 eth2 | receive 10 11 | usable 8 eth2""",
    "the uplinks are a LAG": f"{RETURNED} | receive 10 11 | waits yes | lag | waits no | {BOTH}",
    # Uplinks that never fall back are used when another one fails, whether they have received a frame or not.
    "it takes the place of another uplink": f"""{RETURNED} | never-falls-back | receive 10 11 | waits yes
        | usable 100 eth2 | link 2 down 100 | usable 100 eth1 | waits no""",
}


@pytest.mark.parametrize("story", STORIES)
def test_returning_link(story: str) -> None:
    TwoLinks().tell(STORIES[story])


def test_a_blocked_uplink_is_not_up() -> None:
    here = TwoLinks()
    here.links.uplinks = blocked, _ = (replace(TEAM[0], blocked=True), TEAM[1])
    here.links.follow_paths(frozenset({"eth1"}), 1.0)
    assert here.links.usable() == {"eth2"} and not here.links.up(blocked)
    assert "spanning tree" in here.links.why_unused(blocked, 1.0)
    here.links.uplinks = TEAM
    here.links.follow_paths(frozenset(), 2.0)
    here.tell(f"usable 6 eth2 | {BOTH}")
