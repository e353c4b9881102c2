"""`top` in a terminal: it fills each size, moves a VM port by keys, and leaves the terminal as it was.

The terminal is a pane of a private tmux server. What the screen says: tests/unit/controller/cli/top.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

COLUMNS, LINES = 80, 24
# What `sh` asks with: no other line begins like that.
PROMPT = "tmux-test$"

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 3))


class Pane:
    """A shell in a terminal."""

    def __init__(self, socket: Path, env: Mapping[str, str]) -> None:
        self._socket = socket
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        variables = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        kept = {k: v for k, v in env.items() if k not in ("TMUX", "NO_COLOR", "COLUMNS", "LINES")}
        self.tmux("new-session", "-d", *size, "exec sh", env={**kept, **variables})
        self.enter(f"PS1='{PROMPT} '; clear")
        wait_until(lambda: self.lines == [PROMPT], "the shell asks")

    def type(self, *keys: str) -> None:
        """Press keys by tmux's names: `m`, `Enter`, `C-c`."""
        self.tmux("send-keys", *keys)

    def enter(self, command: str) -> None:
        self.tmux("send-keys", "-l", command)
        self.tmux("send-keys", "Enter")

    def text(self) -> str:
        """What is on the screen."""
        return self.tmux("capture-pane", "-p")

    @property
    def lines(self) -> list[str]:
        """The lines of the screen down to the last that is not empty."""
        return [line.rstrip() for line in self.text().rstrip("\n").split("\n")]

    def shows(self, text: str) -> None:
        """Wait until a text is on the screen."""
        try:
            wait_until(lambda: text in self.text(), f"the screen shows {text!r}")
        except AssertionError as late:
            late.add_note(self.text())
            raise

    def is_filled(self, columns: int, lines: int) -> bool:
        """Whether `top` fills the screen, its last line too."""
        last = "q quit" if lines > 1 else " "
        return len(self.lines) == lines and f"{self.lines[-1]} ".startswith(last[:columns])

    def tmux(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
        return done.stdout


@pytest.fixture
def terminal(service: Service, tmp_path: Path) -> Iterator[Pane]:
    path = f"{service.executable.parent}:{service.ovs.env['PATH']}"
    made = Pane(tmp_path / "tmux", {**service.ovs.env, "PATH": path})
    yield made
    made.tmux("kill-server")


def test_top_fills_each_size_moves_a_port_and_restores_the_terminal(
    attached: Bed, service: Service, terminal: Pane
) -> None:
    bed, before = attached, terminal.lines[0]
    first, second = (uplink.name for uplink in bed.uplinks)
    service.place(bed, 0, 0, 0, 0)
    terminal.enter(f"ovs-lbt top {bed.bridge} --interval 0.5")
    terminal.shows("TEAM-UPLINK")
    for columns, lines in ((120, 40), (40, 10), (1, 1), (COLUMNS, LINES)):
        terminal.tmux("resize-window", "-x", str(columns), "-y", str(lines))
        filled = functools.partial(terminal.is_filled, columns, lines)
        wait_until(filled, f"the screen is drawn on {columns} x {lines}")
    rows = [line.split()[0] for line in terminal.lines if line.strip()]
    _, station, *_ = sorted(bed.stations, key=lambda one: rows.index(one.port))
    terminal.type("Down", "m")
    terminal.shows(f"move {station.port} to:")
    terminal.type("Enter")
    terminal.shows(f"[y/n] move {station.port} from {first} to {second} now?")
    terminal.type("n")
    terminal.shows("cancelled")
    assert service.bindings(bed)[station.port] == first
    terminal.type("m", "Enter", "y")
    terminal.shows(f"{station.port}: moved from {first} to {second}")
    terminal.shows(f"{station.port}: {first} -> {second}, manual")
    wait_until(lambda: bed.homes()[str(station)] == [second], "its frames leave by that uplink")
    for end in ("q", "C-c"):
        terminal.type(end)
        wait_until(lambda: terminal.lines[-1] == PROMPT, f"{end} ends it")
        assert terminal.lines[0].startswith(before)
        assert "TEAM-UPLINK" not in terminal.text(), "the screen is what it was"
        terminal.enter("clear; stty -a | grep -o ' echo '")
        wait_until(lambda: terminal.lines == [" echo", PROMPT], "what is typed is shown again")
        terminal.enter("clear; ovs-lbt top")
        terminal.shows("TEAM-UPLINK")
