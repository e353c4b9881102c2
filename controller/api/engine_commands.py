"""The engine's commands, which the service carries out on switches, in the database and in files."""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.history import Entry
from controller.dataplane.htb import Shaper
from controller.dataplane.specs import Changes, FlowSpec


class Command:
    """The base class of all commands of the engine."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BridgeCommand(Command):
    """A command for one bridge. An internal error in this command does not affect other bridges."""

    bridge: str


@dataclass(frozen=True, slots=True)
class Connect(BridgeCommand):
    """Connect to a bridge's management socket, and reconnect whenever the connection is lost."""


@dataclass(frozen=True, slots=True)
class Disconnect(BridgeCommand):
    """Close the connection to a bridge, and do not reconnect."""


@dataclass(frozen=True, slots=True)
class ReadInstalled(BridgeCommand):
    """Request the installed flows and groups. The answer is an `InstalledRead` with the same `number`."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class ReadStats(BridgeCommand):
    """Request the counters of ports and, unless `units` is False, of units.

    `buckets`, `address_units`: also request the counters of buckets, and of addresses behind VM ports.
    """

    buckets: bool = False
    address_units: bool = False
    units: bool = True


@dataclass(frozen=True, slots=True)
class ReadInbound(BridgeCommand):
    """Request counters of traffic from uplinks to VM ports: to all, unless `ofports` has only one item."""

    ofports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadLearned(BridgeCommand):
    """Request the addresses learned on VM ports. The answer is a `LearnedRead`."""


@dataclass(frozen=True, slots=True)
class ForgetForwarding(BridgeCommand):
    """Delete all addresses that the action NORMAL has learned."""


@dataclass(frozen=True, slots=True)
class ReadForwarding(BridgeCommand):
    """Request the addresses that the action NORMAL has learned. The answer is a `ForwardingRead`."""


@dataclass(frozen=True, slots=True)
class Renew(BridgeCommand):
    """Restart the timeouts of those learned flows that have not changed.

    The switch compares cookies, so a flow is skipped if it no longer exists, or if its address has
    since been learned on another port or outside the bridge.
    """

    flows: tuple[FlowSpec, ...]


@dataclass(frozen=True, slots=True)
class Apply(BridgeCommand):
    """Make changes as one atomic bundle."""

    bundle_id: int
    changes: Changes


@dataclass(frozen=True, slots=True)
class Prepare(Command):
    """Send the changes of an `Apply` in advance, so that the `Apply` itself only commits them.

    The switch discards changes that are not applied within a few seconds.
    """

    apply: Apply


@dataclass(frozen=True, slots=True)
class SendFrame(BridgeCommand):
    """Send a frame through the pipeline, as if received on port `ofport`."""

    ofport: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class DeliverFrame(BridgeCommand):
    """Send an unchanged frame out on port `ofport`, bypassing the pipeline."""

    ofport: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class SetPortFlags(BridgeCommand):
    """Set the flag no-flood on ports `no_flood`, and clear it on ports `flood`.

    Other ports are not changed. The answer is a `PortFlagsSet` with the same `number`.
    """

    number: int
    no_flood: frozenset[int]
    flood: frozenset[int]


@dataclass(frozen=True, slots=True)
class AddSelectGroup(BridgeCommand):
    """Add the select group for dp_hash, or replace the installed group if that group is different.

    The answer is a `SelectGroupAdded` with the same `number`.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Shape(BridgeCommand):
    """Set the queues on devices; None removes our queues from a device. The answer is a `Shaped`.

    `replaces`: the devices on which another program's qdisc is replaced as well.
    """

    wanted: tuple[tuple[str, Shaper | None], ...]
    replaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ForwardByOne(BridgeCommand):
    """Make NORMAL use only plain uplink `uplink`, and disconnect `others`, like `ovs-lbt rescue`.

    The answer is a `ForwardingByOne`.
    """

    uplink: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnounceEndpoints(BridgeCommand):
    """Announce the addresses of a bridge's tunnel endpoints several times within 15 s.

    The announcements continue after the bridge is detached, and after this service ends.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """The new value of an external_ids key of a record; None removes the key.

    `table`: Bridge, Interface or Port, or Open_vSwitch with the record `.`. If `column` is not
    external_ids, the value is that of the column `column`.
    """

    table: str
    record: str
    key: str
    value: str | None
    column: str = "external_ids"

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The table, record, column and key to set."""
        return self.table, self.record, self.column, self.key


@dataclass(frozen=True, slots=True)
class Write(Command):
    """Write settings in one transaction. With a `request_id`, a `Written` event follows.

    `applied`: the event follows after ovs-vswitchd has applied the settings, or after a timeout.
    """

    settings: tuple[Setting, ...]
    request_id: int | None = None
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Answer(Command):
    """Answer a standby service's check (`Challenged`) that this service is alive."""


@dataclass(frozen=True, slots=True)
class Reply(Command):
    """The answer to a request: text for stdout, or the reason for a refusal."""

    request_id: int
    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Report(Command):
    """Write `text` to the log. `level`: debug, info, warning or error."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportFailure(Command):
    """Report an internal error while handling bridge or request `of`. `again`: it is already in the log."""

    of: str
    error: Exception
    again: bool


@dataclass(frozen=True, slots=True)
class Record(Command):
    """Write an entry to the history."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Observe(BridgeCommand):
    """Add a duration in seconds to the histogram `histogram` in controller/metrics/exporter.py."""

    histogram: str
    seconds: float
