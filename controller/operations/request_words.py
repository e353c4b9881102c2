"""The settings of requests, of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.config.keys import Key
from controller.text.wording import Refused, one_of, shortened


def assignments(words: Sequence[str], keys: Mapping[str, Key]) -> dict[str, str]:
    """Parse and check words of the form KEY=VALUE."""
    refuse_repeated(words)
    values: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in keys:
            expected = f"KEY=VALUE with KEY {one_of(sorted(keys))}"
            raise Refused(f"{shortened(word) or 'nothing'} -> {expected}")
        try:
            keys[key].parse(text)
        except ValueError:
            found = shortened(text) or "nothing"
            raise Refused(f"{key}: {found} -> {keys[key].expects(text)}") from None
        values[key] = text
    return values


def rules(words: Sequence[str], keys: Mapping[str, Key]) -> dict[str, str | None]:
    """Parse and check rules of the form KEY=VALUE; `KEY=` removes one: None."""
    refuse_repeated(words)
    ended = [word[:-1] for word in words if word.endswith("=") and word[:-1] in keys]
    values = assignments([word for word in words if word[:-1] not in ended], keys)
    return {**values, **dict.fromkeys(ended)}


def refuse_repeated(words: Sequence[str]) -> None:
    """Refuse a key that is given twice: only one value could apply."""
    named = [word.partition("=")[0] for word in words]
    if repeated := sorted({key for key in named if named.count(key) > 1}):
        raise Refused(f"{shortened(repeated[0])}: given {named.count(repeated[0])} times -> once")
