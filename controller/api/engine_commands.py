"""The commands that the engine returns. The shell carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.history import Entry
from controller.dataplane.htb import Shaper
from controller.dataplane.specs import Changes, FlowSpec


class Command:
    """What the engine returns."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BridgeCommand(Command):
    """A command for one bridge. An internal error in it does not affect other bridges."""

    bridge: str


@dataclass(frozen=True, slots=True)
class Connect(BridgeCommand):
    """Connect to a bridge's management socket, and reconnect whenever the connection is lost."""


@dataclass(frozen=True, slots=True)
class Disconnect(BridgeCommand):
    """Close the connection to a bridge."""


@dataclass(frozen=True, slots=True)
class ReadInstalled(BridgeCommand):
    """Ask for the installed flows and groups. The answer is an `InstalledRead` with the same number."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class ReadStats(BridgeCommand):
    """Ask for the counters of ports and, unless `units` is False, of units.

    `buckets`, `address_units`: also ask for those of buckets, and of addresses behind VM ports.
    """

    buckets: bool = False
    address_units: bool = False
    units: bool = True


@dataclass(frozen=True, slots=True)
class ReadInbound(BridgeCommand):
    """Ask which uplinks deliver to these VM ports. The answer may include other VM ports."""

    ofports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadLearned(BridgeCommand):
    """Ask for the addresses learned on VM ports."""


@dataclass(frozen=True, slots=True)
class ForgetForwarding(BridgeCommand):
    """Make NORMAL forget all addresses that it has learned."""


@dataclass(frozen=True, slots=True)
class ReadForwarding(BridgeCommand):
    """Ask for the addresses that NORMAL has learned. The answer may be an error."""


@dataclass(frozen=True, slots=True)
class Renew(BridgeCommand):
    """Restart the timeouts of these learned flows, if they are unchanged.

    Flows that are gone, or were learned on another port or marked as elsewhere since, are not
    affected: the switch compares the cookie.
    """

    flows: tuple[FlowSpec, ...]


@dataclass(frozen=True, slots=True)
class Apply(BridgeCommand):
    """Make changes as one atomic bundle."""

    bundle_id: int
    changes: Changes


@dataclass(frozen=True, slots=True)
class Prepare(Command):
    """Send these changes ahead, without effect, so that a later `Apply` takes effect immediately.

    The switch drops changes that are not applied within some seconds.
    """

    apply: Apply


@dataclass(frozen=True, slots=True)
class SendFrame(BridgeCommand):
    """Send a frame through the pipeline as if it had come in by port `ofport`."""

    ofport: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class DeliverFrame(BridgeCommand):
    """Send a frame out by a port unchanged, bypassing the pipeline."""

    ofport: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class SetPortFlags(BridgeCommand):
    """Set the ports that NORMAL does not flood to, and those that it floods to again.

    Other ports are not changed. The answer is a `PortFlagsSet` with the same number.
    """

    number: int
    no_flood: frozenset[int]
    flood: frozenset[int]


@dataclass(frozen=True, slots=True)
class AddSelectGroup(BridgeCommand):
    """Add the group that selects by the datapath's hash, or set it right.

    The answer is a `SelectGroupAdded` with the same number.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Shape(BridgeCommand):
    """Set the queues of devices; None removes ours. The answer is a `Shaped`.

    `replaces`: the devices on which another program's qdisc may be replaced.
    """

    wanted: tuple[tuple[str, Shaper | None], ...]
    replaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ForwardByOne(BridgeCommand):
    """Make NORMAL forward by one plain uplink, and cut the `others` off, as a rescue does.

    The answer is a `ForwardingByOne`.
    """

    uplink: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnounceEndpoints(BridgeCommand):
    """Announce the own addresses of a bridge's tunnel endpoints, several times within 15 s.

    The announcements continue when the bridge has been detached, and when this service has ended.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """An external_ids key of a record; None removes the key.

    `table` is Bridge, Interface, Port or, with the record `.`, Open_vSwitch. If `column` is not
    external_ids, that column is set instead.
    """

    table: str
    record: str
    key: str
    value: str | None
    column: str = "external_ids"

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The record, the column and the key that are set."""
        return self.table, self.record, self.column, self.key


@dataclass(frozen=True, slots=True)
class Write(Command):
    """Write settings in one transaction. With a `request_id`, a `Written` event follows.

    `applied`: the event follows once ovs-vswitchd has applied the settings, or seems not to.
    """

    settings: tuple[Setting, ...]
    request_id: int | None = None
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Answer(Command):
    """Tell the standby that this service is alive."""


@dataclass(frozen=True, slots=True)
class Reply(Command):
    """The answer to a request: text for stdout, or the reason of a refusal."""

    request_id: int
    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Report(Command):
    """A line for the log."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportFailure(Command):
    """An internal error while this bridge or request was handled. `again`: it is already in the log."""

    of: str
    error: Exception
    again: bool


@dataclass(frozen=True, slots=True)
class Record(Command):
    """An entry of the history."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Observe(BridgeCommand):
    """An observation for the histogram of this name in controller/metrics/exporter.py."""

    histogram: str
    seconds: float
