"""The man page and architecture.md say of each key what the table of keys says."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config.keys import BRIDGE_KEYS, KEYS, VM_KEYS, Key
from controller.teaming.shaping import DEFAULT_SHARES
from policies.presets import DEFAULT_PRESET, PRESETS
from tests import key_documents


@pytest.mark.parametrize("path", key_documents.made())
def test_a_document_is_as_the_table_makes_it(path: str) -> None:
    expected = f"run {key_documents.COMMAND}"
    assert key_documents.made()[path] == Path(path).read_text(), expected


def test_more_is_told_of_keys_that_there_are() -> None:
    assert key_documents.MORE.keys() <= {(k.record, k.name) for k in KEYS}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (VM_KEYS["shares"], [str(DEFAULT_SHARES)]),
        (
            BRIDGE_KEYS["poll-interval-ms"],
            [f"{PRESETS[name].poll_s * 1000:g}" for name in (DEFAULT_PRESET, "adaptive")],
        ),
    ],
)
def test_a_default_that_is_made_elsewhere_is_told_as_it_is(key: Key, words: list[str]) -> None:
    assert all(word in key.otherwise.replace(";", "").split() for word in words)
