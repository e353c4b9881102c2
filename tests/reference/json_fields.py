"""The fields of the JSON that commands print, and their meanings.

tests/unit/docs/test_json_page.py compares the paths with JSON that the code produces. A path is as
`jq` takes it, without the first dot: `[]` stands for each element of a list, and a word in capitals
for each key of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from controller.api.history import Happened
from controller.operations.diagnosis import Obstacle
from controller.operations.unconfirmed import What
from controller.text.check_view import ERROR, NOTE, WARNING
from policies.model import Reason, Role
from policies.verdicts import Standing, WhyAtRest
from tests.documents import ROOT

# The sources that name kinds of findings, and how they do.
SOURCES = ("controller/check.py", *(f"controller/operations/{m}.py" for m in ("check", "upstream")))
KIND = re.compile(r'Finding\([^"]*?"([a-z-]+)", ')
ADVICE = "controller/operations/advice.py"
KIND_OF_ADVICE = re.compile(r'\(\("([a-z-]+)", text\)')


def kinds_of_findings() -> list[str]:
    """The kinds of the findings of `check`."""
    found = {kind for path in SOURCES for kind in KIND.findall((ROOT / path).read_text())}
    return sorted({*found, *KIND_OF_ADVICE.findall((ROOT / ADVICE).read_text())})


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _values(of: type[StrEnum]) -> str:
    return _words(one.value for one in of)


REASONS = f"{_values(Reason)}; or the policy that placed it first, or `restored`"
MOVE = (
    ("port", "the VM port; absent in a move of buckets"),
    ("vm", "its VM; absent in a move of buckets"),
    ("policy", "the policy whose buckets move; absent in a move of a VM port"),
    ("buckets", "the number of buckets; absent in a move of a VM port"),
    ("source", "the uplink before; absent if there was none"),
    ("target", "the uplink after. A VM port that is split or merged keeps its home uplink here"),
    ("reason", f"one of {_values(Reason)}"),
)
ENDPOINT = (
    ("addresses[]", "the addresses from which the tunnels are sent"),
    ("kinds[]", "the types of the tunnels"),
    ("bridges[]", "the bridges that have the tunnels"),
)


def _below(path: str, fields: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{path}.{name}", meaning) for name, meaning in fields)


SHOW = (
    ("bridges[]", "the attached bridges; none in the answer of a service on standby"),
    ("standby", "`true` in the answer of a service on standby; otherwise absent"),
    ("leader", "the leading service as `NAME@HOST`, in the answer of a service on standby"),
    ("unconfirmed[]", "changes that wait for `confirm`; absent without one"),
    *_below(
        "unconfirmed[]",
        (
            ("bridge", "the bridge, which may have been detached"),
            ("change", f"one of {_values(What)}"),
            ("until", "when it is rolled back"),
            ("left_s", "seconds until then; 0 during the rollback"),
        ),
    ),
    ("faults[]", "faults of the service itself within a day, the last first; absent without one"),
    *_below(
        "faults[]",
        (
            ("part", "the part of the service"),
            ("count", "its faults since the host booted"),
            ("last_at", "when the last one occurred"),
            ("found", "the error"),
        ),
    ),
    *_below(
        "bridges[]",
        (
            ("name", "the bridge"),
            ("policy", "as configured"),
            ("teaming", "as configured"),
            ("mode", "as configured"),
            ("connected", "whether the switch is connected"),
            ("threshold_ratio", "the threshold as a share of capacity"),
            ("buckets.POLICY.UPLINK", "of a hashed policy, the number of buckets on each uplink"),
            (
                "connection_hash",
                "the hash of connections; absent if no policy of the bridge spreads connections",
            ),
            ("connection_hash.used", "`multipath` or `dp_hash`"),
            ("connection_hash.why", "the reason for that hash"),
            ("connection_hash.cost", "the cost of `multipath` while it stays in use, if any"),
            ("config_errors[]", "values that were rejected"),
            ("not_done[]", "settings that cannot be applied"),
            ("rules_broken[]", "rules of VM ports that are broken"),
            ("rules_broken[].port", "the VM port"),
            ("rules_broken[].vm", "its VM"),
            ("rules_broken[].rule", "the key of the rule"),
            ("rules_broken[].how", "the state found, and the expected one"),
            ("fallen_back", "`true` if LACP is not negotiated; otherwise absent"),
            (
                "on_normal",
                "`true` if NORMAL forwards, because a bond is only observed; otherwise absent",
            ),
            (
                "offload[]",
                "effects of hardware offload, DPDK ports and representors; absent without them",
            ),
            (
                "failure",
                "the last error of ovs-lbt itself while it handled the bridge; absent without one",
            ),
        ),
    ),
    *_below(
        "bridges[].uplinks[]",
        (
            ("name", "the uplink"),
            ("up", "whether it carries traffic"),
            ("role", f"one of {_values(Role)}"),
            ("capacity_bps", "its capacity in each direction"),
            ("tx_bps", "the rate sent to the network, between the last two polls"),
            ("rx_bps", "the rate received from the network, between the last two polls"),
            ("utilization_ratio", "the busier direction as a share of capacity"),
            (
                "silent[]",
                "which of `LACP`, `BFD` and `CFM` gets no answer although the link is up;"
                " otherwise absent",
            ),
            (
                "waits",
                "why it carries nothing although its link is up: spanning tree blocks it, or it"
                " has received nothing since the link returned; otherwise absent",
            ),
            (
                "path_faults[]",
                "faults that path checks found although the link is up; absent without one",
            ),
            ("path_faults[].kind", "`unreachable`, `vlan` or `mtu`"),
            ("path_faults[].decided", "`false`: another uplink may be at fault instead"),
            ("path_faults[].vlan", "0: untagged frames; `null`: all frames"),
            ("path_faults[].mtu", "the MTU of lost frames, for kind `mtu`; otherwise `null`"),
            ("path_faults[].since_at", "when it began"),
            ("path_faults[].found", "a sentence: the fault"),
            ("path_faults[].expected", "a sentence: the expected state"),
            ("path_hindered[]", "interference of other hosts with path checks; absent without any"),
            (
                "path_hindered[].kind",
                "`flooded`, or `address`: another host sends from the address of its probes",
            ),
            ("path_hindered[].uplink", "the uplink"),
            ("path_hindered[].seen_on[]", "the uplinks that received frames from that address"),
            ("path_hindered[].found", "a sentence: the interference"),
            ("path_hindered[].expected", "a sentence: the expected state"),
        ),
    ),
    *_below(
        "bridges[].ports[]",
        (
            ("name", "the VM port"),
            ("vm", "its VM, or the name of the port if the VM has no name"),
            ("policy", "its own policy, else the bridge's"),
            ("uplink", "the uplink in use; `null`: none"),
            ("tx_bps", "the rate that the VM sends, between the last two polls"),
            ("rx_bps", "the rate that the VM receives, between the last two polls"),
            (
                "tx_packets",
                "packets that the VM sent, without dropped ones, as the switch counts them; `null`: not counted",
            ),
            ("rx_packets", "the same, for packets that it received"),
            (
                "tx_dropped_packets",
                "dropped packets among those that the VM sent; `null`: not counted",
            ),
            ("rx_dropped_packets", "the same, for packets to the VM"),
            ("reason", f"why it uses that uplink: {REASONS}; `null`: none"),
            ("bound_at", "since when; `null`: no uplink"),
            ("planned_uplink", "in observe mode, the uplink that it would use; otherwise absent"),
            ("shares", "its `shares`, if set"),
            ("reserve_bps", "its `reserve-mbps`, if set"),
            ("limit_bps", "its `limit-mbps`, if set"),
            ("units.UPLINK", "with `unit=source-mac`, the number of its addresses on each uplink"),
            ("split", "`true` if its connections are spread over uplinks; otherwise absent"),
            (
                "pinned",
                "`true` if it uses the uplink that it is pinned to; otherwise absent. `reason` stays"
                " that of its last move",
            ),
            ("endpoint", "if Open vSwitch sends tunnels through the port; otherwise absent"),
            *_below("endpoint", ENDPOINT),
        ),
    ),
)
CHECK = (
    ("well", "whether there are only notes. The exit status is then 0, else 1"),
    ("bridges[].name", "a bridge that was checked"),
    ("bridges[].attached", "whether it is attached"),
    (
        "bridges[].teaming",
        "its teaming, or that of an attach; absent if `attach` would refuse the bridge",
    ),
    ("bridges[].uplinks[].name", "an uplink, or one that an attach would take"),
    ("bridges[].uplinks[].ofport", "its OpenFlow port number"),
    ("bridges[].uplinks[].up", "whether it carries traffic"),
    ("bridges[].uplinks[].role", f"one of {_values(Role)}"),
    ("findings[].bridge", "the bridge; `null` if the finding is about the host"),
    ("findings[].severity", f"{_words((ERROR, WARNING))}, or `{NOTE}`, which requires no action"),
    ("findings[].check", f"its kind: {_words(kinds_of_findings())}"),
    ("findings[].text", "a sentence; for most findings the state found, and the expected one"),
    ("findings[].runbook", "its [runbook](../runbooks.md); absent without one"),
)
PLAN = (
    ("bridges[].name", "the bridge"),
    ("bridges[].connected", "whether the switch is connected"),
    ("bridges[].observed", "whether the bridge is in observe mode"),
    ("bridges[].threshold_ratio", "the threshold as a share of capacity"),
    (
        "bridges[].loads_cover_s",
        "the time that the loads are means of; `null`: the last poll interval",
    ),
    ("bridges[].moves[]", "the moves that would be made now"),
    *_below("bridges[].moves[]", MOVE),
    ("bridges[].moves[].tx_bps", "the rate that moves, as sent"),
    ("bridges[].moves[].rx_bps", "the rate that moves, as received"),
    ("bridges[].uplinks[].name", "an uplink"),
    ("bridges[].uplinks[].role", f"one of {_values(Role)}"),
    ("bridges[].uplinks[].usable", "whether it carries traffic now"),
    ("bridges[].uplinks[].capacity_bps", "its capacity in each direction"),
    ("bridges[].uplinks[].transmit_ratio", "the sent share of capacity"),
    ("bridges[].uplinks[].receive_ratio", "the received share of capacity"),
    ("bridges[].uplinks[].expected_transmit_ratio", "the sent share after the moves"),
    ("bridges[].uplinks[].expected_receive_ratio", "the received share after the moves"),
    ("bridges[].policies[].policy", "a policy in use on the bridge"),
    (
        "bridges[].policies[].window_s",
        "its window; `null` for a policy without moves because of load",
    ),
    ("bridges[].policies[].covered_s", "the time that its loads cover"),
    ("bridges[].policies[].wait_s", "the time until enough is known to ask it; 0: now"),
    ("bridges[].policies[].moves", "the number of its moves"),
    (
        "bridges[].policies[].rest",
        f"why it makes no (more) moves: {_values(WhyAtRest)}, `loads-unknown`",
    ),
    ("bridges[].policies[].unrelieved[]", "uplinks above the threshold that no move helps"),
    ("bridges[].policies[].said[]", "the same as sentences"),
    ("bridges[].waiting[]", "VM ports and buckets that wait to return to their home uplink"),
    *_below("bridges[].waiting[]", MOVE),
    ("bridges[].waiting[].why", "the condition that they wait for"),
    ("bridges[].not_done[]", "settings that cannot be applied"),
)
PLAN_ENDPOINTS = (
    ("bridges[]", "the integration bridges"),
    ("measured_s", "the time of the measurement"),
    ("endpoints[].address", "the address of a tunnel endpoint"),
    ("endpoints[].port", "the port that has the address"),
    ("endpoints[].capacity_bps", "its part of the uplinks' capacity; `null`: not known"),
    (
        "endpoints[].tx_bps",
        "the rate that its tunnels send; absent if no tunnel is known to be its own",
    ),
    ("endpoints[].rx_bps", "the rate that its tunnels receive; absent in the same case"),
    (
        "endpoints[].planned_tx_bps",
        "the rate that its VMs would send; absent if the receiver's network decides that",
    ),
    ("endpoints[].planned_rx_bps", "the rate that its VMs would receive"),
    ("vms[].port", "a VM's port"),
    ("vms[].vm", "the VM"),
    ("vms[].endpoint", "the address of its endpoint; `null`: not known"),
    ("vms[].planned_endpoint", "the address of the endpoint that it should use"),
    ("vms[].tx_bps", "the rate that the VM sends"),
    ("vms[].rx_bps", "the rate that the VM receives"),
    ("commands[]", "for OVN, the commands that set the planned endpoints"),
)
EXPLAIN = (
    ("port", "the VM port, or an address behind it (`PORT/MAC`)"),
    ("vm", "its VM"),
    ("bridge", "its bridge"),
    ("policy", "its own policy, else the bridge's"),
    ("uplink", "the uplink in use; `null`: none"),
    ("bound_at", "since when; `null`: no uplink"),
    ("reason", f"why: {REASONS}; `null`: no uplink"),
    ("home", "the uplink that it returns to; `null`: none"),
    ("planned_uplink", "in observe mode, the uplink that it would use; otherwise `null`"),
    ("tx_bps", "the rate that it sends on uplinks"),
    ("rx_bps", "the rate that it receives on uplinks"),
    ("loads_cover_s", "the time that the rates are means of; `null`: the last poll interval"),
    ("share_ratio", "its load as a share of the uplink's capacity; `null`: no uplink"),
    ("uplink_ratio", "the utilization of the uplink; `null`: no uplink"),
    ("pin", "the uplink that it is pinned to; `null`: none"),
    ("excluded", "whether `exclude` is set"),
    ("shares", "its `shares`; `null`: not set"),
    ("reserve_bps", "its `reserve-mbps`; `null`: not set"),
    ("limit_bps", "its `limit-mbps`; `null`: not set"),
    ("allowed[]", "the uplinks that it may use and that carry its VLANs"),
    ("allowed", "`null`: all uplinks"),
    ("prefer[]", "the uplinks of its `prefer`, the best first"),
    ("avoid[]", "the uplinks that `prefer` rules out"),
    ("kept_off.UPLINK", "of each uplink that loses some of its frames, the lost ones"),
    ("affinity", "its set; `null`: none"),
    ("anti_affinity", "its set; `null`: none"),
    ("rules_broken.RULE", "of each broken rule, the state found, and the expected one"),
    ("fails_over_to[]", "the uplinks that it would use next, in order"),
    ("buckets.UPLINK", "of a hashed policy, the number of buckets on each uplink"),
    ("endpoint", "if Open vSwitch sends tunnels through the port; otherwise absent"),
    *_below("endpoint", ENDPOINT),
    ("split_at", "since when its connections are spread over uplinks; otherwise absent"),
    ("addresses[]", "with `unit=source-mac`, the addresses behind it; otherwise absent"),
    ("addresses[].mac", "the address"),
    ("addresses[].vm", "its VM; `null`: not known"),
    ("addresses[].vlan", "its VLAN; 0: untagged"),
    ("addresses[].uplink", "its uplink; `null`: none"),
    ("addresses[].tx_bps", "the rate that it sends"),
    ("addresses[].rx_bps", "the rate that it receives"),
    ("last_move", "the decision that brought it to its uplink; `null`: not known"),
    ("last_move.at", "when it moved"),
    ("last_move.source", "the uplink before; `null`: none"),
    ("last_move.target", "the uplink after"),
    ("last_move.reason", f"one of {_values(Reason)}"),
    ("last_move.why", "a sentence"),
    ("last_move.before_ratio.UPLINK", "the utilization before"),
    ("last_move.expected_ratio.UPLINK", "the utilization expected after it"),
    (
        "against",
        "what keeps it on its uplink ([meanings](../policies/plan.md)): "
        f"{_words([*(o.value for o in Obstacle), *(s.value for s in Standing)])}",
    ),
    ("target", "the uplink that it will move to; `null`: it stays"),
    ("expected_ratio.UPLINK", "the utilization of each other uplink with it"),
    ("rests_until", "the end of its cooldown; `null`: in none"),
    ("decided_in_s", "the time until its policy decides again"),
    ("said.QUESTION", "the sentences that `explain` prints"),
)
LOAD = (
    ("UPLINK.transmit_ratio", "the sent share of capacity"),
    ("UPLINK.receive_ratio", "the received share of capacity"),
)
HISTORY = (
    ("at", "the time"),
    ("bridge", "the bridge"),
    ("event", f"one of {_values(Happened)}"),
    ("uplink", "the uplink, in an entry about a link, a path or the threshold; otherwise absent"),
    ("port", "the VM port, in an entry about a rule; otherwise absent"),
    ("moves[]", "the moves; absent without any"),
    *_below("moves[]", MOVE),
    ("why", "a sentence"),
    ("before", "the loads before it, by uplink; absent without any"),
    *_below("before", LOAD),
    ("expected", "the loads expected after it; absent without any"),
    *_below("expected", LOAD),
    ("after", "the measured loads of an `outcome`; otherwise absent"),
    *_below("after", LOAD),
)
REPLAY = (
    (
        "POLICY.excess_ratio.transmit",
        "sent bytes above the capacity of their uplink, as a share of all bytes of all hosts",
    ),
    ("POLICY.excess_ratio.receive", "the same, for received bytes"),
    ("POLICY.above_threshold_s", "time with an uplink above the threshold, summed over hosts"),
    ("POLICY.duration_s", "all time, summed over hosts"),
    ("POLICY.optimality.mean", "the worst utilization over the lowest that is possible, over time"),
    ("POLICY.optimality.worst", "the highest of these ratios"),
    ("POLICY.moves", "VM ports and buckets that changed their uplink"),
    ("POLICY.most_moves_per_mac_180s", "the most moves of one address in 180 s"),
)

ANSWERS = {
    "show --json": SHOW,
    "check --json": CHECK,
    "plan --json": PLAN,
    "plan --endpoints --json": PLAN_ENDPOINTS,
    "explain --json": EXPLAIN,
    "history --json": HISTORY,
    "replay --json": REPLAY,
}


def markdown() -> str:
    """A table for each answer."""
    parts = []
    for command, fields in ANSWERS.items():
        rows = [f"| `.{path}` | {meaning} |" for path, meaning in fields]
        parts.append("\n".join([f"## {command}", "", "| field | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)
