"""Measures the loads of uplinks and VM ports: counters, rates, and the snapshot for policies.

This room schedules polls, turns counters into rates and peaks, and notices uplinks that fill up.
`team_view` makes the `Snapshot` for policies. The room imports `teaming` and the rooms below it.
"""
