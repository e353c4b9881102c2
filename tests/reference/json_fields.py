"""The fields of the JSON that commands print, and their meanings.

tests/unit/docs/test_json_page.py compares the paths with JSON that the code produces. A path is as
`jq` takes it, without the first dot: `[]` stands for each element of a list, and a word in capitals
for each key of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from textwrap import dedent

from controller.api.history import Happened
from controller.operations.check import ERROR, NOTE, WARNING
from controller.operations.diagnosis import Obstacle
from controller.operations.unconfirmed import What
from policies.model import Reason, Role
from policies.verdicts import Standing, WhyAtRest
from tests.documents import ROOT

Fields = tuple[tuple[str, str], ...]
# The sources that name kinds of findings, and how: behind the severity. Only attach tells some.
SOURCES = (
    "controller/cli/answers.py",
    *(f"controller/operations/{m}.py" for m in ("check", "upstream")),
)
KIND = re.compile(r'(?<!Told.ATTACH, )\b(?:ERROR|WARNING|NOTE|severity), "([a-z-]+)", ')


def kinds_of_findings() -> list[str]:
    """The kinds of the findings of `check`."""
    return sorted({kind for path in SOURCES for kind in KIND.findall((ROOT / path).read_text())})


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _values(of: type[StrEnum]) -> str:
    return _words(one.value for one in of)


def _fields(text: str) -> Fields:
    """Fields from lines `PATH: MEANING`; the lines by which a meaning goes on are indented."""
    lines = re.sub(r"\n {4,}", " ", dedent(text)).strip().splitlines()
    return tuple((path, meaning) for path, _, meaning in (line.partition(": ") for line in lines))


def _below(path: str, fields: Fields) -> Fields:
    return tuple((f"{path}.{name}", meaning) for name, meaning in fields)


REASONS = f"{_values(Reason)}; or the policy that first placed the VM port, or `restored`"
MOVE = _fields(f"""
    port: the VM port; absent if buckets move
    vm: the VM; absent if buckets move
    policy: the policy whose buckets move; absent if a VM port moves
    buckets: the number of buckets; absent if a VM port moves
    source: the uplink before the move; absent if no uplink was in use
    target: the uplink after the move; if a VM port is split or merged, its home uplink
    reason: one of {_values(Reason)}
""")
ENDPOINT = _fields("""
    addresses[]: the source addresses of the tunnels
    kinds[]: the types of the tunnels
    bridges[]: the bridges that have the tunnels
""")
BRIDGE = _fields("""
    name: the bridge
    policy: the configured policy
    teaming: the configured teaming mode
    mode: the configured mode
    connected: whether the switch is connected
    threshold_ratio: the threshold, as a share of capacity
    buckets.POLICY.UPLINK: the number of buckets of a hashed policy on each uplink
    connection_hash: the hash of connections; absent if no policy of the bridge spreads connections
    connection_hash.used: `multipath` or `dp_hash`
    connection_hash.why: the reason why this hash is used
    connection_hash.cost: the cost of `multipath`, if `multipath` is in use; otherwise absent
    config_errors[]: configured values that the service rejected
    not_done[]: settings that cannot be applied
    rules_broken[]: rules of VM ports that are broken
    rules_broken[].port: the VM port
    rules_broken[].vm: the VM of the VM port
    rules_broken[].rule: the key of the rule
    rules_broken[].how: the state found, and the expected state
    fallen_back: `true` if LACP is configured but not negotiated; otherwise absent
    on_normal: `true` if NORMAL forwards because a bond is in observe mode; otherwise absent
    offload[]: effects of hardware offload, DPDK ports and representors; absent without effects
    failure: the last internal error of ovs-lbt on this bridge; absent without an error
""")
UPLINK = _fields(f"""
    name: the uplink
    up: whether the uplink carries traffic
    role: one of {_values(Role)}
    capacity_bps: the capacity of the uplink in each direction
    tx_bps: the rate sent to the network between the last two polls
    rx_bps: the rate received from the network between the last two polls
    utilization_ratio: the utilization in the direction with the higher load
    silent[]: protocols (`LACP`, `BFD`, `CFM`) that receive no answer although the link is up;
        otherwise absent
    absent: `true` if the uplink does not exist on the switch; otherwise absent
    capacity_guessed: `true` if `capacity_bps` is a guess, because the capacity is neither configured
        nor reported by the switch; otherwise absent
    waits: why the uplink carries no traffic although its link is up: spanning tree blocks the
        uplink, or no frame has arrived since the link came up again; otherwise absent
    path_faults[]: faults that path checks found although the link is up; absent without faults
    path_faults[].kind: `unreachable`, `vlan` or `mtu`
    path_faults[].decided: `false` if another uplink may be at fault instead; otherwise `true`
    path_faults[].vlan: the VLAN of lost frames; 0 for untagged frames, `null` for all frames
    path_faults[].mtu: the MTU of lost frames, for kind `mtu`; otherwise `null`
    path_faults[].since_at: the time at which the fault began
    path_faults[].found: a sentence that describes the fault
    path_faults[].expected: a sentence that describes the expected state
    path_hindered[]: interference of other hosts with path checks; absent without interference
    path_hindered[].kind: `flooded`, or `address` if another host sends from the address of the
        uplink's probes
    path_hindered[].uplink: the uplink
    path_hindered[].seen_on[]: the uplinks that received frames from this address
    path_hindered[].found: a sentence that describes the interference
    path_hindered[].expected: a sentence that describes the expected state
""")
PORT = (
    *_fields(f"""
        name: the VM port
        vm: the VM, or the name of the port if the VM has no name
        policy: the policy of the VM port, or of the bridge if the VM port has no own policy
        uplink: the uplink in use; `null` if no uplink is in use
        tx_bps: the rate that the VM sent between the last two polls
        rx_bps: the rate that the VM received between the last two polls
        tx_packets: packets that the VM sent, without dropped packets; `null` if the switch does not
            count them
        rx_packets: packets that the VM received; `null` if the switch does not count them
        tx_dropped_packets: packets from the VM that were dropped; `null` if the switch does not
            count them
        rx_dropped_packets: packets to the VM that were dropped; `null` if the switch does not count
            them
        reason: why the VM port uses this uplink: {REASONS}; `null` without an uplink
        bound_at: the time since which the VM port uses this uplink; `null` without an uplink
        planned_uplink: in observe mode, the uplink that the VM port would use; otherwise absent
        shares: the value of `shares`; absent if not set
        reserve_bps: the value of `reserve-mbps`; absent if not set
        limit_bps: the value of `limit-mbps`; absent if not set
        units.UPLINK: with `unit=source-mac`, the number of the VM port's addresses on each uplink
        split: `true` if connections of the VM port are spread over uplinks; otherwise absent
        dropped_on_purpose.REASON: the number of frames of the VM port that ovs-lbt dropped, by reason
            (the label of `ovslbt_port_dropped_on_purpose_total`); absent without such frames
        pinned: `true` if the VM port uses the uplink of its pin; otherwise absent. `reason` remains
            the reason of the last move
        endpoint: if the port is a tunnel endpoint, its tunnels; otherwise absent
    """),
    *_below("endpoint", ENDPOINT),
)
SHOW = (
    *_fields(f"""
        bridges[]: the attached bridges; empty if the service is on standby
        standby: `true` if the service is on standby; otherwise absent
        leader: if the service is on standby, the leading service as `NAME@HOST`; otherwise absent
        unconfirmed[]: unconfirmed changes; absent if all changes are confirmed
        unconfirmed[].bridge: the bridge, which may have been detached
        unconfirmed[].change: one of {_values(What)}
        unconfirmed[].until: the time at which the change is rolled back
        unconfirmed[].left_s: the seconds until the rollback; 0 during the rollback
        faults[]: faults of the service in the last 24 hours, the latest fault first; absent without
            faults
        faults[].part: the part of the service
        faults[].count: the number of faults of this part since the host booted
        faults[].last_at: the time of the last fault
        faults[].found: the error
    """),
    *_below("bridges[]", BRIDGE),
    *_below("bridges[].uplinks[]", UPLINK),
    *_below("bridges[].ports[]", PORT),
)
CHECK = _fields(f"""
    well: `true` if all findings are notes (exit status 0); otherwise `false` (exit status
        1, or 2 if the bridges could not be checked)
    bridges[].name: the bridge that was checked
    bridges[].attached: whether the bridge is attached
    bridges[].teaming: the teaming mode now or after an attach; absent if `attach` would refuse the
        bridge
    bridges[].bond: whether the uplinks are an Open vSwitch bond; absent if `attach` would refuse the
        bridge
    bridges[].uplinks[].name: an uplink, or an interface that would be an uplink after an attach
    bridges[].uplinks[].ofport: the OpenFlow port number of the uplink
    bridges[].uplinks[].up: whether the uplink carries traffic
    bridges[].uplinks[].role: one of {_values(Role)}
    findings[].bridge: the bridge; `null` if the finding is about the host
    findings[].severity: {_words((ERROR, WARNING))}, or `{NOTE}`, which requires no action
    findings[].check: the kind of the finding: {_words(kinds_of_findings())}
    findings[].text: a sentence; for most findings, the state found and the expected state
    findings[].runbook: the [runbook](../runbooks.md) of the finding; absent without a runbook
""")
PLAN = (
    *_fields("""
        bridges[].name: the bridge
        bridges[].id: the ID of the plan for `apply --plan`; plans with the same moves have the same ID
        bridges[].connected: whether the switch is connected
        bridges[].observed: whether the bridge is in observe mode; then, sources and ratios are those
            that enforce mode would have by now, not the present ones
        bridges[].threshold_ratio: the threshold, as a share of capacity
        bridges[].loads_cover_s: the time over which the loads are averaged; `null` for the last
            poll interval
        bridges[].moves[]: the moves that would be made now
    """),
    *_below("bridges[].moves[]", MOVE),
    *_fields(f"""
        bridges[].moves[].tx_bps: the sent rate that would move
        bridges[].moves[].rx_bps: the received rate that would move
        bridges[].uplinks[].name: an uplink
        bridges[].uplinks[].role: one of {_values(Role)}
        bridges[].uplinks[].usable: whether the uplink carries traffic now
        bridges[].uplinks[].capacity_bps: the capacity of the uplink in each direction
        bridges[].uplinks[].transmit_ratio: the utilization by sent traffic
        bridges[].uplinks[].receive_ratio: the utilization by received traffic
        bridges[].uplinks[].expected_transmit_ratio: the utilization by sent traffic after the moves
        bridges[].uplinks[].expected_receive_ratio: the utilization by received traffic after the
            moves
        bridges[].policies[].policy: a policy in use on the bridge
        bridges[].policies[].window_s: the window of the policy; `null` if the policy makes no moves
            because of load
        bridges[].policies[].covered_s: the time for which the policy has loads
        bridges[].policies[].wait_s: the time until the policy has enough loads to decide; 0 if the
            policy can decide now
        bridges[].policies[].moves: the number of moves of the policy
        bridges[].policies[].rest: why the policy makes no more moves: {_values(WhyAtRest)},
            `loads-unknown`
        bridges[].policies[].unrelieved[]: uplinks above the threshold that no move would relieve
        bridges[].policies[].said[]: sentences that describe the decision of the policy
        bridges[].waiting[]: VM ports and buckets that have not yet returned to their home uplink
    """),
    *_below("bridges[].waiting[]", MOVE),
    *_fields("""
        bridges[].waiting[].why: the condition for the return
        bridges[].not_done[]: settings that cannot be applied
    """),
)
PLAN_ENDPOINTS = _fields("""
    bridges[]: the integration bridges
    measured_s: the duration of the measurement
    endpoints[].address: the address of a tunnel endpoint
    endpoints[].port: the port that has the address
    endpoints[].capacity_bps: the endpoint's part of the uplinks' capacity; `null` if unknown
    endpoints[].tx_bps: the rate that the endpoint's tunnels send; absent if the endpoint's tunnels
        are unknown
    endpoints[].rx_bps: the rate that the endpoint's tunnels receive; absent if the endpoint's
        tunnels are unknown
    endpoints[].planned_tx_bps: the rate that the endpoint's VMs would send; absent if the
        receiver's network decides the endpoint
    endpoints[].planned_rx_bps: the rate that the endpoint's VMs would receive
    vms[].port: the port of a VM
    vms[].vm: the VM
    vms[].endpoint: the address of the VM's endpoint; `null` if unknown
    vms[].planned_endpoint: the address of the endpoint that the VM should use
    vms[].tx_bps: the rate that the VM sends
    vms[].rx_bps: the rate that the VM receives
    commands[]: for OVN, the commands that set the planned endpoints
""")
EXPLAIN = (
    *_fields(f"""
        port: the VM port, or an address behind it (`PORT/MAC`)
        vm: the VM of the VM port
        bridge: the bridge of the VM port
        policy: the policy of the VM port, or of the bridge if the VM port has no own policy
        uplink: the uplink in use; `null` if no uplink is in use
        bound_at: the time since which the VM port uses this uplink; `null` without an uplink
        reason: why the VM port uses this uplink: {REASONS}; `null` without an uplink
        home: the uplink to which the VM port returns; `null` without a home uplink
        planned_uplink: in observe mode, the uplink that the VM port would use; otherwise `null`
        tx_bps: the rate that the VM port sends on uplinks
        rx_bps: the rate that the VM port receives on uplinks
        loads_cover_s: the time over which the rates are averaged; `null` for the last poll interval
        share_ratio: the load as a share of the uplink's capacity; `null` without an uplink
        uplink_ratio: the utilization of the uplink; `null` without an uplink
        pin: the uplink to which the VM port is pinned; `null` without a pin
        excluded: whether `exclude` is `true`
        shares: the value of `shares`; `null` if not set
        reserve_bps: the value of `reserve-mbps`; `null` if not set
        limit_bps: the value of `limit-mbps`; `null` if not set
        allowed[]: the uplinks that the VM port can use and that carry its VLANs
        allowed: `null` if all uplinks are allowed
        prefer[]: the uplinks in `prefer`, the best uplink first
        avoid[]: the uplinks that `prefer` excludes
        kept_off.UPLINK: for each uplink that loses frames of the VM port, the lost frames
        affinity: the set in `affinity`; `null` if not set
        anti_affinity: the set in `anti-affinity`; `null` if not set
        rules_broken.RULE: for each broken rule, the state found, and the expected state
        fails_over_to[]: the uplinks that the VM port would use after a failure, in order
        buckets.UPLINK: the number of buckets of a hashed policy on each uplink
        endpoint: if the port is a tunnel endpoint, its tunnels; otherwise absent
    """),
    *_below("endpoint", ENDPOINT),
    *_fields(f"""
        split_at: the time since which connections are spread over uplinks; absent if connections
            are not spread
        dropped_on_purpose.REASON: as in `show --json`
        addresses[]: with `unit=source-mac`, the addresses behind the VM port; otherwise absent
        addresses[].mac: the address
        addresses[].vm: the VM of the address; `null` if unknown
        addresses[].vlan: the VLAN of the address; 0 for untagged frames
        addresses[].uplink: the uplink of the address; `null` without an uplink
        addresses[].tx_bps: the rate sent from the address
        addresses[].rx_bps: the rate received for the address
        last_move: the move of the VM port to its uplink; `null` if unknown
        last_move.at: the time of the move
        last_move.source: the uplink before the move; `null` if no uplink was in use
        last_move.target: the uplink after the move
        last_move.reason: one of {_values(Reason)}
        last_move.why: a sentence with the reason
        last_move.before_ratio.UPLINK: the utilization of each uplink before the move
        last_move.expected_ratio.UPLINK: the expected utilization of each uplink after the move
        against: the reasons why the VM port stays on its uplink ([meanings](../policies/plan.md)):
            {_words([*(o.value for o in Obstacle), *(s.value for s in Standing)])}
        target: the uplink to which the VM port will move; `null` if it stays on its uplink
        expected_ratio.UPLINK: the expected utilization of each other uplink if the VM port moves
            there
        rests_until: the end of the VM port's cooldown; `null` without a cooldown
        decided_in_s: the time until the next decision of the policy
        said.QUESTION: the sentences that `explain` prints
    """),
)
LOAD = _fields("""
    UPLINK.transmit_ratio: the utilization by sent traffic
    UPLINK.receive_ratio: the utilization by received traffic
""")
HISTORY = (
    *_fields(f"""
        at: the time of the event
        bridge: the bridge
        event: one of {_values(Happened)}
        uplink: the uplink, if the event concerns a link, a path or the threshold; otherwise absent
        port: the VM port, if the event concerns a rule; otherwise absent
        moves[]: the moves; absent without moves
    """),
    *_below("moves[]", MOVE),
    *_fields("""
        why: a sentence with the reason
        before: the loads of each uplink before the event; absent without loads
    """),
    *_below("before", LOAD),
    *_fields("""
        expected: the expected loads of each uplink after the moves; absent without loads
    """),
    *_below("expected", LOAD),
    *_fields("""
        after: the measured loads of each uplink, if `event` is `outcome`; otherwise absent
    """),
    *_below("after", LOAD),
)
REPLAY = _fields("""
    POLICY.excess_ratio.transmit: sent bytes above the capacity of the uplinks, as a share of all
        bytes on all hosts
    POLICY.excess_ratio.receive: received bytes above the capacity of the uplinks, as a share of all
        bytes on all hosts
    POLICY.above_threshold_s: the total time on all hosts with an uplink above the threshold
    POLICY.duration_s: the total time on all hosts
    POLICY.optimality.mean: the mean ratio of the highest utilization to the lowest value that any
        placement could achieve
    POLICY.optimality.worst: the highest ratio of the highest utilization to this lowest value
    POLICY.moves: the number of VM ports and buckets that moved to another uplink
    POLICY.most_moves_per_mac_180s: the highest number of moves of one address in 180 s
""")

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
