"""For all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business, and it may be a busy one.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
