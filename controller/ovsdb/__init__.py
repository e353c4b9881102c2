"""Open vSwitch's database (OVSDB): a replica, writes, and the locks that elect a leader.

This package imports `host`, and converts the database to rows (`config.rows`) and events (`api`).
"""
