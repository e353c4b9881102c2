"""What the engine hears and what it asks for; the shell turns both into I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from controller.api.history import Entry
from controller.config.rows import BridgeRow
from controller.dataplane.htb import UNTOUCHED, Found, Shaper
from controller.dataplane.specs import Changes, FlowSpec, GroupSpec

# ---- events ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DatabaseRead:
    """The database as it stands; sent after every change.

    `leader`: the name of the service that leads, if it has ever said so. `ovs_version`: Open vSwitch's own,
    where whatever starts it has written that down.
    """

    bridges: tuple[BridgeRow, ...]
    leader: str | None = None
    ovs_version: str | None = None


@dataclass(frozen=True, slots=True)
class Leading:
    """We lead from here on, or another service does."""

    leads: bool


@dataclass(frozen=True, slots=True)
class Challenged:
    """A service that stands by asks whether we live."""


@dataclass(frozen=True, slots=True)
class PortState:
    """A port as the switch reports it. `speed_bps` is zero where it does not know.

    `up`: it carries traffic. A member of a bond that has lost LACP does not. `silent`: it has a
    link, and does not: what watches it hears no answer, or it has just come.
    """

    ofport: int
    name: str
    up: bool
    speed_bps: float
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SwitchConnected:
    """The OpenFlow handshake with a bridge is done."""

    bridge: str
    ports: tuple[PortState, ...]


@dataclass(frozen=True, slots=True)
class SwitchGone:
    bridge: str


@dataclass(frozen=True, slots=True)
class ForeignFlow:
    """A flow of somebody else's: where it is, its match in words, the groups it uses."""

    table: int
    priority: int
    cookie: int
    match: str
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InstalledRead:
    """Everything of ours that a bridge has, and what others have there.

    `groups` are those with ids in our range. The switch's own default, a NORMAL flow of
    priority 0, is nobody's: `by_default` says whether it is there.
    """

    bridge: str
    flows: tuple[FlowSpec, ...]
    groups: tuple[GroupSpec, ...]
    foreign: tuple[ForeignFlow, ...] = ()
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class PortChanged:
    bridge: str
    port: PortState


@dataclass(frozen=True, slots=True)
class PortRemoved:
    bridge: str
    ofport: int


UNSUPPORTED = 2**64 - 1


# Tuples, as hundreds are made with each poll.
class Sample(NamedTuple):
    """Byte counters at `clock_s`, the age that the switch gives the port or flow.

    `tx_bytes` go towards the network. None: the switch does not count them. A switch counts whole
    bytes, a simulated one also parts.
    """

    clock_s: float
    tx_bytes: float | None
    rx_bytes: float | None


# A tuple, as one is made for each port with each poll.
class PortCounters(NamedTuple):
    """Counters of one port; `tx`/`rx` as the switch says it, out of and into the switch."""

    ofport: int
    clock_s: float
    tx_bytes: float
    rx_bytes: float
    tx_dropped: int
    rx_dropped: int
    tx_packets: int = UNSUPPORTED
    rx_packets: int = UNSUPPORTED


@dataclass(frozen=True, slots=True)
class PortStatsRead:
    bridge: str
    ports: tuple[PortCounters, ...]


@dataclass(frozen=True, slots=True)
class UnitCountersRead:
    """What each VM port exchanged with uplinks, by ofport, counted by its flows.

    `buckets`: what each bucket sent, by the number of its hash and its own, where asked for.
    `stations`: the same as of VM ports, of addresses behind them, by slot, where asked for.
    """

    bridge: str
    units: tuple[tuple[int, Sample], ...]
    buckets: tuple[tuple[tuple[int, int], Sample], ...] = ()
    stations: tuple[tuple[int, Sample], ...] = ()


@dataclass(frozen=True, slots=True)
class InboundRead:
    """What uplinks brought for VM ports, as (ofport, the uplink's, bytes), counted by flows."""

    bridge: str
    counted: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LearnedRead:
    """The addresses learned on VM ports, as (ofport, MAC, VLAN).

    `beneath`: those learned from ports while nobody had told us about them; VLAN None where
    only the port's configuration says it. `elsewhere`: those that have announced themselves from
    outside, as (MAC, VLAN).
    """

    bridge: str
    addresses: tuple[tuple[int, str, int], ...]
    beneath: tuple[tuple[int, str, int | None], ...] = ()
    elsewhere: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PortFlagsSet:
    """Ports that NORMAL does not flood to, of those asked for; or why it was not done.

    `before`: all that it did not flood to before.
    """

    bridge: str
    number: int
    no_flood: frozenset[int]
    error: str | None = None
    before: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ForwardingRead:
    """The addresses that NORMAL has learned, as (ofport, MAC, VLAN); `error`: why none."""

    bridge: str
    addresses: tuple[tuple[int, str, int], ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """An uplink's device and its queueing now.

    `error`: why what was asked for was not done. `replaced`: what was there and is lost.
    """

    name: str
    found: Found = UNTOUCHED
    error: str | None = None
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class Shaped:
    """What came of a `Shape`, device by device."""

    bridge: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class BundleDone:
    """A bundle was committed, or refused as a whole with `error`."""

    bridge: str
    bundle_id: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """A part of this service has failed: for the `count`th time since the host booted.

    `text`: what was found. `at_s`: in seconds since the epoch.
    """

    part: str
    text: str
    at_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Request:
    """A command of an operator's, e.g. ("move", "vnet0", "eth1")."""

    request_id: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What a request wrote is in the database, or was refused with `error`."""

    request_id: int
    error: str | None = None


Event = (
    DatabaseRead
    | Leading
    | Challenged
    | SwitchConnected
    | SwitchGone
    | InstalledRead
    | PortChanged
    | PortRemoved
    | PortStatsRead
    | UnitCountersRead
    | InboundRead
    | LearnedRead
    | ForwardingRead
    | PortFlagsSet
    | Shaped
    | BundleDone
    | Tick
    | Faulted
    | Request
    | Written
)

# ---- commands --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Dial a bridge's management socket, and again whenever the connection is lost."""

    bridge: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    bridge: str


@dataclass(frozen=True, slots=True)
class ReadInstalled:
    bridge: str


@dataclass(frozen=True, slots=True)
class ReadStats:
    """Ask for the counters of ports and, unless `units` is False, units.

    `buckets`, `stations`: and for those of buckets, and of addresses behind VM ports.
    """

    bridge: str
    buckets: bool = False
    stations: bool = False
    units: bool = True


@dataclass(frozen=True, slots=True)
class ReadInbound:
    """Ask by which uplinks comes what is for these VM ports; of others the answer may tell, too."""

    bridge: str
    ofports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadLearned:
    bridge: str


@dataclass(frozen=True, slots=True)
class ForgetForwarding:
    """Have NORMAL forget all addresses it has learned."""

    bridge: str


@dataclass(frozen=True, slots=True)
class ReadForwarding:
    """Ask for the addresses that NORMAL has learned; always answered, if only by an error."""

    bridge: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Start the timeouts of these learned flows anew, where they still stand as they are.

    One that is gone, or has been learned on another port or marked elsewhere since, keeps
    out of it: the switch compares the cookie.
    """

    bridge: str
    flows: tuple[FlowSpec, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """Make changes as one atomic bundle."""

    bridge: str
    bundle_id: int
    changes: Changes


@dataclass(frozen=True, slots=True)
class Prepare:
    """Encode this ahead, as it will have to go out at once."""

    apply: Apply


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a frame through the pipeline as if VM port `ofport` had sent it."""

    bridge: str
    ofport: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class DeliverFrame:
    """Send a frame to a VM port, as it stands and past the pipeline."""

    bridge: str
    ofport: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class SetPortFlags:
    """Say which ports the switch's NORMAL does not flood to, and which it does again.

    Other ports stay as they are. Answered by a `PortFlagsSet` with the same number.
    """

    bridge: str
    number: int
    no_flood: frozenset[int]
    flood: frozenset[int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Have devices queue like this; None: as they do without us. Answered by a `Shaped`.

    `replaces`: the devices of which a qdisc that somebody else chose may be replaced.
    """

    bridge: str
    wanted: tuple[tuple[str, Shaper | None], ...]
    replaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Setting:
    """One external_ids key of a record (`table` is Bridge, Interface or, with the record `.`,
    Open_vSwitch); None removes it.

    `column` other than external_ids sets that column instead.
    """

    table: str
    record: str
    key: str
    value: str | None
    column: str = "external_ids"


@dataclass(frozen=True, slots=True)
class Write:
    """Write settings in one transaction; `request_id` asks for a `Written` event.

    `applied`: only once the switch has taken them over, or does not seem to.
    """

    settings: tuple[Setting, ...]
    request_id: int | None = None
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell who stands by that we live."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request: text for stdout, or the reason of a refusal."""

    request_id: int
    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A line for the log."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """An entry for the history."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Observe:
    """A duration for the histogram of that name in controller/metrics/exporter.py."""

    bridge: str
    histogram: str
    seconds: float


Command = (
    Connect
    | Disconnect
    | ReadInstalled
    | ReadStats
    | ReadInbound
    | ReadLearned
    | ReadForwarding
    | ForgetForwarding
    | Renew
    | Apply
    | Prepare
    | SendFrame
    | DeliverFrame
    | SetPortFlags
    | Shape
    | Write
    | Answer
    | Reply
    | Report
    | Record
    | Observe
)
