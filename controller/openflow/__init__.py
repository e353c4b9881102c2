"""OpenFlow: connections to bridges, the framework, and all encoding and decoding of messages.

This package converts messages from switches to events (`api`), and commands and changes (`dataplane`)
to messages. It imports those packages and `host`, and no package that makes decisions. Only `framework`
imports os-ken or Ryu.
"""
