"""The teaming policies as data: kinds of units, and how units are placed, moved and failed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies import failover
from policies.classifiers import Classifier
from policies.model import Plan, Role, Snapshot, Teaming, Unit, Uplink
from policies.planners import minmax, rebalance, splitting, static, threshold
from policies.verdicts import Rest, Verdict

DEFAULT_PRESET = "load-based"

Placement = Callable[[Sequence[Unit], Sequence[Uplink]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The teams that a policy supports."""

    teamings: frozenset[Teaming] = frozenset(Teaming)
    uplinks: int | None = None
    equal_speeds: bool = False
    standby: bool = True

    def violations(self, teaming: str, uplinks: Sequence[Uplink]) -> Iterator[tuple[str, str]]:
        """Yield the reasons why a team is not supported: the actual and the supported value.

        A capacity of 0 means that the capacity is not known yet.
        """
        if teaming not in self.teamings:
            yield f"teaming {teaming}", "teaming " + " or ".join(sorted(self.teamings))
        if self.uplinks is not None and len(uplinks) > self.uplinks:
            yield f"{len(uplinks)} uplinks", f"at most {self.uplinks}"
        speeds = sorted({uplink.capacity_bps / 1e6 for uplink in uplinks} - {0.0})
        if self.equal_speeds and len(speeds) > 1:
            found = ", ".join(f"{speed:g}" for speed in speeds)
            yield f"uplinks of {found} Mbit/s", "uplinks of one speed"
        standing_by = [uplink.name for uplink in uplinks if uplink.role is Role.STANDBY]
        if standing_by and not self.standby:
            yield f"standby uplinks ({', '.join(standing_by)})", "no standby uplink"


ANY_TEAM = Limits()
A_LAG = Limits(frozenset({Teaming.STATIC, Teaming.LACP}))
LBFO = Limits(uplinks=32)
SET = Limits(frozenset({Teaming.SWITCH_INDEPENDENT}), uplinks=8, equal_speeds=True, standby=False)


@dataclass(frozen=True, slots=True)
class Preset:
    """A teaming policy.

    `place` finds homes for VM ports. If the classifier hashes, `spread` finds homes for the buckets
    through which VM ports send. `rebalance` returns moves of the policy's units for a full window
    of loads. `verdict` returns why a unit, given by name, is or is not moved, and `rest` why no
    unit is moved. `is_calm` returns whether the loads of uplinks alone show that no unit is moved
    (if several loads show this, so does their mean); None: this depends on the units. `backup`
    orders the uplinks that follow a unit's home.

    `relieve` is used immediately if an uplink is full, even if loads are still changing. It returns
    the fewest moves that relieve this uplink.

    `keeps_bindings`: VM ports keep their uplinks when this policy replaces another.
    `keeps_buckets`: buckets stay where the policy moved them. `window_s`: the averaging window and
    shortest time between moves; None: the bridge's. `at_once`: the policy acts immediately, based
    on peaks instead of means, makes only worthwhile moves (`policies.gain`), and does not move
    units that are in cooldown or have used up their budget (`policies.damping`). `poll_s`: the
    default interval between readings of counters. `splits_by`: how a VM port's sent traffic is
    spread while it is too much for one uplink; None: never. `limits`: the teams that it supports.
    """

    classifier: Classifier
    place: Placement = static.by_number
    spread: Placement = static.by_capacity
    rebalance: Callable[[Snapshot], Plan] = static.stay
    relieve: Callable[[Snapshot], Plan] = static.stay
    verdict: Callable[[Snapshot, str], Verdict] = static.never
    rest: Callable[[Snapshot], Rest] = static.rest
    is_calm: Callable[[Snapshot], bool] | None = None
    backup: failover.BackupOrder = failover.scattered
    keeps_bindings: bool = False
    keeps_buckets: bool = False
    window_s: float | None = None
    at_once: bool = False
    poll_s: float = 1.0
    splits_by: Classifier | None = None
    limits: Limits = ANY_TEAM

    @property
    def spreads_by(self) -> Classifier:
        """The hash that selects the bucket of a sent frame, always or while VM ports are split."""
        return self.splits_by or self.classifier

    @property
    def spreads_connections(self) -> bool:
        """Whether a VM port can send over several uplinks, with each connection on one of them."""
        return self.spreads_by is Classifier.TRANSPORT

    @property
    def rebalances(self) -> bool:
        """Whether the policy moves units because of load."""
        return self.rebalance is not static.stay


# Open vSwitch's bond-rebalance-interval.
SLB_WINDOW_S = 10.0
# The bursts of one TCP connection even out over some seconds.
DYNAMIC_WINDOW_S = 3.0
# Only for display, because this policy bases decisions on peaks.
ADAPTIVE_WINDOW_S = 1.0


def _evened_out(classifier: Classifier, window_s: float, limits: Limits = ANY_TEAM) -> Preset:
    """Return a policy that spreads frames over buckets, and moves buckets as loads change."""
    return Preset(
        classifier,
        rebalance=rebalance.even_out,
        rest=rebalance.rest,
        is_calm=rebalance.is_calm,
        keeps_buckets=True,
        window_s=window_s,
        limits=limits,
    )


PRESETS = {
    "originating-port": Preset(Classifier.VM_PORT),
    "source-mac": Preset(Classifier.SOURCE_MAC),
    "ip-hash": Preset(Classifier.IP_PAIR, spread=static.by_number, limits=A_LAG),
    "address-hash": Preset(Classifier.TRANSPORT, limits=LBFO),
    "explicit": Preset(
        Classifier.VM_PORT, place=static.first_in_order, backup=failover.as_configured
    ),
    "load-based": Preset(
        Classifier.VM_PORT,
        rebalance=threshold.relieve_saturated,
        verdict=threshold.verdict,
        rest=threshold.rest,
        is_calm=threshold.is_calm,
        keeps_bindings=True,
    ),
    "slb": _evened_out(Classifier.SOURCE_MAC_VLAN, SLB_WINDOW_S),
    # The Dynamic modes of LBFO and SET.
    "dynamic": _evened_out(Classifier.TRANSPORT, DYNAMIC_WINDOW_S, LBFO),
    "set": _evened_out(Classifier.TRANSPORT, DYNAMIC_WINDOW_S, SET),
    "set-port": Preset(Classifier.VM_PORT, limits=SET),
    "adaptive": Preset(
        Classifier.VM_PORT,
        rebalance=splitting.plan,
        relieve=splitting.relieve,
        verdict=splitting.verdict,
        rest=minmax.rest,
        keeps_bindings=True,
        keeps_buckets=True,
        window_s=ADAPTIVE_WINDOW_S,
        at_once=True,
        poll_s=0.1,
        splits_by=Classifier.TRANSPORT,
    ),
}
