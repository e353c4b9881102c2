"""What happens to hosts whose VMs talk through tunnels, with one endpoint that is spread, and with two."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.switch import datapath
from tests.switch.bed import Uplink, Upstream
from tests.switch.judging import few_lost, few_twice, judges_time, soon
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import EXTERNAL, Host, Vm
from tests.switch.ovn.overlays import (
    Way,
    busiest,
    carried,
    endpoint,
    ipv6_endpoint,
    overlay,
    ways,
)
from tests.switch.ovn.talk import each_once, traffic
from tests.switch.waiting import HANG_S, wait_until
from tests.switch.wire import inside

SPREAD, SPREAD_IPV6 = Way(policy="dynamic"), Way(policy="dynamic", ipv6=True)
ONE = Way(policy="adaptive")
TWO = Way(policy="adaptive", endpoints=2)
LOST_OF_A_FLOW_MAX = 5
# Until the command has found an uplink, and the switches have taken up what it sends.
RESCUED_WITHIN_S = 3.0
# Of each flow: while nothing happens, and while something does.
PPS, FRAMES = 50, 50
EVENT_PPS = 250.0
# Before an event, so that it is known which uplink carries most; and after it.
FRAMES_BEFORE, FRAMES_AFTER = 100, 500
TCP_PORT, TCP_CHUNK, TCP_INTERVAL_S = 5001, bytes(1000), 0.005

pytestmark = pytest.mark.skipif(datapath.NAME != "userspace", reason="several switches")


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tor: Upstream) -> Iterator[Cloud]:
    with overlay(tor, request.param) as made:
        yield made


# ---- what happens to the first host ------------------------------------------------------


def drain(host: Host, uplink: Uplink) -> None:
    host.do("drain", uplink.name)


def restart(host: Host, _uplink: Uplink) -> None:
    """The service is killed, and another one starts."""
    host.service.kill()
    host.start_service()


def fail(host: Host, uplink: Uplink) -> None:
    host.set_link(uplink, "down")


def come_back(host: Host, uplink: Uplink) -> None:
    host.set_link(uplink, "up")


@judges_time
@pytest.mark.parametrize("cloud", [SPREAD, TWO, SPREAD_IPV6], ids=str, indirect=True)
def test_connections_survive_what_happens_to_uplinks_and_endpoints(cloud: Cloud) -> None:
    host, peer = cloud.hosts
    failed = happens(cloud, fail)
    happens(cloud, come_back, failed)
    host.do("undrain", happens(cloud, drain).name)
    happens(cloud, restart)
    wait_until(lambda: carries_by_all(host), "the uplink that was drained carries again")
    leave_nothing_behind(host, peer)
    host.service.kill()
    failed = happens(cloud, fail)
    happens(cloud, come_back, failed)
    host.start_service()


def happens(
    cloud: Cloud, event: Callable[[Host, Uplink], None], uplink: Uplink | None = None
) -> Uplink:
    """All VMs talk meanwhile, and hardly a frame is lost. Returns the uplink to which it happened.

    That is `uplink`, or the one that carries most. The switch upstream has no cached flows of the last
    event. With them, Open vSwitch would learn only with the next revalidation by which uplink an address
    comes now.
    """
    host = cloud.hosts[0]
    cloud.tor.ovs.run("ovs-appctl", "revalidator/purge")
    pairs = ways(cloud)
    with contextlib.ExitStack() as stack:
        talk = stack.enter_context(traffic(cloud, pairs, EVENT_PPS))
        talk.warm_up()
        streams = [stack.enter_context(Connection(*pairs[n])) for n in (0, len(pairs) // 2)]
        before = carried(host)
        talk.go_on(FRAMES_BEFORE)
        uplink = uplink or busiest(host, before)
        event(host, uplink)
        talk.go_on(FRAMES_AFTER)
    story = f"{event.__name__}, the service is {'alive' if host.service.alive else 'dead'}"
    assert all(stream.unbroken for stream in streams), story
    few_lost(talk.lost(), LOST_OF_A_FLOW_MAX, EVENT_PPS, story)
    few_twice({story: sum(talk.twice().values())}, 0, story)
    return uplink


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
    hear_off_home(cloud)
    host.service.kill()
    host.ovs.run("ovs-ofctl", "del-flows", EXTERNAL)
    with (
        traffic(cloud, [(peer.vms[0], host.vms[0])], PPS) as talk,
        ThreadPoolExecutor() as beside,
    ):
        started_s = time.monotonic()
        said = beside.submit(host.do, "rescue", EXTERNAL)
        try:
            talk.go_on(1)
        except AssertionError as never:
            raise AssertionError(f"{never}; rescue: {_ended(said)}") from never
        took_s = time.monotonic() - started_s
        assert said.result().startswith(f"{EXTERNAL}: NORMAL forwards on ")
    soon("a peer reaches a rescued host", took_s, RESCUED_WITHIN_S)
    assert knows(peer, host)
    host.start_service()


def _ended(said: Future[str]) -> str:
    """What rescue has said, or why it failed."""
    return str(said.exception() or said.result()) if said.done() else "has not ended"


# ---- what is seen ------------------------------------------------------------------------


class Connection:
    """One VM sends to another at a steady rate over TCP while the block lasts."""

    def __init__(self, sender: Vm, receiver: Vm) -> None:
        self._vms = (sender, receiver)
        self._stop = threading.Event()
        self._sent = self._received = 0

    def __enter__(self) -> Connection:
        sender, receiver = self._vms
        # A socket stays in the namespace that it was made in.
        with inside(receiver.name):
            listening = socket.create_server((receiver.ip, TCP_PORT))
        with contextlib.closing(listening):
            with inside(sender.name):
                self._out = socket.create_connection((receiver.ip, TCP_PORT), HANG_S)
            self._in, _ = listening.accept()
        self._in.settimeout(HANG_S)
        self._threads = [threading.Thread(target=one) for one in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._in.close()
        self._out.close()

    @property
    def unbroken(self) -> bool:
        """After the block: whether all that was sent has arrived."""
        return 0 < self._sent == self._received

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stop.is_set():
                self._out.sendall(TCP_CHUNK)
                self._sent += len(TCP_CHUNK)
                time.sleep(TCP_INTERVAL_S)
            self._out.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._in.recv(1 << 16):
                self._received += len(data)


def shows_endpoint(host: Host) -> bool:
    """Whether the port of the endpoint is known as such, and has the recipe's policy."""
    with host.entered():
        ports = {p["name"]: p for p in host.service.show_json(EXTERNAL)["ports"]}
    port = ports.get(EXTERNAL, {})
    found = port.get("endpoint", {}).get("addresses"), port.get("policy")
    return found == ([endpoint(host, 0)], "adaptive")


def carries_by_all(host: Host) -> bool:
    """Whether each uplink has a port or a bucket."""
    with host.entered():
        shown = host.service.show_json(EXTERNAL)
    used = {p["uplink"] for p in shown["ports"]}
    used |= {uplink for counts in shown["buckets"].values() for uplink, n in counts.items() if n}
    return {uplink.name for uplink in host.uplinks} <= used


# ---- what a peer knows of the endpoint of a host -----------------------------------------


def leave_nothing_behind(host: Host, peer: Host) -> None:
    """Have a peer send to the endpoint itself, or to an off-home address that it sends from now.

    For some seconds after a move, it may have the off-home address of what is the home now
    ("the own address, if it has another home" in tests/unit/controller/engine/test_endpoints.py).
    """
    host.ovs.run("ovs-appctl", "revalidator/wait")
    if not knows(peer, host):
        ip, _ = neighbour(peer, host)
        own = host.ovs.vsctl("get", "interface", EXTERNAL, "mac_in_use").strip('"')
        peer.ovs.run("ovs-appctl", "tnl/neigh/set", EXTERNAL, ip, own)


def hear_off_home(cloud: Cloud) -> None:
    """The peer of the first host takes an off-home address for that of its endpoint."""
    host, peer = cloud.hosts
    with traffic(cloud, ways(cloud), PPS) as talk:
        talk.warm_up()

        def heard() -> bool:
            if not knows(peer, host):
                return True
            peer.ovs.run("ovs-appctl", "revalidator/purge")
            return False

        wait_until(heard, "the peer has an off-home address", interval_s=0.3)


def neighbour(peer: Host, host: Host) -> tuple[str, str]:
    """The IP address of the endpoint of a host, and the MAC address that a peer's switch has for it."""
    shown = peer.ovs.run("ovs-appctl", "tnl/neigh/show").splitlines()
    addresses = (endpoint(host, 0), ipv6_endpoint(host))
    (found,) = (words for line in shown if (words := line.split())[:1] and words[0] in addresses)
    return found[0], found[1]


def knows(peer: Host, host: Host) -> bool:
    """Whether a peer's switch has the endpoint's own MAC address."""
    ports = [port for port in ("tep0", "tep1") if port in host.ovs.vsctl("list-ports", EXTERNAL)]
    own = [host.ovs.vsctl("get", "interface", one, "mac_in_use") for one in ports or [EXTERNAL]]
    return neighbour(peer, host)[1] in [mac.strip('"') for mac in own]
