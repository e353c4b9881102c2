"""Draws `top` on the terminal, and reads keys. No other module uses curses."""

from __future__ import annotations

import contextlib
import curses
import os
import queue
import select
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

from controller.cli.top import keys, view
from controller.cli.top.feed import Answer, Feed, News
from controller.cli.top.state import State, with_picture
from controller.text import terminal
from controller.text.drawing import Line, Style, width_of
from controller.text.wording import Refused

# The time to wait for the rest of an escape sequence on a slow line.
ESCAPE_MS = 100
# The interval at which the age of the status is updated.
TICK_S = 1.0

_KEYS: dict[int | str, str] = {
    curses.KEY_UP: keys.UP,
    curses.KEY_DOWN: keys.DOWN,
    curses.KEY_LEFT: keys.LEFT,
    curses.KEY_RIGHT: keys.RIGHT,
    curses.KEY_PPAGE: keys.PAGE_UP,
    curses.KEY_NPAGE: keys.PAGE_DOWN,
    curses.KEY_HOME: keys.HOME,
    curses.KEY_END: keys.END,
    curses.KEY_ENTER: keys.ENTER,
    curses.KEY_BACKSPACE: keys.BACKSPACE,
    "\n": keys.ENTER,
    "\r": keys.ENTER,
    "\x1b": keys.ESCAPE,
    "\x7f": keys.BACKSPACE,
    "\b": keys.BACKSPACE,
}


def run(state: State) -> None:
    """Run `top` until the operator quits, and then restore the terminal.

    Raises:
        Refused: the terminal lacks a capability that curses requires.
    """
    os.environ.setdefault("ESCDELAY", str(ESCAPE_MS))
    try:
        curses.setupterm()
    except curses.error as error:
        raise Refused(
            f"curses does not support terminal {os.environ.get('TERM', '')}: {error}"
        ) from None
    with contextlib.suppress(KeyboardInterrupt):
        curses.wrapper(lambda window: _Screen(window, state).follow())


class _Screen:
    """A terminal that is controlled by curses."""

    def __init__(self, window: curses.window, state: State) -> None:
        self._window = window
        self._state = state
        self._styles = _styles()
        self._unicode = terminal.shows_unicode()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._wakened, self._waken = socket.socketpair()
        self._wakened.setblocking(False)
        self._waken.setblocking(False)
        self._feed = Feed(self._tell, state.interval_s)
        self._on = True

    def follow(self) -> None:
        with contextlib.suppress(curses.error):
            curses.curs_set(0)
        self._window.nodelay(True)
        with self._signals():
            self._feed.start()
            while self._on:
                self._draw()
                self._wait()
                self._take_news()
                self._take_keys()
                self._state = replace(self._state, now_s=time.monotonic())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Draw again after a resize. On SIGTERM or SIGHUP, end and let curses restore the terminal."""
        before = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None),
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._end),
            signal.SIGHUP: signal.signal(signal.SIGHUP, self._end),
        }
        descriptor = signal.set_wakeup_fd(self._waken.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, *_: object) -> None:
        self._on = False

    def _tell(self, news: News) -> None:
        self._news.put(news)
        with contextlib.suppress(BlockingIOError, OSError):
            self._waken.send(b"!")

    def _wait(self) -> None:
        select.select([0, self._wakened.fileno()], [], [], TICK_S)
        with contextlib.suppress(BlockingIOError):
            self._wakened.recv(4096)

    def _take_news(self) -> None:
        while not self._news.empty():
            match news := self._news.get():
                case str():
                    self._state = replace(self._state, away=news)
                case Answer():
                    self._state = keys.answered(self._state, *news)
                case _:
                    self._state = with_picture(self._state, news)

    def _take_keys(self) -> None:
        while (key := self._key()) is not None:
            height, width = self._size()
            page = view.page(self._state, width, height)
            self._state, effects = keys.press(self._state, key, page)
            self._feed.interval_s = self._state.interval_s
            for effect in effects:
                match effect:
                    case keys.Quit():
                        self._on = False
                    case keys.Refresh():
                        self._feed.read_now.set()
                    case keys.Ask(words=words):
                        self._feed.ask(words)

    def _key(self) -> str | None:
        """Return the next pressed key, as a character or a name in `keys`; None if no key was pressed."""
        while True:
            try:
                found = self._window.get_wch()
            except curses.error:
                return None
            if found in _KEYS:
                return _KEYS[found]
            if isinstance(found, str):
                return found

    def _size(self) -> tuple[int, int]:
        """Return the current number of lines and columns."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(1)
            if (size.lines, size.columns) != self._window.getmaxyx() and min(size) > 0:
                curses.resizeterm(size.lines, size.columns)
                self._window.clear()
        return self._window.getmaxyx()

    def _draw(self) -> None:
        height, width = self._size()
        self._window.erase()
        for y, drawn in enumerate(view.screen(self._state, width, height, self._unicode)):
            self._put(y, drawn)
        self._window.refresh()

    def _put(self, y: int, drawn: Line) -> None:
        x, encoding = 0, self._window.encoding
        for span in drawn:
            text = span.text.encode(encoding, "replace").decode(encoding)
            # curses cannot advance the cursor beyond the last cell, and reports an error after
            # drawing it.
            with contextlib.suppress(curses.error):
                self._window.addstr(y, x, text, self._styles[span.style])
            x += width_of(span.text)


def _styles() -> dict[Style, int]:
    """Return the attributes of each style, with colours if the terminal and the user allow them."""
    styles = {
        Style.PLAIN: curses.A_NORMAL,
        Style.TITLE: curses.A_REVERSE,
        Style.HEAD: curses.A_BOLD,
        Style.DIM: curses.A_DIM,
        Style.WARN: curses.A_BOLD,
        Style.BAD: curses.A_BOLD | curses.A_REVERSE,
        Style.CHOSEN: curses.A_REVERSE,
    }
    if terminal.has_colours() and curses.has_colors():
        curses.use_default_colors()
        for number, colour in ((1, curses.COLOR_YELLOW), (2, curses.COLOR_RED)):
            curses.init_pair(number, colour, -1)
        styles[Style.WARN] = curses.color_pair(1)
        styles[Style.BAD] = curses.color_pair(2) | curses.A_BOLD
    return styles
