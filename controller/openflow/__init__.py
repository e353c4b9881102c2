"""OpenFlow: connections to bridges, the framework, and the only encoder and decoder of messages.

What the switch says becomes events (`api`); specs and changes (`dataplane`) become messages. It
imports `host` and these, and nothing that decides. `framework` alone imports os-ken or Ryu.
"""
