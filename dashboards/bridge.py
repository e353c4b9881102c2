"""One bridge: its uplinks in both directions, who is bound where, and every move."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards import frame, panels
from dashboards.frame import Section
from dashboards.panels import (
    Ask,
    Column,
    events,
    lines,
    matrix,
    number,
    ranking,
    rows,
    sent_and_received,
    states,
)
from dashboards.queries import (
    ON_BRIDGE,
    ON_PORT,
    RANGE,
    in_bits,
    increase,
    quantile,
    rate,
    whole,
)
from dashboards.queries import ONE_BRIDGE as HERE


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.BRIDGE,
        "Uplinks against capacity and threshold, VM ports by uplink, who is bound where, and every "
        "move of one bridge that ovs-lbt runs. Marks in the graphs are moves (purple) and failovers "
        "(red), with their reason.",
        frame.one_bridge(),
        frame.marks(HERE),
        [
            Section("", _is_anything_wrong()),
            Section("Uplinks", _uplinks()),
            Section("VM ports", _vm_ports()),
            Section("What was done", _what_was_done()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    return [
        number(
            "Switch",
            "Whether the service is connected to the bridge's OpenFlow socket. Without it the bridge "
            "forwards and fails over on its own, but nothing is balanced: see that ovs-vswitchd "
            "runs.",
            Ask(HERE("bridge_connected")),
            steps=panels.ONE_IS_GOOD,
            words=panels.CONNECTED,
            width=3,
        ),
        number(
            "Policy",
            "How the bridge is teamed: policy, teaming mode, and whether the service acts (enforce) "
            "or only tells what it would do (observe). `ovs-lbt set bridge` changes it.",
            Ask(HERE("bridge_info"), "{{policy}}, {{teaming}}, {{mode}}"),
            unit=panels.TEXT,
            width=5,
        ),
        number(
            "Busiest uplink",
            "The highest share of its capacity that any uplink sends or receives. Good: below the "
            "threshold. Above it for a whole window, the policy moves a VM port.",
            Ask(f"max({HERE('uplink_utilization_ratio')})"),
            unit=panels.RATIO,
            steps=panels.UTILIZATION,
            width=3,
        ),
        number(
            "Unrelieved uplinks",
            "Uplinks above the threshold for which the policy has no move that helps. Good: 0. "
            "`ovs-lbt explain PORT` of the top talker says why, and what would have to change.",
            Ask(f"sum({HERE('uplink_unrelieved')})"),
            steps=panels.NONE_IS_GOOD,
            width=3,
        ),
        number(
            "Imbalance",
            "Utilization of the busiest uplink less that of the least busy one. High is fine while "
            "no uplink is busy.",
            Ask(HERE("bridge_imbalance_ratio")),
            unit=panels.RATIO,
            steps=panels.IMBALANCE,
            width=3,
        ),
        number(
            "Optimality",
            "Utilization of the worst uplink over the least that any placement could reach. Good: "
            "near 1, which is also its value at rest. `ovs-lbt plan` shows moves that would help.",
            Ask(HERE("bridge_optimality_ratio")),
            steps=panels.OPTIMALITY,
            decimals=2,
            width=3,
        ),
        number(
            "Moves",
            "Moves that the switch has carried out in the time shown. `ovs-lbt history` tells each.",
            Ask(whole(increase(HERE("moves_applied_total"), RANGE))),
            steps=panels.DONE,
            width=2,
        ),
        number(
            "Configuration errors",
            "Values in the database that were not taken; the last good ones stay in force. Good: 0. "
            "`ovs-lbt show` names them.",
            Ask(HERE("config_errors")),
            steps=panels.NONE_IS_GOOD,
            width=2,
        ),
    ]


def _uplinks() -> list[panels.Panel]:
    capacity = HERE("uplink_capacity_bytes_per_second")
    threshold = f"{capacity} * {ON_BRIDGE} group_left () {HERE('bridge_threshold_ratio')}"
    limits = [
        Ask(in_bits(capacity), "capacity of {{uplink}}"),
        Ask(in_bits(threshold), "threshold of {{uplink}}"),
    ]
    drops = HERE("uplink_drops_total")
    return [
        lines(
            "Uplinks: sent",
            "What each uplink sends, against its capacity and the share of it that the policy acts "
            "on. Good: below the threshold. A line at its capacity loses frames.",
            [Ask(in_bits(rate(HERE("uplink_transmit_bytes_total"))), "{{uplink}}"), *limits],
            unit=panels.BITS,
            height=9,
        ),
        lines(
            "Uplinks: received",
            "What each uplink receives, against its capacity and the share of it that the policy "
            "acts on. Good: below the threshold. Inbound traffic follows a VM's move by itself.",
            [Ask(in_bits(rate(HERE("uplink_receive_bytes_total"))), "{{uplink}}"), *limits],
            unit=panels.BITS,
            height=9,
        ),
        lines(
            "Utilization",
            "Share of its capacity that each uplink sends and receives, as the policy sees it: over "
            "the last poll interval. Good: lines close to each other, or all far below the "
            "threshold.",
            [
                Ask(HERE("uplink_utilization_ratio"), "{{uplink}} {{direction}}"),
                Ask(
                    HERE("uplink_decided_utilization_ratio"),
                    "{{uplink}} {{direction}}, last moves",
                ),
                Ask(HERE("bridge_threshold_ratio"), "threshold"),
            ],
            unit=panels.RATIO,
        ),
        states(
            "Links",
            "When each uplink's link was up. Good: no red. Many short changes are a flapping link: "
            "its cable or the switch's port.",
            Ask(HERE("uplink_up"), "{{uplink}}"),
            words=panels.UP_OR_DOWN,
        ),
        rows(
            "Uplinks now",
            "Every uplink: what it is for, its link, what it carries. Good: all active ones up, and "
            "none unrelieved. Link changes and dropped frames are those of the time shown.",
            [
                Column("Uplink", "uplink"),
                Column("Role", "role"),
                Column("Link", expr=_each("min", HERE("uplink_up")), words=panels.UP_OR_DOWN),
                Column("Answer", expr=_each("max", HERE("uplink_silent")), words=panels.ANSWERS),
                Column("Capacity", expr=in_bits(_each("max", capacity)), unit=panels.BITS),
                Column(
                    "Sent",
                    expr=_each("max", HERE("uplink_utilization_ratio", 'direction="transmit"')),
                    unit=panels.RATIO,
                    steps=panels.UTILIZATION,
                ),
                Column(
                    "Received",
                    expr=_each("max", HERE("uplink_utilization_ratio", 'direction="receive"')),
                    unit=panels.RATIO,
                    steps=panels.UTILIZATION,
                ),
                Column(
                    "Relief",
                    expr=_each("max", HERE("uplink_unrelieved")),
                    words=panels.RELIEVED,
                ),
                Column(
                    "Link changes",
                    expr=f"round({_each('sum', increase(HERE('uplink_link_changes_total'), RANGE))})",
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                ),
                Column(
                    "Frames dropped",
                    expr=f"round({_each('sum', increase(drops, RANGE))})",
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                ),
            ],
            labelled=[f"max by (uplink, role) ({HERE('uplink_info')})"],
            sort="Uplink",
            descending=False,
            height=7,
        ),
    ]


def _each(function: str, expr: str, of: str = "uplink") -> str:
    return f"{function} by ({of}) ({expr})"


def _vm_ports() -> list[panels.Panel]:
    def of_port(direction: str) -> str:
        return in_bits(rate(HERE(f"port_{direction}_bytes_total")))

    def on_uplink(direction: str) -> str:
        bound = HERE("port_binding", 'uplink="$uplink"')
        return f"{of_port(direction)} * {ON_PORT} group_left (uplink) {bound}"

    talk = f"({rate(HERE('port_transmit_bytes_total'))} + {rate(HERE('port_receive_bytes_total'))})"
    named = f"{in_bits(talk)} * {ON_PORT} group_left (vm) {HERE('port_info')}"
    bound = f"{HERE('port_binding')} * {ON_PORT} group_left (vm) {HERE('port_info')}"
    since = f"max by (port, reason) ({HERE('port_bound_timestamp_seconds')})"
    reserved = _each("max", HERE("port_reserved_bytes_per_second"), "port")
    limit = _each("max", HERE("port_limit_bytes_per_second"), "port")
    return [
        sent_and_received(
            "VM ports on $uplink",
            "Traffic of the VM ports bound to this uplink, stacked: sent above the line, received "
            "below it. A port that moves leaves one picture and enters another. Good: stacks of "
            "about the same height, as shares of capacity.",
            Ask(on_uplink("transmit"), "{{port}} sent"),
            Ask(on_uplink("receive"), "{{port}} received"),
        )
        .repeat("uplink")
        .repeat_direction("h")
        .span(24),
        matrix(
            "Who is bound where",
            "The uplink each VM port uses over time. Good: long bars. A port whose colour changes "
            "all the time goes to and fro: a longer window (`window-s`) or a pin calms it.",
            f"max by (port, uplink) ({HERE('port_binding')})",
            row="port",
            value="uplink",
            width=14,
            height=10,
        ),
        ranking(
            "Top talkers",
            "The ten VM ports with most traffic now, sent and received together. One that fills an "
            "uplink by itself cannot be helped by moves: give it a policy that splits it.",
            Ask(f"topk(10, {named})", "{{port}} {{vm}}"),
            unit=panels.BITS,
            width=10,
            height=10,
        ),
        rows(
            "VM ports now",
            "Every VM port: the VM behind it, its uplink, since when and why it is there, and what it "
            "carries. Where the reason is a policy's name, that policy placed it first. `ovs-lbt "
            "explain PORT` tells the whole story.",
            [
                Column("Port", "port"),
                Column("VM", "vm"),
                Column("Uplink", "uplink"),
                Column("Reason", "reason"),
                Column("Since", expr=f"{since} * 1000", unit=panels.TIME),
                Column("Sent", expr=_each("sum", of_port("transmit"), "port"), unit=panels.BITS),
                Column("Received", expr=_each("sum", of_port("receive"), "port"), unit=panels.BITS),
                Column("Shares", expr=_each("max", HERE("port_shares"), "port"), unit=panels.COUNT),
                Column("Reserved", expr=in_bits(reserved), unit=panels.BITS),
                Column("Limit", expr=in_bits(limit), unit=panels.BITS),
                Column(
                    "Frames dropped",
                    expr=f"round({_each('sum', increase(HERE('port_drops_total'), RANGE), 'port')})",
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                ),
            ],
            labelled=[f"max by (port, vm, uplink) ({bound})"],
            sort="Sent",
            height=10,
        ),
        rows(
            "Rules of VM ports",
            "What operators ask of VM ports: allow and pin, affinity and anti-affinity, prefer. Good: "
            "all kept. `ovs-lbt show` says what is wrong with a broken one; an `allow` that is broken "
            "means a VM without the network.",
            [
                Column("Port", "port"),
                Column("Rule", "rule"),
                Column(
                    "Now", expr=_each("max", HERE("rule_broken"), "port, rule"), words=panels.KEPT
                ),
            ],
            sort="Now",
            height=7,
        ),
        lines(
            "Addresses behind VM ports",
            "VM ports with `unit=source-mac` are split into the addresses behind them, each with an "
            "uplink of its own. Good: every uplink has some. 256 behind one port are as many as are "
            "told apart; those beyond leave by the port's home.",
            [
                Ask(HERE("port_units"), "behind {{port}}"),
                Ask(HERE("uplink_units"), "by {{uplink}}"),
            ],
            unit=panels.COUNT,
            width=24,
        ),
    ]


def _what_was_done() -> list[panels.Panel]:
    def in_all(counter: str) -> str:
        return f"sum({increase(HERE(counter))})"

    return [
        events(
            "Moves by reason",
            "Moves that the switch has carried out. Good: few, and fewer once the load is spread. "
            "Prometheus extrapolates increases, so heights are near whole numbers.",
            [Ask(f"sum by (reason) ({increase(HERE('moves_applied_total'))}) > 0", "{{reason}}")],
            width=8,
        ),
        events(
            "Failovers",
            "VM ports that changed uplink because theirs went down. Good: none, or one burst when "
            "that happened.",
            [Ask(in_all("failovers_total"), "failovers")],
            width=8,
        ),
        lines(
            "Dropped frames",
            "Frames that the switch dropped at uplinks and VM ports, per second. Good: none. At an "
            "uplink: it is full. At a VM port: the VM does not take them fast enough. Sent by a VM: "
            "it has used up its limit, or its part of a full uplink.",
            [
                Ask(rate(HERE("uplink_drops_total")), "uplink {{uplink}}"),
                Ask(rate(HERE("port_drops_total")), "port {{port}}"),
                Ask(rate(HERE("port_shaped_drops_total")), "sent by {{port}}"),
            ],
            unit=panels.FRAMES,
            width=8,
        ),
        lines(
            "Inbound follows after",
            "From a move until what comes for the VM port was seen by its new uplink, nine times of "
            "ten: the switch counts twice a second. Good: at most 1.5 s. More: a switch upstream "
            "learns late.",
            [Ask(quantile(0.9, HERE("inbound_follow_seconds_bucket"), "bridge"), "{{bridge}}")],
            unit=panels.SECONDS,
            width=8,
        ),
        events(
            "Inbound that does not follow",
            "VM ports that were announced again, as inbound still came by their old uplink, and those "
            "given up. Good: none. `ovs-lbt history` tells the moves, the service's log the VM ports.",
            [
                Ask(in_all("inbound_reannounced_total"), "announced again"),
                Ask(in_all("inbound_not_followed_total"), "in vain"),
            ],
            width=8,
        ),
        lines(
            "Move budgets used up",
            "VM ports and other units that load does not move now, as they have moved four times in 3 "
            "minutes. Good: 0. `ovs-lbt explain PORT` says until when; a load that jumps all the time "
            "is better split or pinned.",
            [Ask(HERE("move_budget_exhausted"), "{{bridge}}")],
            unit=panels.COUNT,
            width=8,
        ),
    ]
