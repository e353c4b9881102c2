"""Determines the current uplinks of VM ports, and of units that are smaller than a VM port.

Keeps the state of a team: the uplinks that carry traffic, the binding of each unit and its reason,
hash buckets, addresses with their own uplinks, split VM ports and path checks. Loads are in `load`.
The package imports `api`, `dataplane`, `config` and the policies.
"""
