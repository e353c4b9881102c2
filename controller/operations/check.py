"""The answer of `check`: whether an attached bridge is healthy, and whether another one is fit to attach."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet
from controller.config.rows import BridgeRow
from controller.operations import advice
from controller.operations.findings import (
    ERROR,
    NOTE,
    WARNING,
    About,
    Finding,
    Told,
    of_bridge,
    without_keys,
)
from controller.text.drawing import Line, Span, Style, clean, plain
from controller.text.show_view import JsonObject

# A service on standby asks several times a second whether this one is alive.
STANDBY_ASKS_WITHIN_S = 10.0
_STYLES = {ERROR: Style.BAD, WARNING: Style.WARN, NOTE: Style.PLAIN}
NONE_ATTACHED = "no bridge is attached; to test one: ovs-lbt check BRIDGE"


def answer(
    fleet: Fleet, bridges: Iterable[Bridge], now_s: float, others: Iterable[BridgeRow] = ()
) -> JsonObject:
    """The answer about attached bridges, as documented in docs/reference/json.md.

    `others`: the records of bridges that are looked at only if their keys have vanished.
    """
    bridges = list(bridges)
    found = [*_of_host(fleet, now_s), *without_keys(others)]
    for bridge in bridges:
        name = bridge.config.name
        status = next(iter(fleet.status(name)), None)
        told = Told.CHECK | Told.CONNECTED if bridge.connected else Told.CHECK
        found += of_bridge(About(fleet, bridge, fleet.rows[name], now_s, status), told)
    return _written(found, [_team(bridge, attached=True) for bridge in bridges])


def fit(fleet: Fleet, bridge: Bridge, now_s: float) -> JsonObject:
    """The answer about a bridge that `attach` would take. It was inspected."""
    found = of_bridge(About(fleet, bridge, fleet.rows[bridge.config.name], now_s), Told.FIT)
    return _written(found, [_team(bridge, attached=False)])


def unfit(row: BridgeRow, why: str) -> JsonObject:
    """The answer about a bridge that `attach` would refuse."""
    team = {"name": row.name, "attached": False, "uplinks": []}
    found = Finding(ERROR, "unfit", f"not fit to attach: {why}", row.name)
    return _written([*without_keys([row]), found], [team])


# ---- the host --------------------------------------------------------------------------


def _of_host(fleet: Fleet, now_s: float) -> Iterator[Finding]:
    for fault in fleet.recent_faults(now_s):
        text = f"fault of ovs-lbt: {fault.text} (of {fault.part}: {fault.count} in all)"
        yield Finding(WARNING, "fault", text, runbook="OvsLbtFault")
    if fleet.lacking:
        yield Finding(ERROR, "schema", fleet.lacking)
    if unknown := advice.release_warning(fleet.ovs_version):
        yield Finding(NOTE, "release", unknown)
    if (asked_s := fleet.challenged_s) is None:
        return
    if now_s - asked_s <= STANDBY_ASKS_WITHIN_S:
        yield Finding(NOTE, "standby", "this service leads; another one stands by")
    else:
        found = f"standby: silent for {now_s - asked_s:.0f} s"
        yield Finding(WARNING, "standby", f"{found} -> a running service that stands by")


def _team(bridge: Bridge, attached: bool) -> dict[str, Any]:
    config, is_up = bridge.config, bridge.links.up
    return {
        "name": config.name,
        "attached": attached,
        "teaming": config.teaming,
        "uplinks": [
            {"name": u.name, "ofport": int(u.ofport), "up": is_up(u), "role": u.role.value}
            for u in config.uplinks
        ],
    }


def _written(found: Iterable[Finding], teams: Iterable[JsonObject]) -> JsonObject:
    return {"bridges": [*teams], "findings": [one.as_json() for one in found]}


# ---- for people --------------------------------------------------------------------------


def lines(answer: JsonObject) -> Iterator[Line]:
    """A line for each finding, and one for each bridge without any that asks for something."""
    if not answer["bridges"] and not answer["findings"]:
        yield (Span(NONE_ATTACHED),)
    for finding in answer["findings"]:
        severity, style = finding["severity"], _STYLES[finding["severity"]]
        about = f"{finding['bridge']}: " if finding["bridge"] else ""
        runbook = f" (runbook {finding['runbook']})" if "runbook" in finding else ""
        yield Span(severity, style), Span(clean(f": {about}{finding['text']}{runbook}"))
    for bridge in answer["bridges"]:
        if bridge["attached"] and not problems(answer, bridge["name"]):
            yield (Span(clean(f"{bridge['name']}: well")),)


def shown(answer: JsonObject, as_json: bool) -> str:
    """An answer as it is asked for: in JSON for programs, or as lines."""
    if as_json:
        return json.dumps(answer, indent=2)
    return "\n".join(plain(one) for one in lines(answer))


def problems(answer: JsonObject, bridge: str | None = None) -> list[JsonObject]:
    """The findings that ask for something, of one bridge or of all."""
    return [
        finding
        for finding in answer["findings"]
        if finding["severity"] != NOTE and bridge in (None, finding["bridge"])
    ]
