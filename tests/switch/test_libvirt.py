"""VMs of the real libvirt: spread, their rules kept over power cycles, nothing left when they are off.

Live migration needs a second host, and is not tried: what it calls, tests/switch/test_hypervisors.py does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests import documents
from tests.switch.adopting import comes_to, state
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, on_beds
from tests.switch.following import filled, follow, names, typed
from tests.switch.libvirt import Domain, Libvirt
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

pytestmark = on_beds(BedSpec(BALANCE_SLB, 2, ()))

# The first one is that of the documents, with the VLAN of its portgroup.
WEB = Domain("web-1", "3a5c1f2e-9b1d-4c58-8a2e-0123456789ab", "52:54:00:5e:00:01")
DB = Domain("db-1", "0b7f60c6-5a3e-4a55-b2d7-0123456789ab", "52:54:00:5e:00:02")
WEB_VLAN, DB_VLAN = 20, 30
PLUGGED_MAC = "52:54:00:5e:00:03"
INTERFACE_ID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(scope="module")
def libvirt(ovs: PrivateOvs) -> Iterator[Libvirt]:
    with Libvirt(ovs) as made:
        yield made


@pytest.fixture
def network(bed: Bed, service: Service, libvirt: Libvirt) -> Iterator[Bed]:
    """The bed's bridge is attached, and a network of libvirt, as the documents say."""
    definition, commands = documents.labelled("libvirt-network")
    (libvirt.place / f"{bed.bridge}.xml").write_text(filled(definition, names(bed)))
    typed(commands, service, names(bed), libvirt.env, libvirt.place)
    service.attach(bed, "--policy", "originating-port")
    try:
        yield bed
    finally:
        service.do("detach", bed.bridge, "--purge")
        libvirt.virsh("net-destroy", bed.bridge)
        libvirt.virsh("net-undefine", bed.bridge)


def on_network(bed: Bed, domain: Domain, within: str = "") -> str:
    """An interface in the network, as the documents say, of this address."""
    (block,) = documents.labelled("libvirt-interface")
    own = f"\n  <mac address='{domain.mac}'/>{within}"
    return re.sub(r"^(<interface .*)$", rf"\1{own}", filled(block, names(bed)), flags=re.M)


def on_bridge(bed: Bed, domain: Domain) -> str:
    """An interface on the bridge itself, with a VLAN."""
    return f"""<interface type='bridge'>
      <mac address='{domain.mac}'/>
      <source bridge='{bed.bridge}'/>
      <virtualport type='openvswitch'/>
      <vlan><tag id='{DB_VLAN}'/></vlan>
      <model type='virtio'/>
    </interface>"""


def start(libvirt: Libvirt, service: Service, bed: Bed, domain: Domain) -> str:
    """Start a VM, and wait until its port has an uplink. Returns the port."""
    libvirt.virsh("start", domain.name)
    port = libvirt.port(domain)
    wait_until(lambda: service.bindings(bed).get(port), f"{domain.name} has an uplink")
    return port


def destroy(libvirt: Libvirt, service: Service, bed: Bed, domain: Domain) -> None:
    port = libvirt.port(domain)
    libvirt.virsh("destroy", domain.name)
    wait_gone(service, bed, port)


def wait_gone(service: Service, bed: Bed, port: str) -> None:
    wait_until(lambda: port not in service.bindings(bed), f"{port} has gone")


def ids_of(bed: Bed, port: str) -> dict[str, str]:
    columns = ["--format=json", "--columns=external_ids", "list", "interface", port]
    return dict(json.loads(bed.ovs.vsctl(*columns))["data"][0][0][1])


def check_frames(bed: Bed, service: Service, vlans: dict[Domain, tuple[str, int]]) -> None:
    """What each VM's firmware sends leaves by the uplink of its port only, in its VLAN.

    `vlans`: the port and the VLAN of each.
    """
    with bed.ears(*(uplink.upstream_end for uplink in bed.uplinks)) as ears:

        def ways() -> dict[str, set[tuple[str, int]]]:
            found: dict[str, set[tuple[str, int]]] = {domain.mac: set() for domain in vlans}
            for end, ear in ears.by_name.items():
                for heard in ear.frames():
                    if not heard.outgoing and heard.source in found:
                        found[heard.source].add((bed.ends[end], heard.vlan))
            return found

        wait_until(lambda: all(ways().values()), "every VM has sent something", interval_s=0.2)
        bound = service.bindings(bed)
        assert ways() == {
            domain.mac: {(bound[port], vlan)} for domain, (port, vlan) in vlans.items()
        }


def test_vms_are_spread_and_leave_nothing(network: Bed, service: Service, libvirt: Libvirt) -> None:
    bed, before = network, state(network)
    with (
        libvirt.defined(WEB, on_network(bed, WEB)),
        libvirt.defined(DB, on_bridge(bed, DB)),
    ):
        ports = {domain: start(libvirt, service, bed, domain) for domain in (WEB, DB)}
        bound = service.bindings(bed)
        assert {bound[port] for port in ports.values()} == {u.name for u in bed.uplinks}
        for domain, port in ports.items():
            ids = ids_of(bed, port)
            assert (ids["vm-id"], ids["attached-mac"]) == (domain.uuid, domain.mac)
            assert service.port(bed, port)["vm"] == domain.uuid
            explained = json.loads(service.ask("explain", f"{domain.uuid}/{domain.mac}", "--json"))
            assert (explained["port"], explained["uplink"]) == (port, bound[port])
        vlans = {WEB: (ports[WEB], WEB_VLAN), DB: (ports[DB], DB_VLAN)}
        check_frames(bed, service, vlans)
        for domain, port in ports.items():
            (other,) = {uplink.name for uplink in bed.uplinks} - {bound[port]}
            service.do("move", f"{domain.uuid}/{domain.mac}", other)
        bed.revalidated()
        check_frames(bed, service, vlans)
        plug_and_unplug(libvirt, service, bed, DB)
        for domain in ports:
            destroy(libvirt, service, bed, domain)
        assert [p["name"] for p in service.show_json(bed.bridge)["ports"]] == [bed.bridge]
        comes_to(bed, before)


def plug_and_unplug(libvirt: Libvirt, service: Service, bed: Bed, domain: Domain) -> None:
    """A second interface while the VM runs; its rule is its own, and waits until it is plugged in again.

    On USB, which a VM without an operating system lets go.
    """
    given = ["--mac", PLUGGED_MAC, "--live"]
    plugged = ["network", bed.bridge, "--model", "usb-net", *given]
    own = service.bindings(bed)[libvirt.port(domain)]
    for uplink in bed.uplinks:
        service.do("pin", f"{domain.uuid}/{PLUGGED_MAC}", uplink.name)
        libvirt.virsh("attach-interface", domain.name, *plugged)
        port = libvirt.port(domain, PLUGGED_MAC)

        def pinned(at: str = uplink.name, port: str = port) -> bool:
            return service.bindings(bed).get(port) == at

        wait_until(pinned, "the interface that was plugged in is pinned")
        assert service.bindings(bed)[libvirt.port(domain)] == own
        # While the VM runs, libvirt calls it what its network has made of it.
        libvirt.virsh("detach-interface", domain.name, "bridge", *given)
        wait_gone(service, bed, port)
    service.do("unpin", f"{domain.uuid}/{PLUGGED_MAC}")


def test_rules_stay_through_power_cycles(network: Bed, service: Service, libvirt: Libvirt) -> None:
    """By UUID and address always; by the interface's ID where libvirt keeps that."""
    bed, name = network, f"{WEB.uuid}/{WEB.mac}"
    first, second = (uplink.name for uplink in bed.uplinks)
    given = f"<virtualport><parameters interfaceid='{INTERFACE_ID}'/></virtualport>"
    keeps_id = {
        on_network(bed, WEB): False,
        on_network(bed, WEB, given): True,
        on_bridge(bed, WEB): True,
    }

    def in_force(port: str, uplink: str | None, shares: int | None) -> None:
        def rules() -> tuple[str | None, int | None]:
            said = json.loads(service.ask("explain", port, "--json"))
            return said["pin"], said["shares"]

        wait_until(lambda: rules() == (uplink, shares), f"{uplink} and {shares} are in force")
        assert uplink in (None, service.bindings(bed)[port])

    for interface, kept in keeps_id.items():
        with libvirt.defined(WEB, interface):
            # As the documents say, before the VM comes here.
            list(follow("libvirt", service, bed))
            port = start(libvirt, service, bed, WEB)
            in_force(port, second, 50)
            interface_id = ids_of(bed, port)["iface-id"]
            assert (interface_id == INTERFACE_ID) == (given in interface)
            service.do("set", "interface", port, f"pin={first}", "shares=70")
            destroy(libvirt, service, bed, WEB)
            port = start(libvirt, service, bed, WEB)
            assert (ids_of(bed, port)["iface-id"] == interface_id) == kept
            in_force(port, *((first, 70) if kept else (None, None)))
            # While it runs, the rule that is set last holds, and the other one is none any more.
            list(follow("libvirt", service, bed))
            destroy(libvirt, service, bed, WEB)
            port = start(libvirt, service, bed, WEB)
            in_force(port, second, 50)
            service.do("unpin", name)
            service.do("set", "interface", name, "shares=")
            in_force(port, None, None)
            destroy(libvirt, service, bed, WEB)
