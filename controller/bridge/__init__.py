"""Each attached bridge: its events, its state, and the flows that its switch should have.

`bridge.Bridge` takes events and returns commands. Other modules keep what is installed on the
switch, plan announcements, check whether inbound traffic follows them, remember learned addresses,
and make the status. `fleet` holds all bridges of this host. The package imports `decisions`,
`load`, `teaming` and what those import.
"""
