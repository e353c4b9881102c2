"""What the database says of a bridge: its rows, keys, uplinks and VLANs, read into a configuration.

Here are the `ovs-lbt-` keys with their bounds and defaults. Values only: `ovsdb` reads and writes
the database. It imports `text` and the policies.
"""
