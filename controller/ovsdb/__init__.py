"""Open vSwitch's database (OVSDB): a replica, writes, and the locks that elect a leader.

This package converts the database's content to rows (`config.rows`) and events (`api`).
"""
