"""The configuration of bridges: rows of the database, our keys, uplinks and VLANs.

`keys` is the table of our keys, `values` has the result: a `BridgeConfig`. `reader` makes one from
a bridge's rows. Nothing here does I/O: `ovsdb` reads and writes the database. This room imports
`text` and the policies.
"""
