"""Sends requests to the service, prints its answers, and returns exit statuses.

Answers go to stdout, errors and warnings to stderr. `check` also examines network counters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.host import client
from controller.text.wording import Refused, because

# The exit statuses of `check`: no findings, findings, the check failed.
WELL, FOUND, UNKNOWN = 0, 1, 2


def ask(command: str, words: list[str]) -> int:
    """Send a command to the service, print its answer, and return the exit status.

    Raises:
        Refused: the service refuses the command, or does not answer.
    """
    tell(client.request(command, words))
    return 0


def tell(answered: str) -> None:
    """Print an answer to stdout, and its warnings to stderr.

    The Python library of Open vSwitch 3.1 adds a newline to each answer; that of 3.5 does not.
    """
    for line in answered.removesuffix("\n").split("\n") if answered else ():
        print(line, file=sys.stderr if line.startswith("warning: ") else sys.stdout)


def failed(why: str, status: int = 1) -> int:
    """Print an error, and return `status` as the exit status."""
    print(f"ovs-lbt: {why}", file=sys.stderr)
    return status


def show(bridge: str | None) -> int:
    """Request the status as JSON, and print it for this terminal's width and colours."""
    words = [] if bridge is None else [bridge]
    shown = json.loads(client.request("show", [*words, "--json"]))
    from controller.text import show_view, terminal

    sys.stdout.write(terminal.written(show_view.lines(shown, terminal.look())))
    return 0


def check(words: Sequence[str], json_wanted: bool) -> int:
    """Print the findings of the service and of checks on this host, and return the exit status."""
    import ovs.dirs

    from controller.operations.findings import ERROR, Finding, lines, problems
    from controller.text import terminal

    try:
        answer = json.loads(client.request("check", [*words, "--json"]))
    except Refused as why:
        if json_wanted:
            found = Finding(ERROR, "refused", str(why))
            if isinstance(why, client.Unanswered):
                found = Finding(ERROR, "unanswered", str(why))
            answer = {"well": False, "bridges": [], "findings": [found.as_json()]}
            print(json.dumps(answer, indent=2))
        return failed(str(why), UNKNOWN)
    lost = {f["bridge"] for f in answer["findings"] if f["check"] == "not-connected"}
    for team in (team for team in answer["bridges"] if team["name"] not in lost):
        if team["uplinks"] and (Path(ovs.dirs.RUNDIR) / f"{team['name']}.mgmt").is_socket():
            answer["findings"] += [*_flags(team), *_upstream(team)]
    well = not problems(answer)
    if json_wanted:
        print(json.dumps({"well": well, **answer}, indent=2))
    else:
        sys.stdout.write(terminal.written(lines(answer)))
    return WELL if well else FOUND


def _flags(team: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Report VM ports with flag `no-flood` if uplinks are plain. With a bond, the service does this."""
    from controller.host.forwarding import flagged
    from controller.operations.findings import ignored_flags

    if not team["attached"] or team["bond"]:
        return []
    uplinks = {uplink["ofport"] for uplink in team["uplinks"]}
    try:
        ports = [name for port, name in flagged(team["name"]).items() if port not in uplinks]
    except Refused:
        return []  # A bridge that does not allow OpenFlow 1.0 does not show flags.
    return [finding.as_json() for finding in ignored_flags(team["name"], ports)]


def _upstream(team: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Report problems of the upstream network that a bridge's counters on this host show."""
    from controller.dataplane.specs import COOKIE_PREFIX
    from controller.dataplane.tables import COOKIE_PREFIX_MASK
    from controller.host.programs import run
    from controller.operations import upstream
    from controller.operations.findings import NOTE, Finding

    name, uplinks = team["name"], [uplink["name"] for uplink in team["uplinks"]]
    ours = f"cookie={COOKIE_PREFIX:#x}/{COOKIE_PREFIX_MASK:#x}"
    listed = ("--format=json", f"--columns={upstream.COLUMNS}", "list", "Interface", *uplinks)
    try:
        dumped = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", name, ours)
        ports = upstream.ports_of(run("ovs-vsctl", *listed))
        found = [*upstream.findings(team, ports, upstream.parse(dumped))]
    except Refused as why:
        found = [Finding(NOTE, "upstream", f"network counters cannot be read: {why}", name)]
    return [finding.as_json() for finding in found]


def history(service: str, words: list[str]) -> int:
    """Print the service's history, read from the default file if the service is not running."""
    if client.running():
        return ask("history", words)
    from controller.host import journal

    try:
        tell(journal.answer(journal.default_path(service), tuple(words)))
    except (Refused, ValueError, OSError) as error:
        return failed(because(error))
    return 0
