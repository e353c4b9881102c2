"""Names in what `ovs-vsctl --format=json` prints, one table on a line."""

from __future__ import annotations

import json
from typing import Any

from controller.cli import completion
from controller.cli.completion import Team


def uuids(*ids: str) -> list[Any]:
    """One, or a set of others."""
    return ["uuid", ids[0]] if len(ids) == 1 else ["set", [["uuid", one] for one in ids]]


def rows(ids: dict[str, str]) -> str:
    bonded_and_one = ["br0", uuids("P1", "P2"), ["map", list(map(list, ids.items()))]]
    vm = ["map", [["iface-id", "u-1"], ["vm-id", "web"]]]
    eth0, eth1 = ([uuids(f"I{n}"), f"eth{n - 1}", ["map", []]] for n in (1, 2))
    tables: tuple[list[list[Any]], ...] = (
        [["br1", ["set", []], ["map", []]], bonded_and_one],
        [[uuids("P1"), "bond0", uuids("I2", "I1")], [uuids("P2"), "vnet0", uuids("I3")]],
        [eth0, eth1, [uuids("I3"), "vnet0", vm]],
    )
    return "\n".join(
        json.dumps({"headings": columns.split(","), "data": data})
        for (_, columns), data in zip(completion.TABLES, tables, strict=True)
    )


def test_the_uplinks_are_the_members_of_the_bond() -> None:
    found = completion.parse(rows({"ovs-lbt-policy": "slb"}))
    about = {"eth0": "uplink", "eth1": "uplink", "vnet0": "web"}
    assert found.teams == {"br0": Team(True, about, ("eth0", "eth1")), "br1": Team(False, {}, ())}
    assert (found.attached, found.unattached) == ({"br0": ""}, {"br1": ""})
    assert found.vm_ports == {"vnet0": "web"}
    assert found.uplinks_beside("vnet0") == {"eth0": "", "eth1": ""}
    assert found.uplinks_beside("gone") == {"eth0": "of br0", "eth1": "of br0"}


def test_the_uplinks_that_are_named_come_in_their_order() -> None:
    found = completion.parse(rows({"ovs-lbt-policy": "slb", "ovs-lbt-uplinks": "vnet0, eth1"}))
    assert found.teams["br0"].uplinks == ("vnet0", "eth1")
    assert found.vm_ports == {"eth0": ""}
