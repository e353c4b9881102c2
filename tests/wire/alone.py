"""Tests that have a process of their own: the framework is one per process, and leaves threads behind."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def expect(found: object, expected: object) -> None:
    """Assert that both are equal, and say what they are."""
    assert found == expected, f"{found} -> {expected}"


def in_a_process(test: Callable[[Path], None]) -> Callable[[], None]:
    """Run a test of a directory so; in a short path, as a socket's has 107 characters at most."""

    @functools.wraps(test)
    def start() -> None:
        with tempfile.TemporaryDirectory(prefix="ovs-lbt-") as directory:
            words = ["-m", __name__, test.__module__, test.__name__, directory]
            done = subprocess.run(
                [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=30
            )
        assert done.returncode == 0, done.stderr

    # Or pytest would take the directory for a fixture.
    made: Any = start
    made.of_process = made.__dict__.pop("__wrapped__")
    return start


def main() -> None:
    module, name, directory = sys.argv[1:]
    status = 1
    try:
        getattr(importlib.import_module(module), name).of_process(Path(directory))
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)  # the framework's threads would keep the process


if __name__ == "__main__":
    main()
