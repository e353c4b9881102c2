"""Names in what `ovs-vsctl --format=json` prints, one table on a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from controller.cli import names
from controller.cli.names import Team


def uuids(*ids: str) -> list[Any]:
    """One, or a set of others."""
    return ["uuid", ids[0]] if len(ids) == 1 else ["set", [["uuid", one] for one in ids]]


def printed(*tables: tuple[str, Sequence[Sequence[Any]]]) -> str:
    return "\n".join(
        json.dumps({"headings": columns.split(","), "data": data}) for columns, data in tables
    )


def rows(ids: dict[str, str]) -> str:
    return printed(
        (
            names.TABLES[0][1],
            [
                ["br1", ["set", []], ["map", []]],
                ["br0", uuids("P1", "P2"), ["map", list(map(list, ids.items()))]],
            ],
        ),
        (
            names.TABLES[1][1],
            [
                [uuids("P1"), "bond0", uuids("I2", "I1")],
                [uuids("P2"), "vnet0", uuids("I3")],
            ],
        ),
        (
            names.TABLES[2][1],
            [
                [uuids("I1"), "eth0", ["map", []]],
                [uuids("I2"), "eth1", ["map", []]],
                [uuids("I3"), "vnet0", ["map", [["iface-id", "u-1"], ["vm-id", "web"]]]],
            ],
        ),
    )


def test_the_uplinks_are_the_members_of_the_bond() -> None:
    found = names.parse(rows({"ovs-lbt-policy": "slb"}))
    about = {"eth0": "uplink", "eth1": "uplink", "vnet0": "web"}
    assert found.teams == {"br0": Team(True, about, ("eth0", "eth1")), "br1": Team(False, {}, ())}
    assert (found.attached, found.unattached) == ({"br0": ""}, {"br1": ""})
    assert found.vm_ports == {"vnet0": "web"}
    assert found.uplinks_beside("vnet0") == {"eth0": "", "eth1": ""}
    assert found.uplinks_beside("gone") == {"eth0": "of br0", "eth1": "of br0"}


def test_the_uplinks_that_are_named_come_in_their_order() -> None:
    found = names.parse(rows({"ovs-lbt-policy": "slb", "ovs-lbt-uplinks": "vnet0, eth1"}))
    assert found.teams["br0"].uplinks == ("vnet0", "eth1")
    assert found.vm_ports == {"eth0": ""}
