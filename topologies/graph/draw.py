"""Draws the layouts for the documentation, from the graphs that also define their networks.

    python -m topologies.graph.draw [LAYOUT…] [--out docs/images]

Nodes are in columns by their distance from the first server, with its own end systems on the left.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import networkx as nx
from matplotlib import pyplot

from topologies.graph.layout import Layout, Role
from topologies.graph.parts import STANDARD_MTU
from topologies.layouts import LAYOUTS
from topologies.network.shaping import is_shaped

FILLS = {
    Role.SERVER_BRIDGE: "#cfe0f5",
    Role.VIRTUAL_SWITCH: "#e3ecf9",
    Role.UPSTREAM_SWITCH: "#e2e2e2",
    Role.UPLINK: "#a9c8ec",
    Role.VM: "#fdebd3",
    Role.HOST: "#f8d9c4",
    Role.VNIC: "#ffffff",
    Role.CLIENT: "#e0f0df",
}
# Inches between the centres of boxes, and around them.
COLUMN, ROW, MARGIN = 1.7, 0.5, 0.9
LINK_COLOUR, LOADED_COLOUR = "#9a9a9a", "#d9730d"


def speed(bps: int) -> str:
    """A link's speed with its unit."""
    return f"{bps / 10**9:g} Gbit/s" if bps >= 10**9 else f"{bps / 10**6:g} Mbit/s"


def places(layout: Layout) -> dict[str, tuple[float, float]]:
    """The centre of each box, in inches."""
    first = layout.nodes(Role.SERVER_BRIDGE)[0]
    without_uplinks = nx.restricted_view(layout.graph, layout.uplinks_of(first), [])
    inside = nx.node_connected_component(without_uplinks, first)
    distances = nx.single_source_shortest_path_length(layout.graph, first)
    columns: dict[int, list[str]] = {}
    for node in layout.graph:
        column = -distances[node] if node in inside else distances[node]
        columns.setdefault(column, []).append(node)
    return {
        node: (COLUMN * column, ROW * ((len(nodes) - 1) / 2 - place))
        for column, nodes in columns.items()
        for place, node in enumerate(nodes)
    }


def label(layout: Layout, node: str) -> str:
    """A node's name, and its speed, its address with its VLAN, or its role if it is a switch."""
    found = layout.attributes(node)
    if found["role"] == Role.UPLINK:
        return f"{node}\n{speed(layout.capacity_bps(node))}"
    if "address" in found:
        vlan = f" · VLAN {found['vlan']}" if "vlan" in found else ""
        return f"{node}\n{layout.address(node)}{vlan}"
    return node if found["role"] in (Role.VM, Role.HOST) else f"{node}\n{found['role']}"


def draw(layout: Layout, path: Path) -> None:
    """Draw a layout into a file. The suffix selects the format."""
    at = places(layout)
    xs, ys = zip(*at.values(), strict=True)
    loaded = {*layout.loaded_vnics(), *layout.receivers}
    # Keep text as text, and make the file depend on the graph only.
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": layout.name}):
        size = (max(xs) - min(xs) + 2 * MARGIN, max(ys) - min(ys) + 2 * MARGIN)
        figure, axes = pyplot.subplots(figsize=size, layout="constrained")
        axes.set_title(f"{layout.name}: {_caption(layout)}", fontsize=9, loc="left")
        axes.set_axis_off()
        axes.margins(0.1)
        for ends in layout.graph.edges:
            colour = LOADED_COLOUR if loaded & {*ends} else LINK_COLOUR
            axes.plot(*zip(*(at[node] for node in ends), strict=True), color=colour, zorder=1)
        for node, (x, y) in at.items():
            fill = FILLS[layout.attributes(node)["role"]]
            box = {"boxstyle": "round", "facecolor": fill, "edgecolor": "#555555"}
            axes.text(x, y, label(layout, node), fontsize=7, ha="center", va="center", bbox=box)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
        pyplot.close(figure)


def main(argv: Sequence[str]) -> int:
    """Draw the layouts that the arguments name, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m topologies.graph.draw",
        description="Draw the layouts for the documentation.",
    )
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT", help=" | ".join(LAYOUTS))
    parser.add_argument("--out", type=Path, default=Path("docs/images"), metavar="DIR")
    options = parser.parse_args(argv)
    for name in options.layouts:
        if name not in LAYOUTS:
            print(f"layout {name} does not exist; expected {' | '.join(LAYOUTS)}", file=sys.stderr)
            return 2
    for name in options.layouts or LAYOUTS:
        path = options.out / f"layout_{name}.svg"
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
    return f"{limit}\nload (orange): {_named(senders)} → {_named(receivers)}{mtu}"


def _named(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]}…{nodes[-1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
