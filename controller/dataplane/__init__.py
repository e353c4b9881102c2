"""Our state in a switch: tables, flows, groups, frames and queues, as values.

From a `team.Team`, `pipeline.build` makes all flows and groups of a bridge: its list of features
names the modules that make them. `diff` finds the changes from the installed ones, and `openflow`
encodes them. The room imports `config` and the policies. It does not depend on bridges or loads.
"""
