"""The events that the engine receives from the shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.config.rows import BridgeRow, Ovn
from controller.dataplane.htb import UNTOUCHED, Found
from controller.dataplane.specs import FlowSpec, GroupSpec


class Event:
    """What the engine receives."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BridgeEvent(Event):
    """What concerns one bridge."""

    bridge: str


@dataclass(frozen=True, slots=True)
class DatabaseRead(Event):
    """The present content of the database; sent after every change.

    `leader`: the name of the leading service, if it has ever written it. `ovs_version`: Open
    vSwitch's version, if ovs-ctl has written it. `ovn`: the endpoints of OVN's tunnels, if this
    host has OVN. `key_loss_grace_s`: the value of that key, if it is set. `lacking`: the error text
    if the schema lacks a column that is read, else empty; everything else is then unchanged.
    """

    bridges: tuple[BridgeRow, ...]
    leader: str | None = None
    ovs_version: str | None = None
    ovn: Ovn | None = None
    key_loss_grace_s: str | None = None
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class AddressesRead(Event):
    """The IP addresses of this host's devices; sent after every change.

    Addresses that reach no other network (of the link only, or of the host) are left out.
    """

    devices: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Leading(Event):
    """This service leads from now on, or another service does."""

    leads: bool


@dataclass(frozen=True, slots=True)
class Challenged(Event):
    """A service on standby checks whether this one is alive."""


@dataclass(frozen=True, slots=True)
class PortState:
    """A port as the switch reports it. `speed_bps` is zero if the switch does not know it.

    `up`: it carries traffic; a member of a bond that has lost LACP does not. `silent`: its link is
    up, but it carries no traffic, because what watches it receives nothing, or because it has just
    come up.
    """

    ofport: int
    name: str
    up: bool
    speed_bps: float
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SwitchConnected(BridgeEvent):
    """The OpenFlow handshake with a bridge is done."""

    ports: tuple[PortState, ...]


@dataclass(frozen=True, slots=True)
class SwitchGone(BridgeEvent):
    """The connection to a bridge has ended."""


@dataclass(frozen=True, slots=True)
class ForeignFlow:
    """A flow of another program: its table and priority, its match in words, the groups it uses."""

    table: int
    priority: int
    cookie: int
    match: str
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InstalledRead(BridgeEvent):
    """Our flows and groups on a bridge, and those of other programs.

    `groups`: all groups with ids in our range. `by_default`: whether the switch's own default flow
    is there, NORMAL with priority 0; it counts neither as ours nor as another program's. `flooded`: how
    many frames each uplink has flooded to VM ports, by ofport. `number`: that of the request.
    """

    flows: tuple[FlowSpec, ...]
    groups: tuple[GroupSpec, ...]
    foreign: tuple[ForeignFlow, ...] = ()
    by_default: bool = False
    flooded: Mapping[int, int] = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True, slots=True)
class PortChanged(BridgeEvent):
    port: PortState


@dataclass(frozen=True, slots=True)
class PortRemoved(BridgeEvent):
    ofport: int


@dataclass(frozen=True, slots=True)
class FrameHeard(BridgeEvent):
    """An uplink has received a path check frame, or the switch has returned the proof of a round."""

    uplink: int
    frame: bytes


UNSUPPORTED = 2**64 - 1


# These are tuples, because hundreds are made with each poll.
class Sample(NamedTuple):
    """Byte counters at `clock_s`, which is the age that the switch reports for the port or flow.

    `tx_bytes` go towards the network. None: the switch does not count them. A switch counts whole
    bytes; a simulated one also counts fractions. The packets are those of flows; zero for ports.
    """

    clock_s: float
    tx_bytes: float | None
    rx_bytes: float | None
    tx_packets: int = 0
    rx_packets: int = 0


# A tuple, because one is made for each port with each poll.
class PortCounters(NamedTuple):
    """Counters of one port; `tx` is out of the switch and `rx` into it."""

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
    """The traffic between each VM port and uplinks, by ofport, as counted by its flows.

    `buckets`: the traffic sent by each bucket, by the numbers of its hash and bucket, if requested.
    `address_units`: the same as for VM ports, for addresses behind them, by slot, if requested.
    """

    units: tuple[tuple[int, Sample], ...]
    buckets: tuple[tuple[tuple[int, int], Sample], ...] = ()
    address_units: tuple[tuple[int, Sample], ...] = ()


@dataclass(frozen=True, slots=True)
class InboundRead(BridgeEvent):
    """What uplinks delivered to VM ports, as (ofport, the uplink's, bytes), as counted by flows."""

    counted: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LearnedRead(BridgeEvent):
    """The addresses learned on VM ports, as (ofport, MAC, VLAN).

    `from_normal`: addresses learned from ports that the service did not know yet; the VLAN is None if
    only the port's configuration determines it. `elsewhere`: addresses that have announced
    themselves from outside, as (MAC, VLAN).
    """

    addresses: tuple[tuple[int, str, int], ...]
    from_normal: tuple[tuple[int, str, int | None], ...] = ()
    elsewhere: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PortFlagsSet(BridgeEvent):
    """The requested ports to which NORMAL does not flood; or why the change failed.

    `before`: all ports to which it did not flood before.
    """

    number: int
    no_flood: frozenset[int]
    error: str | None = None
    before: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SelectGroupAdded(BridgeEvent):
    """The switch has the group that selects by the datapath's hash; or why not."""

    number: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ForwardingRead(BridgeEvent):
    """The addresses that NORMAL has learned, as (ofport, MAC, VLAN), or an `error`."""

    addresses: tuple[tuple[int, str, int], ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """An uplink's device and its present queues.

    `error`: why the change failed. `replaced`: the previous configuration, which is lost.
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
    """A bundle was committed, or refused as a whole with `error`."""

    bundle_id: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CommandFailed(BridgeEvent):
    """A command for a bridge was not carried out because of an internal error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ForwardingByOne(BridgeEvent):
    """The result of a `ForwardByOne`: NORMAL forwards by one uplink, unless there is an `error`."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed: the bridge that has waited longest runs its due timers.

    Another `Tick` follows while a timer is due. In between, the shell can carry out the commands of
    the first one, and take urgent events.
    """


@dataclass(frozen=True, slots=True)
class Faulted(Event):
    """A part of this service has failed, for the `count`th time since the host booted.

    `text`: the error. `at_s`: in seconds since the epoch.
    """

    part: str
    text: str
    at_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Request(Event):
    """A command of an operator, for example ("move", "vnet0", "eth1")."""

    request_id: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written(Event):
    """The database has stored the settings of a request, or refused them with `error`."""

    request_id: int
    error: str | None = None
