"""Tunnel endpoints on a real switch: how they are found, what is said of them, and how VMs are placed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.said import says
from tests.switch import datapath, frames
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Point, Stream

ADDRESSES = ("198.18.0.1", "198.18.0.2")
REMOTE = "198.18.0.9"
FLOW_PPS = 400
FRAME_BYTES = 1250
CAPACITY_MBPS = 20
FLOW_BPS = FLOW_PPS * FRAME_BYTES * 8

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,), (None,)))


class Overlay:
    """An integration bridge with two VMs, and two internal ports for its tunnels below."""

    def __init__(self, bed: Bed) -> None:
        self.bed, prefix = bed, bed.prefix
        self.inner = f"{prefix}in"
        self.ports = [f"{prefix}t{n}" for n in (1, 2)]
        self.tunnels = [f"{prefix}g{n}" for n in (1, 2)]
        self.vifs = [f"{prefix}v{n}" for n in (1, 2)]

    def build(self) -> None:
        words = ["add-br", self.inner, "--", "set", "bridge", self.inner, datapath.SETTING]
        for port in self.ports:
            words += ["--", "add-port", self.bed.bridge, port]
            words += ["--", "set", "interface", port, "type=internal"]
        for vif in self.vifs:
            words += ["--", "add-port", self.inner, vif, "--", "set", "interface", vif]
            words += ["type=internal", f"external_ids:iface-id=vm-{vif}"]
        self.bed.ovs.vsctl(*words)
        for port, address in zip(self.ports, ADDRESSES, strict=True):
            run("ip", "addr", "add", f"{address}/24", "dev", port)
            run("ip", "link", "set", port, "up")
        for vif in self.vifs:
            run("ip", "link", "set", vif, "up")

    def add_tunnel(self, number: int) -> None:
        """Without two tunnels to one bridge, as those would form a loop under NORMAL."""
        name, options = self.tunnels[number], f"options:local_ip={ADDRESSES[number]}"
        remote = f"options:remote_ip={REMOTE}"
        setting = ["--", "set", "interface", name, "type=geneve", options, remote]
        self.bed.ovs.vsctl("add-port", self.inner, name, *setting)

    def remove(self) -> None:
        gone = [word for port in self.ports for word in ("--", "--if-exists", "del-port", port)]
        self.bed.ovs.vsctl("--if-exists", "del-br", self.inner, *gone)


@pytest.fixture
def overlay(bed: Bed, service: Service) -> Iterator[Overlay]:
    made = Overlay(bed)
    made.build()
    try:
        yield made
    finally:
        for key in ("ovn-encap-ip", "ovn-encap-type", "ovn-bridge"):
            bed.ovs.vsctl("remove", "open_vswitch", ".", "external_ids", key)
        service.do("detach", bed.bridge)
        made.remove()


def endpoints(service: Service, bed: Bed) -> dict[str, Any]:
    ports = service.show_json(bed.bridge)["ports"]
    return {port["name"]: port["endpoint"] for port in ports if "endpoint" in port}


def test_an_endpoint_follows_tunnels_and_addresses(
    bed: Bed, service: Service, overlay: Overlay
) -> None:
    overlay.add_tunnel(0)
    (first, second), inner = overlay.ports, overlay.inner
    expected = {"addresses": [ADDRESSES[0]], "kinds": ["geneve"], "bridges": [inner]}
    service.attach(bed)
    wait_until(lambda: endpoints(service, bed) == {first: expected}, "the tunnel is found")
    service.do("detach", bed.bridge)
    done = service.command("attach", bed.bridge, *bed.uplink_options, "--policy", "dynamic")
    assert done.returncode == 0, done.stderr
    assert f"endpoint {first} (geneve on {inner}, from {ADDRESSES[0]}): " in done.stdout
    assert "does not spread" not in done.stderr
    if datapath.NAME == "userspace":
        wait_until(
            lambda: service.show_json(bed.bridge)["connection_hash"]["used"] == "dp_hash",
            "connections are hashed by dp_hash",
        )
    assert f"{first} ({inner}'s Geneve endpoint)" in service.do("explain", first)

    run("ip", "addr", "del", f"{ADDRESSES[0]}/24", "dev", first)
    wait_until(lambda: first not in endpoints(service, bed), "the address has gone")
    run("ip", "addr", "add", f"{ADDRESSES[0]}/24", "dev", second)
    wait_until(lambda: second in endpoints(service, bed), "the other port has the address")
    assert endpoints(service, bed)[second] == expected
    run("ip", "addr", "del", f"{ADDRESSES[0]}/24", "dev", second)
    run("ip", "addr", "add", f"{ADDRESSES[0]}/24", "dev", first)
    wait_until(lambda: endpoints(service, bed) == {first: expected}, "the first port has it again")


def test_vms_are_placed_on_the_endpoints_of_ovn(
    bed: Bed, service: Service, overlay: Overlay
) -> None:
    service.attach(bed)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    ids = {"ovn-encap-ip": ",".join(ADDRESSES), "ovn-encap-type": "geneve"}
    pairs = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
    bed.ovs.vsctl("set", "open_vswitch", ".", *pairs, f"external_ids:ovn-bridge={overlay.inner}")
    wait_until(
        lambda: set(endpoints(service, bed)) == set(overlay.ports), "both endpoints are known"
    )
    for vif in overlay.vifs:
        bed.ovs.vsctl("set", "interface", vif, f"external_ids:encap-ip={ADDRESSES[0]}")
    columns = ("--columns=name,external_ids,options", "list", "interface")
    before = bed.ovs.vsctl(*columns)
    frame = frames.udp("02:00:00:00:00:01", "02:00:00:00:00:02", frame_bytes=FRAME_BYTES)
    with Stream([(Point(vif, vif), frame) for vif in overlay.vifs], FLOW_PPS):
        # The statistics in the database are 5 s old at most.
        received = ("get", "interface", overlay.vifs[0], "statistics:rx_packets")
        wait_until(lambda: int(bed.ovs.vsctl(*received)), "statistics are written")
        text = service.do("plan", "--endpoints", "--json")
    plan = json.loads(text)
    assert [place["address"] for place in plan["endpoints"]] == list(ADDRESSES)
    for vm in plan["vms"]:
        assert vm["tx_bps"] == pytest.approx(FLOW_BPS, rel=0.5)
    assert sorted(vm["planned_endpoint"] for vm in plan["vms"]) == list(ADDRESSES)
    (command,) = plan["commands"]
    moved = next(vm for vm in plan["vms"] if vm["planned_endpoint"] != ADDRESSES[0])
    assert says(command, f"interface {moved['port']} external_ids:encap-ip={ADDRESSES[1]}")
    assert bed.ovs.vsctl(*columns) == before, "it was only said"
