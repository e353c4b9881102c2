"""VMs as libvirt and OpenNebula plug them in: names, rules, and the recipes of the documents.

libvirt's calls are those of its src/util/virnetdevopenvswitch.c, OpenNebula's those that its driver
src/vnm_mad/remotes/ovswitch/OpenvSwitch.rb says it makes, at f847cf2e9a of its repository, for a VM in the
documents' network with both filters. Neither runs here; libvirt does in test_libvirt.py.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests import documents
from tests.switch import datapath
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.following import follow, names, typed
from tests.switch.reaching import all_are_reached
from tests.switch.service import Service
from tests.switch.waiting import wait_until

# As in the documents.
UUID, MAC = "3a5c1f2e-9b1d-4c58-8a2e-0123456789ab", "52:54:00:5e:00:01"
on_a_bond = on_beds(BedSpec(BALANCE_SLB))
VMS = 4
# The VLAN of the documents' network for OpenNebula, and what its driver sets for it.
VLAN = 20
OPENNEBULA_PORT = (f"tag={VLAN}", "trunks=[]", "vlan_mode=native-untagged")
# Its flows for each port: where each frame goes, and which addresses a VM may send from.
OPENNEBULA_FLOWS = (
    "table=0,in_port={port},priority=100,actions=note:{note},resubmit(,10)",
    "table=10,in_port={port},priority=100,actions=resubmit(,20)",
    "table=20,in_port={port},priority=100,actions=normal",
    "table=10,in_port={port},arp,dl_src={mac},priority=50000,actions=resubmit(,20)",
    "table=10,in_port={port},dl_src={mac},priority=45000,actions=resubmit(,20)",
    "table=10,in_port={port},priority=40000,actions=drop",
    "table=20,in_port={port},arp,nw_src={ip},priority=50000,actions=normal",
    "table=20,in_port={port},ip,nw_src={ip},priority=45000,actions=normal",
    "table=20,in_port={port},arp,priority=49000,actions=drop",
    "table=20,in_port={port},udp,nw_src=0.0.0.0/32,tp_src=68,nw_dst=255.255.255.255/32,tp_dst=67,"
    "priority=44000,actions=normal",
    "table=20,in_port={port},icmp6,icmp_type=133,ipv6_src=::,priority=44000,actions=normal",
    "table=20,in_port={port},icmp6,icmp_type=135,ipv6_src=::,priority=44000,actions=normal",
    "table=20,in_port={port},ip,priority=40000,actions=drop",
    "table=20,in_port={port},ipv6,priority=40000,actions=drop",
)


def libvirt_starts(
    bed: Bed, bridge: str, port: str, vm: str, mac: str, interface_id: str | None = None
) -> None:
    """What libvirt does when it starts a VM, or when one comes in a migration."""
    own = interface_id or uuid.uuid4()
    words = ["--", "--may-exist", "add-port", bridge, port]
    for ids in (
        f'attached-mac="{mac}"',
        f'iface-id="{own}"',
        f'vm-id="{vm}"',
        "iface-status=active",
    ):
        words += ["--", "set", "Interface", port, f"external-ids:{ids}"]
    bed.ovs.vsctl("--timeout=5", *words)


def libvirt_stops(bed: Bed, port: str) -> None:
    bed.ovs.vsctl("--timeout=5", "--", "--if-exists", "del-port", port)


# ---- libvirt ----------------------------------------------------------------------------


@on_a_bond
def test_a_rule_waits_for_a_vm_that_libvirt_starts_here_or_migrates_here(
    bed: Bed, service: Service
) -> None:
    first, second = (uplink.name for uplink in bed.uplinks)
    port, name = bed.vms[0].port, f"{UUID}/{MAC}"
    service.attach(bed, "--policy", "originating-port")
    libvirt_stops(bed, port)
    assert len(list(follow("libvirt", service, bed))) == 1
    # Started; stopped and started anew, when libvirt makes a new interface ID; then migrated away
    # and back: libvirt hands over what the port has as PortData, here nothing.
    for _ in range(2):
        libvirt_starts(bed, bed.bridge, port, UUID, MAC)
        wait_until(lambda: service.bindings(bed).get(port) == second, "the pin holds")
        data = ("get", "Interface", port, "external_ids:PortData")
        assert bed.ovs.vsctl("--timeout=5", "--if-exists", *data) == ""
        shown = service.port(bed, port)
        assert (shown["vm"], shown["shares"]) == (UUID, 50)
        libvirt_stops(bed, port)
        wait_until(lambda: port not in service.bindings(bed), "it has gone")
    libvirt_starts(bed, bed.bridge, port, UUID, MAC, interface_id="5" * 8)
    wait_until(lambda: service.bindings(bed).get(port) == second, "the pin holds")
    service.do("pin", port, first)
    wait_until(lambda: service.bindings(bed)[port] == first, "what was said last holds")
    ids = bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids")
    assert f"ovs-lbt-vm-{'5' * 8}-pin" in ids and f"{name}-pin" not in ids
    service.do("unpin", name)
    service.do("move", name, second)
    assert service.bindings(bed)[port] == second
    assert json.loads(service.ask("explain", name, "--json"))["uplink"] == second
    service.do("set", "interface", name, "shares=")
    service.do("detach", bed.bridge)


# ---- a bridge below another --------------------------------------------------------------


cables_and_vms = on_beds(BedSpec(PLAIN, 2, (None,) * VMS))
cables_and_vms_of_a_vlan = on_beds(BedSpec(PLAIN, 2, (VLAN,) * VMS))


@pytest.fixture
def cabled(bed: Bed) -> Iterator[Bed]:
    """The cables and the VMs of a bed, on no bridge yet; on its own is nothing but LOCAL."""
    for name in [*map(str, bed.uplinks), *(vm.port for vm in bed.vms)]:
        bed.ovs.vsctl("--if-exists", "del-port", name)
    try:
        yield bed
    finally:
        for bridge in ("br-up", "onebr0", "br-phy", "br-ex"):
            bed.ovs.vsctl("--if-exists", "del-br", bridge)


def type_block(block: documents.Block, service: Service, bed: Bed) -> None:
    """What the documents say, on the datapath of the tests."""
    added = {
        f"add-br {bridge}": f"add-br {bridge} -- set bridge {bridge} {datapath.SETTING}"
        for bridge in ("br-up", "onebr0", "br-phy")
    }
    typed(block, service, {**added, **names(bed)})


def behind(service: Service, port: str) -> dict[str, dict[str, str]]:
    """The addresses behind a patch port."""
    shown = json.loads(service.ask("explain", port, "--json"))
    return {one["mac"]: one for one in shown.get("addresses", ())}


def spread(bed: Bed, service: Service, port: str) -> None:
    """Wait until each VM's address has an uplink of its own, and both uplinks are used."""

    def known() -> bool:
        bed.introduce()
        of_vms = {mac: one["uplink"] for mac, one in behind(service, port).items()}
        used = {of_vms.get(vm.mac) for vm in bed.vms}
        return used == {*map(str, bed.uplinks)}

    wait_until(known, "the addresses use both uplinks", interval_s=0.5)


def check_everybody(bed: Bed, bridge: str) -> None:
    bed.introduce()
    bed.settled(bridge)
    all_are_reached(bed, bed.vms)


@cables_and_vms_of_a_vlan
def test_opennebulas_bridge_over_one_of_ours(cabled: Bed, service: Service) -> None:
    bed, port = cabled, "up-to-one"
    (block,) = documents.labelled("opennebula")
    type_block(block, service, bed)
    assert [u["name"] for u in service.show_json("br-up")["uplinks"]] == [*map(str, bed.uplinks)]
    empty = flows_of("onebr0", bed)
    vms = {vm: str(uuid.uuid4()) for vm in bed.vms}
    for number, (vm, vm_uuid) in enumerate(vms.items()):
        libvirt_starts(bed, "onebr0", vm.port, vm_uuid, vm.mac)
        opennebula_follows(bed, number, vm)
    written = flows_of("onebr0", bed)
    spread(bed, service, port)
    # A VM is known by its UUID, and a rule by UUID and address is one for its address.
    vm, vm_uuid = next(iter(vms.items()))
    for uplink in map(str, bed.uplinks):
        service.do("pin", f"{vm_uuid}/{vm.mac}", uplink)

        def pinned(at: str = uplink) -> bool:
            return behind(service, port)[vm.mac]["uplink"] == at

        wait_until(pinned, f"it is pinned to {uplink}")
        check_everybody(bed, "br-up")
    assert behind(service, port)[vm.mac]["vm"] == vm_uuid
    assert flows_of("onebr0", bed) == written
    for vm in bed.vms:
        ofport = bed.ovs.vsctl("get", "interface", vm.port, "ofport")
        libvirt_stops(bed, vm.port)
        bed.ovs.run("ovs-ofctl", "del-flows", "onebr0", f"in_port={ofport}")
    assert bed.ovs.vsctl("list-ports", "onebr0").split() == ["one-to-up"]
    assert flows_of("onebr0", bed) == empty
    service.do("detach", "br-up")


def opennebula_follows(bed: Bed, number: int, vm: Station) -> None:
    """What OpenNebula does after libvirt has started a VM."""
    for setting in OPENNEBULA_PORT:
        bed.ovs.vsctl("set", "Port", vm.port, setting)
    ofport = bed.ovs.vsctl("get", "interface", vm.port, "ofport")
    bed.ovs.run("ovs-ofctl", "del-flows", "onebr0", f"in_port={ofport}")
    ip, note = f"192.0.2.{number}", f"00.00.00.{number:02x}.00.00"
    for flow in OPENNEBULA_FLOWS:
        own = flow.format(port=ofport, mac=vm.mac, ip=ip, note=note)
        bed.ovs.run("ovs-ofctl", "add-flow", "onebr0", own)


def flows_of(bridge: str, bed: Bed) -> str:
    return bed.ovs.run("ovs-ofctl", "--no-stats", "dump-flows", bridge)


@cables_and_vms
def test_the_bridge_below_that_of_ovn_kubernetes(cabled: Bed, service: Service) -> None:
    bed, port = cabled, "patch-phy-to-ex"
    ports = [word for vm in bed.vms for word in ("--", "add-port", "br-ex", vm.port)]
    bed.ovs.vsctl("add-br", "br-ex", "--", "set", "bridge", "br-ex", datapath.SETTING, *ports)
    # OVN-Kubernetes has flows of its own there, which end in NORMAL.
    bed.ovs.run("ovs-ofctl", "add-flow", "br-ex", "table=0,priority=10,actions=normal")
    made, attached, per_address = documents.labelled("openshift")
    type_block(made, service, bed)
    type_block(attached, service, bed)
    shown = service.show_json("br-phy")
    assert [u["name"] for u in shown["uplinks"]] == [*map(str, bed.uplinks)]
    assert (shown["policy"], [p["name"] for p in shown["ports"]]) == ("adaptive", ["br-phy", port])
    check_everybody(bed, "br-phy")
    type_block(per_address, service, bed)
    spread(bed, service, port)
    check_everybody(bed, "br-phy")
    service.do("detach", "br-phy")
