"""Compares two policies and a bond under one load, and plots their uplinks. Copy it and change it.

    .venv/bin/python -m topologies.examples.compare_two_uplinks two_uplinks.png

It needs root, and takes a minute or two. `topologies/experiment.py` describes what it uses.
"""

import sys

from matplotlib import pyplot

from topologies.experiment import Stream, compare, one_server

LAYOUT = one_server(uplinks_mbps=[20, 20], vms=4)
CONTENDERS = ["load-based", "adaptive", "balance-slb"]
# vm1 and vm3 start on the same uplink, which cannot carry both.
LOAD = [
    Stream("vm1", mbps=12),
    Stream("vm2", mbps=2),
    Stream("vm3", mbps=12, begin_s=5),
    Stream("vm4", mbps=2),
]


def main(picture: str) -> None:
    """Run the contenders one after the other, and draw a panel for each."""
    runs = compare(LAYOUT, LOAD, CONTENDERS, seconds=20, window_s=3)
    figure = pyplot.figure(figsize=(9, 3 * len(runs)), layout="constrained")
    for row, run in enumerate(runs, start=1):
        print(run)
        axes = figure.add_subplot(len(runs), 1, row, title=run, ylabel="Mbit/s", ylim=(0, 25))
        for uplink, mbps in run.uplinks_mbps.items():
            axes.plot(run.times_s, mbps, label=uplink)
        axes.vlines(run.moves_s, 0, 25, colors="grey", linestyles="dotted", label="a move")
        axes.legend(loc="lower right", ncols=3)
    axes.set_xlabel("seconds since the start of the load")
    figure.savefig(picture)


if __name__ == "__main__":
    main(sys.argv[1])
