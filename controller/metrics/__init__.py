"""Prometheus metrics: converts the published status to metric families, and serves scrapes over HTTP.

This package imports `api` and `host`.
"""
