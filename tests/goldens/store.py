"""The goldens as they are kept: one compressed text each, in `data/`."""

from __future__ import annotations

import difflib
import lzma
from collections.abc import Iterator
from pathlib import Path

DATA = Path(__file__).with_name("data")
# Of a golden that differs, so many lines are shown, and so many characters of each.
MOST_LINES, MOST_CHARACTERS = 30, 240


def path(name: str) -> Path:
    return DATA / f"{name}.xz"


def read(name: str) -> str:
    """The text of a golden; empty if there is none."""
    file = path(name)
    return lzma.decompress(file.read_bytes()).decode() if file.exists() else ""


def write(name: str, text: str) -> bool:
    """Keep a text; whether it differs from the one before."""
    if read(name) == text:
        return False
    DATA.mkdir(exist_ok=True)
    path(name).write_bytes(lzma.compress(text.encode(), preset=9))
    return True


def difference(name: str, text: str, most: int = MOST_LINES) -> Iterator[str]:
    """The first lines that differ, with the last step before them."""
    before, after = read(name).splitlines(), text.splitlines()
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if same is None:
        same = min(len(before), len(after))
    yield f"{name}: differs from line {same + 1} on ({len(before)} lines before, {len(after)} now)"
    step = next((line for line in reversed(after[:same]) if line.startswith(("#", "$", "=="))), "")
    yield f"  {step}"
    # Later differences mostly follow from the first ones.
    window = slice(max(0, same - 2), same + 4 * most)
    found = difflib.unified_diff(before[window], after[window], n=2, lineterm="")
    for line in [*found][2 : 2 + most]:
        yield f"  {line[:MOST_CHARACTERS]}"
