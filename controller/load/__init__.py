"""Measures the loads of uplinks and VM ports: counters, rates, and the snapshot for policies.

This package schedules polls, turns counters into rates and peaks, and detects uplinks that fill up.
The module `team_view` makes the `Snapshot`. The package imports `teaming` and packages below it.
"""
