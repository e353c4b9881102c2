"""Benchmark layouts. Each layout is a file here that `mn --custom` can load.

`layouts` has all layouts by name, and `bench` is the command `ovs-lbt bench`. `graph` has the parts
of layouts, `network` builds them, and `loads` runs on them. `benches` says what each bench expects,
`compare` runs the contenders, and `reports` shows the results. `seeds` has generated jumps of load,
and `scale` measures many bridges. `examples` has experiments of one file each, to copy and change.

`LAYOUT_NAMES` has all layouts in the order in which `ovs-lbt bench --all` runs them. The layout
`NAME` is `topologies/NAME.py`, and its bench is `topologies/benches/NAME.py`.
"""

LAYOUT_NAMES = (
    "vmware_lbt",
    "set_vs_lbfo",
    "quad_gbe_team",
    "live_migration",
    "converged",
    "two_switches",
    "mixed_speed",
    "shift",
)
