"""The words of requests: options, and settings of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Mapping

from controller.config.keys import Key
from controller.operations import unconfirmed
from controller.operations.attach_detach import Refused
from controller.text.wording import one_of, shortened

# The second name is older.
CONFIRM = ("--rollback-after", "--confirm")


def options(words: list[str], most: int, option: str = "--json") -> tuple[bool, list[str]]:
    """Whether the option is given, and all other words."""
    names = [word for word in words if word != option]
    if len(names) > most:
        raise Refused(f"{' '.join(names)} -> one name [{option}]")
    return option in words, names


def confirm(words: list[str]) -> tuple[float | None, list[str]]:
    """How long a change waits to be confirmed, if it does; and all other words."""
    option = next((word for word in words if word in CONFIRM), None)
    if option is None:
        return None, words
    at = words.index(option)
    text, rest = "".join(words[at + 1 : at + 2]), [*words[:at], *words[at + 2 :]]
    try:
        return unconfirmed.seconds(text), rest
    except ValueError:
        found = shortened(text) or "nothing"
        raise Refused(f"{option}: {found} -> {unconfirmed.EXPECTED}") from None


def assignments(words: list[str], keys: Mapping[str, Key]) -> dict[str, str]:
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


def rules(words: list[str], keys: Mapping[str, Key]) -> dict[str, str | None]:
    """Parse and check rules of the form KEY=VALUE; `KEY=` removes one: None."""
    refuse_repeated(words)
    ended = [word[:-1] for word in words if word.endswith("=") and word[:-1] in keys]
    values = assignments([word for word in words if word[:-1] not in ended], keys)
    return {**values, **dict.fromkeys(ended)}


def refuse_repeated(words: list[str]) -> None:
    """Refuse a key that is given twice: only one value could apply."""
    named = [word.partition("=")[0] for word in words]
    if repeated := sorted({key for key in named if named.count(key) > 1}):
        raise Refused(f"{shortened(repeated[0])}: given {named.count(repeated[0])} times -> once")
