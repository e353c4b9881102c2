"""`python -m tests.reference` writes all reference pages again, and the settings of the man page."""

from __future__ import annotations

from tests.reference.pages import generated

for path, text in generated().items():
    path.write_text(text)
