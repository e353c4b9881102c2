"""The vendors' policies as data: a preset says how units are placed, moved and backed up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policies import failover
from policies.model import Plan, Snapshot, Unit, Uplink
from policies.planners import static, threshold

DEFAULT_PRESET = "load-based"


@dataclass(frozen=True, slots=True)
class Preset:
    """A teaming policy.

    `home` places a unit that has no binding yet, `rebalance` answers a full window of
    loads, `backup` orders the uplinks behind a unit's home. `keeps_bindings`: taking over
    from another policy, it leaves units where they are.
    """

    home: Callable[[Unit, Sequence[Uplink]], str]
    rebalance: Callable[[Snapshot], Plan]
    backup: failover.BackupOrder
    keeps_bindings: bool


PRESETS = {
    "originating-port": Preset(
        home=static.by_port_number,
        rebalance=static.stay,
        backup=failover.scattered,
        keeps_bindings=False,
    ),
    "explicit": Preset(
        home=static.first_in_order,
        rebalance=static.stay,
        backup=failover.as_configured,
        keeps_bindings=False,
    ),
    "load-based": Preset(
        home=static.by_port_number,
        rebalance=threshold.relieve_saturated,
        backup=failover.scattered,
        keeps_bindings=True,
    ),
}
