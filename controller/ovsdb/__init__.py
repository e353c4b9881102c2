"""Open vSwitch's database: our copy of it, what we write, and the locks by which one service leads.

It imports `host`, and hands on rows (`config.rows`) and events (`api`).
"""
