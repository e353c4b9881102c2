"""Prometheus metrics: converts the published status to metric families, and serves scrapes.

This package imports `api` and `host`.
"""
