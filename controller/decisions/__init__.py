"""Schedules the decisions of policies, makes plans, and records decisions in the history.

This package runs policies when they are due, makes plans for `plan` and `explain`, records the
loads on which each decision is based, and measures how long a bridge takes to converge. It imports
`load`, `teaming`, and the packages below them. The policies themselves are in `policies/`.
"""
