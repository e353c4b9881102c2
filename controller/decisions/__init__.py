"""Schedules the decisions of policies, and records decisions in the history.

This package runs policies when they are due, and records the loads on which each decision is based.
It imports `load`, `teaming`, and the packages below them. The policies themselves are in `policies/`.
"""
