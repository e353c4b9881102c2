"""The findings of `check` and `attach`: how each is written for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from controller.api.history import fields
from controller.text.drawing import Line, Span, Style, clean, plain
from controller.text.show_view import JsonObject
from controller.text.wording import quoted

# A note requires no action. With errors or warnings, the exit status of `check` is 1.
ERROR, WARNING, NOTE = "error", "warning", "note"
_STYLES = {ERROR: Style.BAD, WARNING: Style.WARN, NOTE: Style.PLAIN}
NONE_ATTACHED = "no bridge is attached; to test one: ovs-lbt check BRIDGE"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or a fact that `check` reports. `text`: the problem and how to solve it.

    `check`: the kind of finding, a word for programs. `bridge`: None for a finding about the host.
    `runbook`: the name of a runbook in docs/runbooks.md or docs/runbooks-service.md.
    """

    severity: str
    check: str
    text: str
    bridge: str | None = None
    runbook: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the finding as documented in docs/reference/json.md."""
        shown = fields(self, "bridge", "severity", "check", "text")
        return shown | ({"runbook": self.runbook} if self.runbook else {})


def ignored_flags(bridge: str, ports: Iterable[str]) -> Iterator[Finding]:
    """Report the VM ports that receive flooded frames although another program set `no-flood`."""
    for port in sorted(ports):
        text = (
            f"{port}: another program set the port flag no-flood, but ovs-lbt delivers flooded frames"
            f"; to clear the flag: ovs-ofctl mod-port {quoted(bridge)} {quoted(port)} flood; if the VM"
            " must not receive flooded frames, filter them in the VM"
        )
        yield Finding(WARNING, "no-flood", text, bridge)


def written(found: Iterable[Finding], teams: Iterable[JsonObject]) -> JsonObject:
    """Return the answer to `check`, as documented in docs/reference/json.md. `teams`: its bridges."""
    return {"bridges": [*teams], "findings": [one.as_json() for one in found]}


def lines(answer: JsonObject) -> Iterator[Line]:
    """Return a line for each finding, and a line for each attached bridge without problems."""
    if not answer["bridges"] and not answer["findings"]:
        yield (Span(NONE_ATTACHED),)
    for finding in answer["findings"]:
        severity, style = finding["severity"], _STYLES[finding["severity"]]
        about = f"{finding['bridge']}: " if finding["bridge"] else ""
        runbook = f" (runbook {finding['runbook']})" if "runbook" in finding else ""
        yield Span(severity, style), Span(clean(f": {about}{finding['text']}{runbook}"))
    for bridge in answer["bridges"]:
        if bridge["attached"] and not problems(answer, bridge["name"]):
            yield (Span(clean(f"{bridge['name']}: no problems found")),)


def shown(answer: JsonObject, as_json: bool) -> str:
    """Return an answer in the requested form: JSON for programs, or lines of text."""
    if as_json:
        return json.dumps(answer, indent=2)
    return "\n".join(plain(one) for one in lines(answer))


def problems(answer: JsonObject, bridge: str | None = None) -> list[JsonObject]:
    """Return the findings that are not notes, for `bridge` or for all bridges."""
    return [
        finding
        for finding in answer["findings"]
        if finding["severity"] != NOTE and bridge in (None, finding["bridge"])
    ]
