"""Measures the loads of uplinks and VM ports: counters, rates, and the snapshot for policies.

This package schedules polls, turns counters into rates and peaks, and detects uplinks that fill up.
`team_view` makes the `Snapshot` for policies. It imports `teaming` and the packages below it.
"""
