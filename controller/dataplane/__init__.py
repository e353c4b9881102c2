"""The OpenFlow pipeline as values: tables, flows, groups, frames and queues.

`pipeline.build` creates all flows and groups of a bridge from a `team.Team`, with the modules in its
list of features. `pipeline.changes` determines the changes from the installed flows and groups, and
`openflow` encodes them. This package imports `config` and the policies. It does not depend on bridges or loads.
"""
