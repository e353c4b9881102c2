"""When policies decide, what they want moved, and what is told of it.

Decisions as they are due, plans for `plan` and `explain`, the figures they were made by, how long
they take to come to rest. Policies themselves are in `policies/`. It imports `load`, `teaming`
and what those import.
"""
