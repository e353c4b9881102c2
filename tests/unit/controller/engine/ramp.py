"""The published example of load-based teaming: one uplink of two fills, slowly."""

from __future__ import annotations

from tests.unit.fake_switch import World, world
from tests.unit.rows import host


def ramp(slope_gbps: float = 0.07, top_gbps: float = 13.0) -> World:
    """Four equal VM ports, all of them on eth1, whose loads rise together."""
    here = world(host(binding="eth1", failback_delay_s="45"))
    switch = here.switches["br0"]
    switch.offered_bps = {
        10 + i: lambda t: min(slope_gbps * t, top_gbps) * 1e9 / 4 for i in range(4)
    }
    switch.learned = tuple((10 + i, f"52:54:00:00:00:0{i}", 0) for i in range(4))
    return here.start()
