"""I/O on this host: threads, sockets, files, `tc`, systemd and control sockets.

This package imports `api`, `dataplane` and `text`, and no package that makes decisions.
"""
