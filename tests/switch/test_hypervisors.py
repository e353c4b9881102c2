"""VMs as libvirt and Proxmox plug them in: names and rules.

libvirt's calls are those of its src/util/virnetdevopenvswitch.c. It does not run here.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator

import pytest

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, run
from tests.switch.following import follow
from tests.switch.service import Service
from tests.switch.waiting import wait_until

# As in the documents.
UUID, MAC = "3a5c1f2e-9b1d-4c58-8a2e-0123456789ab", "52:54:00:5e:00:01"
on_a_bond = pytest.mark.parametrize("bed", [BedSpec(BALANCE_SLB)], ids=str, indirect=True)


def libvirt_starts(
    bed: Bed, bridge: str, port: str, vm: str, mac: str, interface_id: str | None = None
) -> None:
    """What libvirt does when it starts a VM, or when one comes in a migration."""
    ids = {
        "attached-mac": mac,
        "iface-id": interface_id or str(uuid.uuid4()),
        "vm-id": vm,
    }
    words = ["--", "--may-exist", "add-port", bridge, port]
    for key, value in ids.items():
        words += ["--", "set", "Interface", port, f'external-ids:{key}="{value}"']
    words += ["--", "set", "Interface", port, "external-ids:iface-status=active"]
    bed.ovs.vsctl("--timeout=5", *words)


def libvirt_stops(bed: Bed, port: str) -> None:
    bed.ovs.vsctl("--timeout=5", "--", "--if-exists", "del-port", port)


@contextlib.contextmanager
def renamed(bed: Bed, port: str, name: str) -> Iterator[str]:
    """A VM's interface under another name, off the bridge."""
    libvirt_stops(bed, port)
    lines = [f"link set {port} down", f"link set {port} name {name}", f"link set {name} up"]
    run("ip", "-batch", "-", stdin="\n".join(lines))
    try:
        yield name
    finally:
        libvirt_stops(bed, name)
        back = [f"link set {name} down", f"link set {name} name {port}", f"link set {port} up"]
        run("ip", "-batch", "-", stdin="\n".join(back))


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
        data = bed.ovs.vsctl(
            "--timeout=5", "--if-exists", "get", "Interface", port, "external_ids:PortData"
        )
        assert data == ""
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


# ---- Proxmox ----------------------------------------------------------------------------


@on_a_bond
def test_a_vm_of_proxmox_has_its_name_and_its_rules(bed: Bed, service: Service) -> None:
    second = bed.uplinks[1].name
    vm = bed.vms[0]
    service.attach(bed, "--policy", "originating-port")
    try:
        with renamed(bed, vm.port, "tap101i0") as port:
            bed.ovs.vsctl("add-port", bed.bridge, port)
            wait_until(lambda: port in service.bindings(bed), "the VM is there")
            assert service.port(bed, port)["vm"] == "101"
            service.do("pin", port, second)
            wait_until(lambda: service.bindings(bed)[port] == second, "it is pinned")
            libvirt_stops(bed, port)
            wait_until(lambda: port not in service.bindings(bed), "the VM is off")
            bed.ovs.vsctl("add-port", bed.bridge, port)
            wait_until(lambda: service.bindings(bed).get(port) == second, "the VM is back")
        with renamed(bed, vm.port, "fwln101o0") as port:
            bed.ovs.vsctl("add-port", bed.bridge, port)
            wait_until(lambda: service.bindings(bed).get(port) == second, "with the firewall")
    finally:
        bed.plug_in(vm)
        service.do("detach", bed.bridge, "--purge")
