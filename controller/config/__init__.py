"""Reads the configuration of bridges from database records: our keys, uplinks, VM ports and VLANs.

`keys` is the table of our keys. `reader` converts a bridge's records to a `BridgeConfig`, which `values`
defines. This package does no I/O: `ovsdb` reads and writes the database. It imports `text` and the
policies.
"""
