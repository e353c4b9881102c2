"""What the database says of a bridge: its rows, keys, uplinks and VLANs, read into a configuration.

`keys` is the table of our keys, `values` what they make: a `BridgeConfig`. `reader` reads one from
a bridge's rows. Nothing here does I/O: `ovsdb` reads and writes the database. It imports `text` and
the policies.
"""
