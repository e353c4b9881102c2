"""Each attached bridge: its state, the steps that update its switch, and its status.

`bridge.Bridge` takes events and returns commands; `placing`, `installation` and `handover` are its parts.
`fleet` holds all bridges of this host. The package imports `features`, `decisions`, `load`, `teaming`
and what those import.
"""
