"""The names of bridges, uplinks and VM ports, as `ovs-vsctl` knows them.

The service may be stopped, and reading the database by our own code takes longer than a person waits
for the Tab key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.config.rows import PREFIX
from controller.host.programs import run
from controller.text.wording import Refused

TIMEOUT_S = 2
# What libvirt, OpenStack and XenServer call a VM.
IDENTITIES = ("vm-id", "vm-uuid", "iface-id")
TABLES = (
    ("Bridge", "name,ports,external_ids"),
    ("Port", "_uuid,name,interfaces"),
    ("Interface", "_uuid,name,external_ids"),
)


@dataclass(frozen=True, slots=True)
class Team:
    """A bridge's interfaces by name, each with what it is; those that are its uplinks."""

    attached: bool
    interfaces: Mapping[str, str]
    uplinks: tuple[str, ...]


class Names:
    """What exists on this host. Each name with what it is.

    `interfaces`, `uplinks`, `vm_ports`: those of attached bridges.
    """

    def __init__(self, teams: Mapping[str, Team] | None = None) -> None:
        self.teams = teams or {}
        self.bridges = {name: "attached" if t.attached else "" for name, t in self.teams.items()}
        self.attached = {name: "" for name, team in self.teams.items() if team.attached}
        self.unattached = {name: "" for name in self.teams if name not in self.attached}
        self.interfaces, self.uplinks = dict[str, str](), dict[str, str]()
        for name in self.attached:
            self.interfaces |= self.teams[name].interfaces
            self.uplinks |= dict.fromkeys(self.teams[name].uplinks, f"of {name}")
        of_vms = (name for name in self.interfaces if name not in self.uplinks)
        self.vm_ports = {name: self.interfaces[name] for name in of_vms}

    def ports_of(self, bridge: str | None) -> dict[str, str]:
        """The interfaces of a bridge, attached or not."""
        team = self.teams.get(bridge or "")
        return dict(team.interfaces) if team else {}

    def uplinks_beside(self, port: str | None) -> dict[str, str]:
        """The uplinks of the bridge with this port; all if it is not known."""
        name = port.partition("/")[0] if port else None
        for team in self.teams.values():
            if team.attached and name in team.interfaces:
                return dict.fromkeys(team.uplinks, "")
        return self.uplinks


def read() -> Names:
    """The names now; none if the database does not answer in time."""
    database = os.environ.get("OVS_LBT_OVSDB")
    command = ["ovs-vsctl", "--no-wait", "--format=json"]
    command += [f"--db={database}"] if database else []
    for table, columns in TABLES:
        command += ["--", f"--columns={columns}", "list", table]
    try:
        return parse(run(*command, timeout_s=TIMEOUT_S))
    except Refused:
        return Names()


def parse(printed: str) -> Names:
    """The names in what `ovs-vsctl` prints: one line of JSON for each of `TABLES`."""
    bridges, ports, interfaces = (
        [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]
        for table in map(json.loads, printed.splitlines())
    )
    by_id = {row["_uuid"][1]: row for row in (*ports, *interfaces)}
    return Names({row["name"]: _team(row, by_id) for row in sorted(bridges, key=_name)})


def _team(bridge: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> Team:
    keys = dict(bridge["external_ids"][1])
    members = [
        [by_id[one] for one in _ids(by_id[port]["interfaces"])] for port in _ids(bridge["ports"])
    ]
    bonded = [row["name"] for rows in members if len(rows) > 1 for row in sorted(rows, key=_name)]
    asked = keys.get(PREFIX + "uplinks")
    uplinks = [name.strip() for name in asked.split(",")] if asked else bonded
    rows = sorted((row for rows in members for row in rows), key=_name)
    about = {row["name"]: "uplink" if row["name"] in uplinks else _vm(row) for row in rows}
    return Team(f"{PREFIX}policy" in keys, about, tuple(uplinks))


def _ids(column: Sequence[Any]) -> list[str]:
    """The UUIDs in a column that holds one or a set."""
    kind, value = column
    return [value] if kind == "uuid" else [one for _, one in value]


def _vm(interface: Mapping[str, Any]) -> str:
    ids = dict(interface["external_ids"][1])
    return next((ids[name] for name in IDENTITIES if name in ids), "")


def _name(row: Mapping[str, Any]) -> str:
    return str(row["name"])
