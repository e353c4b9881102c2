"""The cases that tests repeat: bytes, from which hypothesis makes cases, in base64, in `corpus/TARGET.txt`."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

STORED = Path(__file__).with_name("corpus")
# Of all targets, as files.
MOST_BYTES = 300_000
# What a search begins with if nothing is stored.
FIRST_CASES, FIRST_BYTES = 30, 600


def path(name: str) -> Path:
    return STORED / f"{name.replace(' ', '_')}.txt"


def read(name: str) -> list[bytes]:
    """The stored cases of a target."""
    return (
        [b64decode(line) for line in path(name).read_text().split()] if path(name).exists() else []
    )


def unpack(name: str, directory: Path) -> None:
    """A file for each case."""
    directory.mkdir(parents=True, exist_ok=True)
    first = random.Random(name)
    cases = read(name) or [first.randbytes(FIRST_BYTES) for _ in range(FIRST_CASES)]
    for number, data in enumerate(cases):
        (directory / f"{number}").write_bytes(data)


def keep(name: str, directory: Path, take: Callable[[bytes], bytes | None], most: int) -> None:
    """Store these cases, short ones first, in `most` bytes.

    `take` runs a case, and returns those of its bytes that were used; None if they make no case.
    """
    lines: dict[str, None] = {}
    for file in sorted(directory.iterdir(), key=lambda file: file.stat().st_size):
        if used := take(file.read_bytes()):
            lines[f"{b64encode(used).decode()}\n"] = None
    text = ""
    for line in sorted(lines, key=len):
        text += line if len(text) + len(line) <= most else ""
    path(name).write_text(text)
