"""OpenFlow: connections to bridges, the framework, and all encoding and decoding of messages.

This room turns what a switch says into events (`api`), and commands and changes (`dataplane`) into
messages. It imports those rooms and `host`, and nothing that decides. Only `framework` imports
os-ken or Ryu.
"""
