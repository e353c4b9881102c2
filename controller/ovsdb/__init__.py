"""Open vSwitch's database (OVSDB): a replica, writes, and the locks that elect a leader.

This package imports `host`, and provides rows (`config.rows`) and events (`api`).
"""
