"""This machine, as the service uses it: threads, sockets, files, `tc`, systemd, control sockets.

Everything here does I/O. It imports `api`, `dataplane` and `text`, and nothing that decides.
"""
