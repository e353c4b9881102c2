"""Draws the layouts for the documentation, from the graphs that also define their networks.

    python -m topologies.graph.draw [LAYOUT…] [--out docs/images] [--format svg|png]

Nodes are in columns by their distance from the end systems of the first server, which are on the left.
Uplinks and vNICs are drawn as links.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import networkx
from matplotlib import pyplot

from topologies.graph.layout import SWITCHES, Layout, Role
from topologies.graph.parts import STANDARD_MTU
from topologies.layouts import LAYOUTS
from topologies.network.shaping import is_shaped

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
END_SYSTEMS = (Role.VM, Role.HOST, Role.CLIENT)
UPLINK_COLOUR, LINK_COLOUR, LOADED_COLOUR = "#1f5fa8", "#9a9a9a", "#d9730d"
# Lengths in inches: between columns, between the lines of one box, and around everything.
COLUMN, LINE, MARGIN = 2.6, 0.42, 0.8


def speed(bps: int) -> str:
    """A link's speed with its unit."""
    return f"{bps / 10**9:g} Gbit/s" if bps >= 10**9 else f"{bps / 10**6:g} Mbit/s"


def links(layout: Layout) -> networkx.MultiGraph:
    """The boxes of the drawing, and the links between them, each with a label and a colour."""
    drawn = networkx.MultiGraph()
    for role in (*SWITCHES, *END_SYSTEMS):
        drawn.add_nodes_from(layout.nodes(role), role=role)
    done = set()
    for uplink in layout.nodes(Role.UPLINK):
        far, server = layout.far_end(uplink), layout.neighbour(uplink, Role.SERVER_BRIDGE)
        done.add(uplink)
        if far in done:
            continue  # this cable is drawn from its other end
        back_to_back = layout.attributes(far)["role"] == Role.UPLINK
        peer = layout.neighbour(far, Role.SERVER_BRIDGE) if back_to_back else far
        label = f"{uplink.rpartition('-')[2]} · {speed(layout.capacity_bps(uplink))}"
        drawn.add_edge(server, peer, label=label, colour=UPLINK_COLOUR)
    for switch, other, edge in layout.graph.edges(data=True):
        if "interfaces" in edge or "tunnels" in edge:
            label = speed(edge["capacity"]) if "capacity" in edge else ""
            drawn.add_edge(switch, other, label=label, colour=LINK_COLOUR)
    for nic in (*layout.nodes(Role.VNIC), *layout.nodes(Role.CLIENT)):
        found = layout.attributes(nic)
        label = layout.address(nic) + (f" · VLAN {found['vlan']}" if "vlan" in found else "")
        colour = LOADED_COLOUR if found.get("loaded") else LINK_COLOUR
        if found["role"] == Role.CLIENT:
            ends = (nic, layout.neighbour(nic, Role.UPSTREAM_SWITCH))
        else:
            (owner,) = set(layout.graph.adj[nic]) - {layout.switch_of(nic)}
            ends = (owner, layout.switch_of(nic))
        drawn.add_edge(*ends, label=label, colour=colour)
    return drawn


def place(layout: Layout) -> dict[str, tuple[float, float]]:
    """The centre of each box."""
    drawn = links(layout)
    first = layout.nodes(Role.SERVER_BRIDGE)[0]
    owners = [n for n, role in drawn.nodes(data="role") if role in END_SYSTEMS]
    behind = {n: networkx.shortest_path_length(drawn, first, n) for n in drawn}
    # Those of the first server, directly or behind its virtual switch.
    ours = [
        owner
        for owner in owners
        if any(layout.server_of(vnic) == first for vnic in layout.vnics_of(owner))
        and drawn.nodes[owner]["role"] != Role.CLIENT
    ]
    left = max((behind[owner] for owner in ours), default=0)
    columns: dict[int, list[str]] = {}
    for node in drawn:
        inside = node in ours or drawn.nodes[node]["role"] == Role.VIRTUAL_SWITCH
        mine = inside and behind[node] <= left
        columns.setdefault(left + (-behind[node] if mine else behind[node]), []).append(node)
    found = {}
    for column, nodes in columns.items():
        heights = [LINE * _lines(drawn, node) for node in nodes]
        top = sum(heights) / 2
        for node, height in zip(nodes, heights, strict=True):
            found[node] = (column * COLUMN, top - height / 2)
            top -= height
    return found


def _lines(drawn: networkx.MultiGraph, node: str) -> float:
    """The height of a box and of the space around it, as a number of links."""
    most = max((drawn.number_of_edges(node, other) for other in drawn.adj[node]), default=1)
    return most + (1.0 if drawn.nodes[node]["role"] in CAPTIONS else 0.2)


def draw(layout: Layout, path: Path) -> None:
    """Draw a layout into a file. The suffix selects the format."""
    drawn, places = links(layout), place(layout)
    width = max(x for x, _ in places.values()) + 2 * MARGIN
    height = 2 * max(abs(y) for _, y in places.values()) + 3 * MARGIN
    # Keep text as text, and make the file depend on the graph only.
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": layout.name}):
        figure = pyplot.figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(-MARGIN, width - MARGIN)
        axes.set_ylim(-height / 2, height / 2)
        axes.set_axis_off()
        for one, other, key, edge in drawn.edges(keys=True, data=True):
            ends = [places[node] for node in sorted((one, other), key=lambda n: places[n])]
            # Parallel links are above each other.
            up = LINE * ((drawn.number_of_edges(one, other) - 1) / 2 - key)
            xs, ys = [x for x, _ in ends], [y + up for _, y in ends]
            axes.plot(xs, ys, color=edge["colour"], linewidth=1.4, zorder=1)
            axes.text(
                *(sum(xs) / 2, sum(ys) / 2, edge["label"]),
                fontsize=6.5,
                ha="center",
                va="center",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0},
            )
        for node, (x, y) in places.items():
            role = drawn.nodes[node]["role"]
            text = f"{node}\n{CAPTIONS[role]}" if role in CAPTIONS else node
            # As many lines of text as the links need.
            more = "\n" * math.ceil(1.6 * (_lines(drawn, node) - 2))
            axes.text(
                *(x, y, f"{more}{text}{more}"),
                fontsize=8,
                ha="center",
                va="center",
                bbox={"boxstyle": "round", "facecolor": FILLS[role], "edgecolor": "#555555"},
            )
        title = f"{layout.name}: {_caption(layout)}"
        axes.text(-MARGIN / 2, height / 2 - 0.3, title, fontsize=9, weight="bold")
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
            print(f"layout {name} does not exist; expected {' | '.join(LAYOUTS)}", file=sys.stderr)
            return 2
    for name in options.layouts or LAYOUTS:
        path = options.out / f"layout_{name}.{options.format}"
        draw(LAYOUTS[name](), path)
        print(path)
    return 0


def _caption(layout: Layout) -> str:
    """The limit, the load, and the MTU."""
    senders = layout.senders or tuple(layout.nodes(Role.VM))
    receivers = layout.receivers or tuple(layout.nodes(Role.CLIENT))
    limit = f"limit {speed(layout.limit_bps)} (maximum flow)"
    if not all(is_shaped(layout.capacity_bps(uplink)) for uplink in layout.nodes(Role.UPLINK)):
        limit += ", uplinks not shaped"
    mtus = {mtu for _, mtu in layout.graph.nodes(data="mtu") if mtu}
    mtu = "" if mtus == {STANDARD_MTU} else f" · MTU {', '.join(map(str, sorted(mtus)))}"
    return f"{limit} · load (orange): {_named(senders)} → {_named(receivers)}{mtu}"


def _named(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]}…{nodes[-1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
