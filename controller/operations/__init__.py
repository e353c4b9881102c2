"""The operators' commands and their answers: attach, detach, drain, move, plan, apply, explain.

Each request is checked, carried out over as many events as it needs, and answered in text or JSON.
This room imports `bridge` and every room of the core below it.
"""
