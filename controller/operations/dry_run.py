"""Describes the settings and moves that a request would make, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.api.engine_commands import Setting
from controller.bridge.fleet import Fleet
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.operations import findings, plans, unconfirmed
from controller.operations.jobs import Doing
from controller.operations.unconfirmed import UNCONFIRMED
from controller.text.show_view import JsonObject
from controller.text.wording import lines_of, quoted, shortened

# The number of moves that are described one by one.
MOVES_MAX = 20


def described(fleet: Fleet, doing: Doing, now_s: float) -> str:
    """Return a line for each change and each move that a request would make."""
    row, moves = fleet.rows[doing.name], list(doing.moves)
    bridge, after = fleet.bridges.get(row.name), applied(row, doing.settings)
    if doing.settings and after.attached and bridge is not None and bridge.phase.is_attached:
        moves += bridge.placing.following(read_bridge(after, bridge.config), now_s)
    lines = [f"would move {plans.named_move(moved)}" for moved in moves[:MOVES_MAX]]
    if (more := len(moves) - MOVES_MAX) > 0:
        lines.append(f"would make {more} more moves")
    lines = written(row, doing.settings, *lines, *doing.notes)
    return lines_of(lines or ["nothing would change"])


def of_attach(row: BridgeRow, settings: Sequence[Setting], answer: JsonObject) -> str:
    """Return a line for each change that an attach would make, and the findings of `check`."""
    return "\n".join([lines_of(written(row, settings)), findings.shown(answer, as_json=False)])


def applied(row: BridgeRow, settings: Sequence[Setting]) -> BridgeRow:
    """Return the bridge's records with `settings` applied."""

    def ids(table: str, record: str, before: Mapping[str, str]) -> dict[str, str]:
        of_record = [s for s in settings if (s.table, s.record) == (table, record)]
        after = {**before, **{s.key: s.value for s in of_record}}
        return {key: value for key, value in after.items() if value is not None}

    own = ids("Bridge", row.name, row.external_ids)
    return replace(row, external_ids=own).with_interfaces(
        lambda i: replace(i, external_ids=ids("Interface", i.name, i.external_ids))
    )


def written(row: BridgeRow, settings: Sequence[Setting], *more: str) -> list[str]:
    """Return a line for each group of records with equal changes, `more`, and any rollback line."""
    # Keyed by table, record and whether the keys are removed.
    changes: dict[tuple[str, str, bool], dict[str, None]] = {}
    last = list[str]()
    for setting, before in zip(settings, unconfirmed.before_set(row, settings), strict=True):
        key, value = setting.key.removeprefix(PREFIX), setting.value
        if setting.key == UNCONFIRMED and value is not None:
            keep, change = f"ovs-lbt confirm {quoted(row.name)}", unconfirmed.parse(value)
            last = [f"would roll this back after {change.seconds:g} s, unless confirmed: {keep}"]
        elif value != before.value:
            what = key if value is None else f"{key}={shortened(value)}"
            place = (setting.table.lower(), setting.record, value is None)
            changes.setdefault(place, {})[what] = None
    named: dict[str, list[str]] = {}
    for (table, record, removes), keys in changes.items():
        verb, on = ("remove", "from") if removes else ("set", "on")
        named.setdefault(f"would {verb} {', '.join(keys)} {on} {table}", []).append(record)
    lines = [f"{t}{'s' if len(of) > 1 else ''} {plans.listed(of)}" for t, of in named.items()]
    return [*lines, *more, *last]
