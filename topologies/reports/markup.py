"""HTML and SVG from nested calls; whatever is not markup already is escaped."""

from __future__ import annotations

import html
import re

_VOID = frozenset(("meta", "br"))
# What an XML or HTML document cannot hold, escaped or not.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Markup(str):
    """Text that is markup and stays as it is."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element with its children, in order; those that are None are left out.

    An attribute's `_` is `-`, at its end nothing (`class_`); one that is None is absent.
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
    """Children of an element without the element."""
    return Markup("".join(escaped(child) for child in children if child is not None))


def escaped(value: object) -> Markup:
    """Anything as markup."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))
