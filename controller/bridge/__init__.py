"""An attached bridge, and all of this host's: what happens to it, and what its switch shall have.

`bridge.Bridge` takes events and gives commands; beside it are what is installed on the switch,
announcements and whether inbound follows them, learned addresses, and its status; `fleet` has
all bridges. It imports `decisions`, `load`, `teaming` and what those import.
"""
