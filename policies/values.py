"""Values: dataclasses of which none changes once it is made.

Decisions make thousands of them a second. To make a frozen dataclass takes twice as long as to make
another one, because Python sets each field of it by a call that passes its own check by. So the type
checker alone sees to it that values do not change.
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
