"""Whether the rules of VM ports are kept, and the records and log lines when that changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controller.api.engine_commands import Command, Report
from controller.api.history import Happened
from controller.decisions.decision_log import DecisionLog
from controller.load.team_view import TeamView
from controller.teaming.bindings import Bound
from policies import rules
from policies.rules import Rule

# What is wrong with each rule of each VM port, or of an address behind one, by name; an empty text:
# nothing.
States = Mapping[str, Mapping[Rule, str]]


def states(team_view: TeamView, bound: Mapping[str, Bound]) -> States:
    """The state of each rule. `bound`: where VM ports and addresses are."""
    ruled = [
        unit for unit in team_view.units() if unit.rules.unsplittable or unit.rules.reserve_bps
    ]
    at = {unit.name: bound[unit.name].uplink for unit in ruled if unit.name in bound}
    there = (replace(unit, uplink=at.get(unit.name)) for unit in ruled)
    return rules.found(there, team_view.uplinks() if ruled else ())


def changes(
    decision_log: DecisionLog, team_view: TeamView, bound: Mapping[str, Bound], now_s: float
) -> list[Command]:
    """Records and log lines for rules that are newly broken, or kept again."""
    ports, name = team_view.config.vm_ports, team_view.config.name
    if not decision_log.broken and not any(
        p.rules.unsplittable or p.rules.reserve_bps or any(g.pin for g in p.guests) for p in ports
    ):
        return []
    records = [*decision_log.rules(team_view, rules.broken(states(team_view, bound)), now_s)]
    reports = [
        Report("warning", f"{name}: rule broken: {record.entry.why}")
        if record.entry.happened is Happened.RULE_BROKEN
        else Report("info", f"{name}: rule kept: {record.entry.why}")
        for record in records
    ]
    return [*records, *reports]
