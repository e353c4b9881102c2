"""Teaming policies: pure functions from a snapshot of loads to a plan of moves.

This package does not depend on OpenFlow, a database or a clock.
"""
