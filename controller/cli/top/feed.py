"""Reads the service's status for `top` repeatedly on a thread, and sends commands to the service."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from controller.cli.top.state import Picture, happenings
from controller.host import client
from controller.text.wording import Refused

# The number of recent decisions to request, which is sufficient for every screen.
DECISIONS = 60
READ_TIMEOUT_S = 5.0


class Answer(NamedTuple):
    """The service's answer to the command `words`, or the reason for a refusal."""

    words: tuple[str, ...]
    text: str
    refused: bool


# A text is the reason why the service's status could not be read.
News = Picture | Answer | str


def read(version: str = "") -> Picture:
    """Request the service's status and recent decisions, and its version unless it is known.

    Raises:
        Refused: the service does not answer, or is on standby.
    """
    version = version or client.ask("version", (), READ_TIMEOUT_S).rpartition(" ")[2].strip()
    at_s, clock = time.monotonic(), time.strftime("%H:%M:%S UTC", time.gmtime())
    shown = json.loads(client.ask("lbt/show", ("--json",), READ_TIMEOUT_S))
    if shown.get("standby"):
        raise Refused(f"this service is on standby; ask the service that leads: {shown['leader']}")
    words, no_history, entries = ("--last", str(DECISIONS), "--json"), "", []
    try:
        written = client.ask("lbt/history", words, READ_TIMEOUT_S)
        entries = [json.loads(line) for line in written.splitlines()]
    except client.Unanswered:
        raise
    except Refused as refusal:
        no_history = str(refusal)
    return Picture(
        at_s, clock, version, tuple(shown["bridges"]), happenings(entries, _clock), no_history
    )


class Feed:
    """Reads the status every `interval_s` seconds, and carries out commands in parallel.

    `tell` is called with each result, on a thread that Feed starts. To read now, set `read_now`.
    """

    def __init__(self, tell: Callable[[News], None], interval_s: float) -> None:
        self._tell = tell
        self.interval_s = interval_s
        self.read_now = threading.Event()
        self._version = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def ask(self, words: tuple[str, ...]) -> None:
        """Carry out a command on a separate thread, because some commands take seconds."""
        threading.Thread(target=self._carry_out, args=(words,), daemon=True).start()

    def _run(self) -> None:
        while True:
            started_s = time.monotonic()
            self._tell(self._news())
            wait_s = max(0.0, started_s + self.interval_s - time.monotonic())
            self.read_now.wait(wait_s)
            self.read_now.clear()

    def _news(self) -> Picture | str:
        try:
            picture = read(self._version)
        except Refused as why:
            # The next service may have another version.
            self._version = ""
            return str(why)
        except (ValueError, LookupError, TypeError) as error:
            hint = "top and the service may have different versions"
            return f"{type(error).__name__}: {error}; {hint}"
        except Exception as error:
            return f"{type(error).__name__}: {error}, a bug in top"
        self._version = picture.version
        return picture

    def _carry_out(self, words: tuple[str, ...]) -> None:
        (command, *rest), refused = words, True
        try:
            text, refused = client.ask(f"lbt/{command}", rest), False
        except Refused as why:
            text = str(why)
        except Exception as error:
            text = f"{type(error).__name__}: {error}, a bug in top"
        self._tell(Answer(words, text, refused))
        self.read_now.set()


def _clock(at_s: float) -> str:
    """Return the time of day in UTC, with the date if it is not today."""
    at = time.gmtime(at_s)
    other_day = at[:3] != time.gmtime()[:3]
    return time.strftime("%m-%d %H:%M" if other_day else "%H:%M:%S", at)
