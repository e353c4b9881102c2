"""Writes all reference pages again."""

from __future__ import annotations

from tests.reference.pages import generated

for path, text in generated().items():
    path.write_text(text)
