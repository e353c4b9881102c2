"""Schedules the decisions of policies, makes plans, and records decisions in the history.

This room runs policies when they are due, makes plans for `plan` and `explain`, keeps the figures
behind each decision, and measures how long a bridge takes to converge. The policies themselves are
in `policies/`. This room imports `load`, `teaming`, and the rooms below them.
"""
