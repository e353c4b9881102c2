"""`ovs-lbt check`: asks the service, adds what counters show of the network, and prints a line for each finding.

Exit status: 0 all is well, 1 something asks for attention, 2 it could not be checked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ovs.dirs

from controller.dataplane.specs import COOKIE_PREFIX
from controller.dataplane.tables import COOKIE_PREFIX_MASK
from controller.host import client
from controller.host.programs import run
from controller.operations import upstream
from controller.operations.findings import Finding
from controller.operations.upstream import Port
from controller.text import check_view, terminal
from controller.text.check_view import NOTE
from controller.text.wording import Refused

WELL, FOUND, UNKNOWN = 0, 1, 2
COLUMNS = "name,mtu,link_speed,statistics"


def main(words: Sequence[str], json_wanted: bool) -> int:
    """Check what the words name. Returns the exit status."""
    try:
        answer = json.loads(client.request("check", [*words, "--json"]))
    except Refused as why:
        print(f"ovs-lbt: {why}", file=sys.stderr)
        return UNKNOWN
    for team in answer["bridges"]:
        answer["findings"] += [found.as_json() for found in _upstream(team)]
    well = not check_view.problems(answer)
    if json_wanted:
        print(json.dumps({"well": well, **answer}, indent=2))
    else:
        sys.stdout.write(terminal.written(check_view.lines(answer)))
    return WELL if well else FOUND


def _upstream(team: Mapping[str, Any]) -> list[Finding]:
    """What counters show of the network upstream of a bridge; nothing of a bridge of another host."""
    name = team["name"]
    if not team["uplinks"] or not (Path(ovs.dirs.RUNDIR) / f"{name}.mgmt").is_socket():
        return []
    ours = f"cookie={COOKIE_PREFIX:#x}/{COOKIE_PREFIX_MASK:#x}"
    try:
        dumped = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", name, ours)
        ports = _ports([uplink["name"] for uplink in team["uplinks"]])
    except Refused as why:
        return [Finding(NOTE, "upstream", f"counters of the network: not read: {why}", name)]
    return list(upstream.findings(team, ports, upstream.parse(dumped)))


def _ports(uplinks: Sequence[str]) -> dict[str, Port]:
    """The uplinks as the database has them."""
    listed = json.loads(
        run("ovs-vsctl", "--format=json", f"--columns={COLUMNS}", "list", "Interface", *uplinks)
    )
    return {row[0]: _port(*row[1:]) for row in listed["data"]}


def _port(mtu: object, speed_bps: object, statistics: Sequence[Any]) -> Port:
    counted = dict(statistics[1]).get("rx_packets")
    return Port(
        mtu if isinstance(mtu, int) else None,
        speed_bps if isinstance(speed_bps, int) else None,
        counted if isinstance(counted, int) else None,
    )
