"""What peers know of a tunnel endpoint, and whether they reach its host when it is given back."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.events import macs
from tests.switch.ovn.host import EXTERNAL, Host
from tests.switch.ovn.overlays import endpoint, ipv6_endpoint, ways
from tests.switch.ovn.talk import traffic
from tests.switch.waiting import wait_until

PPS = 50.0


def reached_after_s(cloud: Cloud) -> float:
    """How long after the rescue of the first host began a VM of the second, which only sends, reaches it.

    Until then, the first host has no flows, and the peer has an off-home address of its endpoint.
    The service is dead, and stays so.
    """
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
    return took_s


def _ended(said: Future[str]) -> str:
    """What rescue has said, or why it failed."""
    return str(said.exception() or said.result()) if said.done() else "has not ended"


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


def neighbour(peer: Host, host: Host) -> str:
    """The MAC address that a peer's switch has for the endpoint of a host."""
    shown = peer.ovs.run("ovs-appctl", "tnl/neigh/show").splitlines()
    addresses = (endpoint(host, 0), ipv6_endpoint(host))
    (found,) = (words[1] for line in shown if (words := line.split())[:1] and words[0] in addresses)
    return found


def knows(peer: Host, host: Host) -> bool:
    """Whether a peer's switch has the endpoint's own MAC address."""
    return neighbour(peer, host) in macs(host)


def set_neighbour(peer: Host, host: Host, address: str) -> None:
    """Have a peer's switch send to this MAC address what is for the endpoint of a host."""
    shown = peer.ovs.run("ovs-appctl", "tnl/neigh/show").split()
    (ip,) = {endpoint(host, 0), ipv6_endpoint(host)}.intersection(shown)
    peer.ovs.run("ovs-appctl", "tnl/neigh/set", EXTERNAL, ip, address)


def mac(host: Host) -> str:
    return host.ovs.vsctl("get", "interface", EXTERNAL, "mac_in_use").strip('"')
