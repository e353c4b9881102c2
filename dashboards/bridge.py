"""The dashboard of one bridge: traffic of uplinks, the uplink of each VM port, and all moves."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import BigValueTextMode, VisibilityMode

from dashboards import frame, panels
from dashboards.frame import Section
from dashboards.panels import (
    Ask,
    Column,
    events,
    for_each,
    lines,
    matrix,
    number,
    ranking,
    rows,
    sent_and_received,
    states,
)
from dashboards.queries import (
    BY_PORT,
    BY_UPLINK,
    MOST,
    ON_BRIDGE,
    ON_PORT,
    ON_UPLINK,
    ONE_SERVICE,
    RANGE,
    REASONS,
    at_any_time,
    each_step,
    how_many,
    if_connected,
    in_bits,
    in_range,
    in_service,
    of_connected,
    of_links_up,
    quantile,
    rate_of_connected,
)
from dashboards.queries import ONE_BRIDGE as HERE

UPLINKS = HERE("uplink_info")
UP = of_connected(HERE, HERE("uplink_up"))
# The switch treats a link that is up as down while LACP, BFD or CFM receives nothing. Path checks do not
# change whether the link is up.
LOST = f"(max {BY_UPLINK} ({HERE('uplink_path_fault')}) or {ON_UPLINK} 0 * {UP})"
LINK = f"{UP} + 2 * {HERE('uplink_silent')} + {ON_UPLINK} group_left () (4 * {LOST})"


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.BRIDGE,
        "One bridge that ovs-lbt manages. The first screen shows problems, full uplinks, and the last "
        "moves with their reasons; uplinks, VM ports and all moves follow. Marks in the graphs show "
        "moves (purple), failovers (red) and failbacks (green), each with its reason.",
        frame.one_bridge(),
        frame.marks(HERE, listed="Last ten moves"),
        [
            Section("", [*_is_anything_wrong(), *_at_once()]),
            Section("Uplinks", _uplinks()),
            Section("VM ports", _vm_ports()),
            Section("Moves and failovers", _what_was_done()),
            Section("Rules", _rules(), is_collapsed=True),
            Section("Addresses", _addresses(), is_collapsed=True),
            Section("Tunnel endpoints", _endpoints(), is_collapsed=True),
            Section("Path checks", _path_faults(), is_collapsed=True),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    down = f"({ONE_SERVICE.of('up')} == 0) - 1"
    utilization = of_connected(HERE, HERE("uplink_utilization_ratio"))
    info = f"max by (policy, teaming, mode) ({HERE('bridge_info')})"
    named = f'label_join({info}, "said", ", ", "policy", "teaming", "mode")'
    # A panel that shows only names is blank if no series has a name, even with a text for no value.
    services = ONE_SERVICE.of("up")
    nothing = f"max({services}) or absent({services})"
    nothing = f'label_replace({nothing}, "said", "{panels.NOT_KNOWN}", "", "")'
    return [
        number(
            "Switch",
            "Whether the service is connected to the bridge's OpenFlow socket. If not, the bridge "
            "forwards and fails over on its own, but its load is not balanced. No answer: check that "
            "ovs-vswitchd is running. Service down: run `systemctl status ovs-lbt` on the host.",
            Ask(f"max({HERE('bridge_connected')}) or max({down})"),
            words=panels.SWITCH,
        ),
        number(
            "Uplinks down",
            "Active and standby uplinks whose link is down, or on which LACP, BFD or CFM receives nothing. "
            "Good: 0. Their VM ports use other uplinks. Check the cable, transceiver and switch port, or "
            "drain the uplink.",
            Ask(how_many(UP, 0, in_service(HERE))),
            steps=panels.NONE_IS_GOOD,
        ),
        number(
            "Busiest uplink",
            "The uplink with the highest utilization in either direction. Good: below the threshold. If "
            "its mean utilization over a whole window is above the threshold, the policy moves a VM port.",
            Ask(f"topk(1, max by (uplink) ({utilization}))", "{{uplink}}"),
            unit=panels.RATIO,
            steps=panels.UTILIZATION,
            shown=BigValueTextMode.VALUE_AND_NAME,
            width=5,
        ),
        number(
            "Configuration errors",
            "Invalid values in the database; the last valid values stay in force. Good: 0. "
            "`ovs-lbt show` lists the errors.",
            Ask(HERE("config_errors")),
            steps=panels.NONE_IS_GOOD,
            width=5,
        ),
        number(
            "Policy",
            "Policy, teaming, and mode. In mode enforce, the service makes moves; in mode observe, "
            "it only reports moves. `ovs-lbt set bridge` changes the mode.",
            Ask(f"{named} or on () {nothing}", "{{said}}"),
            unit=panels.WORDS,
            shown=BigValueTextMode.NAME,
            width=6,
        ),
    ]


def _at_once() -> list[panels.Panel]:
    def utilization(direction: str) -> str:
        return of_links_up(HERE, HERE("uplink_utilization_ratio", direction))

    alerts = (
        'ALERTS{alertname=~"OvsLbt.*", job=~"$job|", instance=~"$instance|", bridge=~"$bridge|"}'
    )
    capacity = HERE("uplink_capacity_bytes_per_second")
    threshold = f"{capacity} * {ON_BRIDGE} group_left () {HERE('bridge_threshold_ratio')}"
    limits = [
        Ask(in_bits(capacity), "capacity of {{uplink}}"),
        Ask(in_bits(threshold), "threshold of {{uplink}}"),
    ]
    changes = f"{in_range(HERE('uplink_link_changes_total'))} and {ON_UPLINK} {UPLINKS}"
    bound = HERE("port_bound_timestamp_seconds", f'reason=~"{REASONS}"')
    moved = f"last_over_time({bound}[{RANGE}]) >= $__from / 1000"
    moved = f"topk({MOST}, max by (port, uplink, reason) ({moved}))"
    return [
        rows(
            "Uplinks now",
            "The role, link and load of every uplink. Good: all active uplinks are up, and the policy "
            "relieves every uplink above the threshold. Changes: link changes in the time range. No "
            "answer: the link is up, but LACP, BFD or CFM receives nothing. Cut off: the link is up, but "
            "all path-check probes on it are lost. Lossy: only the probes of a VLAN or MTU are lost. Guess: "
            "the capacity is neither configured nor reported by the switch.",
            [
                Column("Uplink", "uplink", is_uplink=True),
                Column("Role", "role", width=80),
                Column("Link", expr=_each("max", LINK), words=panels.LINK, width=85),
                Column(
                    "Capacity", expr=in_bits(_each("max", capacity)), unit=panels.BITS, width=85
                ),
                Column(
                    "Source",
                    expr=_each("max", if_connected(HERE, HERE("uplink_capacity_guessed"))),
                    words=panels.GUESSED,
                    width=65,
                ),
                Column(
                    "Sent",
                    expr=_each("max", utilization('direction="transmit"')),
                    unit=panels.RATIO,
                    decimals=0,
                    steps=panels.UTILIZATION,
                    width=60,
                ),
                Column(
                    "Received",
                    expr=_each("max", utilization('direction="receive"')),
                    unit=panels.RATIO,
                    decimals=0,
                    steps=panels.UTILIZATION,
                    width=85,
                ),
                Column(
                    "Relief",
                    expr=_each("max", of_links_up(HERE, HERE("uplink_unrelieved"))),
                    words=panels.RELIEVED,
                    width=105,
                ),
                Column(
                    "Changes",
                    expr=_each("sum", if_connected(HERE, changes)),
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                    width=80,
                ),
            ],
            labelled=[f"max by (uplink, role) ({UPLINKS})"],
            sort=["Uplink"],
            ascending=["Uplink"],
            width=14,
            height=7,
        ),
        rows(
            "Alerts",
            "Pending and firing alerts about this bridge and its service. Good: no alerts, if "
            "Prometheus has loaded the rules. docs/runbooks.md has a runbook for each alert.",
            [
                panels.severity(alerts, "alertname, alertstate, uplink"),
                Column("Alert", "alertname"),
                Column("State", "alertstate", words=panels.STATES, width=80),
                Column("Uplink", "uplink", is_uplink=True, width=80),
            ],
            sort=["Severity", "Alert"],
            width=10,
            height=5,
        ),
        rows(
            "Last ten moves",
            "The last moves of VM ports in the time range, with time, new uplink and reason. A reason "
            "has the same colour in all panels. Repeated moves of a port for the same reason share "
            "one row. `ovs-lbt history` lists all moves, and `ovs-lbt explain PORT` has details.",
            [
                Column("When", expr=f"{moved} * 1000", unit=panels.TIME, width=170),
                Column("VM port", "port"),
                Column("To", "uplink", is_uplink=True, width=95),
                Column("Reason", "reason", words=panels.WHY, width=90),
            ],
            sort=["When"],
            width=10,
            height=12,
        ),
        lines(
            "Uplinks: sent",
            "The traffic that each uplink sends, with the uplink's capacity (dashed) and threshold "
            "(red). Good: below the threshold. An uplink at its capacity loses frames.",
            [
                Ask(
                    in_bits(rate_of_connected(HERE, "uplink_transmit_bytes_total")),
                    "{{uplink}} sent",
                ),
                *limits,
            ],
            unit=panels.BITS,
            of_uplinks=True,
            width=7,
            height=10,
        ),
        lines(
            "Uplinks: received",
            "The traffic that each uplink receives, with the uplink's capacity (dashed) and threshold (red). "
            "Good: below the threshold. After a VM port moves, its inbound traffic arrives on the new uplink.",
            [
                Ask(
                    in_bits(rate_of_connected(HERE, "uplink_receive_bytes_total")),
                    "{{uplink}} received",
                ),
                *limits,
            ],
            unit=panels.BITS,
            of_uplinks=True,
            width=7,
            height=10,
        ),
    ]


def _uplinks() -> list[panels.Panel]:
    return [
        lines(
            "Utilization",
            "Transmit (solid) and receive (dotted) utilization of each uplink over the last poll "
            "interval. Good: all lines are close together, or far below the threshold. Faint "
            "lines: the utilization that caused the last moves.",
            [
                Ask(
                    of_connected(HERE, HERE("uplink_utilization_ratio", 'direction="transmit"')),
                    "{{uplink}} {{direction}}",
                ),
                Ask(
                    of_connected(HERE, HERE("uplink_utilization_ratio", 'direction="receive"')),
                    "{{uplink}} {{direction}}",
                ),
                Ask(
                    HERE("uplink_decided_utilization_ratio"),
                    "{{uplink}} {{direction}}, last moves",
                ),
                Ask(HERE("bridge_threshold_ratio"), "threshold"),
            ],
            unit=panels.RATIO,
            of_uplinks=True,
        )
        .override_by_query("B", [panels.DOTTED, panels.WITHOUT_LEGEND])
        .override_by_query("C", [panels.FAINT, panels.WITHOUT_LEGEND]),
        states(
            "Links",
            "The state of each uplink's link over time. Good: all green. No answer: the link was "
            "up, but LACP, BFD or CFM received nothing. Cut off: the link was up, but all "
            "path-check probes on it were lost. Lossy: only the probes of a VLAN or MTU were lost. "
            "A link that changes often is flapping: check the cable and the switch port.",
            Ask(LINK, "{{uplink}}"),
            words=panels.LINK,
        ),
        lines(
            "Dropped frames",
            "Frames that the switch dropped at uplinks and VM ports, per second. Good: none. "
            "Uplink: the uplink is full. Port: the VM does not receive fast enough. Sent by a "
            "port: the VM sends more than its limit, or more than its share of a full uplink. On purpose: "
            "`ovs-lbt explain` describes the reason.",
            [
                Ask(f"{rate_of_connected(HERE, 'uplink_drops_total')} > 0", "uplink {{uplink}}"),
                Ask(f"{rate_of_connected(HERE, 'port_drops_total')} > 0", "port {{port}}"),
                Ask(
                    f"{rate_of_connected(HERE, 'port_shaped_drops_total')} > 0", "sent by {{port}}"
                ),
                Ask(
                    f"{rate_of_connected(HERE, 'port_dropped_on_purpose_total')} > 0",
                    "on purpose: {{port}}, {{reason}}",
                ),
            ],
            unit=panels.FRAMES,
            none_is_good=True,
            points=VisibilityMode.AUTO,
            width=24,
            height=6,
        ),
    ]


def _each(function: str, expr: str, of: str = "uplink") -> str:
    return f"{function} by ({of}) ({expr})"


def _without(info: str) -> str:
    """Return a query for VM ports without an uplink. The value of their label `uplink` is `none`."""
    return f'label_replace({of_connected(HERE, info)}, "uplink", "{panels.NONE}", "", "")'


def _vm_ports() -> list[panels.Panel]:
    def of_port(direction: str) -> str:
        return in_bits(rate_of_connected(HERE, f"port_{direction}_bytes_total"))

    def on_uplink(direction: str) -> str:
        bound = HERE("port_binding", 'uplink="$uplink"')
        return f"{of_port(direction)} * {ON_PORT} group_left (uplink) {bound}"

    both = (rate_of_connected(HERE, f"port_{way}_bytes_total") for way in ("transmit", "receive"))
    talk = f"({' + '.join(both)})"
    named = f"{in_bits(talk)} * {ON_PORT} group_left (vm) {HERE('port_info')}"
    # A UUID as the name of a VM does not help, and leaves no space for the port's name.
    named = f'label_replace({named}, "vm", "", "vm", "[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-.*")'
    binding, info = HERE("port_binding"), HERE("port_info")
    # Without a value for the missing port, its last value would be drawn up to the end of the graph.
    shown = f"max {BY_PORT} ({at_any_time('max', binding)})"
    unknown = f'label_replace({shown}, "uplink", "{panels.NOT_KNOWN}", "", "")'
    used = f"max by (port, uplink) ({binding} or {ON_PORT} {_without(info)} or {ON_PORT} {unknown})"
    bound = f"({binding} or {ON_PORT} {_without(info)})"
    bound = f"{bound} * {ON_PORT} group_left (vm) {info}"
    drops = f"{in_range(HERE('port_drops_total'))} and {ON_PORT} {HERE('port_info')}"
    since = f"max by (port, reason) ({HERE('port_bound_timestamp_seconds')})"
    reserved = _each("max", HERE("port_reserved_bytes_per_second"), "port")
    limit = _each("max", HERE("port_limit_bytes_per_second"), "port")
    return [
        for_each(
            "uplink",
            sent_and_received(
                "VM ports on $uplink",
                "The stacked traffic of the VM ports bound to this uplink: sent traffic above the line, "
                "received traffic (dotted) below it, with the uplink's capacity in both directions. A "
                "port that moves disappears from one graph and appears in another, in the same colour. "
                "Good: all stacks use about the same share of their uplink's capacity.",
                Ask(on_uplink("transmit"), "{{port}} sent"),
                Ask(on_uplink("receive"), "{{port}} received"),
                in_bits(HERE("uplink_capacity_bytes_per_second", 'uplink="$uplink"')),
            ),
            most=2,
        ),
        matrix(
            "Uplink of each VM port",
            "The uplink that each VM port uses over time, in the uplink's colour. Good: long bars. If the "
            "colour of a port changes often, set a longer window (`window-s`) or pin the port. Red: no uplink "
            "that the port's rules allow was up, so the VM had no network. Grey: the service was down, or the "
            "port did not exist.",
            used,
            row="port",
            value="uplink",
            width=14,
            height=10,
        ),
        ranking(
            "Top talkers",
            "The ten VM ports with the most traffic now, sent and received together. If one port "
            "fills an uplink, moves do not help; use a policy that splits the traffic of a port.",
            Ask(f"topk(10, {named})", "{{port}} {{vm}}"),
            unit=panels.BITS,
            width=10,
            height=10,
        ),
        rows(
            "VM ports now",
            "Every VM port with its VM, its uplink, the reason and time of its last move, and its traffic. If "
            "the reason is the name of a policy, this policy placed the port, and the port has not moved since. "
            "none: no allowed uplink is up, so the VM has no network. `ovs-lbt explain PORT` has details.",
            [
                Column("VM port", "port"),
                Column("VM", "vm"),
                Column("Uplink", "uplink", is_uplink=True, width=95),
                Column("Reason", "reason", words=panels.WHY, width=130),
                Column("Since", expr=f"{since} * 1000", unit=panels.TIME, width=170),
                Column(
                    "Sent",
                    expr=_each("sum", of_port("transmit"), "port"),
                    unit=panels.BITS,
                    width=85,
                ),
                Column(
                    "Received",
                    expr=_each("sum", of_port("receive"), "port"),
                    unit=panels.BITS,
                    width=85,
                ),
                Column(
                    "Shares",
                    expr=_each("max", HERE("port_shares"), "port"),
                    unit=panels.COUNT,
                    width=70,
                ),
                Column("Reserved", expr=in_bits(reserved), unit=panels.BITS, width=85),
                Column("Limit", expr=in_bits(limit), unit=panels.BITS, width=85),
                Column(
                    "Frames dropped",
                    expr=_each("sum", if_connected(HERE, drops), "port"),
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                    width=135,
                ),
            ],
            labelled=[f"max by (port, vm, uplink) ({bound})"],
            sort=["Sent"],
            height=10,
        ),
    ]


def _rules() -> list[panels.Panel]:
    broken = if_connected(HERE, HERE("rule_broken"))
    return [
        rows(
            "Rules of VM ports",
            "The operators' rules: allow and pin, affinity and anti-affinity, prefer. Good: all rules are "
            "kept. `ovs-lbt show` explains why a rule is broken. If `allow` is broken, the VM has no network.",
            [
                Column("VM port", "port"),
                Column("Rule", "rule"),
                Column("Now", expr=_each("max", broken, "port, rule"), words=panels.KEPT),
            ],
            labelled=[_each("max", HERE("rule_broken"), "port, rule")],
            sort=["Now"],
            height=7,
        ),
    ]


def _path_faults() -> list[panels.Panel]:
    parts = "uplink, kind, vlan, mtu, decided"
    return [
        rows(
            "Lost between uplinks",
            "Path-check probes lost on an uplink whose link is up. Good: no data. VLAN: 0 for untagged "
            "frames, empty for all VLANs. Decided: if false, the fault may be on another uplink, and "
            "VM ports are not moved. `ovs-lbt check` shows what to request from the network team.",
            [
                Column("Uplink", "uplink", is_uplink=True),
                Column("Lost", "kind"),
                Column("VLAN", "vlan"),
                Column("MTU", "mtu"),
                Column("Decided", "decided"),
            ],
            labelled=[_each("max", of_connected(HERE, HERE("uplink_path_fault")), parts)],
            sort=["Uplink"],
            ascending=["Uplink"],
            height=7,
        ),
        lines(
            "Probes",
            "Path-check probes and rounds per second, by result. Good: all probes arrive. Lost: if only "
            "some probes are lost, the network loses frames of all kinds. Full: lost on a full uplink, "
            "which does not prove a fault. Rounds void: the switch did not return the service's own probe.",
            [
                Ask(rate_of_connected(HERE, "path_frames_total"), "{{result}}"),
                Ask(rate_of_connected(HERE, "path_rounds_total"), "rounds {{result}}"),
            ],
            unit=panels.FRAMES,
            width=24,
            height=7,
        ),
        lines(
            "Loops, duplicates, and other programs' flows",
            "Frames per second that reach every VM port in a VLAN; broadcasts per second that arrive twice "
            "because the LAG's members are separate ports on the upstream switch; and the number of other "
            "programs' flows that take precedence over ovs-lbt's flows. Good: few frames, no repeated "
            "broadcasts, and no such flows. Above 1000 frames per second, `ovs-lbt check` reports a loop.",
            [
                Ask(HERE("bridge_flooded_packets_per_second"), "frames to every VM port"),
                Ask(HERE("bridge_repeated_packets_per_second"), "broadcasts that arrive twice"),
                Ask(HERE("bridge_overruling_flows"), "other programs' flows"),
            ],
            unit=panels.COUNT,
            width=24,
            height=7,
        ),
    ]


def _addresses() -> list[panels.Panel]:
    return [
        lines(
            "Addresses behind VM ports",
            "The number of addresses behind each VM port that have their own uplink "
            "(`unit=source-mac`). Good: the number of addresses that exist. At most 256 addresses "
            "of a port have their own uplink; all other addresses use the port's home uplink.",
            [Ask(HERE("port_units"), "{{port}}")],
            unit=panels.COUNT,
            of_ports=True,
        ),
        lines(
            "Addresses by uplink",
            "The number of addresses with their own uplink (`unit=source-mac`), by uplink. Good: "
            "every uplink has addresses. `ovs-lbt show` lists the addresses of each VM port.",
            [Ask(HERE("uplink_units"), "{{uplink}}")],
            unit=panels.COUNT,
            of_uplinks=True,
        ),
    ]


def _endpoints() -> list[panels.Panel]:
    def load(direction: str) -> str:
        return in_bits(of_connected(HERE, HERE(f"endpoint_{direction}_bytes_per_second")))

    info = HERE("endpoint_info")
    bound = f"({HERE('port_bound_timestamp_seconds')} or {ON_PORT} {_without(HERE('port_info'))})"
    bound = f"{bound} * {ON_PORT} group_left (address, kind, of) {info}"
    return [
        rows(
            "Tunnel endpoints",
            "The ports that carry an overlay's tunnels (OVN, OpenStack, Kubernetes), and thus the traffic "
            "of all VMs behind them. Good: several endpoints with about the same load, or split endpoints. "
            "`ovs-lbt plan --endpoints` shows which VM should use which endpoint.",
            [
                Column("Port", "port"),
                Column("Address", "address"),
                Column("Tunnels", "kind", width=120),
                Column("Of", "of", width=130),
                Column("Uplink", "uplink", is_uplink=True, width=95),
                Column("Reason", "reason", words=panels.WHY, width=130),
                Column(
                    "Sent", expr=_each("max", load("transmit"), "port"), unit=panels.BITS, width=85
                ),
                Column(
                    "Received",
                    expr=_each("max", load("receive"), "port"),
                    unit=panels.BITS,
                    width=85,
                ),
            ],
            labelled=[f"max by (port, address, kind, of, uplink, reason) ({bound})"],
            sort=["Sent"],
            height=11,
        ),
        lines(
            "Tunnel endpoints: sent",
            "The traffic that each endpoint sends over uplinks, with tunnel headers, according to the "
            "switch's flow counters. Good: all endpoints send about the same.",
            [Ask(load("transmit"), "{{port}} sent")],
            unit=panels.BITS,
            of_ports=True,
        ),
        lines(
            "Tunnel endpoints: received",
            "The traffic that each endpoint receives over uplinks, with tunnel headers, according to the "
            "switch's flow counters. Good: all endpoints receive about the same.",
            [Ask(load("receive"), "{{port}} received")],
            unit=panels.BITS,
            of_ports=True,
        ),
    ]


def _what_was_done() -> list[panels.Panel]:
    service = ONE_SERVICE("build_info")

    def in_all(counter: str) -> str:
        return f"sum({each_step(HERE(counter), service)})"

    moves = each_step(HERE("moves_applied_total"), service)
    return [
        events(
            "Moves by reason",
            "Moves that the switch has applied, coloured by reason. Good: few moves, and fewer "
            "after the load has been spread.",
            [Ask(f"sum by (reason) ({moves}) > 0", "{{reason}}")],
            by_reason=True,
            width=8,
        ),
        events(
            "Failovers",
            "VM ports that moved because their uplink failed. Good: none, or one burst when a link "
            "went down.",
            [Ask(in_all("failovers_total"), "failover")],
            by_reason=True,
            width=8,
        ),
        events(
            "Inbound traffic that did not follow moves",
            "Announcements that were repeated because inbound traffic still arrived on the old "
            "uplink, and moves after which inbound traffic never arrived on the new uplink. Good: "
            "none. `ovs-lbt history` lists the moves, and the service's log names the VM ports.",
            [
                Ask(in_all("inbound_reannounced_total"), "announced again"),
                Ask(in_all("inbound_not_followed_total"), "never followed"),
            ],
            width=8,
        ),
        lines(
            "Inbound follows after",
            "The 90th percentile of the time from a move until inbound traffic arrives on the new uplink. "
            "The switch updates its counters twice a second. Good: at most 1.5 s. A higher value means that "
            "the upstream switch is slow to learn addresses.",
            # Without events, the quantile is not a number, and the graph would be empty with a legend.
            [
                Ask(
                    f"{quantile(0.9, HERE('inbound_follow_seconds_bucket'), 'bridge')} >= 0",
                    "{{bridge}}",
                )
            ],
            unit=panels.SECONDS,
            points=VisibilityMode.ALWAYS,
        ),
        lines(
            "Move budgets used up",
            "VM ports and other units currently exempt from load balancing, because they have moved "
            "four times in 3 minutes. Good: 0. `ovs-lbt explain PORT` shows when a unit can move "
            "again. If the load of a VM port keeps jumping, split or pin the port.",
            [Ask(HERE("move_budget_exhausted"), "{{bridge}}")],
            unit=panels.COUNT,
            none_is_good=True,
        ),
    ]
