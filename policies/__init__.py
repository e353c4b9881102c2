"""Teaming policies: pure functions from a snapshot of loads to a plan of moves.

Nothing here knows OpenFlow, a database or a clock.
"""
