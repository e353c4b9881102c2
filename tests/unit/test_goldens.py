"""The code does what the goldens say: `python -m tests.goldens` shows more of a difference."""

from __future__ import annotations

import pytest

from tests.goldens import store
from tests.goldens.families import families, text_of

pytestmark = pytest.mark.slow
FAMILIES = families()


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_that_is_seen_from_outside_has_changed(name: str) -> None:
    text = text_of(FAMILIES[name])
    assert text == store.read(name) or not list(store.difference(name, text))


def test_no_golden_is_kept_that_nothing_makes() -> None:
    assert {one.stem for one in store.DATA.glob("*.xz")} == FAMILIES.keys()
