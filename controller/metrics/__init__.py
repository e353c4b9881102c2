"""Prometheus: metric families from the status that was published, and the server that scrapes reach.

It imports `api` and `host`.
"""
