"""Prometheus metrics: converts the published status to metric families, and serves scrapes over HTTP.

Of the other packages, this one imports only `api`, `host` and `text`.
"""
