"""What we have in a switch: tables, flows, groups, frames and queues, as values.

From a `team.Team`, `pipeline.build` makes all flows and groups of a bridge, and `reconcile` finds
the changes from what is installed. `openflow` encodes them. It imports `config` and the policies,
and knows no bridge and no load.
"""
