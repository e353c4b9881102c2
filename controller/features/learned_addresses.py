"""Remembers the addresses that the switch has learned behind VM ports, and renews their flows.

The switch learns addresses without the service (see dataplane/learning.py), but forgets all of them
when ovs-vswitchd restarts, and forgets a VM that sends nothing for 300 s. Other VMs on the bridge could
then not reach this VM, because the pipeline sends frames for unknown addresses out on an uplink.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Never

from controller.config.values import VmPortConfig
from controller.config.vlans import PortVlans
from controller.dataplane.learning import learn_source, learned
from controller.dataplane.specs import FlowSpec, Learn, Pipeline
from controller.dataplane.tables import Register, Table, learned_cookie
from controller.dataplane.team import KEPT
from controller.features.feature import Feature
from policies.model import OfPort

# The interval is well below the flows' timeout, so that flows do not expire if a reading is late.
RENEW_INTERVAL_S = 120.0

# An address and its VLAN, 0 for untagged.
Address = tuple[str, int]


@dataclass(eq=False)
class Addresses(Feature[Never]):
    """Stores the addresses learned on each VM port of a bridge.

    Each reading replaces all known addresses. So an address is never restored after the switch has
    forgotten it, or learned it on another port or outside the bridge.
    """

    by_port: dict[str, tuple[Address, ...]] = field(default_factory=dict)
    # Whether a reading of NORMAL's MAC table (fdb/show) is pending.
    awaits_normal: bool = False
    # Whether the addresses have been read at least once.
    known: bool = False
    # The ofport in the learned flows of each port, by port name.
    _ofports: dict[str, int] = field(default_factory=dict)
    # When the flows of each port were last renewed, by port name.
    _renewed_s: dict[str, float] = field(default_factory=dict)

    def forget_switch(self) -> None:
        """Forget the pending request for NORMAL's addresses: no reply will come."""
        self.awaits_normal = False

    def learn(self, read: Iterable[tuple[int, str, int]], was_cleared: bool = False) -> None:
        """Remember the addresses that the switch has learned, as (ofport, MAC, VLAN).

        `was_cleared`: the switch has forgotten addresses, so known addresses missing from `read` are kept.
        """
        before, numbers = (self.by_port, self._ofports) if was_cleared else ({}, {})
        found: dict[str, list[Address]] = {}
        for ofport, mac, vlan in read:
            if (port := self.config.port_at.get(ofport)) is not None:
                found.setdefault(port.name, []).append((mac, vlan))
        self.by_port = {name: tuple(sorted(addresses)) for name, addresses in found.items()}
        ports = self.config.port_named
        self._ofports = numbers | {name: int(ports[name].ofport) for name in found}
        heard = {address for known in found.values() for address in known}
        for name, known in before.items():
            if silent := set(known) - heard:
                self.by_port[name] = tuple(sorted(silent.union(self.by_port.get(name, ()))))

    def keep_ports(self) -> None:
        """Forget ports that no longer exist."""
        names = self.config.port_named
        self.by_port = {n: known for n, known in self.by_port.items() if n in names}
        self._ofports = {n: ofport for n, ofport in self._ofports.items() if n in names}
        self._renewed_s = {n: at_s for n, at_s in self._renewed_s.items() if n in names}

    def seeds(self, added: Iterable[FlowSpec], installed: Pipeline) -> tuple[FlowSpec, ...]:
        """Return the learned flows that the switch has lost, to install with the `added` flows.

        A port's learned flows are lost if the flows that learn from the port are new on the switch, or
        use a new cookie because the port's VLANs have changed, or if the port's ofport has changed
        after its addresses were read.
        """
        # With thousands of VM ports, there are tens of thousands of flows.
        known = [port for port in self.config.vm_ports if self.by_port.get(port.name)]
        if not known:
            return ()
        if taught := {*_taught(added)}:
            taught -= {*_taught(installed.flows.values())}
        return tuple(
            flow
            for port in known
            if self._ofports[port.name] != port.ofport
            or learned_cookie(port.ofport, port.vlans) in taught
            for flow in _flows(port, self.by_port[port.name])
        )

    def seeded(self) -> None:
        """Record that the sent bundle makes learned flows use each port's current ofport."""
        ofports = {port.name: int(port.ofport) for port in self.config.vm_ports}
        self._ofports = {name: ofports.get(name, of) for name, of in self._ofports.items()}

    def renewals(self, now_s: float) -> tuple[FlowSpec, ...]:
        """Return the learned flows to renew now. A port's flows are renewed once in RENEW_INTERVAL_S.

        Only flows of ports that are up and have exactly one address are renewed. A port with several
        addresses, or with `unit=source-mac`, has a switch behind it, and hosts may leave that switch
        unnoticed.
        """
        due, ports = list[FlowSpec](), self.bridge.links.ports
        for port in self.config.vm_ports:
            known = self.by_port.get(port.name, ())
            macs = {mac for mac, _ in known}
            last_s = self._renewed_s.get(port.name)
            is_up = port.ofport in ports and ports[port.ofport].up
            if len(macs) != 1 or port.per_address or not is_up:
                continue
            if last_s is None or now_s - last_s >= RENEW_INTERVAL_S:
                due += _flows(port, known)
                self._renewed_s[port.name] = now_s
        return tuple(due)


def learns(installed: Pipeline) -> bool:
    """Whether the installed pipeline already learns addresses."""
    return any(True for _ in _taught(installed.flows.values()))


def _taught(flows: Iterable[FlowSpec]) -> Iterator[int]:
    """Return the cookies of the flows that `flows` install when they learn addresses."""
    learning = (flow.actions for flow in flows if flow.table == Table.LEARN)
    return (a.cookie for actions in learning for a in actions if isinstance(a, Learn))


def _flows(port: VmPortConfig, known: Iterable[Address]) -> list[FlowSpec]:
    return [
        flow
        for mac, vlan in known
        if vlan in port.vlans.carried
        for flow in _learned_flows(port.ofport, port.vlans, mac, vlan)
    ]


# Cached, because the flows of all VM ports are renewed repeatedly.
@functools.lru_cache(maxsize=KEPT)
def _learned_flows(ofport: OfPort, vlans: PortVlans, mac: str, vlan: int) -> tuple[FlowSpec, ...]:
    """Return the flows that the switch installs when it learns an address."""
    frame: dict[str, int | str] = {"eth_src": mac, Register.VLAN: vlan}
    frame[Register.VM_PORT] = int(ofport)
    return tuple(learned(by, frame) for by in learn_source(ofport, vlans))
