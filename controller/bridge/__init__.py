"""Manages attached bridges: their state, the updates of their switches, and their status.

`bridge.Bridge` handles events and returns commands; `placing`, `installation` and `handover` are its parts.
`fleet` manages all bridges of this host. The package imports `features`, `decisions`, `load`, `teaming`
and the packages below these.
"""
