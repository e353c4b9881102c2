"""A terminal that a test types into and reads: a pane of a private tmux server."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.switch.waiting import HANG_S, wait_until

# What `sh` asks with: no other line begins like that.
PROMPT = "tmux-test$"


class Pane:
    """A shell in a terminal of so many columns and lines."""

    def __init__(self, socket: Path, env: Mapping[str, str], columns: int, lines: int) -> None:
        self._socket = socket
        self._runs = itertools.count(1)
        size = ["-x", str(columns), "-y", str(lines)]
        variables = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        kept = {k: v for k, v in env.items() if k not in ("TMUX", "NO_COLOR", "COLUMNS", "LINES")}
        self._tmux("new-session", "-d", *size, "exec sh", env={**kept, **variables})
        self.enter(f"PS1='{PROMPT} '; clear")
        wait_until(lambda: self.lines == [PROMPT], "the shell asks")

    def type(self, *keys: str) -> None:
        """Press keys by tmux's names: `m`, `Enter`, `C-c`."""
        self._tmux("send-keys", *keys)

    def enter(self, command: str) -> None:
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")

    def run(self, command: str) -> str:
        """Have the shell run a command on a clear screen; what is on the screen then."""
        over = f"over-{next(self._runs)}"
        # What is typed must not look like what is said.
        self.enter(f"clear; {command}; echo {over[:2]}''{over[2:]}")
        wait_until(lambda: self.lines[-2:] == [over, PROMPT], f"{command} is over")
        return "\n".join(self.lines[:-2])

    def text(self, joined: bool = False) -> str:
        """What is on the screen; `joined`: what was wrapped is one line again."""
        return self._tmux("capture-pane", "-p", *(["-J"] if joined else []))

    @property
    def lines(self) -> list[str]:
        """The lines of the screen down to the last that is not empty."""
        return [line.rstrip() for line in self.text().rstrip("\n").split("\n")]

    def shows(self, text: str, timeout_s: float = HANG_S) -> str:
        """Wait until a text is on the screen, and return the screen."""
        try:
            wait_until(lambda: text in self.text(), f"the screen shows {text!r}", timeout_s)
        except AssertionError as late:
            late.add_note(self.text())
            raise
        return self.text()

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def _tmux(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
        return done.stdout

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self._tmux("kill-server")


@contextlib.contextmanager
def pane(directory: Path, env: Mapping[str, str], columns: int, lines: int) -> Iterator[Pane]:
    made = Pane(directory / "tmux", env, columns, lines)
    try:
        yield made
    finally:
        made.close()
