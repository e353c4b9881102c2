"""The settings of requests, of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.config.keys import Key, Record
from controller.text.wording import Refused, nearest, shortened, unknown

WHOSE = {Record.BRIDGE: "a bridge", Record.UPLINK: "an uplink", Record.VM_PORT: "a VM port"}


def assignments(words: Sequence[str], keys: Mapping[str, Key]) -> dict[str, str]:
    """Parse and check words of the form KEY=VALUE."""
    refuse_unknown(words, keys)
    values = {key: text for key, _, text in (word.partition("=") for word in words)}
    for key, text in values.items():
        try:
            keys[key].parse(text)
        except ValueError:
            found = f"{shortened(text) or 'nothing'}{nearest(text, keys[key].takes.words)}"
            raise Refused(f"{key}: {found} -> {keys[key].expects(text)}") from None
    return values


def refuse_unknown(words: Sequence[str], keys: Mapping[str, Key]) -> None:
    """Refuse words that are not of the form KEY=VALUE with one of these keys, and keys given twice."""
    refuse_repeated(words)
    for key, equals, _ in (word.partition("=") for word in words):
        if key not in keys:
            records = {WHOSE[of.record] for of in keys.values()}
            what = f"key of {' or '.join(sorted(records))}"
            raise Refused(unknown(what, key, keys, "ovs-lbt set --help"))
        if not equals:
            raise Refused(f"{key}: no value -> {key}=VALUE; for its values: ovs-lbt set --help")


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
