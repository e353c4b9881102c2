"""Open vSwitch's database: our replica of it, our writes, and the locks that elect one leader.

It imports `host`, and passes rows (`config.rows`) and events (`api`) on.
"""
