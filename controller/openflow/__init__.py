"""OpenFlow: connections to bridges, the framework, and all encoding and decoding of messages.

This room converts messages from a switch to events (`api`), and commands and changes (`dataplane`) to
messages. It imports those rooms and `host`, and nothing that decides. Only `framework` imports
os-ken or Ryu.
"""
