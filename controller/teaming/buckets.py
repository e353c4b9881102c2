"""Hash buckets, which VM ports with hashed policies share, as units and as pipeline input."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from controller.dataplane.specs import GroupSpec, Pipeline, SetField
from controller.dataplane.tables import Group, Register, bucket_group_id
from controller.dataplane.team import Endpoint, Hash
from controller.teaming.own_addresses import address_of_ours
from policies.classifiers import BUCKETS
from policies.model import IDLE, Load, OfPort, Role, Unit, Uplink
from policies.presets import PRESETS

# A hash always has the same number, so that its flows and groups stay when other hashes are added.
HASHED = (
    *sorted(name for name, preset in PRESETS.items() if preset.classifier.hashed),
    *sorted(name for name, preset in PRESETS.items() if preset.splits_by is not None),
)
# The policies whose VM ports always send through buckets.
ALWAYS_HASHED = frozenset(name for name, p in PRESETS.items() if p.classifier.hashed)


class Bucket(NamedTuple):
    """A bucket of a policy's hash. All frames that are hashed to it leave on one uplink."""

    policy: str
    name: str
    number: int


def number_of(policy: str) -> int:
    return HASHED.index(policy)


def hashed_by(port: VmPortConfig, split: Collection[str]) -> str | None:
    """Return the policy whose buckets a VM port uses; None if the port uses its home uplink instead.

    `split`, here and below: the names of the VM ports that are split.
    """
    if not (port.name in split or port.policy in ALWAYS_HASHED) or port.unsplittable:
        return None
    return port.policy if port.policy in HASHED else None


def in_use(config: BridgeConfig, split: Collection[str]) -> list[str]:
    """Return the policies whose buckets a bridge uses, sorted."""
    # Every poll needs this several times, and most VM ports are not split.
    if not split and ALWAYS_HASHED.isdisjoint(config.policies):
        return []
    ports = [p for p in config.vm_ports if p.name in split or p.policy in ALWAYS_HASHED]
    return sorted({policy for port in ports if (policy := hashed_by(port, split))})


def are_judged(config: BridgeConfig, split: Collection[str]) -> bool:
    """Whether a policy in use moves buckets to balance load."""
    return not set(config.rebalancing).isdisjoint(in_use(config, split))


@functools.cache
def name_of(policy: str, bucket: int) -> str:
    """Return the unit name of a bucket; no interface has such a name."""
    return f"{policy}/{bucket}"


def is_bucket(unit: str) -> bool:
    """Whether a unit's name is the name of a bucket."""
    return unit.rpartition("/")[0] in HASHED


def unit(bucket: Bucket, uplink: str | None, load: Load) -> Unit:
    """Return the unit of a bucket. Units of idle buckets, which are frequent, are cached."""
    idle = _idle(bucket, uplink)
    return idle.as_judged(load, spread_bps=0.0, excluded=False) if load.tx_bps else idle


@functools.cache
def _idle(bucket: Bucket, uplink: str | None) -> Unit:
    return Unit(bucket.name, bucket.number, bucket.policy, True, uplink, IDLE)


def there(
    config: BridgeConfig, split: Collection[str], uplinks: Sequence[Uplink | UplinkConfig]
) -> tuple[Bucket, ...]:
    """Return the buckets of policies in use. Their number depends on the number of active uplinks."""
    active = sum(uplink.role is Role.ACTIVE for uplink in uplinks)
    of_policies = [
        _named(policy, PRESETS[policy].spreads_by.buckets(active or len(uplinks)))
        for policy in in_use(config, split)
    ]
    return of_policies[0] if len(of_policies) == 1 else tuple(chain.from_iterable(of_policies))


@functools.cache
def _named(policy: str, count: int) -> tuple[Bucket, ...]:
    return tuple(Bucket(policy, name_of(policy, bucket), bucket) for bucket in range(count))


def by_shares(policy: str, shares: Sequence[tuple[str, float]]) -> dict[str, str]:
    """Assign the buckets of a connection hash to uplinks, in proportion to the uplinks' shares."""
    homes: dict[str, str] = {}
    share = 0.0
    for uplink, part in shares:
        share += part
        for bucket in range(len(homes), min(BUCKETS, round(BUCKETS * share))):
            homes[name_of(policy, bucket)] = uplink
    return homes


def hashes(
    config: BridgeConfig,
    split: Collection[str],
    units: Iterable[Unit],
    order: Callable[[Unit], Sequence[Uplink]],
    homes: Mapping[str, str],
) -> tuple[Hash, ...]:
    """Return the hashes of a bridge. A hash lists the uplinks of each bucket, the uplink in use first.

    While a bucket is not on its home uplink, the home is repeated at the end of its list. This does
    not affect forwarding, and lets a restarted service find the home.
    """
    orders: dict[str, list[tuple[OfPort, ...]]] = {policy: [] for policy in in_use(config, split)}
    for unit in units:
        if unit.is_bucket:
            orders[unit.policy].append(with_home(order(unit), homes.get(unit.name)))
    return tuple(
        Hash(number_of(policy), PRESETS[policy].spreads_by, tuple(of_buckets))
        for policy, of_buckets in orders.items()
    )


def with_home(order: Sequence[Uplink], home: str | None) -> tuple[OfPort, ...]:
    """Return the ofports of a unit's uplinks. A home uplink is repeated at the end unless first."""
    away_from = [uplink for uplink in order[1:] if uplink.name == home]
    return tuple(uplink.ofport for uplink in (*order, *away_from))


def home_in(group: GroupSpec | None, config: BridgeConfig) -> str | None:
    """Return the home in a group made from the result of `with_home`; None if the group has no uplinks."""
    uplinks, buckets = config.uplink_at, group.buckets if group else ()
    fields = (a for bucket in buckets for a in bucket.actions if isinstance(a, SetField))
    values = (field.value for field in fields)
    order = [uplinks[at].name for at in values if isinstance(at, int) and at in uplinks]
    if not order:
        return None
    return order[-1] if order[-1] in order[:-1] else order[0]


def off_home_macs(config: BridgeConfig, split: Collection[str]) -> dict[OfPort, str]:
    """Return our source MACs, by uplink, for frames that do not leave on their unit's home uplink.

    They are locally administered, one for each bridge and uplink, and the same on every start. The
    uplink's own MAC is not used, because the port LOCAL often has it: the upstream switch would
    learn the host's management address on this uplink.
    """
    if not in_use(config, split) and not config.per_address:
        return {}
    return {u.ofport: address_of_ours(config.name, u.name, u.mac) for u in config.uplinks}


def endpoints(config: BridgeConfig) -> Iterator[Endpoint]:
    """Yield a bridge's tunnel endpoints, each with its source MACs off the home uplink.

    These MACs exist even while no traffic is spread, because peers keep the last source address.
    """
    for port in config.endpoints:
        assert port.tunnel_mac is not None
        macs = (
            (u.ofport, address_of_ours(config.name, u.name, u.mac, port.name, port.tunnel_mac))
            for u in config.uplinks
        )
        yield Endpoint(port.ofport, port.tunnel_mac, tuple(macs))


def number_in(pipeline: Pipeline, ofport: OfPort) -> int | None:
    """Return the number of the hash that spreads a VM port's frames on the switch; None if none does."""
    group = pipeline.groups.get(Group.BINDING.id_of(ofport))
    for action in group.buckets[0].actions if group and group.buckets else ():
        if isinstance(action, SetField) and action.field == Register.HASHED:
            return int(action.value)
    return None


def rehashed(before: Pipeline, after: Pipeline, config: BridgeConfig) -> set[int]:
    """Return the VM ports, by ofport, whose addresses a hash has begun, or has stopped, to place.

    Their addresses have other uplinks then, although the ports have not moved.
    """
    by_address = {number_of(p) for p in ALWAYS_HASHED if PRESETS[p].classifier.by_address}
    return {
        int(port.ofport)
        for port in config.vm_ports
        if Group.BINDING.id_of(port.ofport) in before.groups
        and (number_in(before, port.ofport) in by_address)
        is not (number_in(after, port.ofport) in by_address)
    }


def installed(pipeline: Pipeline, config: BridgeConfig) -> dict[str, str]:
    """Return the home uplink of each bucket, read from the groups on the switch."""
    found = {}
    for number, policy in enumerate(HASHED):
        for bucket in range(BUCKETS):
            home = home_in(pipeline.groups.get(bucket_group_id(number, bucket)), config)
            if home is not None:
                found[name_of(policy, bucket)] = home
    return found
