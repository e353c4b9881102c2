"""Writes the answer to `explain`: why a VM port is on its uplink, as sentences or JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from controller.api.history import fields
from controller.operations.diagnosis import Account, Obstacle
from controller.operations.planning import why_away
from controller.operations.plans import WIDTH, covers, percent, threshold, unknown
from controller.teaming import bindings
from controller.text.show_view import FALLEN_BACK, dropped, part
from controller.text.wording import endpoint_of, lines_of, printable, quoted, time_of_day, wrapped
from policies.damping import MOST_MOVES, PERIOD_S
from policies.model import Reason, Role, Uplink
from policies.presets import PRESETS
from policies.verdicts import Standing

LABEL_WIDTH = 12
# The number of addresses behind a VM port that are listed.
NAMED = 5
SECONDS_A_DAY = 86400
# Why a VM port is on its uplink, keyed by the reason for its binding.
BROUGHT = {
    bindings.RESTORED: "the VM port was on this uplink when the service started, and has not had to move since",
    Reason.THRESHOLD: "{source} was above the threshold, and this was the busiest VM port for which"
    " another uplink had room",
    Reason.PIN: "the VM port was pinned to {uplink}, and has not moved since",
    Reason.DRAIN: "the role of {source} was drained, unused or standby",
    Reason.MANUAL: "an operator moved the VM port",
    Reason.FAILOVER: "{source} no longer carried traffic",
    Reason.FAILBACK: "{uplink} is the home uplink, and carries traffic again",
}


def as_text(account: Account) -> str:
    """Return the explanation as text, with a paragraph for each question."""
    port = account.port
    bridge = account.bridge.config.name
    lines = [f"{port.name}{_used_by(account)} on {bridge}, {account.own_policy}"]
    for label, text in sentences(account).items():
        first, rest = f"  {label:<{LABEL_WIDTH}}", " " * (LABEL_WIDTH + 2)
        lines += wrapped(printable(text), WIDTH, first, rest)
    return lines_of(lines)


def _used_by(account: Account) -> str:
    """Return the VM of the port, or the purpose of its tunnels, in parentheses."""
    port, endpoint = account.port, account.port.endpoint
    if port.vm != port.name:
        return f" ({port.vm})"
    return f" ({endpoint_of(endpoint.kinds, endpoint.bridges)})" if endpoint else ""


def sentences(account: Account) -> dict[str, str]:
    """Return the sentences, keyed by the question that each one answers."""
    now, change = _outlook(account)
    behind = {"addresses": _addresses(account)} if account.port.per_address else {}
    return {
        "where": _where(account),
        "why there": _why(account),
        "carries": _carries(account),
        **behind,
        **_split(account),
        **({"dropped": dropped(account.dropped)} if account.dropped else {}),
        "rules": "; ".join(_rules(account)) or "none",
        "if it fails": _fails_over(account),
        "now": now,
        "to change": change,
    }


def as_json(account: Account) -> str:
    """Return JSON as documented in docs/reference/json.md; rates in bit/s, times since the epoch."""
    port, bound, verdict, split_s = account.port, account.bound, account.verdict, account.split_s
    move = verdict.move if verdict and verdict.standing is Standing.MOVES else None
    rests_s = account.cooldown_until_s
    behind = [
        {**fields(one, "mac", "vm", "vlan", "uplink"), **asdict(one.load)} for one in account.behind
    ]
    shown: dict[str, Any] = {
        "port": port.name,
        "vm": port.vm,
        "bridge": account.bridge.config.name,
        "policy": account.own_policy,
        "uplink": bound.uplink if bound else None,
        "bound_at": account.wall_s(bound.since_s) if bound else None,
        "reason": bound.reason if bound else None,
        "home": account.home,
        "planned_uplink": account.planned,
        **asdict(account.unit.load),
        "loads_cover_s": account.window_s,
        "share_ratio": _share(account),
        "uplink_ratio": account.uplink.utilization_ratio if account.uplink else None,
        "pin": port.rules.pin,
        **fields(port, "excluded", "shares"),
        "reserve_bps": port.rules.reserve_bps or None,
        "limit_bps": port.limit_bps,
        "allowed": sorted(port.allowed) if port.allowed is not None else None,
        "prefer": list(port.rules.prefer),
        "avoid": sorted(port.rules.avoid),
        "kept_off": dict(account.kept_off),
        **fields(port.rules, "affinity", "anti_affinity"),
        "rules_broken": {rule.value: how for rule, how in account.rules.items() if how},
        "fails_over_to": [uplink.name for uplink in _others(account)],
        "buckets": dict(account.buckets),
        **({"endpoint": asdict(port.endpoint)} if port.endpoint else {}),
        **({"split_at": account.wall_s(split_s)} if split_s is not None else {}),
        **({"dropped_on_purpose": account.dropped} if account.dropped else {}),
        **({"addresses": behind} if port.per_address else {}),
        "last_move": _last_move(account),
        "against": account.against.value,
        "target": move.target if move else None,
        "expected_ratio": dict(verdict.expected_ratio) if verdict else {},
        "rests_until": None if rests_s is None else account.wall_s(rests_s),
        "decided_in_s": round(account.decided_in_s, 3),
        "said": sentences(account),
    }
    return json.dumps(shown, indent=2)


# ---- where, and why --------------------------------------------------------------------


def _where(account: Account) -> str:
    bound = account.bound
    if bound is None:
        return "on no uplink"
    since = _since(account, bound.since_s)
    if bound.reason == bindings.RESTORED:
        since = f"at least {since}"
    if account.bridge.on_normal:
        would = f"would be on {bound.uplink}, {since}"
        return f"{would}: the bridge is in observe mode, and its bond selects uplinks"
    text = f"on {bound.uplink} {since}"
    if account.planned not in (None, bound.uplink):
        text += f"; would be on {account.planned} in enforce mode"
    return text


def _why(account: Account) -> str:
    bound = account.bound
    if bound is None:
        if not account.uplinks or account.port.allowed is None:
            return "no uplink is available"
        if account.port.allow is not None and account.port.allowed:
            return "none of the VM port's allowed uplinks carries traffic"
        if account.port.allow is None:
            return "no uplink carries the VM port's VLANs"
        return "none of the allowed uplinks carries the VM port's VLANs"
    moved, last = account.moved, account.last
    source = moved.source if moved and moved.source else "the previous uplink"
    match bound.reason:
        case reason if reason in BROUGHT:
            text = BROUGHT[reason].format(source=source, uplink=bound.uplink)
        case Reason.REBALANCE:
            text = "the VM port's policy or the team has changed, and this is the new home uplink"
            if PRESETS[account.own_policy].at_once:
                text = "the move lowered the load of the fullest uplink, or the team had changed"
        case Reason.RULE:
            text = "the VM port's rules select this uplink"
            if account.port.rules.reserve_bps:
                text = "the VM port's rules select this uplink, which has room for the reservation"
            if not account.port.rules.ruled:
                text = f"{source} is not allowed for this VM port, or another uplink has priority"
                if account.port.rules.reserve_bps:
                    text += " or has room for the reservation"
        case reason if reason in list(Reason):
            text = last.why if last else "the move is no longer in the decision log"
        case _ if account.port.rules.ruled or account.port.rules.pin:
            text = "the VM port's rules and policy chose this uplink; the port has not moved since"
        case _:
            text = "the policy chose this uplink by port number or failover order; the port has not moved since"
    text = f"{bound.reason}: {text}"
    before, after = (last.before, last.after) if last else ({}, {})
    ends = (moved.source or "", moved.target) if moved else ()
    ways = [
        (f"{before[name].worst_ratio:.0%}", f"{after[name].worst_ratio:.0%}", name)
        for name in ends
        if name in before and name in after
    ]
    if all(was == then for was, then, _ in ways):
        return text
    expected = ", ".join(f"{name} {was} -> {then}" for was, then, name in ways)
    return f"{text}. Expected effect: {expected}"


def _carries(account: Account) -> str:
    load, uplink = account.unit.load, account.uplink
    if account.against is Obstacle.NOT_CONNECTED:
        return "unknown, because the switch is not connected"
    over = f"mean of {account.window_s:.0f} s" if account.window_s else "at this moment"
    text = f"sends {load.tx_bps / 1e6:.2f}, receives {load.rx_bps / 1e6:.2f} Mbit/s ({over})"
    if account.buckets:
        shares = ", ".join(f"{n} on {name}" for name, n in sorted(account.buckets.items()))
        total = sum(account.buckets.values())
        return f"{text}; sent traffic uses {total} buckets: {shares}"
    if uplink is None or (share_ratio := _share(account)) is None:
        return text
    at = f"which is at {uplink.utilization_ratio:.0%} of {uplink.capacity_bps / 1e6:g} Mbit/s"
    return f"{text}: {_percent(share_ratio)} of {uplink.name}, {at}"


def _split(account: Account) -> dict[str, str]:
    """Return the start time and the reason for a VM port's split; empty if the port is not split."""
    if account.split_s is None:
        return {}
    why = "it was already split when the service started"
    for entry in account.bridge.decision_log.entries:
        if any((m.unit, m.reason) == (account.port.name, Reason.SPLIT) for m in entry.moves):
            why = entry.why
    text = f"sent traffic has been split by connection {_since(account, account.split_s)}. Reason: {why}"
    rest = "Received traffic, broadcasts and non-IP frames stay on the home uplink"
    return {"split": f"{text}. {rest}"}


def _addresses(account: Account) -> str:
    """Describe the busiest addresses that are units, and name their uplinks."""
    counts = Counter(one.uplink for one in account.behind)
    where = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if name)
    if not counts:
        return "none known: all sent traffic uses the home uplink"
    named = [
        f"{one} on {one.uplink} {one.load.tx_bps / 1e6:.2f}, {one.load.rx_bps / 1e6:.2f}"
        for one in account.behind[:NAMED]
    ]
    more = len(account.behind) - NAMED
    rest = f"; {more} more" if more > 0 else ""
    text = f"{len(account.behind)} addresses, {where}. The busiest, Mbit/s sent and received:"
    text += f" {'; '.join(named)}{rest}"
    return f"{text}. Each address is moved separately. All other lines describe the port's other traffic"


def _rules(account: Account) -> list[str]:
    """Return the rules that apply to the VM port, and the broken rules."""
    port, rules = account.port, account.port.rules
    carriers = ", ".join(sorted(port.carriers or ()))
    configured = f"configured only on {carriers}" if carriers else "not configured on any uplink"
    allowed, avoided = ", ".join(sorted(port.allow or ())), ", ".join(sorted(rules.avoid))
    share = part(port.shares, rules.reserve_bps, port.limit_bps)
    policy = account.bridge.config.asked.policy
    of_bridge = f"has its own policy (the policy of the bridge is {policy})"
    lost = ", which loses path-check probes, while another uplink carries traffic"
    apart = f"should not share an uplink with others in anti-affinity set {rules.anti_affinity}"
    told = (
        (rules.pin, f"pinned to {rules.pin}"),
        (port.excluded, "excluded: no policy moves the VM port"),
        (port.carriers is not None, f"its VLANs are {configured}"),
        (port.allow is not None, f"allowed on {allowed} only, even while no allowed uplink works"),
        (rules.affinity, f"should share an uplink with affinity set {rules.affinity}"),
        (rules.anti_affinity, apart),
        (rules.prefer, f"prefers {', then '.join(rules.prefer)}"),
        (rules.avoid, f"should not use {avoided}"),
        (share, share),
        *((True, f"kept off {at}{lost} ({why})") for at, why in account.kept_off.items()),
        *((how, f"broken: {rule}, {how}") for rule, how in account.rules.items()),
        (account.own_policy != policy, of_bridge),
    )
    return [text for applies, text in told if applies]


def _fails_over(account: Account) -> str:
    if account.bound is None:
        return "no failover: the VM port has no uplink, and reaches only VMs on this bridge"
    others = [_described(account, uplink) for uplink in _others(account)]
    return ", then ".join(others) or "no other uplink can take the VM port"


def _others(account: Account) -> tuple[Uplink, ...]:
    """Return the uplinks to use if the current uplink fails, the best uplink first."""
    placing = account.bridge.placing
    return placing.on_switch.order(account.unit, placing.uplinks())[1:]


def _described(account: Account, uplink: Uplink) -> str:
    if not uplink.usable:
        (config,) = (u for u in account.bridge.config.uplinks if u.name == uplink.name)
        return f"{uplink.name} ({account.bridge.links.why_unused(config, account.now_s)})"
    return uplink.name if uplink.role is Role.ACTIVE else f"{uplink.name} ({uplink.role.value})"


# ---- why the VM port stays, and what would move it -------------------------------------


def _outlook(account: Account) -> tuple[str, str]:
    """Return the reason why the VM port stays or moves, and the change that would alter this."""
    config, name, verdict = account.bridge.config, account.port.name, account.verdict
    bridge, limit = quoted(config.name), threshold(config.threshold_ratio)
    stays = f"the VM port stays: {_judged_uplink(account)}"
    match account.against:
        case Obstacle.NOT_CONNECTED:
            text = "the switch is not connected: installed flows still forward, but no decisions are made"
            return text, "the switch must reconnect"
        case Obstacle.UNBOUND:
            return "no decision: the VM port has no uplink", _carrier_wanted(account)
        case Obstacle.FALLEN_BACK:
            return FALLEN_BACK, "the upstream switch must negotiate LACP"
        case Obstacle.AWAY:
            home = account.home
            why = why_away(account.bridge.placing.team_view(), home, account.now_s)
            text = f"the VM port has not returned to its home uplink {home} yet: {why}"
            return text, f"{home} must carry traffic; the VM port then returns automatically"
        case Obstacle.PINNED:
            return "the VM port stays: it is pinned", f"ovs-lbt unpin {quoted(name)}"
        case Obstacle.EXCLUDED:
            change = f"ovs-lbt set interface {quoted(name)} exclude=false"
            return "the VM port stays: it is excluded from load balancing", change
        case Obstacle.IN_COOLDOWN | Obstacle.SPENT:
            text = "the VM port stays: it moved recently"
            if account.against is Obstacle.SPENT:
                often = f"{MOST_MOVES} times in {PERIOD_S:.0f} s, which is the limit for an address"
                text = f"the VM port stays: it has moved {often}"
            change = f"nothing: the cooldown ends automatically; to move the VM port now: ovs-lbt move {quoted(name)} UPLINK"
            assert account.cooldown_until_s is not None, "a cooldown ends"
            left_s = math.ceil(account.cooldown_until_s - account.now_s)
            until = time_of_day(account.wall_s(account.cooldown_until_s))
            return f"{text}, and is in cooldown for {left_s} s more, until {until}", change
        case Obstacle.UNKNOWN | Obstacle.NEW:
            text = f"the VM port's load has been measured for only {account.known_s:.0f} s"
            if account.against is Obstacle.UNKNOWN:
                text = unknown(account.basis)
            change = f"nothing: the policy will decide in {math.ceil(account.decided_in_s)} s"
            return f"not evaluated yet: {text}", change
        case Standing.NEVER:
            text = f"the VM port stays: {account.own_policy} does not move VM ports to balance load"
            if account.buckets:
                text = f"the VM port stays: {account.own_policy} moves buckets of sent traffic, not VM ports"
            return text, f"set another policy, or run: ovs-lbt move {quoted(name)} UPLINK"
        case Standing.MOVES if verdict and (move := verdict.move):
            does = f"moved to {move.target}"
            if move.is_resplit:
                is_split = move.reason is Reason.SPLIT
                does = "split by connection" if is_split else "merged onto its home uplink"
            text = f"the VM port {'would be' if account.bridge.observing else 'will be'} {does}"
            wait_s = math.ceil(account.decided_in_s)
            when = f"in {wait_s} s, after a full window has been measured"
            text += f" {when if wait_s else 'at the next poll'}, if loads do not change"
            change = f"nothing; to do this now: ovs-lbt plan {bridge}, then ovs-lbt apply {bridge}"
            if account.bridge.observing:
                change = f"ovs-lbt set bridge {bridge} mode=enforce"
        case Standing.LATER if verdict and (move := verdict.move):
            way = f"{move.source} -> {move.target}"
            text = f"the VM port stays for now: {move.unit} will be moved first, {way}"
            change = "the other move must finish first; this VM port is then evaluated again"
        case Standing.BELOW:
            text = f"{stays}, not above the threshold of {limit}"
            over = f"over {account.basis.window_s:g} s"
            change = f"the uplink's mean load {over} must exceed {limit}, and another uplink must have room"
        case Standing.TOO_SMALL:
            text = f"{stays}, above {limit}, but the VM port uses less than 1% of the capacity in the busy direction"
            change = "the VM port must carry more traffic; other VM ports on this uplink are considered first"
        case Standing.NO_USE:
            text = f"{stays}, and a move would lower the load of the fullest uplink by less than 2% of capacity"
            change = "moving this VM port must lower the highest utilization by 2% or more"
        case Standing.NO_ROOM:
            expected = verdict.expected_ratio.items() if verdict else ()
            would = " and ".join(
                f"{other} would be at {percent(ratio)}" for other, ratio in expected
            )
            but = f"with this VM port, {would}" if would else "no other allowed uplink works"
            text, change = f"{stays}, above {limit}, but {but}", _room(account)
        case _:
            text = "the VM port stays: its uplink carries no traffic, so only failover can move the VM port"
            change = "the uplink must carry traffic again"
    return f"{text}. Basis: {covers(account.basis)}", change


def _carrier_wanted(account: Account) -> str:
    """Return the change that is needed before the VM port, which has no uplink, can use one."""
    allowed = " or ".join(sorted(account.port.allowed or ()))
    if account.port.allow is None:
        return "an uplink must carry the VM port's VLANs"
    if not allowed:
        return "one of the allowed uplinks must carry the VM port's VLANs"
    return f"{allowed} must carry traffic; the VM port then returns automatically"


def _judged_uplink(account: Account) -> str:
    """Return the uplink that the policy assumes for the VM port, and the uplink's utilization."""
    name = account.planned or (account.bound.uplink if account.bound else "-")
    uplink = account.team_view.get(name)
    return f"{name} is at {percent(uplink.utilization_ratio)}" if uplink else f"{name} is unknown"


def _room(account: Account) -> str:
    """Return the change that is needed before another uplink can take the VM port."""
    verdict, limit_ratio = account.verdict, account.bridge.config.threshold_ratio
    able = [account.team_view[name] for name in (verdict.expected_ratio if verdict else ())]
    if verdict is None or not able:
        return "another uplink allowed for the VM port must be in service"
    alone = [account.unit.load.utilization_ratio(uplink.capacity_bps) for uplink in able]
    if min(alone) > limit_ratio:
        fastest = f"this VM port needs {min(alone):.0%} of the fastest other uplink's capacity"
        return f"{fastest}: use a faster uplink, or a policy that spreads connections (dynamic)"
    nearest = min(able, key=lambda u: (verdict.expected_ratio[u.name], u.name))
    excess_ratio = verdict.expected_ratio[nearest.name] - limit_ratio
    return f"the load of {nearest.name} must decrease by {_percent(excess_ratio)} of its capacity"


# ---- figures ---------------------------------------------------------------------------


def _share(account: Account) -> float | None:
    """Return the VM port's load in its busier direction, as a share of its uplink's capacity."""
    uplink = account.uplink
    return account.unit.load.utilization_ratio(uplink.capacity_bps) if uplink else None


def _percent(ratio: float) -> str:
    """Return a ratio as a percentage, with one decimal place if the ratio is below 10%."""
    return f"{ratio:.1%}" if 0.0 < ratio < 0.1 else f"{ratio:.0%}"


def _last_move(account: Account) -> dict[str, Any] | None:
    last, moved = account.last, account.moved
    if last is None or moved is None:
        return None
    return {
        "at": account.wall_s(last.at_s),
        "source": moved.source,
        "target": moved.target,
        "reason": moved.reason,
        "why": last.why,
        "before_ratio": {name: used.worst_ratio for name, used in last.before.items()},
        "expected_ratio": {name: used.worst_ratio for name, used in last.after.items()},
    }


def _since(account: Account, at_s: float) -> str:
    """Return the time of day of `at_s`, and the time that has passed since `at_s`."""
    return f"since {time_of_day(account.wall_s(at_s))}, {_ago(account.now_s - at_s)}"


def _ago(seconds: float) -> str:
    for unit, length_s in (("d", SECONDS_A_DAY), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
