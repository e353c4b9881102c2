"""Carries out operators' commands and answers them: attach, detach, drain, move, plan, apply, explain.

Each request is checked, carried out over as many events as it needs, and answered in text or JSON.
This package imports `bridge` and every core package below `bridge`.
"""
