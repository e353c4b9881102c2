"""Grafana's dashboards, as Python; `python -m dashboards.generate` writes their JSON."""
