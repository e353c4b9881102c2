"""Draws the layouts for the documentation, from the graphs that also define their networks.

    python -m topologies.graph.draw [LAYOUT…] [--out docs/images] [--format svg|png]

The first server is on the left, a second one on the right, and the network between them. End
systems are next to the switch of their vNICs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from topologies.graph.layout import Layout, Role
from topologies.graph.parts import STANDARD_MTU
from topologies.layouts import LAYOUTS
from topologies.network.shaping import is_shaped

# Lengths in inches.
LINE_PITCH = 0.42
GAP = 0.2
BOX_WIDTH = 1.15
VNIC_LENGTH = 1.2
UPLINK_LENGTH = 1.5
MARGIN = 0.35
HEADING = 0.75

FILLS = {
    Role.SERVER_BRIDGE: "#cfe0f5",
    Role.VIRTUAL_SWITCH: "#e3ecf9",
    Role.UPSTREAM_SWITCH: "#e2e2e2",
    Role.VM: "#fdebd3",
    Role.HOST: "#f8d9c4",
    Role.CLIENT: "#e0f0df",
}
CAPTIONS = {
    Role.SERVER_BRIDGE: "bridge with the team",
    Role.VIRTUAL_SWITCH: "virtual switch",
    Role.UPSTREAM_SWITCH: "upstream switch",
    Role.HOST: "the host's own stack",
}
UPLINK_COLOUR, LINK_COLOUR, LOADED_COLOUR = "#1f5fa8", "#9a9a9a", "#d9730d"


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a node: its centre and its height."""

    x: float
    y: float
    height: float

    def edge(self, towards_x: float) -> float:
        """The x coordinate of the side that faces `towards_x`."""
        return self.x + BOX_WIDTH / 2 * (1 if towards_x > self.x else -1)


def speed(bps: int) -> str:
    """A link's speed with its unit."""
    return f"{bps / 10**9:g} Gbit/s" if bps >= 10**9 else f"{bps / 10**6:g} Mbit/s"


def place(layout: Layout) -> dict[str, Box]:
    """The boxes of all nodes except uplinks and vNICs, which are drawn as links.

    A switch is as high as the boxes next to it, so that links are horizontal.
    """
    servers, clients = layout.nodes(Role.SERVER_BRIDGE), layout.nodes(Role.CLIENT)
    first = _switches_of(layout, servers[0])
    last = [s for s in _switches_of(layout, servers[-1]) if s not in first]
    second = [s for s in layout.nodes(Role.UPSTREAM_SWITCH) if s not in first + last]
    beside = clients if len(servers) == 1 else []
    network_span = max(_span(layout, first), _span(layout, beside) if not second else 0.0)
    boxes: dict[str, Box] = {}
    x = 0.0
    for number, server in enumerate(servers):
        columns = _side_of(layout, server)
        span = max(_span(layout, columns[0]), _team_span(layout, server), _span(layout, first))
        if number:
            if last:  # switches of its own, not those of the first server
                x += VNIC_LENGTH + BOX_WIDTH
                boxes |= _stacked(layout, last, x)
            x += UPLINK_LENGTH + BOX_WIDTH
            columns.reverse()
        for index, column in enumerate(columns):
            x += (VNIC_LENGTH + BOX_WIDTH) if index else 0.0
            is_end = _role(layout, column[0]) in (Role.VM, Role.HOST)
            boxes |= _stacked(layout, column, x) if is_end else {column[0]: Box(x, 0.0, span)}
        if number == 0 and first:
            x += UPLINK_LENGTH + BOX_WIDTH
            boxes |= _stacked(layout, first, x) if second else {first[0]: Box(x, 0.0, network_span)}
        if number == 0 and second:
            x += VNIC_LENGTH + BOX_WIDTH
            span = max(_span(layout, first), _span(layout, beside))
            boxes |= {core: Box(x, 0.0, span) for core in second}
    if beside:
        boxes |= _stacked(layout, beside, x + VNIC_LENGTH + BOX_WIDTH)
    else:  # with a server on each side, clients are above the switch
        for index, client in enumerate(clients):
            at = boxes[layout.neighbour(client, Role.UPSTREAM_SWITCH)]
            y = at.y + at.height / 2 + 2 * LINE_PITCH + index * (LINE_PITCH + GAP)
            boxes[client] = Box(at.x, y, LINE_PITCH)
    return boxes


def draw(layout: Layout, path: Path) -> None:
    """Draw a layout into a file. The suffix selects the format."""
    boxes = place(layout)
    left = min(box.x for box in boxes.values()) - BOX_WIDTH / 2 - MARGIN
    right = max(box.x for box in boxes.values()) + BOX_WIDTH / 2 + MARGIN
    low = min(box.y - box.height / 2 for box in boxes.values()) - MARGIN
    high = max(box.y + box.height / 2 for box in boxes.values()) + HEADING
    # Keep text as text, and make the file depend on the graph only.
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": layout.name}):
        figure = pyplot.figure(figsize=(right - left, high - low))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(left, right)
        axes.set_ylim(low, high)
        axes.set_axis_off()
        _links(axes, layout, boxes)
        for node, box in boxes.items():
            _box(axes, layout, node, box)
        axes.text(left + MARGIN, high - 0.3, layout.name, fontsize=13, weight="bold", va="center")
        axes.text(left + MARGIN, high - 0.55, _caption(layout), fontsize=8, va="center")
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=130, metadata=metadata)
        pyplot.close(figure)


def main(argv: Sequence[str]) -> int:
    """Draw the layouts that the arguments name, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m topologies.graph.draw",
        description="Draw the layouts for the documentation.",
    )
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT", help=" | ".join(LAYOUTS))
    parser.add_argument("--out", type=Path, default=Path("docs/images"), metavar="DIR")
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    options = parser.parse_args(argv)
    for name in options.layouts:
        if name not in LAYOUTS:
            print(f"layout: {name} -> {' | '.join(LAYOUTS)}", file=sys.stderr)
            return 2
    for name in options.layouts or LAYOUTS:
        path = options.out / f"layout_{name}.{options.format}"
        draw(LAYOUTS[name](), path)
        print(path)
    return 0


def _switches_of(layout: Layout, server: str) -> list[str]:
    """The upstream switches of a server's uplinks; none if they are cabled back to back."""
    far = {layout.far_end(uplink) for uplink in layout.uplinks_of(server)}
    return [one for one in layout.nodes(Role.UPSTREAM_SWITCH) if one in far]


def _side_of(layout: Layout, server: str) -> list[list[str]]:
    """A server's columns from the outside in: end systems, virtual switch, bridge."""
    adjacent = layout.graph.adj
    virtual = [n for n in adjacent[server] if _role(layout, n) == Role.VIRTUAL_SWITCH]
    owners = [
        owner
        for switch in (*virtual, server)
        for owner in (*layout.nodes(Role.HOST), *layout.nodes(Role.VM))
        if any(layout.switch_of(vnic) == switch for vnic in layout.vnics_of(owner))
    ]
    return [column for column in (owners, virtual, [server]) if column]


def _span(layout: Layout, column: Sequence[str]) -> float:
    """The height of a column of boxes."""
    heights = [_lines(layout, node) * LINE_PITCH for node in column]
    return sum(heights) + GAP * max(0, len(column) - 1)


def _team_span(layout: Layout, server: str) -> float:
    return max(2, len(layout.uplinks_of(server))) * LINE_PITCH


def _stacked(layout: Layout, column: Sequence[str], x: float) -> dict[str, Box]:
    """The boxes of a column, from top to bottom and centred on y = 0."""
    top, boxes = _span(layout, column) / 2, {}
    for node in column:
        height = _lines(layout, node) * LINE_PITCH
        boxes[node] = Box(x, top - height / 2, height)
        top -= height + GAP
    return boxes


def _lines(layout: Layout, node: str) -> int:
    """The minimum height of a box, as a number of links."""
    if _role(layout, node) in (Role.VM, Role.HOST):
        return len(layout.vnics_of(node))
    if _role(layout, node) == Role.CLIENT:
        return 1
    servers = len(layout.nodes(Role.SERVER_BRIDGE))
    return max(2, len(_uplinks_at(layout, node)) // servers)


def _uplinks_at(layout: Layout, switch: str) -> list[str]:
    return [node for node in layout.graph.adj[switch] if _role(layout, node) == Role.UPLINK]


def _role(layout: Layout, node: str) -> Role:
    return Role(layout.attributes(node)["role"])


def _level(box: Box, index: int, count: int) -> float:
    """The y coordinate of one of `count` links of a box."""
    return box.y + LINE_PITCH * ((count - 1) / 2 - index)


def _links(axes: Axes, layout: Layout, boxes: dict[str, Box]) -> None:
    fastest_bps = max(layout.capacity_bps(uplink) for uplink in layout.nodes(Role.UPLINK))
    for server in layout.nodes(Role.SERVER_BRIDGE):
        for uplink in layout.uplinks_of(server):
            far = layout.far_end(uplink)
            back_to_back = _role(layout, far) == Role.UPLINK
            peer = layout.neighbour(far, Role.SERVER_BRIDGE) if back_to_back else far
            if back_to_back and boxes[peer].x < boxes[server].x:
                continue  # this cable is drawn from its other end
            here = [
                u for u in layout.uplinks_of(server) if back_to_back or layout.far_end(u) == peer
            ]
            y = _level(boxes[peer], here.index(uplink), len(here))
            label = f"{uplink.rpartition('-')[2]} · {speed(layout.capacity_bps(uplink))}"
            width = 2.2 if layout.capacity_bps(uplink) == fastest_bps else 1.2
            _line(axes, boxes[server], boxes[peer], y, UPLINK_COLOUR, label, width)
    for switch, other, edge in layout.graph.edges(data=True):
        if "interfaces" in edge:
            label = speed(edge["capacity"]) if "capacity" in edge else ""
            y = min(boxes[switch], boxes[other], key=lambda box: box.height).y
            _line(axes, boxes[switch], boxes[other], y, LINK_COLOUR, label, width=2.2)
    for owner in (*layout.nodes(Role.HOST), *layout.nodes(Role.VM)):
        vnics = layout.vnics_of(owner)
        for index, vnic in enumerate(vnics):
            y, switch = _level(boxes[owner], index, len(vnics)), layout.switch_of(vnic)
            _access(axes, layout, vnic, boxes[owner], boxes[switch], y)
    for client in layout.nodes(Role.CLIENT):
        box, switch = boxes[client], layout.neighbour(client, Role.UPSTREAM_SWITCH)
        _access(axes, layout, client, box, boxes[switch], box.y)


def _access(axes: Axes, layout: Layout, nic: str, box: Box, at: Box, y: float) -> None:
    attributes = layout.attributes(nic)
    label = str(attributes["address"]).partition("/")[0]
    label += f" · VLAN {attributes['vlan']}" if "vlan" in attributes else ""
    colour = LOADED_COLOUR if attributes.get("loaded") else LINK_COLOUR
    if box.x != at.x:
        _line(axes, box, at, y, colour, label, width=1.2)
    else:
        axes.plot((box.x, box.x), (box.y, at.y), color=colour, linewidth=1.2, zorder=1)
        axes.text(box.x + BOX_WIDTH / 2 + 0.08, box.y, label, fontsize=6.5, va="center")


def _line(
    axes: Axes, box: Box, other: Box, y: float, colour: str, label: str, width: float
) -> None:
    """Draw a horizontal link with a label above its middle."""
    ends = (box.edge(other.x), other.edge(box.x))
    axes.plot(ends, (y, y), color=colour, linewidth=width, zorder=1)
    axes.text(sum(ends) / 2, y + 0.04, label, fontsize=6.5, ha="center", va="bottom")


def _box(axes: Axes, layout: Layout, node: str, box: Box) -> None:
    role = _role(layout, node)
    shape = FancyBboxPatch(
        (box.x - BOX_WIDTH / 2, box.y - box.height / 2 + 0.04),
        BOX_WIDTH,
        box.height - 0.08,
        boxstyle="round,pad=0,rounding_size=0.07",
        facecolor=FILLS[role],
        edgecolor="#555555",
        linewidth=0.8,
        zorder=2,
    )
    axes.add_patch(shape)
    caption = CAPTIONS.get(role, "") if box.height > LINE_PITCH else ""
    axes.text(
        box.x,
        box.y + (0.08 if caption else 0),
        node,
        fontsize=9,
        ha="center",
        va="center",
        zorder=3,
    )
    if caption:
        axes.text(box.x, box.y - 0.1, caption, fontsize=6, ha="center", va="center", zorder=3)


def _caption(layout: Layout) -> str:
    """The line below the title: the limit, the load, and the MTU."""
    senders = layout.senders or tuple(layout.nodes(Role.VM))
    receivers = layout.receivers or tuple(layout.nodes(Role.CLIENT))
    limit = f"limit {speed(layout.limit_bps)} (maximum flow)"
    if not all(is_shaped(layout.capacity_bps(uplink)) for uplink in layout.nodes(Role.UPLINK)):
        limit += ", uplinks not shaped"
    mtus = {
        attributes["mtu"] for _, attributes in layout.graph.nodes(data=True) if "mtu" in attributes
    }
    mtu = "" if mtus == {STANDARD_MTU} else f" · MTU {', '.join(map(str, sorted(mtus)))}"
    return f"{limit} · load (orange): {_named(senders)} → {_named(receivers)}{mtu}"


def _named(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]}…{nodes[-1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
