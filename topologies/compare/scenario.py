"""One comparison of a bench: a layout, a load, and the contenders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from topologies.graph.layout import Layout
from topologies.loads.load import Load, Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison, in which every contender has its own network and the same load.

    Attributes:
        name: a short name, unique within its bench.
        what: a description for the report.
        load: creates the load on a started network.
        contenders: the default contenders, the baseline first.
        published: published or calculated figures, by contender and figure.
        reachable: whether all end systems must reach each other before the load. A fault from a
            published document may prevent that.
        undisturbed: whether Open vSwitch has real-time priority, so that only full queues drop
            frames.
        datapath: Open vSwitch's datapath: `userspace`, `kernel`, or `auto`.
        fixed: whether the options of a bench add no other contenders.
    """

    name: str
    what: str
    layout: Layout
    load: Callable[[Stage], Load]
    contenders: tuple[str, ...]
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reachable: bool = True
    undisturbed: bool = False
    datapath: str = "userspace"
    fixed: bool = False
