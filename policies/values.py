"""Values: immutable dataclasses that are fast to create.

Decisions create thousands of values a second. Creating a frozen dataclass takes twice as long as
any other, because Python sets each field with a call that bypasses its own check. So only the type
checker ensures that values do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen, slots, weakref_slot=False):
        """Return the decorator `dataclass`, without the check at run time that `frozen` adds."""
        assert frozen
        return dataclass(slots=slots, weakref_slot=weakref_slot, unsafe_hash=True)
