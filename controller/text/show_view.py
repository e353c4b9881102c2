"""Formats the JSON answer of `show` as tables of bridges, uplinks and VM ports for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from controller.text import wording
from controller.text.drawing import (
    GAP,
    Column,
    Line,
    Look,
    Span,
    Style,
    bar,
    clean,
    line,
    mbps,
    row,
    severity,
    table,
    width_of,
    widths,
)

# The documented fields of a bridge, an uplink and a port.
JsonObject = Mapping[str, Any]

NONE_ATTACHED = "no bridge is attached; attach one with: ovs-lbt attach BRIDGE"
OBSERVING_BOND = (
    "observe mode: the bond forwards as before; the table shows what enforce mode would use"
)
OBSERVING_UPLINKS = "observe mode: no moves to balance load; planned uplinks are in parentheses"
FAILED = "installed flows stay, and ovs-lbt will try again"
ABSENT = "it does not exist on the switch"
FALLEN_BACK = "LACP is not negotiated, so one uplink serves all VM ports"

DROPS = "dropped_on_purpose"
PARTS = ("shares", "reserve_bps", "limit_bps")
INDENT = "  "
# The width of tables with bars if the terminal's width is not known.
USUAL_WIDTH = 80
FEWEST_CELLS, MOST_CELLS = 3, 24
# Both ends and the mark.
BAR_ENDS = 3
PERCENT_WIDTH = 4
# The threshold for services before 0.2, which do not report the threshold.
USUAL_THRESHOLD_RATIO = 0.75

BRIDGE = Column("BRIDGE", least=6, gives=5)
CAPACITY = Column("Mbit/s", right=True)
RATES = (Column("MbTX/s", right=True), Column("MbRX/s", right=True))
UPLINKS = (Column("UPLINK"), Column("STATE"), CAPACITY, *RATES)
PORTS = (
    Column("PORT", least=8, gives=3),
    Column("USED-BY", least=8, gives=2, optional=True),
    Column("UPLINK", least=8, gives=4),
    *RATES,
    Column("WHY", least=10, gives=1),
)


def lines(answer: JsonObject, look: Look) -> list[Line]:
    """Format the whole answer to `show`."""
    if answer.get("standby"):
        # A service on standby manages no bridges.
        return _apart([line(f"on standby: {answer['leader']} leads")], faults(answer, look))
    blocks = [_block(bridge, look) for bridge in answer["bridges"]] or [[line(NONE_ATTACHED)]]
    return _apart(waiting(answer, look), *blocks, faults(answer, look))


def _apart(*parts: Sequence[Line]) -> list[Line]:
    """Return the lines of all parts that are not empty, with an empty line between two parts."""
    return [drawn for part in filter(None, parts) for drawn in ((), *part)][1:]


def waiting(answer: JsonObject, look: Look) -> list[Line]:
    """Return lines for unconfirmed changes."""
    texts = []
    for change in answer.get("unconfirmed", ()):
        name, what, left_s = change["bridge"], change["change"], change["left_s"]
        at = f"in {left_s:.0f} s, at {wording.time_of_day(change['until'])}"
        when = f"will be rolled back {at}" if left_s else "is being rolled back"
        texts.append(f"{name}: {what} {when}; to keep it: ovs-lbt confirm {wording.quoted(name)}")
    return _wrapped(texts, look, Style.WARN)


def faults(answer: JsonObject, look: Look) -> list[Line]:
    """Return lines for the service's own faults; none if the service does not report faults."""
    texts = [
        f"ovs-lbt fault  {fault['found']} (in {fault['part']}: {fault['count']} in total)"
        for fault in answer.get("faults", ())
    ]
    return _wrapped([*texts, wording.OUR_LOG], look, Style.BAD) if texts else []


def _block(bridge: JsonObject, look: Look) -> list[Line]:
    """Return the lines for a bridge: uplinks, ports and notes."""
    words = GAP.join([bridge["name"], bridge["policy"], bridge["teaming"], bridge["mode"]])
    state = Span("connected") if bridge["connected"] else Span("NOT CONNECTED", Style.BAD)
    ports = sorted(bridge["ports"], key=lambda port: natural(port["name"]))
    cells = [port_cells(port, why(port, bridge["policy"])) for port in ports]
    tables = uplink_rows([bridge], look, len(INDENT)), table(PORTS, cells, look, len(INDENT))
    return _apart(
        [(*line(words, Style.HEAD), Span(GAP), state), *_wrapped(states(bridge), look)],
        *([(Span(INDENT), *one) for one in rows] for rows in tables),
        _wrapped(_shared(bridge), look),
        _wrapped(bridge.get("offload", ()), look),
        _wrapped([f"{p['name']}: {dropped(p[DROPS])}" for p in ports if DROPS in p], look),
        _wrapped(notes(bridge), look, Style.WARN),
    )


def _why_down(uplink: JsonObject) -> str:
    if uplink.get("absent"):
        return "absent"
    if uplink.get("silent"):
        return "no answer"
    if uplink.get("waits"):
        return "blocked"
    faults = uplink.get("path_faults", ())
    cut_off = any(fault["kind"] == "unreachable" and fault["decided"] for fault in faults)
    return "unreachable" if cut_off else "down"


def states(bridge: JsonObject) -> list[str]:
    """Return sentences about unusual states of a bridge, such as observe mode or silent links."""
    texts = []
    if bridge["mode"] == "observe":
        texts.append(OBSERVING_BOND if bridge.get("on_normal") else OBSERVING_UPLINKS)
    if bridge.get("fallen_back"):
        texts.append(FALLEN_BACK)
    texts += [
        f"{uplink['name']}: link up, but no response from the peer ({', '.join(uplink['silent'])})"
        for uplink in bridge["uplinks"]
        if uplink.get("silent")
    ]
    texts += [f"{u['name']}: {u['waits']}" for u in bridge["uplinks"] if u.get("waits")]
    texts += [f"{u['name']}: {ABSENT}" for u in bridge["uplinks"] if u.get("absent")]
    texts += [
        f"{u['name']}: {guessed(u['name'], u['capacity_bps'])}"
        for u in bridge["uplinks"]
        if u["up"] and u.get("capacity_guessed")
    ]
    # A fault that concerns several uplinks is listed for each of them.
    faults = {
        fault["found"]: f"{fault['found']}; {fault['expected']}"
        for uplink in bridge["uplinks"]
        for fault in (*uplink.get("path_faults", ()), *uplink.get("path_hindered", ()))
    }
    texts += faults.values()
    return texts


def guessed(uplink: str, capacity_bps: float) -> str:
    """Return a note that a capacity is a guess, with the command to set it."""
    found = f"its link speed is unknown, and {capacity_bps / 1e6:g} Mbit/s is a guess"
    return f"{found}; to set it: ovs-lbt set interface {wording.quoted(uplink)} capacity-mbps=MBPS"


def notes(bridge: JsonObject) -> list[str]:
    """Return a line for each problem of a bridge that needs attention."""
    failure = bridge.get("failure")
    return [
        *([f"failure    {failure}; {FAILED}"] if failure else []),
        *(f"rule broken  {r['port']} {r['rule']}: {r['how']}" for r in bridge["rules_broken"]),
        *(
            f"{'key lost ' if wording.VANISHED in error else 'bad value'}  {error}"
            for error in bridge["config_errors"]
        ),
        *(f"not done   {text}" for text in bridge["not_done"]),
    ]


def _shared(bridge: JsonObject) -> list[str]:
    """Return lines for spread traffic, for shares and limits on uplinks, and for tunnel endpoints."""
    spread = [
        f"{port['name']}: {_counts(port['units'], 'addresses')}"
        for port in bridge["ports"]
        if "units" in port
    ]
    buckets = [f"{policy}: {_counts(of, 'buckets')}" for policy, of in bridge["buckets"].items()]
    if (hashed := bridge.get("connection_hash")) is not None:
        buckets.append(wording.hashed_by(hashed["used"], hashed["why"], hashed.get("cost")))
    parts = [f"{p['name']}: {t}" for p in bridge["ports"] if (t := part(*map(p.get, PARTS)))]
    sent = [
        f"{p['name']}: tunnel endpoint, {wording.tunnels_sent(e['kinds'], e['bridges'], e['addresses'])}"
        for p in bridge["ports"]
        if (e := p.get("endpoint")) is not None
    ]
    return [*spread, *buckets, *parts, *sent]


def dropped(counts: Mapping[str, int]) -> str:
    """Describe the frames of a VM port that were dropped on purpose. `counts`: the numbers by reason."""
    told = [
        f"{count} {wording.DROPPED.get(reason, reason)}" for reason, count in sorted(counts.items())
    ]
    return f"dropped {', '.join(told)}"


def _counts(counts: Mapping[str, int], what: str) -> str:
    """Return the total and the number on each uplink."""
    shares = ", ".join(f"{uplink} {count}" for uplink, count in counts.items())
    return f"{sum(counts.values())} {what}, {shares}"


def part(shares: int | None, reserve_bps: float | None, limit_bps: float | None) -> str:
    """Describe a VM port's shares, reservation and limit; empty if none is set."""
    texts = [f"shares {shares}"] if shares else []
    if reserve_bps:
        texts.append(f"{reserve_bps / 1e6:g} Mbit/s reserved")
    if limit_bps:
        texts.append(f"at most {limit_bps / 1e6:g} Mbit/s")
    return ", ".join(texts)


# ---- uplinks ---------------------------------------------------------------------------


def uplink_rows(bridges: Sequence[JsonObject], look: Look, indent: int = 0) -> list[Line]:
    """Draw a header line, and a row for each uplink, with a bar of maximum width for each direction."""
    several = len(bridges) > 1
    columns = [BRIDGE, *UPLINKS] if several else list(UPLINKS)
    of = [(bridge, uplink) for bridge in bridges for uplink in bridge["uplinks"]]
    rows = [_uplink(bridge, uplink, several) for bridge, uplink in of]
    given = widths(columns, rows, look, indent)
    cells = _cells(given, look, indent)
    if cells < FEWEST_CELLS and look.width is not None:
        # The bars are more important than the capacity, whose column is omitted if space is short.
        at = columns.index(CAPACITY)
        columns, given = columns[:at] + columns[at + 1 :], given[:at] + given[at + 1 :]
        rows = [one[:at] + one[at + 1 :] for one in rows]
        cells = _cells(given, look, indent)
    last = len(columns) - 1

    def drawn(spans: Line, sending: Line, receiving: Line) -> Line:
        """Draw a row, and append a bar to each of the last two columns."""
        sent = row(columns[:last], spans[:last], given[:last], look)
        received = row(columns[last:], spans[last:], given[last:], look)
        return (*sent, Span(GAP), *sending, Span(GAP), *received, Span(GAP), *receiving)

    heads = tuple(Span(column.head, Style.HEAD) for column in columns)
    load = f"{'LOAD':<{cells + BAR_ENDS + PERCENT_WIDTH}}" if cells >= FEWEST_CELLS else "LOAD"
    over = (Span(load, Style.HEAD),)
    shown = [drawn(heads, over, over)]
    for spans, (bridge, uplink) in zip(rows, of, strict=True):
        bars = (_bar(bridge, uplink, rate, cells, look) for rate in ("tx_bps", "rx_bps"))
        shown.append(drawn(spans, *bars))
    return shown


def _cells(given: Sequence[int], look: Look, indent: int) -> int:
    """Return the width of each of two bars, next to columns with the widths `given`."""
    gaps, bars = len(GAP) * (len(given) + 1), 2 * (BAR_ENDS + PERCENT_WIDTH)
    room = (look.width or USUAL_WIDTH) - indent - sum(given) - gaps - bars
    return min(max(room // 2, 0 if look.width else 2 * FEWEST_CELLS), MOST_CELLS)


def _uplink(bridge: JsonObject, uplink: JsonObject, several: bool) -> Line:
    state = Span(uplink["role"], Style.PLAIN if uplink["role"] == "active" else Style.DIM)
    if not uplink["up"]:
        state = Span(_why_down(uplink), Style.BAD)
    elif uplink.get("waits"):
        state = Span("waits", Style.WARN)
    elif uplink["role"] == "drained":
        state = Span("drained", Style.WARN)
    return (
        *([Span(clean(bridge["name"]))] if several else []),
        Span(clean(uplink["name"])),
        state,
        Span(f"{uplink['capacity_bps'] / 1e6:.0f}{'?' if uplink.get('capacity_guessed') else ''}"),
        Span(mbps(uplink["tx_bps"])),
        Span(mbps(uplink["rx_bps"])),
    )


def _bar(bridge: JsonObject, uplink: JsonObject, rate: str, cells: int, look: Look) -> Line:
    limit_ratio = bridge.get("threshold_ratio", USUAL_THRESHOLD_RATIO)
    ratio = uplink[rate] / uplink["capacity_bps"] if uplink["capacity_bps"] else 0.0
    percent = Span(f"{min(ratio, 9.99):>{PERCENT_WIDTH}.0%}", severity(ratio, limit_ratio))
    return (*(bar(ratio, limit_ratio, cells, look) if cells >= FEWEST_CELLS else ()), percent)


# ---- ports -----------------------------------------------------------------------------


def port_cells(port: JsonObject, why: str) -> Line:
    """Return the cells of a VM port; `why` (the reason for its uplink) is the last cell."""
    return (
        Span(clean(port["name"])),
        Span(used_by(port)),
        where(port),
        Span(mbps(port["tx_bps"])),
        Span(mbps(port["rx_bps"])),
        Span(why),
    )


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key for natural order: vnet2 before vnet10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold())
        for part in re.split(r"(\d+)", text)
        if part
    ]


def used_by(port: JsonObject) -> str:
    """Return the VM of a port, or the purpose of its tunnels; "-" if it has neither."""
    if port["vm"] != port["name"]:
        return clean(port["vm"])
    if (found := port.get("endpoint")) is not None:
        return clean(wording.endpoint_of(found["kinds"], found["bridges"]))
    return "-"


def where(port: JsonObject) -> Span:
    """Return the uplink that a port uses, and its planned uplink if the two differ."""
    uplink, planned = port["uplink"], port.get("planned_uplink")
    style = Style.PLAIN if uplink else Style.BAD
    if planned in (None, uplink):
        return Span(clean(uplink or "-"), style)
    return Span(clean(f"{uplink or '-'} ({planned})"), style)


def why(port: JsonObject, policy: str) -> str:
    """Return the reason why a port is on its uplink, and the port's own policy, if any.

    If the port is on its pinned uplink, the reason is the pin, not the reason for the last move.
    """
    reason = "pin" if port.get("pinned") else port["reason"]
    own = "" if port["policy"] in (policy, reason) else f" ({port['policy']})"
    return f"{reason or '-'}{own}"


# ---- lines -----------------------------------------------------------------------------


def _wrapped(texts: Sequence[str], look: Look, style: Style = Style.PLAIN) -> list[Line]:
    return [one for text in texts for one in _folded(clean(text), look, style)]


def _folded(text: str, look: Look, style: Style) -> Iterator[Line]:
    """Wrap a sentence to the width; for programs, keep it on one line."""
    if look.width is None or width_of(text) + len(INDENT) <= look.width:
        yield line(INDENT + text, style)
        return
    for part_of_it in wording.wrapped(text, max(look.width, 20), INDENT, 2 * INDENT):
        yield line(part_of_it, style)
