"""Values: dataclasses of which none changes once it is made.

Decisions create thousands of them a second. A frozen dataclass takes twice as long to create as another
one, because Python sets each field with a call that bypasses its own check. So only the type checker
ensures that values do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen, slots):
        """The decorator `dataclass`, without the check at run time that `frozen` adds."""
        assert frozen
        return dataclass(slots=slots, unsafe_hash=True)
