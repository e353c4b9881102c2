"""OpenFlow: connections to bridges, the framework, and encoding and decoding of all messages.

This package converts messages from switches to events (`api`), and commands and changes (`dataplane`)
to messages. The package imports those packages and `host`, and none that makes decisions. Only
`framework` imports os-ken or Ryu.
"""
