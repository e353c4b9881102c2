"""How many examples a test gets from hypothesis."""

from __future__ import annotations

from hypothesis import settings

# Of a test that does not say how many it needs, in `make test-all`.
USUAL = 100


def examples(of_all: int) -> int:
    """The number in `make test-all` is `of_all`; `make test` and `make test-quick` run the same share of all tests'."""
    profile = settings.default
    assert profile is not None
    return max(2, of_all * profile.max_examples // USUAL)
