"""Values as text that is the same in each run: sets sorted, floats to nine digits, defaults left out."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

# Classes and fields that a commit has renamed: the new name, and the one that goldens have.
RENAMED: dict[str, str] = {}
# The characters of an event that are shown before a digest of all.
MOST = 400
PLAIN = (int, str, bool, type(None))


def told(value: Any) -> str:
    """A value of any type of the engine's events and commands."""
    kind = type(value)
    if kind in PLAIN:
        return repr(value)
    if kind is float:
        return f"{value:.9g}"
    if (kind is tuple and not hasattr(value, "_fields")) or kind is list:
        return f"[{', '.join(map(told, value))}]"
    if is_dataclass(kind):
        held = ((name, getattr(value, name), one) for name, one in _fields(kind))
        return _made(kind, ((name, has) for name, has, one in held if not _is_default(one, has)))
    match value:
        case Enum():
            return told(value.value)
        case bytes():
            return f"x{value.hex()}"
        case BaseException():
            return f"{kind.__name__}({value})"
        case Mapping():
            items = sorted((told(key), told(held)) for key, held in value.items())
            return f"{{{', '.join(f'{key}: {held}' for key, held in items)}}}"
        case Set():
            return f"{{{', '.join(sorted(map(told, value)))}}}"
        case tuple():
            of: Any = value
            defaults = of._field_defaults
            named = zip(of._fields, of, strict=True)
            return _made(kind, ((n, v) for n, v in named if n not in defaults or defaults[n] != v))
    return repr(value)


def brief(value: Any) -> str:
    """The same of an event. Of records, flows and groups that it holds, only how many."""
    shown = {}
    kind: Any = type(value)
    for name, one in _fields(kind):
        has = getattr(value, name)
        if _is_default(one, has):
            continue
        many = isinstance(has, tuple) and has and is_dataclass(has[0])
        shown[name] = f"<{len(has)} {_name(type(has[0]))}>" if many else told(has)
    held = ", ".join([f"{_known(name)}={text}" for name, text in shown.items()])
    text = f"{_name(type(value))}({held})"
    return text if len(text) <= MOST else f"{text[:MOST]}... #{digest(text)}"


def digest(text: str | bytes) -> str:
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:12]


def indented(text: str, by: str = "    | ") -> Iterator[str]:
    for line in text.splitlines():
        yield f"{by}{line}".rstrip()


@functools.cache
def _fields(kind: type) -> list[tuple[str, Field[Any]]]:
    return [(one.name, one) for one in fields(kind)]


def _known(name: str) -> str:
    return RENAMED.get(name, name)


def _name(kind: type) -> str:
    return _known(kind.__name__)


def _made(kind: type, held: Iterator[tuple[str, Any]]) -> str:
    return f"{_name(kind)}({', '.join([f'{_known(key)}={told(has)}' for key, has in held])})"


def _is_default(one: Field[Any], has: Any) -> bool:
    if one.default is not MISSING:
        return bool(has == one.default)
    return one.default_factory is not MISSING and has == one.default_factory()
