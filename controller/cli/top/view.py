"""Draws the screen of `top` as lines: uplinks, VM ports and decisions, for any terminal size."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.cli.top import keys
from controller.cli.top.state import Choosing, Confirming, Reading, Row, State, Typing
from controller.text import top_manual as manual
from controller.text.drawing import (
    GAP,
    Column,
    Line,
    Look,
    Span,
    Style,
    clean,
    clip,
    line,
    padded,
    plain,
    restyled,
    row,
    width_of,
    widths,
)
from controller.text.show_view import BRIDGE, NONE_ATTACHED, notes, port_cells, states, uplink_rows

PORTS = {
    "port": Column("PORT", least=8, gives=3),
    "used-by": Column("USED-BY", least=8, gives=2),
    "uplink": Column("TEAM-UPLINK", least=8, gives=4),
    "tx": Column("MbTX/s", right=True),
    "rx": Column("MbRX/s", right=True),
    "drops": Column("%DRP", right=True),
    "why": Column("WHY", least=10, gives=1),
}
# The smallest useful pane: a header line and two lines.
LEAST_PANE = 3
# Parts of the screen: at most 1/3 for uplinks; 1/4 of the rest for the history if VM ports need it.
UPLINKS_SHARE, HISTORY_SHARE = 3, 4
HINT = "q quit  h help  s sort  / filter  e explain  m move  p pin  u unpin  d drain"
WAITING = "waiting for the service ..."
ONCE_DECISIONS = 10
MOST_FOOT = 3
# The share of lost packets above which TCP slows down.
LOSS_FELT_RATIO = 0.001


@dataclass(frozen=True, slots=True)
class Panes:
    """The number of lines of each pane, without the first and the last line of the screen."""

    uplinks: int
    note: int
    ports: int
    history: int


def screen(state: State, width: int, height: int, unicode: bool = False) -> tuple[Line, ...]:
    """Draw a state as at most `height` lines of at most `width` cells each."""
    look = Look(width, unicode)
    foot = _foot(state, width)[: max(1, min(MOST_FOOT, height - 2))]
    body_height = max(0, height - 1 - len(foot))
    if isinstance(state.mode, Reading):
        body = _reading(state, state.mode, look, body_height)
    else:
        body = _watching(state, look, body_height)
    if state.stale:
        body = [restyled(one, Style.DIM) for one in body]
    filled = [*body[:body_height], *[()] * (body_height - len(body))]
    drawn = [padded(_title(state, width), width, Style.TITLE), *filled, *foot]
    # Texts from outside ovs-lbt must be made safe for a terminal.
    safe = (tuple(span._replace(text=clean(span.text)) for span in one) for one in drawn)
    return tuple(clip(one, width) for one in safe)[: max(0, height)]


def page(state: State, width: int, height: int) -> keys.Page:
    """Return the pane that scroll keys affect: the VM ports, or the text that is shown."""
    body_height = max(0, height - 2)
    if not isinstance(state.mode, Reading):
        return keys.Page(max(1, _panes(state, Look(width), body_height).ports - 1))
    room = max(1, body_height - len(_above(state, state.mode, Look(width), body_height)))
    return keys.Page(room, max(0, len(_folded(state.mode.text or "", width)) - room))


def once(state: State, look: Look) -> list[Line]:
    """Draw all uplinks, VM ports and decisions as lines for standard output."""
    drawn = [_title(state, 0)]
    if not state.bridges:
        return [*drawn, (), line(f" {_none(state)}")]
    drawn += [(), *_uplinks(state, look)]
    if note := _note(state):
        drawn += [(), note]
    drawn += [(), *_ports(state, state.rows, look, chosen=None)]
    if history := _history(state):
        drawn += [(), line(" LAST DECISIONS", Style.HEAD), *history[:ONCE_DECISIONS]]
    return drawn if look.width is None else [clip(one, look.width) for one in drawn]


# ---- the first and the last line -------------------------------------------------------


def _title(state: State, width: int) -> Line:
    """Draw the first line: time, bridges and their state; on the right, interval and version if they fit."""
    picture, bridges = state.picture, state.bridges
    spans = [Span(" ovs-lbt", Style.TITLE)]
    if state.stale and picture is not None:
        spans += [Span(GAP, Style.TITLE), Span(f"NO ANSWER SINCE {picture.clock}", Style.BAD)]
    elif picture is not None:
        spans.append(Span(f"{GAP}{picture.clock}", Style.TITLE))
    away = [bridge["name"] for bridge in bridges if not bridge["connected"]]
    if len(bridges) == 1:
        (bridge,) = bridges
        spans.append(Span(clean(f"{GAP}{bridge['name']}{GAP}"), Style.TITLE))
        spans.append(Span("NOT CONNECTED", Style.BAD) if away else Span("connected", Style.TITLE))
        words = ("", bridge["policy"], bridge["mode"], bridge["teaming"])
        spans.append(Span(clean(GAP.join(words)), Style.TITLE))
    elif bridges:
        if away:
            spans.append(Span(clean(f"{GAP}NOT CONNECTED: {', '.join(away)}"), Style.BAD))
        named = ", ".join(bridge["name"] for bridge in bridges)
        spans.append(Span(clean(f"{GAP}{len(bridges)} bridges: {named}"), Style.TITLE))
    taken = sum(width_of(span.text) for span in spans)
    version = f"v{picture.version} " if picture and picture.version else ""
    for right in (f"every {state.interval_s:g} s{GAP}{version}", f"{version}"):
        if right and (room := width - taken - len(right)) >= len(GAP):
            return (*spans, Span(" " * room + right, Style.TITLE))
    return tuple(spans)


def _foot(state: State, width: int) -> list[Line]:
    """Draw the last line of the screen, or several lines if a question or an answer is long."""
    match state.mode:
        case Typing():
            return [line(f"/{state.filter}_   Enter: keep the filter, Esc: show all", Style.HEAD)]
        case Reading():
            return [line("up, down, PgUp, PgDn: scroll   Esc: back", Style.DIM)]
        case Choosing():
            return [_choice(state.mode, width)]
        case Confirming(question=question):
            first, *rest = _message_lines(f"[y/n] {question}?", Style.HEAD, width)
            key = len("[y/n]")
            text = plain(first)
            return [(Span(text[:key], Style.BAD), Span(text[key:], Style.HEAD)), *rest]
    if state.message is not None:
        style = Style.BAD if state.message.bad else Style.HEAD
        return _message_lines(state.message.text, style, width)
    if state.away is not None:
        return _message_lines(state.away, Style.BAD, width)
    if state.filter:
        shown = (*line(f"/{state.filter}", Style.WARN), Span(GAP))
        return [(*shown, *_hint("Esc show all"), *_hint(HINT))]
    return [_hint(HINT)]


def _message_lines(text: str, style: Style, width: int) -> list[Line]:
    return [line(one, style) for one in textwrap.wrap(clean(text), max(1, width))] or [()]


def _hint(text: str) -> Line:
    """Draw the keys and their functions."""
    spans: list[Span] = []
    for one in text.split(GAP):
        key, _, what = one.partition(" ")
        spans += [Span(key, Style.HEAD), Span(f" {what}{GAP}", Style.DIM)]
    return tuple(spans)


def _choice(mode: Choosing, width: int) -> Line:
    """Draw the uplinks to choose from. If there are too many, draw those around the chosen uplink."""
    what = {"move": "move", "pin": "pin", "drain": "drain or undrain"}[mode.command]
    head = f"{what} {mode.port[1]} to: " if mode.port else f"{what}: "
    labels = [f" {at} {name} " for at, name in enumerate(mode.uplinks, 1)]
    first = mode.at
    room = width - width_of(clean(head)) - width_of(clean(labels[mode.at]))
    while first and (room := room - width_of(clean(labels[first - 1]))) >= 0:
        first -= 1
    spans = [Span(clean(head), Style.HEAD)]
    for at, label in enumerate(labels[first:], first):
        spans.append(Span(clean(label), Style.CHOSEN if at == mode.at else Style.PLAIN))
    spans.append(Span("  <- -> Enter, Esc", Style.DIM))
    return tuple(spans)


# ---- panes -----------------------------------------------------------------------------


def _watching(state: State, look: Look, height: int) -> list[Line]:
    if state.picture is None:
        return [(), line(f" {state.away or WAITING}", Style.BAD if state.away else Style.PLAIN)]
    if not state.bridges:
        return [(), line(f" {_none(state)}")]
    panes = _panes(state, look, height)
    uplinks = _uplinks(state, look)
    drawn = uplinks[: panes.uplinks]
    if 0 < panes.uplinks < len(uplinks):
        how = "b shows one bridge" if len(state.bridges) > 1 else "ovs-lbt show"
        more = len(uplinks) - panes.uplinks + 1
        drawn[-1] = line(f" ... {more} more uplinks: {how}", Style.DIM)
    drawn += [_note(state)][: panes.note]
    ports, which = _port_page(state, look, panes.ports)
    drawn += ports
    if panes.history:
        drawn += [_rule("last decisions", which, look), *_history(state)[: panes.history - 1]]
    return drawn


def _none(state: State) -> str:
    """Return the reason why there is no bridge to show."""
    return f"{', '.join(state.only)}: no longer attached" if state.only else NONE_ATTACHED


def _panes(state: State, look: Look, height: int) -> Panes:
    """Divide the lines among panes. VM ports take precedence, except over a minimum for other panes."""
    wanted_uplinks = sum(len(bridge["uplinks"]) for bridge in state.bridges) + 1
    uplinks = min(wanted_uplinks, max(LEAST_PANE, height // UPLINKS_SHARE))
    if height < 2 * LEAST_PANE:
        uplinks = 0
    note = 1 if height - uplinks > LEAST_PANE else 0
    rest = height - uplinks - note
    wanted_ports = max(1, len(state.rows)) + 1
    least_history = max(LEAST_PANE, rest // HISTORY_SHARE)
    if rest < 2 * LEAST_PANE + 1:
        least_history = 0
    ports = max(0, min(wanted_ports, rest - least_history))
    history = rest - ports
    if history < LEAST_PANE:
        ports, history = rest, 0
    return Panes(uplinks, note, ports, history)


def _uplinks(state: State, look: Look) -> list[Line]:
    return [(Span(" "), *one) for one in uplink_rows(state.bridges, look, indent=1)]


def _note(state: State) -> Line:
    """Draw the most important problem, and the number of further problems."""
    several = len(state.bridges) > 1
    texts = [(b, text, Style.WARN) for b in state.bridges for text in notes(b)]
    texts += [(b, text, Style.HEAD) for b in state.bridges for text in states(b)]
    if not texts:
        return ()
    bridge, text, style = texts[0]
    more = f"({len(texts) - 1} more: ovs-lbt show) " if len(texts) > 1 else ""
    where_it_is = f"{bridge['name']}: " if several else ""
    return line(f" {more}{where_it_is}{text}", style)


def _port_page(state: State, look: Look, height: int) -> tuple[list[Line], str]:
    """Draw the page of VM ports with the selected VM port. Also return the range of rows as text."""
    rows, count = state.rows, max(1, height - 1)
    first = state.at // count * count
    shown = rows[first : first + count]
    drawn = _ports(state, shown, look, rows[state.at] if rows else None)
    if not rows:
        text = f"no VM port matches {state.filter!r}" if state.filter else "no VM ports"
        drawn.append(line(f" {text}", Style.DIM))
    which = f"ports {first + 1}-{first + len(shown)} of {len(rows)}" if len(rows) > count else ""
    return drawn[: max(0, height)], which


def _ports(state: State, rows: Sequence[Row], look: Look, chosen: Row | None) -> list[Line]:
    """Draw a header line, and a line for each of `rows`. The column widths fit all pages."""
    several = len(state.bridges) > 1
    columns = list(PORTS.values())
    at = list(PORTS).index(state.sort)
    if look.width is not None:
        descending = manual.SORTS[state.sort] != state.reverse
        mark = ("↓" if descending else "↑") if look.unicode else ("v" if descending else "^")
        head = columns[at].head
        head = f"{mark}{head}" if columns[at].right else f"{head}{mark}"
        columns[at] = replace(columns[at], head=head)
    if several:
        columns.insert(0, BRIDGE)
    spans = {row.key: _port(row, several) for row in state.rows}
    given = widths(columns, spans.values(), look, 1)
    heads = tuple(
        Span(column.head, Style.TITLE if number == at + several and look.width else Style.HEAD)
        for number, column in enumerate(columns)
    )
    drawn = [row(columns, heads, given, look)]
    for one in rows:
        cells = row(columns, spans[one.key], given, look)
        if chosen is not None and one.key == chosen.key and look.width is not None:
            cells = restyled(padded(cells, look.width - 1), Style.CHOSEN)
        drawn.append(cells)
    return [(Span(" "), *one) for one in drawn]


def _port(one: Row, several: bool) -> Line:
    port, ratio = one.port, one.drop_ratio
    drops = "-" if ratio is None else f"{100 * ratio:.2f}"
    felt = ratio is not None and ratio >= LOSS_FELT_RATIO
    *cells, why = port_cells(port, one.why)
    return (
        *([Span(clean(one.key[0]))] if several else []),
        *cells,
        Span(drops, Style.WARN if felt else Style.PLAIN),
        why,
    )


def _history(state: State) -> list[Line]:
    picture = state.picture
    if picture is None:
        return []
    if picture.no_history:
        return [line(f" {picture.no_history}", Style.DIM)]
    names = [bridge["name"] for bridge in state.bridges]
    several = len(names) > 1
    return [
        (
            Span(f" {one.clock}{GAP}", Style.DIM),
            *line(f"{one.bridge}{GAP}{one.text}" if several else one.text),
        )
        for one in picture.happened
        if one.bridge in names
    ] or [line(" no decisions yet", Style.DIM)]


def _rule(title: str, at_the_end: str, look: Look) -> Line:
    """Draw a line between panes with a title and a text at the end, which is omitted if too long."""
    stroke, width = "─" if look.unicode else "-", look.width or 0
    end = f" {at_the_end} {stroke}" if at_the_end else ""
    room = width - len(title) - 3 - len(end)
    if room < 0:
        room, end = max(0, room + len(end)), ""
    head = (Span(stroke, Style.DIM), Span(f" {title} ", Style.HEAD))
    return (*head, Span(stroke * room, Style.DIM), Span(end, Style.DIM))


# ---- texts -----------------------------------------------------------------------------


def _reading(state: State, mode: Reading, look: Look, height: int) -> list[Line]:
    """Draw the help, or an explanation of a VM port, which is below the uplinks if both fit."""
    above = _above(state, mode, look, height)
    lines = _folded(WAITING if mode.text is None else mode.text, look.width or 0)
    room = height - len(above)
    top = max(0, min(mode.top, len(lines) - room))
    return [*above, *map(line, lines[top : top + room])]


def _above(state: State, mode: Reading, look: Look, height: int) -> list[Line]:
    """Draw the uplinks above an explanation of a VM port, if enough lines remain for the text."""
    above = [*_uplinks(state, look), ()] if mode.port is not None and state.bridges else []
    return above if height - len(above) >= 4 * LEAST_PANE else []


def _folded(text: str, width: int) -> list[str]:
    return [one for long in text.splitlines() for one in _wrapped(long, width)]


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap a line that was formatted for a wider screen, and keep the indent of the line."""
    if width_of(clean(text)) <= width or width < 30:
        return [text]
    hang = len(text) - len(text.lstrip())
    return textwrap.wrap(
        text.lstrip(),
        width,
        initial_indent=" " * hang,
        subsequent_indent=" " * min(hang, width // 2) + "  ",
    )
