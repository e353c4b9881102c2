"""What an engine tells of a bridge, what it wants of the switch, and loads, for tests of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from controller.api import history
from controller.api.engine_commands import Record
from controller.dataplane.specs import Pipeline
from tests.unit.fake_switch import Rate, World, done, world
from tests.unit.rows import VMS, host


def steady(bps: float) -> Rate:
    return lambda _now_s: bps


def offer(here: World, bps: Sequence[float]) -> World:
    """What VM ports from number 10 on send, each in turn; the other ones of four send nothing."""
    rates = [*bps, *[0.0] * (len(VMS) - len(bps))]
    here.switch.offered_bps = {10 + i: steady(rate) for i, rate in enumerate(rates)}
    return here


def ramp() -> World:
    """The published example of load-based teaming: the loads of four VM ports on eth1 rise together."""
    here = world(host(binding="eth1", failback_delay_s="45"))
    here.switch.offered_bps = dict.fromkeys(
        range(10, 14), lambda now_s: min(0.07 * now_s, 13) * 1e9 / 4
    )
    here.switch.learned = tuple((10 + i, f"52:54:00:00:00:0{i}", 0) for i in range(4))
    return here.start()


def shown(here: World, bridge: str = "br0") -> dict[str, Any]:
    """A bridge as `show --json` has it."""
    (found,) = json.loads(done(here.ask("show", bridge, "--json")))["bridges"]
    return found


def explained(here: World, port: str = "vnet0") -> dict[str, Any]:
    """A VM port as `explain --json` has it."""
    return json.loads(done(here.ask("explain", port, "--json")))


def entries(here: World, *events: str) -> list[dict[str, Any]]:
    """What was recorded, as it is written."""
    records = [command for _, command in here.log if isinstance(command, Record)]
    written = [json.loads(history.as_line(record.entry, epoch_s=0.0)) for record in records]
    return [entry for entry in written if not events or entry["event"] in events]


def desired(here: World) -> Pipeline:
    """What the switch of br0 is to have."""
    return here.bridge.installation.desired()
