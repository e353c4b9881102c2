"""The last plan of each bridge, until it is applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.api.engine_commands import Reply
from controller.bridge.bridge import Bridge, Commands
from controller.decisions import planning
from controller.decisions.planning import Proposal
from controller.operations import named, plan_view
from controller.text.wording import Refused, one_of, quoted

PLAN_FIRST = "ovs-lbt plan first"


@dataclass(slots=True)
class Plans:
    """The last plan of each bridge, by name, until it is applied."""

    _last: dict[str, tuple[Bridge, Proposal]] = field(default_factory=dict)

    def make(self, bridges: Iterable[Bridge], as_json: bool, now_s: float) -> str:
        """Make new plans, remember them, and return the text to show."""
        proposals = []
        for bridge in bridges:
            proposals.append(bridge.placing.proposal(now_s))
            self._last[bridge.config.name] = bridge, proposals[-1]
        return plan_view.as_json(proposals) if as_json else plan_view.as_text(proposals)

    def only(self, bridges: Iterable[Bridge]) -> str:
        """The bridge to apply a plan to if none is named: the only one whose plan has moves.

        Raises:
            Refused: there is no plan, or several plans have moves.
        """
        plans = {b.config.name: plan for b in bridges if (plan := self._of(b)) is not None}
        names = [name for name, plan in plans.items() if plan.moves] or list(plans)
        if not names:
            raise Refused(f"apply: no plan -> {PLAN_FIRST}")
        if len(names) > 1:
            raise Refused(f"apply: plans of {len(names)} bridges -> {one_of(sorted(names))}")
        return names[0]

    def apply(self, bridge: Bridge, request_id: int, now_s: float) -> Commands:
        """Make all moves of a plan in one bundle, and answer once the switch has confirmed them.

        Raises:
            Refused: there is no plan, or nothing can be moved.
        """
        name, proposal = bridge.config.name, self._of(bridge)
        if proposal is None:
            raise Refused(f"apply: no plan of {name} -> {PLAN_FIRST}")
        named.moving_bridge(bridge)
        if not proposal.moves:
            return [Reply(request_id, f"{name}: the plan has no moves, so there is nothing to do")]
        team_view = bridge.placing.team_view
        if why := planning.changed(proposal, team_view, bridge.placing.bases(now_s), now_s):
            refusal = f"{why} -> a new plan: ovs-lbt plan {quoted(name)}"
            reasons = [move.reason for move in proposal.moves]
            noted = bridge.refuse(reasons, refusal, now_s, proposal.lines)
            return [*noted, Reply(request_id, refusal, refused=True)]
        assert proposal.bridge == name, "a plan is applied to the bridge that it was made for"
        del self._last[name]
        reply = Reply(request_id, plan_view.made(proposal))
        return bridge.make(proposal.moves, reply, now_s, proposal.evidence)

    def _of(self, bridge: Bridge) -> Proposal | None:
        """The plan of this bridge. A plan made before the bridge was detached does not count."""
        planned, proposal = self._last.get(bridge.config.name, (None, None))
        return proposal if planned is bridge else None
