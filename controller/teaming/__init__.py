"""Which uplink each VM port uses now: links, bindings, and units finer than a port.

The state of a team: which uplinks carry traffic, where each unit is bound and why, buckets of
hashes, addresses with uplinks of their own, split VM ports, shares and limits. It knows no loads.
It imports `api`, `dataplane`, `config` and the policies.
"""
