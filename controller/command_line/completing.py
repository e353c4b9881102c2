"""Completion of commands by shells."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from controller.command_line.arguments import parser


def complete(words: list[str]) -> int:
    """Print what may stand at the cursor. Errors are nobody's business while somebody types."""
    from controller.completion import command

    print(command.answer(parser(), other_parsers(), words or [""]))
    return 0


def completion(shell: str) -> int:
    from controller.completion import command

    print(command.script(shell), end="")
    return 0


def other_parsers() -> dict[str, Callable[[], argparse.ArgumentParser]]:
    """The parsers of commands that have their own."""

    def replay() -> argparse.ArgumentParser:
        from controller.replay import command

        return command._parser()

    def bench() -> argparse.ArgumentParser:
        from topologies import bench

        return bench._parser()

    return {"replay": replay, "bench": bench}
