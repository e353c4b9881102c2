"""The events that the engine receives: connections, counters, database changes, requests, timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.config.rows import BridgeRow, Ovn
from controller.dataplane.drops import Dropped
from controller.dataplane.htb import UNTOUCHED, Found
from controller.dataplane.specs import FlowSpec, GroupSpec


class Event:
    """The base class of all events for the engine."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BridgeEvent(Event):
    """The base class of events that concern one bridge, with the bridge's name."""

    bridge: str


@dataclass(frozen=True, slots=True)
class DatabaseRead(Event):
    """The current content of the database; sent after every change.

    `leader`: the name of the leading service; None if no service has written a name. `ovs_version`: Open
    vSwitch's version; None if ovs-ctl has not written it. `ovn`: the endpoints of OVN's tunnels; None
    without OVN. `key_loss_grace_s`: the value of the key key-loss-grace-s, if set. `lacking`: an error
    text if the schema lacks a required column (other fields are then unchanged), else empty.
    """

    bridges: tuple[BridgeRow, ...]
    leader: str | None = None
    ovs_version: str | None = None
    ovn: Ovn | None = None
    key_loss_grace_s: str | None = None
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class Unstored(Event):
    """The database cannot store settings, for example on a full disk. `why`: empty once they are stored."""

    why: str


@dataclass(frozen=True, slots=True)
class AddressesRead(Event):
    """The IP addresses of this host's devices, by device name; sent after every change.

    Addresses of link or host scope are left out, because they cannot reach other networks.
    """

    devices: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Leading(Event):
    """The leader has changed. `leads`: whether this service leads from now on."""

    leads: bool


@dataclass(frozen=True, slots=True)
class Challenged(Event):
    """A service on standby checks whether this service is alive."""


@dataclass(frozen=True, slots=True)
class PortState:
    """The state of a port on the switch. `speed_bps`: 0 if the switch reports no speed.

    `up`: the port carries traffic; a bond member without negotiated LACP does not. `silent`: the link is
    up, but the port carries no traffic, because LACP, BFD or CFM receives nothing on it, or because the
    link has just come up. `flags`: `down` if the device is down, and the OpenFlow port flags `no-receive`
    and `no-forward`.
    """

    ofport: int
    name: str
    up: bool
    speed_bps: float
    silent: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchConnected(BridgeEvent):
    """The OpenFlow handshake with a bridge is complete. `ports`: all its ports."""

    ports: tuple[PortState, ...]


@dataclass(frozen=True, slots=True)
class SwitchGone(BridgeEvent):
    """The connection to a bridge has ended."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ForeignFlow:
    """A flow of another program. `match`: its match as text. `groups`: the IDs of groups in its actions."""

    table: int
    priority: int
    cookie: int
    match: str
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InstalledRead(BridgeEvent):
    """Our flows and groups on a bridge, and other programs' flows.

    `groups`: all groups with IDs in our range. `by_default`: whether the switch's default flow, NORMAL
    with priority 0, is installed; neither we nor other programs own this flow. `flooded`: the number
    of frames from each uplink, by ofport, that were flooded to VM ports. `dropped`: the number of frames that
    were dropped on purpose, by port and reason. `number`: the request's number.
    """

    flows: tuple[FlowSpec, ...]
    groups: tuple[GroupSpec, ...]
    foreign: tuple[ForeignFlow, ...] = ()
    by_default: bool = False
    flooded: Mapping[int, int] = field(default_factory=dict)
    dropped: Mapping[Dropped, int] = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True, slots=True)
class PortChanged(BridgeEvent):
    port: PortState


@dataclass(frozen=True, slots=True)
class PortRemoved(BridgeEvent):
    ofport: int


@dataclass(frozen=True, slots=True)
class FrameHeard(BridgeEvent):
    """A path-check frame received on an uplink, or the service's own probe, returned by the switch."""

    uplink: int
    frame: bytes


UNSUPPORTED = 2**64 - 1


# These are tuples, because hundreds are made with each poll.
class Sample(NamedTuple):
    """Byte counters at `clock_s`, the age of the port or flow according to the switch.

    `tx_bytes`: bytes towards the network. None: the switch does not count them. A switch counts whole
    bytes; a simulated switch also counts fractions. Packets are counted for flows only; for ports, 0.
    """

    clock_s: float
    tx_bytes: float | None
    rx_bytes: float | None
    tx_packets: int = 0
    rx_packets: int = 0


# A tuple, because one is made for each port with each poll.
class PortCounters(NamedTuple):
    """Counters of one port. `tx`: out of the switch; `rx`: into the switch."""

    ofport: int
    clock_s: float
    tx_bytes: float
    rx_bytes: float
    tx_dropped: int
    rx_dropped: int
    tx_packets: int = UNSUPPORTED
    rx_packets: int = UNSUPPORTED


@dataclass(frozen=True, slots=True)
class PortStatsRead(BridgeEvent):
    ports: tuple[PortCounters, ...]


@dataclass(frozen=True, slots=True)
class UnitCountersRead(BridgeEvent):
    """Counters of traffic between each VM port and uplinks: (VM port's ofport, sample).

    `buckets`: the traffic sent through each bucket, by (number of the hash, number of the bucket), if
    requested. `address_units`: the traffic of addresses behind VM ports, by slot, if requested.
    """

    units: tuple[tuple[int, Sample], ...]
    buckets: tuple[tuple[tuple[int, int], Sample], ...] = ()
    address_units: tuple[tuple[int, Sample], ...] = ()


@dataclass(frozen=True, slots=True)
class InboundRead(BridgeEvent):
    """Counters of traffic from uplinks to VM ports: (VM port's ofport, uplink's ofport, bytes)."""

    counted: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LearnedRead(BridgeEvent):
    """The addresses learned on VM ports, as (ofport, MAC, VLAN).

    `from_normal`: addresses learned on ports that are new to the service; the VLAN is None if only the
    port's configuration determines the VLAN. `elsewhere`: addresses of VM ports whose frames have since
    arrived from outside the bridge, as (MAC, VLAN).
    """

    addresses: tuple[tuple[int, str, int], ...]
    from_normal: tuple[tuple[int, str, int | None], ...] = ()
    elsewhere: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PortFlagsSet(BridgeEvent):
    """The result of a `SetPortFlags`: the requested ports that now have no-flood, or an `error`.

    `before`: all ports that had the flag before the change.
    """

    number: int
    no_flood: frozenset[int]
    error: str | None = None
    before: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SelectGroupAdded(BridgeEvent):
    """The result of an `AddSelectGroup`: the group is on the switch, unless there is an `error`."""

    number: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ForwardingRead(BridgeEvent):
    """The addresses that NORMAL has learned, as (ofport, MAC, VLAN), or an `error`."""

    addresses: tuple[tuple[int, str, int], ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """An uplink's device and its current queues.

    `error`: the reason why setting the queues failed. `replaced`: the previous queues, now lost.
    """

    name: str
    found: Found = UNTOUCHED
    error: str | None = None
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class Shaped(BridgeEvent):
    """The result of a `Shape`, for each device."""

    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class BundleDone(BridgeEvent):
    """The result of an `Apply`: the switch committed the bundle or, with an `error`, refused all of it."""

    bundle_id: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CommandFailed(BridgeEvent):
    """A command for a bridge was not carried out because of an internal error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ForwardingByOne(BridgeEvent):
    """The result of a `ForwardByOne`: NORMAL forwards on one uplink, unless there is an `error`."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Run the due timers of the bridge whose timer has been due longest.

    The service sends another `Tick` while a timer is due. Between two ticks, the service can carry out
    the commands from the first `Tick`, and handle urgent events.
    """


@dataclass(frozen=True, slots=True)
class Faulted(Event):
    """A part of this service has failed, for the `count`th time since the host booted.

    `text`: the error. `at_s`: the time of the failure, in seconds since the epoch.
    """

    part: str
    text: str
    at_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Request(Event):
    """An operator's command, for example ("move", "vnet0", "eth1")."""

    request_id: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written(Event):
    """The database has stored the settings of a request or, with an `error`, refused them."""

    request_id: int
    error: str | None = None
