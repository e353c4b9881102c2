"""OpenFlow: connections to bridges, the framework, and encoding and decoding of all messages.

This package converts messages from switches to events (`api`), and the engine's commands (`api`)
and changes of the pipeline (`dataplane`) to messages. It imports no package that makes decisions.
Only `framework` imports os-ken or Ryu.
"""
