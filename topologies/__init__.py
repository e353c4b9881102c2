"""Benchmark layouts: each is one file here, which `mn --custom` takes as it is.

`layouts` has all of them by name, and `bench` is `ovs-lbt bench`. What layouts consist of is in `graph`,
how they are built in `network`, what runs on them in `loads`; `benches` says what must come out,
`compare` runs it, `reports` shows it. `seeds` has jumps of load by number, `scale` many bridges.
"""
