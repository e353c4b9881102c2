"""OpenFlow: connections to bridges, the framework, and encoding and decoding of all messages.

This package converts messages from switches to events (`api`), and commands and changes
(`dataplane`) to messages. Besides these packages, it imports `host`, but no package that makes
decisions. Only `framework` imports os-ken or Ryu.
"""
