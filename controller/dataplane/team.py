"""A team as the pipeline needs it: uplinks and VM ports by number, and what each carries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.config.vlans import TRUNK, PortVlans
from controller.dataplane.specs import FlowSpec
from policies.classifiers import Classifier
from policies.model import OfPort
from policies.values import value

# For so many ports, the flows that depend on nothing else are kept from one pipeline to the next.
KEPT = 4096


def kept(made: Callable[..., Iterable[FlowSpec]]) -> Callable[..., tuple[FlowSpec, ...]]:
    """Cache the results of a function between pipelines, because most changes concern few ports."""

    @functools.lru_cache(maxsize=KEPT)
    def flows(*about: Hashable) -> tuple[FlowSpec, ...]:
        found = tuple(made(*about))
        assert all(f.goto is None or f.goto > f.table for f in found), "frames only go forward"
        return found

    return flows


@value(frozen=True, slots=True)
class VmPort:
    """A VM port as the pipeline needs it.

    `order`: its uplinks' ofports. The first is the one in use, its home, on which it receives
    broadcasts. `hashed`: the number of the hash that spreads its traffic; None: all of it
    leaves on its home. `attached_macs`: its own addresses, which no other VM port has in its
    VLANs. `forges`: whether it may send from other addresses. `trusted`: ports for which
    this is set may use each other's addresses.
    """

    ofport: OfPort
    order: tuple[OfPort, ...]
    vlans: PortVlans = TRUNK
    attached_macs: tuple[str, ...] = ()
    forges: bool = True
    trusted: bool = False
    hashed: int | None = None

    def is_confined(self, uplinks: Sequence[OfPort]) -> bool:
        """Whether one of these uplinks can be live while none is live that the port may use."""
        return not set(uplinks).issubset(self.order)


@dataclass(frozen=True, slots=True)
class Hash:
    """One way to spread what VM ports send over buckets, which they share.

    `number`: from 0 to 14. `buckets`: for each bucket its uplinks' ofports, the one in
    use first.
    """

    number: int
    classifier: Classifier
    buckets: tuple[tuple[OfPort, ...], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """An address behind VM port `ofport` that has its own uplinks.

    `slot`: its number on the bridge. `order`: its uplinks' ofports, the one in use first.
    """

    slot: int
    ofport: OfPort
    mac: str
    vlan: int
    order: tuple[OfPort, ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A VM port that sends tunnels. Peers may answer to the source address of its frames.

    `mac`: its own address. `off_home_macs`: for each uplink the source address of its frames that
    leave off home. No other port and no other host uses them.
    """

    ofport: OfPort
    mac: str
    off_home_macs: tuple[tuple[OfPort, str], ...]


@dataclass(frozen=True, slots=True)
class Team:
    """One bridge as the pipeline needs it.

    `uplinks` in configured order (their positions number the delivery groups).
    `hears_everywhere`: the upstream switch sends one copy only (static LAG, LACP), so a VM
    port accepts broadcast from any uplink. `over_normal`: the uplinks are a bond, and frames of
    unknown ports are left to NORMAL instead of dropped, unless there are `strangers`: ports that lead to
    the network besides the uplinks, with which NORMAL would form a loop. `uplink_vlans`: the VLANs of uplinks; those
    not in it carry every VLAN.

    `no_flood`: the ports that NORMAL does not flood to. While all VM ports are among them, NORMAL
    gets frames that uplinks flood, for ports that were added while the service was not running;
    otherwise it would deliver a second copy. `normal_takes_any`: NORMAL takes unicast from every uplink
    (balance-slb), so it gets flooded unicast from one uplink only.

    `off_home_macs`: for each uplink one of our source addresses. Frames of hashed VM ports get it
    when they leave on another uplink than the one where upstream switches know the VM's address.
    Uplinks that are not in it have none.

    `endpoints`: the VM ports that send tunnels, if the uplinks are not a LAG. `lanes`: for each
    uplink, the uplinks that serve its off-home addresses of endpoints, the one in use first.

    `addresses`: the addresses that have their own uplinks, behind VM ports whose `hashed`
    is `tables.ASSIGNED`.

    `dp_hash`: the switch has the group `hashing.SELECT_GROUP`, and connections are hashed by it.

    `probe_macs`: for each uplink whose paths are checked, the address of its probes. `question_macs`: the
    address from which it queries hosts in the network; empty if it queries none. `probe_group`: the
    address of copies of probes. `unheard`: the uplinks on which the switch drops frames of path checks
    instead of giving them to the service, each with whether those to its own addresses, or others.

    `forwards_bpdu`: frames between switches are forwarded like other multicast. `snoops`: NORMAL snoops multicast.
    """

    uplinks: tuple[OfPort, ...]
    vm_ports: tuple[VmPort, ...]
    hears_everywhere: bool = False
    over_normal: bool = False
    strangers: bool = False
    uplink_vlans: Mapping[OfPort, PortVlans] = field(default_factory=dict)
    normal_takes_any: bool = False
    no_flood: frozenset[int] = frozenset()
    hashes: tuple[Hash, ...] = ()
    off_home_macs: Mapping[OfPort, str] = field(default_factory=dict)
    addresses: tuple[Address, ...] = ()
    dp_hash: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    lanes: Mapping[OfPort, tuple[OfPort, ...]] = field(default_factory=dict)
    probe_macs: Mapping[OfPort, str] = field(default_factory=dict)
    question_macs: Mapping[OfPort, str] = field(default_factory=dict)
    probe_group: str = ""
    unheard: frozenset[tuple[OfPort, bool]] = frozenset()
    forwards_bpdu: bool = False
    snoops: bool = False

    def __post_init__(self) -> None:
        assert self.lanes.keys() | self.probe_macs.keys() <= set(self.uplinks), "ways by uplinks"
        assert len({made.number for made in self.hashes}) == len(self.hashes), "each hash once"
        assert len({one.slot for one in self.addresses}) == len(self.addresses), "a slot each"

    @property
    def is_static_lag(self) -> bool:
        """Whether the upstream switch treats the uplinks as one link without negotiation.

        A member of a bond may negotiate LACP instead. The upstream switch sends a separate copy on a
        member that is not part of the LAG.
        """
        return self.hears_everywhere and not self.over_normal

    def has_lanes(self, number: int) -> bool:
        """Whether frames of an endpoint are spread by this hash, off home under its own addresses."""
        ends = {endpoint.ofport for endpoint in self.endpoints}
        connections = {m.number for m in self.hashes if m.classifier is Classifier.TRANSPORT}
        spread = (port.ofport for port in self.vm_ports if port.hashed == number)
        return bool(ends) and number in connections and not ends.isdisjoint(spread)

    @property
    def leaves_to_normal(self) -> bool:
        """Whether NORMAL gets the frames of unknown ports."""
        return self.over_normal and not self.strangers

    @property
    def floods_to_normal(self) -> bool:
        """Whether NORMAL gets what uplinks flood."""
        return self.leaves_to_normal and self.no_flood.issuperset(p.ofport for p in self.vm_ports)
