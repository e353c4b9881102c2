"""What the scripts of the shells call, and the scripts themselves."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Sequence
from pathlib import Path

from controller.completion import names
from controller.completion.candidates import Others, complete

SCRIPTS = {"bash": "ovs-lbt.bash", "zsh": "_ovs-lbt", "fish": "ovs-lbt.fish"}
# So much of what a word stands for fits beside it.
MOST_ABOUT = 60
# Bash takes a word as it is into the command line, where a name such as $(x) would run.
SAFE = re.compile(r"[\w@%+=:,./!-]+")


def script(shell: str) -> str:
    """The completion script of a shell."""
    return Path(__file__).with_name(SCRIPTS[shell]).read_text()


def answer(parser: argparse.ArgumentParser, others: Others, words: Sequence[str]) -> str:
    """The candidates for the last word, one on a line: the word, a tab, and what it stands for.

    A word after which no space must follow ends with a further tab. Names that a shell would not take
    as a word are not offered.
    """
    lines = []
    for found in complete(parser, others, words, functools.cache(names.read)):
        if not SAFE.fullmatch(found.word):
            continue
        about = " ".join(found.about.split())
        if len(about) > MOST_ABOUT:
            about = f"{about[: MOST_ABOUT - 1].rsplit(' ', 1)[0]}…"
        lines.append(f"{found.word}\t{about}" + ("\t" if found.unfinished else ""))
    return "\n".join(lines)
