"""Internal errors while a bridge was handled: when the bridge is tried again, and what is reported."""

from __future__ import annotations

from dataclasses import dataclass

from controller.text.wording import OUR_LOG, one_line

# The bridge is tried again after this long, then after twice as long each time.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 60.0
MOST_DOUBLED = 10
# Errors are over if none has come for so long after that. A policy needs a window of loads to decide.
OVER_AFTER_S = 60.0
# How many different errors of a bridge are remembered as reported.
MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure on a bridge.

    `texts`: the errors in the log, the latest last. `count`: how often the bridge was tried again.
    `until_s`: when it is tried again, in seconds of engine time. `holds`: whether all timers wait until
    then, rather than only polls. `is_new`: the last error is to be counted.
    """

    texts: tuple[str, ...]
    count: int
    until_s: float
    holds: bool
    is_new: bool = True

    @property
    def text(self) -> str:
        """The last error."""
        return self.texts[-1]

    @property
    def why(self) -> str:
        """The answer to waiting requests."""
        return f"ovs-lbt itself failed: {self.text}; {OUR_LOG}"

    def is_over(self, now_s: float) -> bool:
        return now_s > self.until_s + OVER_AFTER_S


def words(error: Exception) -> str:
    """An error as one line."""
    return one_line(f"{type(error).__name__}: {error}")


def after(last: Failure | None, text: str, decides: bool, now_s: float) -> Failure:
    """The failure after one more error. `decides`: a decision failed, so only polls have to wait."""
    before = last.texts if last is not None else ()
    texts = (*(one for one in before if one != text), text)[-MOST_TOLD:]
    if last is not None and now_s < last.until_s:
        holds = last.holds or not decides
        return Failure(texts, last.count, last.until_s, holds, is_new=text not in before)
    count = last.count + 1 if last is not None else 0
    pause_s = min(FIRST_PAUSE_S * 2 ** min(count, MOST_DOUBLED), LONGEST_PAUSE_S)
    return Failure(texts, count, now_s + pause_s, not decides)
