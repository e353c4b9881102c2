"""PromQL of the dashboards: which series they ask for, and how they are joined."""

from __future__ import annotations

from dataclasses import dataclass

from policies.model import Reason

# Utilization from which an uplink is busy, and full.
BUSY_RATIO = 0.75
FULL_RATIO = 0.95

RANGE = "$__range"
RATE = "$__rate_interval"

# A match joins series of one and the same bridge, uplink or VM port of one host: names of
# bridges and interfaces are the same on many.
ON_BRIDGE = "on (job, instance, bridge)"
ON_UPLINK = "on (job, instance, bridge, uplink)"
ON_PORT = "on (job, instance, bridge, port)"
BY_BRIDGE = "by (job, instance, bridge)"
BY_UPLINK = "by (job, instance, bridge, uplink)"
BY_SERVICE = "by (job, instance)"

# The reasons of bindings that came of a link; all others were somebody's choice. A binding
# that is no move (found as it was, first placed by a policy) has none of either.
LINK_REASONS = "|".join((Reason.FAILOVER, Reason.FAILBACK))
CHOICE_REASONS = "|".join(r for r in Reason if r not in (Reason.FAILOVER, Reason.FAILBACK))


@dataclass(frozen=True, slots=True)
class Scope:
    """The series that a dashboard's variables choose: `scope("uplink_up")` selects them."""

    matchers: tuple[str, ...]

    def __call__(self, metric: str, *more: str) -> str:
        """Select a metric of ours, named without its prefix."""
        return self.of(f"ovslbt_{metric}", *more)

    def of(self, metric: str, *more: str) -> str:
        """Select any metric."""
        return f"{metric}{{{', '.join((*self.matchers, *more))}}}"


# The bridge dashboard shows one; all others show as many as are chosen.
ONE_BRIDGE = Scope(('job="$job"', 'instance="$instance"', 'bridge="$bridge"'))
BRIDGES = Scope(('job=~"$job"', 'instance=~"$instance"', 'bridge=~"$bridge"'))
SERVICES = Scope(('job=~"$job"', 'instance=~"$instance"'))


def in_bits(rate: str) -> str:
    """Bytes per second as bits per second."""
    return f"{rate} * 8"


def rate(counter: str) -> str:
    return f"rate({counter}[{RATE}])"


def increase(counter: str, over: str = RATE) -> str:
    return f"increase({counter}[{over}])"


def whole(count: str) -> str:
    """A sum of increases, which Prometheus extrapolates, as the whole number it stands for."""
    return f"round(sum({count}))"


def or_none(count: str) -> str:
    """A count that is zero where there is nothing to count."""
    return f"({count}) or vector(0)"


def quantile(share: float, histogram: str, by: str) -> str:
    """A quantile of a histogram, e.g. 0.99, for each value of the labels `by`."""
    return f"histogram_quantile({share}, sum by (le, {by}) ({rate(histogram)}))"


def bound_at_ms(scope: Scope, reasons: str) -> str:
    """When ports were bound for these reasons, in the time shown: milliseconds since the epoch.

    A binding that has ended since is a series that has ended, hence the look back.
    """
    bound = scope("port_bound_timestamp_seconds", f'reason=~"{reasons}"')
    return f"last_over_time({bound}[{RATE}]) * 1000 >= $__from"
