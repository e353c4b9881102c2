"""What happens to a host with tunnel endpoints, and what its VMs lose by it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.switch.bed import Uplink
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import EXTERNAL, Host
from tests.switch.ovn.overlays import busiest, carried, ways
from tests.switch.ovn.talk import traffic
from tests.switch.ovn.tcp import Connection

# Of each flow.
PPS = 250.0
# Before an event, so that it is known which uplink carries most; and after it.
FRAMES_BEFORE, FRAMES_AFTER = 100, 500


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to the first host; `undo` comes after it, when nothing is sent."""

    name: str
    happen: Callable[[Host, Uplink], None]
    undo: Callable[[Host, Uplink], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What one event cost: frames that were lost or came twice, and whether two TCP connections survived.

    `uplink`: to which it happened.
    """

    uplink: Uplink
    lost_of_a_flow_max: int
    twice: int
    tcp_unbroken: bool


def happen(cloud: Cloud, event: Event, uplink: Uplink | None = None) -> Found:
    """The event, while all VMs talk. `uplink`: to which it happens; None: to the one that carries most.

    The switch upstream has no cached flows of the last event. With them, Open vSwitch would learn only with
    the next revalidation by which uplink an address comes now.
    """
    host = cloud.hosts[0]
    cloud.tor.ovs.run("ovs-appctl", "revalidator/purge")
    pairs = ways(cloud)
    with contextlib.ExitStack() as stack:
        talk = stack.enter_context(traffic(cloud, pairs, PPS))
        talk.warm_up()
        streams = [stack.enter_context(Connection(*pairs[n])) for n in (0, len(pairs) // 2)]
        before = carried(host)
        talk.go_on(FRAMES_BEFORE)
        uplink = uplink or busiest(host, before)
        event.happen(host, uplink)
        talk.go_on(FRAMES_AFTER)
    event.undo(host, uplink)
    lost, twice = talk.lost(), talk.twice()
    return Found(
        uplink=uplink,
        lost_of_a_flow_max=max(lost.values(), default=0),
        twice=sum(twice.values()),
        tcp_unbroken=all(stream.unbroken for stream in streams),
    )


def fail(host: Host, uplink: Uplink) -> None:
    host.set_link(uplink, "down")


def back(host: Host, uplink: Uplink) -> None:
    host.set_link(uplink, "up")


def nothing(_host: Host, _uplink: Uplink) -> None:
    """It stays as it is."""


def move(host: Host, uplink: Uplink) -> None:
    """What the uplink carries leaves it, for another one."""
    host.do("drain", uplink.name)


def unmove(host: Host, uplink: Uplink) -> None:
    host.do("undrain", uplink.name)


def restart(host: Host, _uplink: Uplink) -> None:
    """The service is killed, and another one starts."""
    host.service.kill()
    host.start_service()


def macs(host: Host) -> list[str]:
    """The MAC addresses of the endpoints of a host."""
    ports = [port for port in ("tep0", "tep1") if port in host.ovs.vsctl("list-ports", EXTERNAL)]
    found = [host.ovs.vsctl("get", "interface", one, "mac_in_use") for one in ports or [EXTERNAL]]
    return [mac.strip('"') for mac in found]


FAILS, RETURNS = Event("an uplink fails", fail, nothing), Event("it returns", back, nothing)
MOVES = Event("an endpoint moves", move, unmove)
RESTARTS = Event("the service restarts", restart, nothing)
FAILURE = (FAILS, RETURNS)
ALL = (*FAILURE, MOVES, RESTARTS)
