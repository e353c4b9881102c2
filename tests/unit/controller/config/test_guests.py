"""The VMs behind patch ports, by their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.config.guests import VmNames
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, Guest, PortRow
from controller.config.values import VmPortConfig
from tests.unit.rows import host, interface, marked, patch, port, with_ids

NO_PINS: Mapping[str, str] = {}
MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def vif(name: str, mac: str, **ids: str) -> PortRow:
    named = {key.replace("_", "-"): value for key, value in ids.items()}
    return port(name, 9, {"attached-mac": mac, **named})


def behind(
    *vifs: PortRow, further: tuple[PortRow, ...] = (), pins: Mapping[str, str] = NO_PINS
) -> VmPortConfig:
    """The patch port of br0 to br-int, behind which br-far may be. `pins`: by the VM's identity."""
    row = with_ids(host(), **{f"vm-{name}-pin": uplink for name, uplink in pins.items()})
    rows = [
        replace(row, ports=(*row.ports, patch("to-int", "to-ex"))),
        BridgeRow("br-int", (patch("to-ex", "to-int"), patch("to-far", "back"), *vifs)),
        BridgeRow("br-far", (patch("back", "to-far"), *further)),
    ]
    made = marked(rows).rows
    assert made["br-int"] is rows[1]
    return next(p for p in read_bridge(made["br0"]).vm_ports if p.name == "to-int")


def test_a_vm_is_found_by_its_address() -> None:
    found = behind(vif("vnet7", MAC.upper(), vm_id="web", iface_id="i-1"), port("vnet8", 8))
    guest = Guest(MAC, "web", "i-1", identities=(f"web/{MAC}", "i-1"))
    assert (found.guests, found.guest(MAC)) == ((guest,), guest)
    assert found.guest(OTHER) is None


@pytest.mark.parametrize(
    ("ids", "vm", "own"),
    [
        # XCP-ng writes the ID of the virtual interface twice.
        ({"xs-vm-uuid": "vm-1", "xs-vif-uuid": "vif-1", "iface-id": "vif-1"}, "vm-1", ("vif-1",)),
        ({"contPodUid": "pod-1"}, "pod-1", ()),
    ],
)
def test_hypervisors_name_vms_by_their_own_keys(
    ids: Mapping[str, str], vm: str, own: tuple[str, ...]
) -> None:
    names = VmNames.of(interface("vif1.0", 9, ids))
    assert (names.vm, names.own_identities) == (vm, own)


def test_a_vm_without_a_name_or_an_address_is_not_known() -> None:
    assert behind(vif("vnet7", MAC), vif("vnet8", "", iface_id="i-2")).guests == ()


def test_a_vm_may_have_several_addresses_and_be_several_bridges_away() -> None:
    far = vif("vnet9", f"{OTHER} {MAC}", iface_id="i-3")
    assert [guest.mac for guest in behind(further=(far,)).guests] == [MAC, OTHER]


def test_a_pin_of_a_vm_is_kept_on_the_bridge() -> None:
    known = vif("vnet7", MAC, iface_id="i-1"), vif("vnet8", OTHER, iface_id="i-2")
    found = behind(*known, pins={"i-1": "eth2", "i-2": "eth9"})
    assert [guest.pin for guest in found.guests] == ["eth2", None]


def test_a_pin_by_uuid_and_address_is_one_of_the_interface() -> None:
    known = vif("vnet7", MAC, vm_id="web", iface_id="i-1"), vif("vnet8", OTHER, vm_id="web")
    assert [g.pin for g in behind(*known, pins={f"web/{MAC}": "eth2"}).guests] == ["eth2", None]
    both = {f"web/{MAC}": "eth2", "i-1": "eth1"}
    assert [g.pin for g in behind(*known, pins=both).guests] == ["eth1", None]


@pytest.mark.parametrize(
    ("name", "ids", "vm", "identities"),
    [
        ("tap101i0", {}, "101", ("101", "101i0")),
        ("veth103i12", {}, "103", ("103", "103i12")),
        ("fwln102o0", {}, "102", ("102", "102i0")),
        ("tap101i0", {"iface-id": "i"}, "i", ("i",)),
        ("vnet7", {"vm-uuid": "u", "iface-id": "i"}, "u", ("u", "i")),
        ("vnet7", {"iface-id": ""}, None, ()),
        ("tap101i0", {"vm-id": "web"}, "web", ("web",)),
        ("tap3a5c1f2e-9b", {}, None, ()),
        ("tap99i0", {}, None, ()),
        ("xtap101i0", {}, None, ()),
        ("fwln102i0", {}, None, ()),
        ("vnet7", {"vm-id": "V", "vm-uuid": "u", "iface-id": "i", "attached-mac": MAC}, "V",
            ("V", "u", f"v/{MAC}", f"u/{MAC}", "i")),
    ],
)  # fmt: skip
def test_whose_an_interface_is(
    name: str, ids: dict[str, str], vm: str | None, identities: tuple[str, ...]
) -> None:
    found = interface(name, 9, ids)
    assert (VmNames.of(found).vm, VmNames.of(found).identities) == (vm, identities)


def test_nothing_is_looked_for_behind_a_bridge_that_is_not_attached() -> None:
    row = replace(host(), external_ids={}, ports=(patch("a", "b"),))
    rows = {row.name: row, "br-int": BridgeRow("br-int", (patch("b", "a"),))}
    assert marked(rows.values()).rows == rows
