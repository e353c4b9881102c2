"""What we have in a switch: tables, flows, groups, frames and queues, as values.

From a `team.Team`, `pipeline.build` makes all flows and groups of a bridge: its list of features
says which modules make them. `diff` finds the changes from what is installed, and `openflow`
encodes them. The room imports `config` and the policies, and knows no bridge and no load.
"""
