"""The OpenFlow pipeline as values: tables, flows, groups, frames and queues.

`pipeline.build` creates all flows and groups of a bridge from a `team.Team`, with one module for each
feature. `pipeline.changes` compares them with the installed flows and groups, and `openflow` encodes the
changes. This package imports `config` and the policies, and does not depend on bridges or loads.
"""
