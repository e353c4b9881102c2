"""The addresses behind VM ports, as the switch has learned them: remembered and renewed.

The switch learns by itself (see pipeline.py), but forgets all of it when ovs-vswitchd
restarts, and a VM that does not speak after 300 s. A neighbour on the same bridge that
sends to such a VM without hearing from it would lose it: unknown addresses are taken to
be outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.config.values import VmPortConfig
from controller.dataplane import specs, tables
from controller.dataplane.specs import FlowSpec, LoadBits, Pipeline
from controller.dataplane.tables import Register, Table

# Well below the timeout, so that a reading that comes late does no harm.
RENEW_INTERVAL_S = 120.0
LEARNED_PRIORITY = 10

# An address and its VLAN, 0 for untagged.
Address = tuple[str, int]


@dataclass(slots=True)
class Addresses:
    """What was learned on each VM port of a bridge, by the port's name.

    A reading replaces all that was known, so that an address that was learned on another
    port since, marked as elsewhere, or forgotten is never brought back.
    """

    by_port: dict[str, tuple[Address, ...]] = field(default_factory=dict)
    # The number under which a port's addresses are on the switch.
    _ofports: dict[str, int] = field(default_factory=dict)
    _renewed_s: dict[str, float] = field(default_factory=dict)

    def take(self, read: Iterable[tuple[int, str, int]], vm_ports: Iterable[VmPortConfig]) -> None:
        """Remember what the switch has learned, as (ofport, MAC, VLAN)."""
        names = {int(port.ofport): port.name for port in vm_ports}
        found: dict[str, list[Address]] = {}
        for ofport, mac, vlan in read:
            if ofport in names:
                found.setdefault(names[ofport], []).append((mac, vlan))
        self.by_port = {name: tuple(sorted(addresses)) for name, addresses in found.items()}
        self._ofports = {name: ofport for ofport, name in names.items() if name in found}

    def add(self, read: Iterable[tuple[int, str, int]], vm_ports: Iterable[VmPortConfig]) -> None:
        """The same where it has begun anew: of those that it has not heard, what is known holds."""
        before, numbers = self.by_port, self._ofports
        self.take(read, vm_ports)
        heard = {address for known in self.by_port.values() for address in known}
        for name, known in before.items():
            if silent := set(known) - heard:
                self.by_port[name] = tuple(sorted(silent.union(self.by_port.get(name, ()))))
        self._ofports = {**numbers, **self._ofports}

    def keep(self, vm_ports: Iterable[VmPortConfig]) -> None:
        """Forget the ports that are gone."""
        names = {port.name for port in vm_ports}
        self.by_port = {n: known for n, known in self.by_port.items() if n in names}
        self._ofports = {n: ofport for n, ofport in self._ofports.items() if n in names}
        self._renewed_s = {n: at_s for n, at_s in self._renewed_s.items() if n in names}

    def seeds(
        self, vm_ports: Iterable[VmPortConfig], desired: Pipeline, installed: Pipeline
    ) -> tuple[FlowSpec, ...]:
        """The learned flows to install with `desired`, where what was learned is lost.

        That is where the flows that learn from a port are new on the switch, or the port
        has another number than when its addresses were read.
        """
        learning = _learning(desired) - _learning(installed)
        seeds: list[FlowSpec] = []
        for port in vm_ports:
            known = self.by_port.get(port.name, ())
            renumbered = self._ofports.get(port.name, port.ofport) != port.ofport
            if known and (renumbered or int(port.ofport) in learning):
                seeds += _flows(port, known)
                self._ofports[port.name] = int(port.ofport)
        return tuple(seeds)

    def renewals(
        self, vm_ports: Iterable[VmPortConfig], up: Mapping[int, bool], now_s: float
    ) -> tuple[FlowSpec, ...]:
        """The learned flows whose timeouts start anew, at most once in RENEW_INTERVAL_S.

        Only where one address was learned on a port, and its link is up: a port with many
        addresses is a switch of its own, whose stations come and go without a word. So is one of
        which the operator says it.
        """
        due: list[FlowSpec] = []
        for port in vm_ports:
            known = self.by_port.get(port.name, ())
            macs = {mac for mac, _ in known}
            last_s = self._renewed_s.get(port.name)
            if len(macs) != 1 or port.parted or not up.get(int(port.ofport), False):
                continue
            if last_s is None or now_s - last_s >= RENEW_INTERVAL_S:
                due += _flows(port, known)
                self._renewed_s[port.name] = now_s
        return tuple(due)


def learns(installed: Pipeline) -> bool:
    """Whether the switch learns addresses for us already."""
    return bool(_learning(installed))


def _learning(present: Pipeline) -> set[int]:
    """The numbers of the VM ports from which a pipeline learns."""
    ports = (
        dict(match).get(Register.VM_PORT.field)
        for table, _, match in present.flows
        if table == Table.LEARN
    )
    return {port for port in ports if isinstance(port, int)}


def _flows(port: VmPortConfig, known: Iterable[Address]) -> list[FlowSpec]:
    return [
        flow
        for mac, vlan in known
        if vlan in port.vlans.carried
        for flow in learned_flows(port, mac, vlan)
    ]


def learned_flows(port: VmPortConfig, mac: str, vlan: int) -> tuple[FlowSpec, FlowSpec]:
    """What the switch installs itself when it learns an address; the next learning replaces it."""

    def learned(table: Table, field_name: str, load: LoadBits) -> FlowSpec:
        in_vlan = {Register.VLAN.field: (vlan, (1 << tables.VLAN_ID_BITS) - 1)}
        return FlowSpec(
            table,
            LEARNED_PRIORITY,
            specs.match(**{field_name: mac}, **in_vlan),
            (load,),
            cookie=tables.learned_cookie(port.ofport, port.vlans),
            hard_timeout_s=tables.LEARNED_TIMEOUT_S,
        )

    return (
        learned(
            Table.LOCATION, "eth_dst", LoadBits(Register.TARGET.field, 0, 16, int(port.ofport))
        ),
        learned(Table.LOCAL_SOURCE, "eth_src", LoadBits(Register.LOCAL.field, 0, 1, 1)),
    )
