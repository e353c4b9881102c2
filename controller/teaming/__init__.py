"""The uplink that each VM port uses now: links, bindings, and units finer than a port.

The state of a team: the uplinks that carry traffic, the binding of each unit and its reason, hash
buckets, addresses with their own uplinks, split VM ports, shares and limits. Loads are elsewhere.
It imports `api`, `dataplane`, `config` and the policies.
"""
