"""The state of one bridge, and what follows from it. Nothing here changes the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.api.events import (
    Command,
    ForeignFlow,
    InstalledRead,
)
from controller.bridge import inspection
from controller.bridge.handover import Handover
from controller.bridge.installation import Installation
from controller.bridge.installing import Installing
from controller.bridge.phase import Phase
from controller.bridge.placing import Placing
from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane import specs
from controller.decisions import planning
from controller.decisions.decision_log import DecisionLog
from controller.decisions.planning import Basis, Proposal
from controller.decisions.scheduler import Scheduler
from controller.features.announcer import Announcer
from controller.features.connection_hash import ConnectionHash
from controller.features.feature import Feature
from controller.features.inbound_check import InboundCheck
from controller.features.learned_addresses import Addresses
from controller.features.no_flood import NoFlood
from controller.features.off_home import OffHomeAddresses
from controller.features.path_checks import Probing
from controller.features.polls import Polls
from controller.features.port_changes import PortChanges
from controller.features.shaping import Shaping
from controller.load.flooded import Flooded
from controller.load.loads import Loads
from controller.load.polling import Polling
from controller.load.repeated import Repeated
from controller.teaming.address_units import AddressUnit, AddressUnits
from controller.teaming.links import Links
from controller.teaming.paths import PathChecks
from policies.model import Role

Commands = list[Command]


@dataclass(slots=True)
class BridgeState:
    """Everything that is remembered of one bridge between two events."""

    # The configuration in force.
    config: BridgeConfig
    # The wall-clock time at which `now_s` was zero, in seconds.
    epoch_s: float = 0.0
    # What the service does with the bridge now.
    phase: Phase = Phase.SERVING
    # Whether an error of ours has interrupted a request that attaches or detaches the bridge. Then what
    # is ours is removed without the steps that spare frames, because one of these may have failed.
    interrupted: bool = False
    # ---- what the switch has reported
    # Ports, and which uplinks carry traffic.
    links: Links = field(init=False)
    # The measured loads of ports, units and buckets.
    loads: Loads = field(default_factory=Loads)
    flooded: Flooded = field(default_factory=Flooded)
    repeated: Repeated = field(default_factory=Repeated)
    # The addresses behind VM ports: all of them, and those that are units of their own.
    addresses: Addresses = field(default_factory=Addresses)
    address_units: AddressUnits = field(default_factory=AddressUnits)
    # Which uplinks reach each other, as probes show.
    paths: PathChecks = field(default_factory=PathChecks)
    # Signs probes, so that nobody else can make one.
    probe_key: bytes = field(default=b"", repr=False)
    probing: Probing = field(init=False, compare=False)
    polls: Polls = field(init=False, compare=False)
    # In the order in which they act.
    features: tuple[Feature, ...] = field(init=False, compare=False)
    # ---- what is decided
    # When to read counters.
    polling: Polling = field(default_factory=Polling)
    # When to ask which policy, and what they have decided lately.
    scheduler: Scheduler = field(default_factory=Scheduler)
    # Where each unit is.
    placing: Placing = field(init=False, compare=False)
    # ---- what the switch should have
    # Our flows and groups, and the bundle under way.
    installation: Installation = field(default_factory=Installation)
    # The port flag `no-flood` on VM ports.
    no_flood: NoFlood = field(init=False, compare=False)
    handover: Handover = field(init=False, compare=False)
    port_changes: PortChanges = field(init=False, compare=False)
    # How the switch follows.
    installing: Installing = field(init=False, compare=False)
    # The hash of connections.
    connection_hash: ConnectionHash = field(init=False, compare=False)
    # The queues of uplinks' devices.
    shaping: Shaping = field(init=False, compare=False)
    # ---- what upstream switches and people are told
    # Learning packets to send.
    announcer: Announcer = field(init=False, compare=False)
    # Announcements of endpoints' off-home addresses.
    off_home: OffHomeAddresses = field(init=False, compare=False)
    # The inbound check of VM ports that have moved.
    inbound_check: InboundCheck = field(init=False, compare=False)
    # The log of decisions.
    decision_log: DecisionLog = field(default_factory=DecisionLog)

    # ---- what is known of the switch ---------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self.links.connected

    @property
    def read(self) -> InstalledRead | None:
        """The last reading of the switch's flows and groups; None: there was none."""
        return self.installation.read

    @property
    def foreign(self) -> tuple[ForeignFlow, ...]:
        """The flows of other programs in the last reading."""
        return self.read.foreign if self.read is not None else ()

    @property
    def overruling(self) -> list[str]:
        """The flows of other programs that frames meet before ours, in words."""
        if self.read is None or not self.serves:
            return []
        return inspection.flows_before_ours(self.read, self.config.on_bond)

    @property
    def installed(self) -> specs.Pipeline | None:
        """Our flows and groups on the switch; None: not known."""
        return self.installation.installed

    @property
    def installed_anything(self) -> bool:
        return self.installation.has_anything

    @property
    def settled(self) -> bool:
        """Whether the installed pipeline is known, and no change of flows or flags is under way."""
        changing = self.no_flood.changing or self.connection_hash.changing
        return self.connected and self.installation.settled and not changing

    @property
    def known(self) -> bool:
        """Whether everything that a change depends on has been read from the switch."""
        return self.settled and not self.addresses.awaits_normal

    @property
    def at_rest(self) -> bool:
        """Whether the switch has the desired pipeline, and nothing is left to announce."""
        return self.announcer.idle and self.off_home.idle and self.installing.has_all

    @property
    def awaited(self) -> str:
        """What keeps the bridge from being settled, as the end of a message: found -> expected."""
        if self.connected and self.addresses.awaits_normal:
            return ", because fdb/show was not answered -> an ovs-vswitchd that answers"
        if self.connected and self.no_flood.error is not None:
            return f", because of the flag no-flood of VM ports: {self.no_flood.error}"
        return " -> a switch that answers"

    @property
    def any_up(self) -> bool:
        return any(self.links.up(u) for u in self.config.uplinks if u.role is not Role.UNUSED)

    @property
    def lacp_in_doubt(self) -> bool:
        """Whether it is not certain that LACP has failed.

        The bridge has fallen back, but a member is up whose LACP was current in the last reading of
        the database, which may be out of date.
        """
        config = self.config
        current = (u for u in config.uplinks if u.name in config.lacp_current)
        return config.fallen_back and any(map(self.links.up, current))

    # ---- what is done with the bridge --------------------------------------------------------

    @property
    def observing(self) -> bool:
        return self.config.mode == "observe"

    @property
    def on_normal(self) -> bool:
        """Whether NORMAL forwards on the observed bond, or will once our flows are removed."""
        if self.phase.is_attached:
            return self.phase is Phase.ON_NORMAL
        return self.config.observes_bond and not self.handover.is_gathering

    @property
    def serves(self) -> bool:
        """Whether the bridge forwards by our pipeline, rather than by NORMAL over its bond."""
        return self.phase is not Phase.LEAVING and not self.on_normal and bool(self.config.uplinks)

    @property
    def announces(self) -> bool:
        """Whether learning packets are sent."""
        return self.phase.is_attached and self.serves

    @property
    def wants_addresses(self) -> bool:
        """Whether units or queues need the learned addresses to be read."""
        if self.config.per_address and self.phase.is_attached and self.installed_anything:
            return True
        if self.checks_paths and any(port.vlans.takes_tagged for port in self.config.vm_ports):
            return True
        asking = self.config.queued
        if not asking or not self.announces or not self.settled:
            return False
        known = self.addresses.by_port
        missing = any(port.name not in known and not port.attached_macs for port in asking)
        return missing or not self.addresses.known

    # ---- bindings and loads ------------------------------------------------------------------

    @property
    def checks_paths(self) -> bool:
        """Whether the uplinks probe each other now."""
        return self.config.checks_paths and self.announces and not self.config.fallen_back

    def cooldowns(self, now_s: float) -> Mapping[str, tuple[float, bool]]:
        """The units in cooldown, by name: until when, and whether because of their move budget."""
        return self.scheduler.cooldowns(self.placing.team_view, now_s)

    # ---- what the switch should have ---------------------------------------------------------

    # ---- what operators ask -------------------------------------------------------------------

    @property
    def behind(self) -> Mapping[str, AddressUnit]:
        """The addresses that are units of their own, by name."""
        return self.address_units.by_name

    def known_s(self, port: VmPortConfig) -> float:
        """For how long the load of a VM port over uplinks has been known."""
        if self.on_normal:
            return self.loads.known_s(port.ofport, 0.0)
        return self.loads.unit_known_s(port.ofport)

    def basis(self, policy: str, now_s: float) -> Basis:
        """The loads that a policy can judge now."""
        moved_s = self.scheduler.last_moved_s(policy)
        return planning.basis(self.placing.team_view, policy, moved_s, now_s)

    def bases(self, now_s: float) -> dict[str, Basis]:
        """The loads that each policy can judge now."""
        return {policy: self.basis(policy, now_s) for policy in self.placing.team_view.policies}

    def proposal(self, now_s: float) -> Proposal:
        """What policies would move now."""
        return planning.propose(
            self.placing.team_view, self.bases(now_s), self.placing.bindings.homes, now_s
        )

    # ---- what waits for the switch, or to be announced ---------------------------------------

    @property
    def resumes_s(self) -> float:
        """When changes that wait until the switch has failed over are sent; infinity if none wait."""
        return self.installation.resumes_s if self.connected else float("inf")

    @property
    def announces_at_s(self) -> float:
        """When the next announcement or inbound check is due; infinity if none is."""
        if not self.connected:
            return float("inf")
        return min(one.next_s() for one in (self.announcer, self.off_home, self.inbound_check))
