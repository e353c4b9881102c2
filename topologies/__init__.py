"""Benchmark layouts and benches.

`layouts` has the graphs of all layouts, and `bench` is the command `ovs-lbt bench`. `graph` has the parts
of layouts, `network` builds networks from them, and `loads` generates traffic; none of these imports a later
one of them, or any of the following packages. `benches` defines the scenarios and expectations of each
layout, `compare` runs the contenders, and `reports` shows the results. `seeds` generates load jumps, `scale`
measures many bridges, and `connections` many connections. `examples` has an experiment to copy.

`mn --custom` loads the layout `NAME` from `topologies/NAME.py`, and its bench is one of `topologies/benches`.
"""
