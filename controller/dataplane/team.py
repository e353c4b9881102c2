"""The pipeline's input: a bridge's uplinks, VM ports (as ofports), VLANs, hashes and addresses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.config.vlans import TRUNK, PortVlans
from controller.dataplane.specs import FlowSpec
from policies.classifiers import Classifier
from policies.model import OfPort
from policies.values import value

# The number of ports for which flows are cached between pipelines.
KEPT = 4096


def kept(made: Callable[..., Iterable[FlowSpec]]) -> Callable[..., tuple[FlowSpec, ...]]:
    """Decorate a function to cache its flows between pipelines, because most changes affect few ports."""

    @functools.lru_cache(maxsize=KEPT)
    def flows(*about: Hashable) -> tuple[FlowSpec, ...]:
        found = tuple(made(*about))
        assert all(f.goto is None or f.goto > f.table for f in found), "goto is a later table"
        return found

    return flows


@value(frozen=True, slots=True)
class VmPort:
    """A VM port, as the pipeline needs it.

    `order`: the ofports of the VM port's uplinks. The first one is in use (the port's home uplink),
    on which the port receives broadcasts. `hashed`: the number of the hash that spreads the port's
    traffic; None: all traffic leaves on the home uplink. `attached_macs`: the port's own addresses, which no
    other VM port has in the same VLANs. `forges`: the port can also send from other addresses.
    `trusted`: the port and other trusted ports can use each other's addresses. `known_on`: the uplink in
    use, if upstream switches send unicast for the port to this uplink; unicast that another uplink
    receives is then a flooded copy. None: upstream switches may send unicast to any uplink.
    """

    ofport: OfPort
    order: tuple[OfPort, ...]
    vlans: PortVlans = TRUNK
    attached_macs: tuple[str, ...] = ()
    forges: bool = True
    trusted: bool = False
    hashed: int | None = None
    known_on: OfPort | None = None

    def is_confined(self, uplinks: Sequence[OfPort]) -> bool:
        """Whether the port must not use some of `uplinks`, even if no uplink in `order` is live."""
        return not set(uplinks).issubset(self.order)


@dataclass(frozen=True, slots=True)
class Hash:
    """A hash that spreads the traffic sent by one or more VM ports over buckets.

    `number`: from 0 to 14. `buckets`: each bucket's uplinks (ofports), the uplink in use first.
    """

    number: int
    classifier: Classifier
    buckets: tuple[tuple[OfPort, ...], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """An address unit: an address behind VM port `ofport`, with its own uplinks.

    `slot`: the unit's number on the bridge. `order`: the ofports of the unit's uplinks, beginning with
    the uplink in use.
    """

    slot: int
    ofport: OfPort
    mac: str
    vlan: int
    order: tuple[OfPort, ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A VM port that is a tunnel endpoint. Peers may send replies to the source address of its frames.

    `mac`: the endpoint's own address. `off_home_macs`: for each uplink, the source address of frames that
    leave on this uplink if it is not the port's home uplink. No other port has these addresses.
    """

    ofport: OfPort
    mac: str
    off_home_macs: tuple[tuple[OfPort, str], ...]


@dataclass(frozen=True, slots=True)
class Team:
    """A bridge, as the pipeline needs it.

    `uplinks`: in configured order (the IDs of delivery groups contain positions in this order).
    `hears_everywhere`: the upstream switch sends only one copy of each broadcast (static LAG, LACP), so
    a VM port accepts broadcasts from any uplink. `over_normal`: the uplinks are a bond, and NORMAL
    handles frames from unknown ports, except with `strangers`: if other ports are connected to the
    network, NORMAL would form a loop, so the frames are dropped. `uplink_vlans`: the VLANs of uplinks;
    uplinks without an entry carry every VLAN.

    `no_flood`: the ports to which NORMAL does not flood. If these include all VM ports, NORMAL receives
    frames flooded by uplinks, for ports that were added while the service was not running. Otherwise
    NORMAL would deliver a second copy. `normal_takes_any`: NORMAL accepts unicast from every uplink
    (balance-slb), so NORMAL receives flooded unicast from one uplink only.

    `off_home_macs`: for each uplink, one of our source addresses. This address replaces the source of
    hashed VM ports' frames that leave on the uplink while upstream switches know the VM's address on
    another uplink. Some uplinks may have no such address.

    `endpoints`: the VM ports that are tunnel endpoints, if the uplinks are not a LAG. `lanes`: for the
    lane of each uplink (see endpoints.py), the uplinks in the order of failover.

    `addresses`: the address units, behind VM ports with `hashed` set to `tables.ASSIGNED`.

    `dp_hash`: the switch has the group `hashing.SELECT_GROUP`, which hashes connections.

    `probe_macs`: the probe address of each uplink with path checks. `question_macs`: the address from
    which each uplink queries hosts in the network; empty without queries. `probe_group`: the destination
    of copies of probes. `unheard`: contains (uplink, own) if the switch drops path-check frames on an
    uplink: frames to the uplink's own addresses (own is True), or all other path-check frames (False).

    `forwards_bpdu`: protocols between switches are forwarded. `snoops`: NORMAL snoops multicast.
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
        assert self.lanes.keys() | self.probe_macs.keys() <= set(self.uplinks), "keys are uplinks"
        assert len({made.number for made in self.hashes}) == len(self.hashes), "unique hash numbers"
        assert len({one.slot for one in self.addresses}) == len(self.addresses), "unique slots"

    @property
    def is_static_lag(self) -> bool:
        """Whether the upstream switch treats the uplinks as one link without negotiation.

        Members of a bond may negotiate LACP instead. On a member that is not part of the LAG, the upstream
        switch sends a separate copy of broadcasts.
        """
        return self.hears_everywhere and not self.over_normal

    def has_lanes(self, number: int) -> bool:
        """Whether hash `number` spreads an endpoint's connections, so that off-home addresses are needed."""
        ends = {endpoint.ofport for endpoint in self.endpoints}
        connections = {m.number for m in self.hashes if m.classifier is Classifier.TRANSPORT}
        spread = (port.ofport for port in self.vm_ports if port.hashed == number)
        return bool(ends) and number in connections and not ends.isdisjoint(spread)

    @property
    def leaves_to_normal(self) -> bool:
        """Whether NORMAL receives frames from unknown ports."""
        return self.over_normal and not self.strangers

    @property
    def floods_to_normal(self) -> bool:
        """Whether NORMAL receives frames that uplinks flood."""
        return self.leaves_to_normal and self.no_flood.issuperset(p.ofport for p in self.vm_ports)
