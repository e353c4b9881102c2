"""Errors of the system are told in words, also where a library gives only their symbol."""

from __future__ import annotations

import errno
import os

import pytest

from controller.text.wording import because, in_words, invalid, unknown

WORDS = os.strerror(errno.ENOENT)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOENT, WORDS), WORDS),
        (OSError(errno.ENOENT, "ENOENT"), WORDS),
        (OSError(errno.ENOENT, "not in this jail"), "not in this jail"),
        (OSError("without a number"), "without a number"),
        (TimeoutError("timed out"), "timed out"),
    ],
)
def test_in_words(error: OSError, told: str) -> None:
    assert in_words(error) == told
    assert because(error) == told


def test_the_file_is_named() -> None:
    assert because(OSError(errno.ENOENT, "ENOENT", "conf.db")) == f"conf.db: {WORDS}"
    assert because(ValueError("a value")) == "a value"


def test_blanks_that_make_a_word_wrong_are_seen() -> None:
    assert invalid("eth0 ", "eth0 or eth1") == "'eth0 ' is invalid; expected eth0 or eth1"
    told = unknown("key of a bridge", "threshold ", ["threshold"], "ovs-lbt set --help")
    assert told.startswith("no key of a bridge is named 'threshold ' (did you mean threshold?); ")
