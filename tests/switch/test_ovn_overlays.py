"""What happens to hosts whose VMs talk through tunnels, with one endpoint that is spread, and with two."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from tests.switch import datapath
from tests.switch.bed import Uplink, Upstream
from tests.switch.judging import few_lost, few_twice, judges_time, soon
from tests.switch.ovn import events, rescue
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import EXTERNAL, Host
from tests.switch.ovn.overlays import Way, endpoint, overlay, ways
from tests.switch.ovn.talk import each_once
from tests.switch.waiting import wait_until

SPREAD, SPREAD_IPV6 = Way(policy="dynamic"), Way(policy="dynamic", ipv6=True)
ONE = Way(policy="adaptive")
TWO = Way(policy="adaptive", endpoints=2)
LOST_OF_A_FLOW_MAX = 5
# Until the command has found an uplink, and the switches have taken up what it sends.
RESCUED_WITHIN_S = 3.0
PPS, FRAMES = 50, 50

pytestmark = pytest.mark.skipif(datapath.NAME != "userspace", reason="several switches")


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tor: Upstream) -> Iterator[Cloud]:
    with overlay(tor, request.param) as made:
        yield made


@judges_time
@pytest.mark.parametrize("cloud", [SPREAD, TWO, SPREAD_IPV6], ids=str, indirect=True)
def test_connections_survive_what_happens_to_uplinks_and_endpoints(cloud: Cloud) -> None:
    host, peer = cloud.hosts
    for service in ("alive", "dead"):
        if service == "dead":
            wait_until(lambda: carries_by_all(host), "the uplink that was drained carries again")
            leave_nothing_behind(host, peer)
            host.service.kill()
        failed: Uplink | None = None
        for event in events.ALL if service == "alive" else events.FAILURE:
            found = events.happen(cloud, event, failed if event is events.RETURNS else None)
            failed = found.uplink
            story = f"{event.name}, the service is {service}"
            assert found.tcp_unbroken, story
            few_lost([found.lost_of_a_flow_max], LOST_OF_A_FLOW_MAX, events.PPS, story)
            few_twice({story: found.twice}, 0, story)
    host.start_service()


@pytest.mark.parametrize("cloud", [ONE], ids=str, indirect=True)
def test_one_endpoint_by_the_documents_recipe(cloud: Cloud) -> None:
    for host in cloud.hosts:
        wait_until(functools.partial(shows_endpoint, host), f"{host} shows its endpoint")
    with each_once(cloud, ways(cloud), PPS, FRAMES):
        pass


@judges_time
@pytest.mark.parametrize("cloud", [SPREAD, SPREAD_IPV6], ids=str, indirect=True)
def test_a_rescued_host_is_reached_by_peers_that_only_send(cloud: Cloud) -> None:
    """They have an off-home address, and hear no tunnel's frame from which to learn another one."""
    host, peer = cloud.hosts
    soon("a peer reaches a rescued host", rescue.reached_after_s(cloud), RESCUED_WITHIN_S)
    assert rescue.knows(peer, host)
    host.start_service()


def shows_endpoint(host: Host) -> bool:
    """Whether the port of the endpoint is known as such, and has the recipe's policy."""
    with host.entered():
        ports = {p["name"]: p for p in host.service.show_json(EXTERNAL)["ports"]}
    port = ports.get(EXTERNAL, {})
    found = port.get("endpoint", {}).get("addresses"), port.get("policy")
    return found == ([endpoint(host, 0)], "adaptive")


def leave_nothing_behind(host: Host, peer: Host) -> None:
    """Have a peer send to the endpoint itself, or to an off-home address that it sends from now.

    For some seconds after a move, it may have the off-home address of what is the home now
    ("the own address, if it has another home" in tests/unit/controller/engine/test_endpoints.py).
    """
    host.ovs.run("ovs-appctl", "revalidator/wait")
    if not rescue.knows(peer, host):
        rescue.set_neighbour(peer, host, rescue.mac(host))


def carries_by_all(host: Host) -> bool:
    """Whether each uplink has a port or a bucket."""
    with host.entered():
        shown = host.service.show_json(EXTERNAL)
    used = {p["uplink"] for p in shown["ports"]}
    used |= {uplink for counts in shown["buckets"].values() for uplink, n in counts.items() if n}
    return {uplink.name for uplink in host.uplinks} <= used
