"""A process that holds the lead ends, whatever becomes of it and of who reads its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Each one starts a process with all of the service.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
# A thread of the framework's, which nobody ends; and what the process still has to say.
PROGRAM = """
import threading, time
from controller.service import serve_and_exit
threading.Thread(target=time.sleep, args=(60,)).start()
class Made:
    def run(self):
        print("an answer")
        {body}
serve_and_exit(Made, print)
"""
DONE, FAILS = "return 3", "raise KeyError('nobody expects this')"
each = pytest.mark.parametrize(("body", "status"), [(DONE, 3), (FAILS, 1)], ids=["done", "fails"])


def ended(body: str, stdout: int) -> tuple[int, str]:
    """The exit status, and what went to stderr."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        cwd=ROOT,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


@each
def test_it_ends_though_nobody_reads_its_answer(body: str, status: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(body, writing)[0] == status
    finally:
        os.close(writing)


@each
def test_an_error_that_nobody_expects_is_told_and_nothing_else(body: str, status: int) -> None:
    found, said = ended(body, subprocess.DEVNULL)
    assert found == status
    assert "KeyError: 'nobody expects this'" in said if body == FAILS else said == ""
