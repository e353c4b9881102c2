"""Builds HTML and SVG from nested calls, and escapes all text that is not markup."""

from __future__ import annotations

import html
import re

_VOID = frozenset(("meta", "br"))
# Characters that XML and HTML documents must not contain, even if escaped.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Markup(str):
    """Text that is markup and is not escaped."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element with its children. Children and attributes that are None are left out.

    In attribute names, `_` becomes `-`, and a final `_` is removed (`class_`).
    """
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{opening}>")
    return Markup(f"<{name}{opening}>{joined(*children)}</{name}>")


def joined(*children: object) -> Markup:
    """Escape and join children without an element."""
    return Markup("".join(escaped(child) for child in children if child is not None))


def escaped(value: object) -> Markup:
    """Escape a value unless it is markup."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))
