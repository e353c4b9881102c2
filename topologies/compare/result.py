"""The results of a bench: each scenario with its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topologies.compare.figures import Figures, medians
from topologies.compare.run import Observed
from topologies.compare.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Result:
    """A scenario, and each contender's figures and observations by repetition.

    `derived` has figures that need medians or several scenarios. `failures` describes the runs that
    did not complete; no other attribute includes these runs.
    """

    scenario: Scenario
    figures: Mapping[str, Sequence[Figures]]
    observed: Mapping[str, Sequence[Observed]]
    derived: Mapping[str, Figures] = field(default_factory=dict)
    failures: Sequence[str] = ()

    def medians(self) -> dict[str, Figures]:
        """Each contender's median figures over its repetitions."""
        return {
            name: {**medians(found), **self.derived.get(name, {})}
            for name, found in self.figures.items()
        }
