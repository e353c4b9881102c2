"""Tunnel endpoints on a real switch: how they are found, and what is said of them.

How VMs are placed on them: test_ovn_tunnels.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.switch import datapath
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until

ADDRESSES = ("198.18.0.1", "198.18.0.2")
REMOTE = "198.18.0.9"

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,), (None,)))


@contextlib.contextmanager
def tunnel(bed: Bed, detach: Callable[[], object]) -> Iterator[tuple[str, str, str]]:
    """An integration bridge with a tunnel from the first of two internal ports of the bed's bridge.

    `detach`: undoes an attach when the block ends.
    """
    inner, first, second, name = (f"{bed.prefix}{end}" for end in ("in", "t1", "t2", "g1"))
    made = ["add-br", inner, "--", "set", "bridge", inner, datapath.SETTING]
    for port in (first, second):
        made += ["--", "add-port", bed.bridge, port, "--", "set", "interface", port]
        made += ["type=internal"]
    made += ["--", "add-port", inner, name, "--", "set", "interface", name, "type=geneve"]
    bed.ovs.vsctl(*made, f"options:local_ip={ADDRESSES[0]}", f"options:remote_ip={REMOTE}")
    for port, address in zip((first, second), ADDRESSES, strict=True):
        run("ip", "addr", "add", f"{address}/24", "dev", port)
        run("ip", "link", "set", port, "up")
    try:
        yield inner, first, second
    finally:
        for key in ("ovn-encap-ip", "ovn-encap-type", "ovn-bridge"):
            bed.ovs.vsctl("remove", "open_vswitch", ".", "external_ids", key)
        detach()
        ports = [word for port in (first, second) for word in ("--", "del-port", port)]
        bed.ovs.vsctl("del-br", inner, *ports)


@pytest.fixture
def overlay(bed: Bed, service: Service) -> Iterator[tuple[str, str, str]]:
    with tunnel(bed, lambda: service.do("detach", bed.bridge)) as made:
        yield made


def endpoints(service: Service, bed: Bed) -> dict[str, Any]:
    ports = service.show_json(bed.bridge)["ports"]
    return {port["name"]: port["endpoint"] for port in ports if "endpoint" in port}


def test_an_endpoint_follows_tunnels_and_addresses(
    bed: Bed, service: Service, overlay: tuple[str, str, str]
) -> None:
    inner, first, second = overlay
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
