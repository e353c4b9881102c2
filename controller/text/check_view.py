"""The findings of `check` as lines for people, made of its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from controller.text.drawing import Line, Span, Style, clean, plain

JsonObject = Mapping[str, Any]

# A note asks for nothing; the others make the exit status 1.
ERROR, WARNING, NOTE = "error", "warning", "note"
_STYLES = {ERROR: Style.BAD, WARNING: Style.WARN, NOTE: Style.PLAIN}
NONE_ATTACHED = "no bridge is attached; to test one: ovs-lbt check BRIDGE"


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
