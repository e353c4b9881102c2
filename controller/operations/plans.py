"""Applies plans, and answers `plan` and `apply`: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import asdict
from typing import Any

from controller.api import history
from controller.api.engine_commands import Reply
from controller.api.history import Moved, fields
from controller.api.requests import Asked
from controller.bridge.bridge import Bridge, Commands
from controller.operations import named, planning
from controller.operations.jobs import Doing
from controller.operations.planning import Basis, Opinion, Proposal
from controller.text.drawing import Column, Look, table_text
from controller.text.show_view import FALLEN_BACK, NONE_ATTACHED, RATES
from controller.text.wording import Refused, lines_of, one_of, printable, quoted, shortened, wrapped
from policies.model import Uplink
from policies.presets import PRESETS
from policies.verdicts import Rest, Standing, WhyAtRest

# For each bridge, the last plan that was shown to an operator and is not applied yet.
Shown = MutableMapping[Bridge, Proposal]

WIDTH = 80
CELLS = 15
# The number of VM ports that are named for an overloaded uplink if no move helps.
NAMED = 3
PLAN_FIRST = "run ovs-lbt plan first"
WAY = (Column("USED-BY", least=8, optional=True), Column("FROM"), Column("TO"), *RATES)
MOVES = (Column("PORT"), *WAY, Column("WHY"))
# The heading of the loads in observe mode, and its explanation.
IF_ENFORCED = "IF ENFORCED"
OBSERVED = "observe mode: shows uplinks and loads as they would be in enforce mode"


def only(serving: Iterable[Bridge], shown: Shown, plan_id: str | None) -> str:
    """Return the bridge for `apply` without a bridge: that of plan `plan_id`, or the one with moves.

    Raises:
        Refused: there is no plan, or several plans have moves.
    """
    plans = {bridge.config.name: shown[bridge] for bridge in serving if bridge in shown}
    names = [name for name, plan in plans.items() if plan.plan_id == plan_id]
    names = names or [name for name, plan in plans.items() if plan.moves] or list(plans)
    if not names:
        raise Refused(f"there is no plan to apply; {PLAN_FIRST}")
    if len(names) > 1:
        raise Refused(f"{len(names)} bridges have a plan; name {one_of(sorted(names))}")
    return names[0]


def apply(
    bridge: Bridge, shown: Shown, request_id: int, asked: Asked, now_s: float
) -> Commands | Doing:
    """Make the last plan's moves in one bundle. The reply follows once the switch confirms the moves.

    Raises:
        Refused: there is no plan, or nothing can be moved.
    """
    name, proposal = bridge.config.name, shown.get(bridge)
    if proposal is None:
        raise Refused(f"bridge {name} has no plan to apply; {PLAN_FIRST}")
    if (wanted := asked.options.get("--plan")) not in (None, proposal.plan_id):
        found = f"plan {shortened(wanted)} is not the last plan of {name} ({proposal.plan_id})"
        raise Refused(f"{found}; make a new plan: ovs-lbt plan {quoted(name)}")
    named.moving_bridge(bridge)
    if not proposal.moves:
        return [Reply(request_id, f"{name}: the plan has no moves, so there is nothing to do")]
    if why := planning.changed(proposal, bridge, now_s):
        refusal = f"{why}; make a new plan: ovs-lbt plan {quoted(name)}"
        if asked.dry_run:
            raise Refused(refusal)
        reasons = [move.reason for move in proposal.moves]
        noted = bridge.refuse(reasons, refusal, now_s, proposal.lines)
        return [*noted, Reply(request_id, refusal, refused=True)]
    assert proposal.config.name == name, "a plan is applied to the bridge that it was made for"

    def carry_out() -> Commands:
        del shown[bridge]
        reply = Reply(request_id, made(proposal))
        return bridge.make(proposal.moves, reply, now_s, proposal.evidence)

    return Doing(name, carry_out, moves=proposal.lines)


def as_json(proposals: Iterable[Proposal]) -> str:
    """Return JSON as documented in docs/reference/json.md; rates in bit/s, utilization as ratios."""
    return json.dumps({"bridges": [_bridge(proposal) for proposal in proposals]}, indent=2)


def as_text(proposals: Sequence[Proposal]) -> str:
    """Return a block for each bridge: the moves, the expected loads, and each policy's verdict."""
    if not proposals:
        return NONE_ATTACHED
    return "\n\n".join(lines_of(_block(proposal)) for proposal in proposals)


def made(proposal: Proposal) -> str:
    """Return the answer to `apply`, which is sent once the moves are made."""
    lines = [f"{proposal.config.name}: {_moves(proposal)} made"]
    return lines_of([*lines, *(f"  {named_move(moved)}" for moved in proposal.lines)])


def _block(proposal: Proposal) -> list[str]:
    lines, texts = [_headline(proposal)], list[str]()
    if proposal.lines:
        lines += ["", *_table(proposal)]
    if proposal.basis_s is not None and proposal.uplinks:
        lines += ["", *_utilizations(proposal)]
        texts += [OBSERVED] if proposal.config.observes else []
    texts += [text for opinion in proposal.opinions for text in _opinion_texts(opinion, proposal)]
    texts += _waits(proposal.waiting)
    texts += [f"not done: {text}" for text in proposal.config.asked.not_done]
    return [
        *lines,
        *([""] if texts and len(lines) > 1 else []),
        *(line for text in texts for line in wrapped(printable(text), WIDTH, "  ", "    ")),
    ]


def _headline(proposal: Proposal) -> str:
    name = proposal.config.name
    if not proposal.connected:
        return f"{name}: NOT CONNECTED: nothing is measured, and nothing can be moved"
    if not proposal.uplinks:
        return f"{name}: no uplinks, so nothing to move"
    if not proposal.moves:
        return f"{name}: nothing to move"
    would = f"{name}: {_moves(proposal)} would be made now"
    if proposal.config.observes:
        return f"{would} in enforce mode"
    them = "it" if len(proposal.moves) == 1 else "them"
    return f"{would}; to make {them}: ovs-lbt apply {quoted(name)} --plan {proposal.plan_id}"


def _moves(proposal: Proposal) -> str:
    count = len(proposal.moves)
    return f"{count} move{'' if count == 1 else 's'}"


def _table(proposal: Proposal) -> list[str]:
    """Return a line for each moved VM port, or for buckets with the same uplinks. Cut long VM names."""
    rows = []
    for moved in proposal.lines:
        load = proposal.load_of(moved)
        rates = f"{load.tx_bps / 1e6:.2f}", f"{load.rx_bps / 1e6:.2f}"
        rows.append((moved.what, _vm(moved) or "-", *moved.ends, *rates, moved.reason))
    return table_text(MOVES, rows, Look(WIDTH))


def _vm(moved: Moved) -> str | None:
    """Return the VM of a port; None if the VM has the port's name."""
    return None if moved.vm == moved.unit else moved.vm


def _utilizations(proposal: Proposal) -> list[str]:
    """Return each uplink's utilization in both directions, now and, if there are moves, after them."""
    width = max([6, *(len(uplink.name) for uplink in proposal.uplinks)])
    placed = IF_ENFORCED if proposal.config.observes else "NOW"
    head = f"  {'UPLINK':<{width}}  {'':<8}  {placed:<{CELLS + 7}}"
    lines = [head + "      EXPECTED" if proposal.moves else head.rstrip()]
    for now, then in zip(proposal.uplinks, proposal.expected, strict=True):
        if not now.usable:
            lines.append(f"  {now.name:<{width}}  carries no traffic now")
            continue
        for name, direction in ((now.name, "sends"), ("", "receives")):
            before = _bar(_ratio(now, direction))
            after = f"  ->  {_bar(_ratio(then, direction))}" if proposal.moves else ""
            lines.append(f"  {name:<{width}}  {direction:<8}  {before}{after}")
    return lines


def _bar(ratio: float) -> str:
    """Return a ratio as a bar and a percentage."""
    full = min(CELLS, round(ratio * CELLS))
    return f"[{'#' * full:<{CELLS}}] {ratio:4.0%}"


def _ratio(uplink: Uplink, direction: str) -> float:
    used_bps = uplink.load.tx_bps if direction == "sends" else uplink.load.rx_bps
    return used_bps / uplink.capacity_bps


# ---- verdicts of policies --------------------------------------------------------------


def _opinion_texts(opinion: Opinion, proposal: Proposal) -> list[str]:
    """Describe the loads on which a policy's verdict is based, and why it makes no (more) moves."""
    if not proposal.connected or not proposal.uplinks:
        return []
    policy, rest = opinion.policy, opinion.rest
    if proposal.config.fallen_back:
        return [FALLEN_BACK]
    if rest is None:
        return [f"{policy}: {unknown(opinion.basis)}"]
    if rest.why is WhyAtRest.NEVER:
        return [f"{policy}: a static policy, which makes no moves to balance load"]
    sentences = [f"{policy}: uses {covers(opinion.basis)}"]
    if why := _why_at_rest(rest, opinion, proposal):
        sentences.append(f"{policy}: {why}")
    return sentences


def covers(basis: Basis) -> str:
    """Describe the loads on which a policy bases its decisions."""
    if basis.covered_s >= basis.window_s:
        return f"the mean load of the last {basis.window_s:g} s"
    why = "restarted at the last move" if basis.since_move else "is not fully measured yet"
    window = f"the window is {basis.window_s:g} s"
    return f"the mean load of the last {basis.covered_s:.0f} s; {window}, but {why}"


def unknown(basis: Basis) -> str:
    """Return the reason why a policy cannot decide yet, and the time until it can."""
    if basis.absent:
        return f"the switch has no port {', '.join(basis.absent)}, so the load is unknown"
    since = " since the last move" if basis.since_move else ""
    known = f"loads{since} have been measured for {math.floor(basis.covered_s)} s"
    if basis.uncounted_s:
        known += f" (the switch last counted the traffic of VM ports {basis.uncounted_s:.0f} s ago)"
    return f"{known}, but {basis.needed_s:g} s are needed; try again in {math.ceil(basis.wait_s)} s"


def _why_at_rest(rest: Rest, opinion: Opinion, proposal: Proposal) -> str | None:
    uplinks = {uplink.name: uplink for uplink in proposal.expected}
    limit = threshold(proposal.config.threshold_ratio)
    match rest.why:
        case WhyAtRest.UNRELIEVED:
            return "; ".join(
                f"{name} is {'still ' if opinion.moves else ''}at"
                f" {percent(uplinks[name].utilization_ratio)}, above {limit}, and no move helps:"
                f" {_stuck(name, opinion)}"
                for name in rest.unrelieved
            )
        case _ if opinion.moves:
            return None
        case WhyAtRest.ALONE:
            return "fewer than two uplinks are in service"
        case WhyAtRest.BELOW | WhyAtRest.NO_BETTER if rest.fullest:
            fullest = f"{rest.fullest} is the fullest at {percent(uplinks[rest.fullest].utilization_ratio)}"
            if rest.why is WhyAtRest.BELOW:
                return f"no uplink is above {limit}; {fullest}"
            return f"{fullest}, and no move would lower this load by 2% of capacity"
        case WhyAtRest.EVEN | WhyAtRest.NO_GAIN if rest.fullest and rest.emptiest:
            sent, less = _sent(uplinks[rest.fullest]), _sent(uplinks[rest.emptiest])
            pair = f"{rest.fullest} sends {sent}, {rest.emptiest} {less}"
            if rest.why is WhyAtRest.EVEN:
                return f"uplinks are evenly loaded: {pair}"
            return f"{pair}, and no bucket has the right size to even out the uplinks"
    return "no uplink is in service"


def _stuck(uplink: str, opinion: Opinion) -> str:
    """Return the reasons why an uplink's units cannot be moved, with at most NAMED units each."""
    by_standing: dict[Standing, list[str]] = {}
    for name, verdict in sorted(opinion.verdicts.items()):
        by_standing.setdefault(verdict.standing, []).append(name)
    texts = []
    for name in by_standing.get(Standing.NO_ROOM, [])[:NAMED]:
        expected = opinion.verdicts[name].expected_ratio.items()
        brings = " and ".join(f"{other} to {percent(ratio)}" for other, ratio in expected)
        texts.append(f"{name} {f'would bring {brings}' if brings else 'has no other uplink'}")
    if (more := len(by_standing.get(Standing.NO_ROOM, [])) - NAMED) > 0:
        texts.append(f"{more} more VM ports do not fit on any other uplink")
    for standing, what in (
        (Standing.HELD, "held by a rule"),
        (Standing.TOO_SMALL, "too small to matter"),
    ):
        if names := by_standing.get(standing):
            texts.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} {what}")
    return "; ".join(texts) or f"no VM port on {uplink} uses {opinion.policy}"


def listed(names: Sequence[str]) -> str:
    """Return a text with the first few names and the number of remaining names."""
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])


def percent(ratio: float) -> str:
    """Return a percentage that is precise enough for a comparison with a limit: 75.3%, not 75%."""
    return f"{ratio:.1%}"


def threshold(ratio: float) -> str:
    return f"{100 * ratio:g}%"


def _sent(uplink: Uplink) -> str:
    return f"{uplink.load.tx_bps / uplink.capacity_bps:.0%}"


def _waits(waiting: Iterable[tuple[Moved, str]]) -> list[str]:
    """Return sentences about units that will return later, one for each pair of uplinks."""
    ways: dict[tuple[str, str, str], list[str]] = {}
    for moved, why in sorted(waiting, key=lambda one: one[0].buckets is None):
        what = f"{moved.buckets} buckets of {moved.unit}" if moved.buckets else moved.unit
        ways.setdefault((moved.source or "-", moved.target, why), []).append(what)
    return [
        f"waiting to return from {source} to {target}: {listed(names)} ({why})"
        for (source, target, why), names in ways.items()
    ]


def named_move(moved: Moved) -> str:
    vm = f" ({name})" if (name := _vm(moved)) and not moved.buckets else ""
    source, target = moved.ends
    return f"{moved.what}{vm}: {source} -> {target} ({moved.reason})"


# ---- for programs ----------------------------------------------------------------------


def _bridge(proposal: Proposal) -> dict[str, Any]:
    return {
        "name": proposal.config.name,
        "id": proposal.plan_id,
        "connected": proposal.connected,
        "observed": proposal.config.observes,
        "threshold_ratio": proposal.config.threshold_ratio,
        "loads_cover_s": proposal.basis_s,
        "moves": [
            {**history.move(moved), **asdict(proposal.load_of(moved))} for moved in proposal.lines
        ],
        "uplinks": [
            _uplink(*pair) for pair in zip(proposal.uplinks, proposal.expected, strict=True)
        ],
        "policies": [_policy(opinion, proposal) for opinion in proposal.opinions],
        "waiting": [{**history.move(moved), "why": why} for moved, why in proposal.waiting],
        "not_done": list(proposal.config.asked.not_done),
    }


def _uplink(now: Uplink, then: Uplink) -> dict[str, Any]:
    return {
        **fields(now, "name", "role", "usable", "capacity_bps"),
        "transmit_ratio": _ratio(now, "sends"),
        "receive_ratio": _ratio(now, "receives"),
        "expected_transmit_ratio": _ratio(then, "sends"),
        "expected_receive_ratio": _ratio(then, "receives"),
    }


def _policy(opinion: Opinion, proposal: Proposal) -> dict[str, Any]:
    moves_by_load = PRESETS[opinion.policy].rebalances
    rest = opinion.rest
    return {
        "policy": opinion.policy,
        "window_s": opinion.basis.window_s if moves_by_load else None,
        "covered_s": round(opinion.basis.covered_s, 3),
        "wait_s": round(opinion.basis.wait_s, 3) if moves_by_load else 0.0,
        "moves": len(opinion.moves),
        "rest": rest.why.value if rest else "loads-unknown",
        "unrelieved": list(rest.unrelieved) if rest else [],
        "said": _opinion_texts(opinion, proposal),
    }
