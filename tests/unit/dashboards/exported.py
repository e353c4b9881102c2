"""What the service exports: families, samples and labels of a bridge that has everything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from prometheus_client.core import Metric

from controller.api.status import BridgeStatus
from policies.model import Reason
from tests.unit.controller.metrics import test_exporter as plain

# What Prometheus adds to every sample that it scrapes.
TARGET_LABELS = frozenset({"job", "instance"})
# A service counts moves by every reason, from the start.
BY_REASON = {reason.value: 0 for reason in Reason}
BR0 = replace(plain.BR0, moves_planned=BY_REASON, moves_applied=BY_REASON, moves_refused=BY_REASON)


def families(*bridges: BridgeStatus) -> list[Metric]:
    """Every family of a service that has polled these bridges, and decided."""
    made = plain.exporter(*bridges)
    for bridge in bridges:
        made.observe(bridge.config.name, "decision_duration", 0.001)
        made.observe(bridge.config.name, "stats_poll_duration", 0.001)
    return list(made._registry.collect())


def labels_of(found: Iterable[Metric]) -> dict[str, frozenset[str]]:
    """The labels of each sample, by its name."""
    return {
        sample.name: frozenset(sample.labels) | TARGET_LABELS
        for family in found
        for sample in family.samples
    }


EXPORTED = labels_of(families(BR0))
