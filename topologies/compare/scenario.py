"""One comparison of a bench: a layout, a load on it, and who is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from topologies.graph.layout import Layout
from topologies.loads.load import Load, Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison; every contender gets a network of its own and the same load.

    Attributes:
        name: short, unique within its bench.
        what: one sentence for the report.
        load: makes the load on a network that is up.
        contenders: who takes part unless the user chooses, the baseline first.
        published: what a document has measured, by contender and figure.
        reachable: whether all end systems reach each other before the load; with a fault
            that a document describes, they may not.
        undisturbed: Open vSwitch runs before all else on the machine, so that only queues lose.
    """

    name: str
    what: str
    layout: Layout
    load: Callable[[Stage], Load]
    contenders: tuple[str, ...]
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reachable: bool = True
    undisturbed: bool = False
