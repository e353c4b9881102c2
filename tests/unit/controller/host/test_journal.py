"""The history file, where the disk does not take it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from controller.host import journal


def test_a_full_disk_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Also by `confirm` without a service, which has no log."""
    journal.append(Path("/dev/full"), "{}")
    (told,) = caplog.records
    assert (told.levelno, told.exc_info) == (logging.ERROR, None)
    expected = "the history file cannot be written: /dev/full: No space left on device"
    assert told.getMessage() == expected
