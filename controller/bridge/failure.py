"""Internal errors of one bridge: computes when to handle the bridge again, and which errors to report."""

from __future__ import annotations

from dataclasses import dataclass

from controller.text.wording import OUR_LOG, one_line

# The first pause before the bridge is handled again. The pause doubles each time, up to the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 60.0
MOST_DOUBLED = 10
# A failure ends if no error occurs for this long after the pause. A policy needs a window of loads to decide.
OVER_AFTER_S = 60.0
# The number of different errors of a bridge that are remembered as reported.
MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """A series of internal errors of a bridge.

    `texts`: the errors in the log, the latest last. `count`: the number of times the bridge was handled again.
    `until_s`: when the bridge is handled again, in seconds of engine time. `holds`: whether all timers,
    and not only polls, wait until `until_s`. `is_new`: whether the last error must be counted.
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
    """The type and text of an error, as one line."""
    return one_line(f"{type(error).__name__}: {error}")


def after(last: Failure | None, text: str, decides: bool, now_s: float) -> Failure:
    """Return the failure after one more error. `decides`: a decision failed, so only polls must wait."""
    before = last.texts if last is not None else ()
    texts = (*(one for one in before if one != text), text)[-MOST_TOLD:]
    if last is not None and now_s < last.until_s:
        holds = last.holds or not decides
        return Failure(texts, last.count, last.until_s, holds, is_new=text not in before)
    count = last.count + 1 if last is not None else 0
    pause_s = min(FIRST_PAUSE_S * 2 ** min(count, MOST_DOUBLED), LONGEST_PAUSE_S)
    return Failure(texts, count, now_s + pause_s, not decides)
