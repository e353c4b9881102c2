"""The bench of `quad_gbe_team`: streams between two servers, which start one by one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from topologies import layouts
from topologies.compare.expectation import Expectation, against_peers, at_least, within
from topologies.compare.figures import Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout, Role
from topologies.graph.ports import joining_interface, own_interface
from topologies.loads.load import Load, Stage
from topologies.loads.stream_load import Report, StreamLoad
from topologies.loads.streams import INTERVAL_S, flow, ports, stream_rates_bps
from topologies.network.private_ovs import PrivateOvs

CONTENDERS = (
    "manual",
    "adaptive/lacp",
    "dynamic/lacp",
    "address-hash",
    "ip-hash",
    "active-backup",
    "balance-tcp",
)
STREAMS = 10
# The contenders for which the switch can trace the uplink of each stream.
PREDICTABLE = ("address-hash",)
# The datapath action of a bond that hashes.
HASHED_LATER = "recirc("
ONE_STREAM_SHARE = (0.88, 0.97)
LEAST_TEN_STREAMS_SHARE = 0.85
MOST_DEVIATION_RATIO = 0.05
WHERE = {
    0: "from team to team",
    1: "with a virtual switch at the sender",
    2: "with a virtual switch on both sides",
}


def scenarios(options: Options) -> list[Scenario]:
    """Scenarios without virtual switches, with one at the sender, and with one on both sides."""
    found = []
    for count, where in WHERE.items():
        layout = layouts.quad_gbe_team(virtual_switches=count)
        found.append(
            Scenario(
                name=where,
                what=f"TCP streams {where}, added one by one up to {STREAMS}.",
                layout=layout,
                load=lambda stage: _load(stage, options),
                contenders=CONTENDERS,
                published=_published(layout) if count < 2 else {},
            )
        )
    return found


def _load(stage: Stage, options: Options) -> Load:
    """Streams that start one step apart, and time for the team to settle with all of them."""
    layout = stage.layout
    (sender,), (receiver,) = layout.senders, layout.receivers
    step_s, settle_s, measured_s = options.pace.steps_s
    end_s = STREAMS * step_s + settle_s + measured_s
    flows = [
        flow(layout, sender, receiver, end_s - begin_s, begin_s=begin_s)
        for begin_s in (number * step_s for number in range(STREAMS))
    ]

    def derive(reports: Sequence[Report], ten_bps: float) -> Mapping[str, float]:
        link_bps, links = _links(layout)
        # In the first half of a step, the new stream reaches its rate.
        first_bps = stream_rates_bps(reports[0], 1, step_s / 2, step_s)[0]
        figures = {
            "one_stream_share": first_bps / link_bps,
            "ten_streams_share": ten_bps / (links * link_bps),
            "ten_streams_ratio": ten_bps / (links * first_bps),
        }
        used = _members_used(stage, reports)
        if used is not None:
            figures["members_hashed"] = used
            figures["predicted_share"] = used / links * first_bps / link_bps
        return figures

    # The last interval of a report is left out, because it may be shorter.
    return _TracedLoad(stage, flows, (end_s - measured_s, end_s - INTERVAL_S), derive=derive)


class _TracedLoad(StreamLoad):
    """Streams whose members ofproto/trace predicts, which it cannot with dp_hash."""

    def start(self) -> None:
        _, bridge = _sending(self._stage)
        key = "external_ids:ovs-lbt-connection-hash"
        self._stage.ovs.vsctl("set", "bridge", bridge, f"{key}=multipath")
        super().start()


def _links(layout: Layout) -> tuple[int, int]:
    """The speed and the number of the cables."""
    uplinks = layout.uplinks_of(layout.nodes(Role.SERVER_BRIDGE)[0])
    return layout.capacity_bps(uplinks[0]), len(uplinks)


def _sending(stage: Stage) -> tuple[str, str]:
    """The network card of the only sender, and the bridge of its server."""
    (sender,) = stage.layout.senders
    (vnic,) = stage.layout.vnics_of(sender)
    (bridge, *_) = stage.bridges[stage.layout.server_of(vnic)]
    return vnic, bridge


def _members_used(stage: Stage, reports: Sequence[Report]) -> int | None:
    """The number of members that the streams use, as traced by the sending server's switch.

    None for an Open vSwitch bond, because it hashes in the datapath, which a trace does not resolve.
    """
    layout = stage.layout
    (sender,), (receiver,) = layout.senders, layout.receivers
    vnic, bridge = _sending(stage)
    server, switch = layout.server_of(vnic), layout.switch_of(vnic)
    port = own_interface(layout, stage.prefix, vnic)
    if switch != server:
        port = joining_interface(layout, stage.prefix, server, switch)
    macs = [stage.mac_of(name) for name in (sender, receiver)]
    addresses = [layout.addresses_of(name)[0] for name in (sender, receiver)]
    actions = set()
    for report in reports:
        for source_port, destination_port in ports(report):
            actions.add(
                datapath_actions(
                    stage.ovs,
                    bridge,
                    f"in_port={port},tcp,dl_src={macs[0]},dl_dst={macs[1]},"
                    f"nw_src={addresses[0]},nw_dst={addresses[1]},"
                    f"tp_src={source_port},tp_dst={destination_port}",
                )
            )
    return None if any(HASHED_LATER in one for one in actions) else len(actions)


def _published(layout: Layout) -> dict[str, dict[str, float]]:
    document = layout.published
    figures = {
        "one_stream_share": document["one_stream_share"],
        "ten_streams_ratio": document["ten_streams_share"],
        "ten_streams_share": document["one_stream_share"] * document["ten_streams_share"],
    }
    return dict.fromkeys(("address-hash", "balance-tcp"), figures)


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """One stream fills one link, and ten fill the team as far as their hash allows."""
    found = []
    for result in results:
        where, contenders = result.scenario.name, result.medians()
        main = result.scenario.name == WHERE[0]
        for name, one in contenders.items() if main else ():
            condition = f"{where}: {name}: one stream's share of a link"
            found.append(within(condition, one["one_stream_share"], *ONE_STREAM_SHARE))
        if main and "dynamic/lacp" in contenders:
            condition = f"{where}: dynamic/lacp: ten streams' share of all links"
            share = contenders["dynamic/lacp"]["ten_streams_share"]
            found.append(at_least(condition, share, LEAST_TEN_STREAMS_SHARE))
        for name in PREDICTABLE:
            if name in contenders and main:
                found += _as_hashed(result, name)
        found += against_peers(where, contenders)
    return found


def _as_hashed(result: Result, name: str) -> list[Expectation]:
    """Expect ten streams to get what the hash of their ports allows, in the median of runs."""
    median = statistics.median(
        one["ten_streams_share"] / one["predicted_share"] for one in result.figures[name]
    )
    condition = f"{result.scenario.name}: {name}: ten streams over what their ports' hash allows"
    return [within(condition, median, 1 - MOST_DEVIATION_RATIO, 1 + MOST_DEVIATION_RATIO)]


PLAN = Plan(scenarios, expectations, campaign_runs=5)


_ACTIONS = re.compile(r"^Datapath actions: (?P<actions>.*)$", re.MULTILINE)


def datapath_actions(ovs: PrivateOvs, bridge: str, flow: str) -> str:
    """The datapath actions of a frame, from `ofproto/trace`.

    Raises:
        RuntimeError: the switch cannot parse the flow.
    """
    output = ovs.run("ovs-appctl", "ofproto/trace", bridge, flow)
    found = _ACTIONS.search(output)
    if not found:
        raise RuntimeError(
            f"ofproto/trace {bridge} {flow} printed no datapath actions: {output[-200:]!r}"
        )
    return found["actions"]
