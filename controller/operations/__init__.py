"""What operators ask for, and the answers: attach, detach, drain, move, plan, apply, show, explain.

Each request is checked, carried out over as many events as it takes, and answered in text or
JSON. It imports `bridge` and every room of the core below it.
"""
