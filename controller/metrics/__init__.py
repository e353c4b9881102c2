"""Prometheus metrics: families made of the published status, and the server for scrapes.

It imports `api` and `host`.
"""
