"""The table of keys is complete, and fit to be read by people."""

from __future__ import annotations

import re

import pytest

from controller.config.keys import KEYS, Key, settable

OPERATORS = [key for key in KEYS if key.settable]


def test_no_record_has_two_keys_of_one_name() -> None:
    assert len({(key.record, key.name) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.record} {key.name}")
def test_a_key_is_told_in_sentences_and_its_default_is_a_value_that_is_told_once(key: Key) -> None:
    assert re.fullmatch(r"[A-Z].*[.)]", key.meaning)
    assert key.meaning.count("`") % 2 == 0
    assert not key.otherwise.endswith(".")
    assert not (key.default and key.otherwise)
    if key.default is not None:
        assert key.parse(key.default) == key.without


def test_what_the_service_writes_is_not_an_operators_to_set() -> None:
    ours = {key.name for key in KEYS} - {key.name for key in OPERATORS}
    of_bridges = {"before", "no-flood-before", "team", "unconfirmed", "uplink-keys"}
    of_ports = {"kept", "protected"}
    assert ours == {"leader", *of_bridges, *of_ports, "role-before", "binding", "moved"}
    assert settable({key.name: key for key in OPERATORS}).keys() == {k.name for k in OPERATORS}


@pytest.mark.parametrize("key", OPERATORS, ids=lambda key: f"{key.record} {key.name}")
def test_no_value_is_longer_than_the_database_should_keep(key: Key) -> None:
    with pytest.raises(ValueError, match="xxx"):
        key.parse("x" * 4097)
    assert key.expects("x" * 4097) == f"{key.takes.expected}; 4096 characters at most"
