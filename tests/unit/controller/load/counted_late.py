"""A switch that counts some of what it forwards late, in simulated time.

Uplinks are counted as they forward. What flows match, and what goes through a patch port, is
counted when revalidators update the counters: once a beat, unless they are paused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.api.engine_commands import Command, ReadStats
from controller.api.events import Event, PortCounters, Sample
from tests.unit.fake_switch import Address, FakeSwitch, Rate, World, world
from tests.unit.rows import bond, bridge, interface, ours, port

BUCKETS = 256
# So finely a load that changes is followed.
STEP_S = 0.05


@dataclass(frozen=True)
class Vm:
    """What a VM sends by which VM port, in Mbit/s: one connection, from an address of its own."""

    ofport: int
    mac: str
    mbps: float | Rate

    def bps(self, now_s: float) -> float:
        return 1e6 * (self.mbps(now_s) if callable(self.mbps) else self.mbps)

    @property
    def bucket(self) -> int:
        """Of any hash."""
        return int(self.mac.replace(":", ""), 16) * 89 % BUCKETS


def vms(ofport: int, *mbps: float | Rate) -> list[Vm]:
    return [Vm(ofport, f"52:54:00:00:{ofport:02x}:{n:02x}", of) for n, of in enumerate(mbps)]


@dataclass
class LateSwitch(FakeSwitch):
    """`beat_s`: how often counters are updated; 0: all is counted at once.

    `patches`: the VM ports that are counted with it. `paused`: from when to when none is updated.
    """

    vms: Sequence[Vm] = ()
    beat_s: float = 0.0
    patches: frozenset[int] = frozenset()
    paused: tuple[float, float] = (0.0, 0.0)
    # What was counted at the last update.
    updated: dict[str, dict[Any, float]] = field(default_factory=dict)
    _updated_s: float = 0.0

    def forward_until(self, now_s: float) -> None:
        while self.now_s < now_s - 1e-9:
            end_s = min(now_s, self._next_s())
            self._carry(end_s)
            if end_s >= self._next_s() - 1e-9:
                self._updated_s = end_s
                if not self.paused[0] <= end_s < self.paused[1]:
                    self._update()

    def _next_s(self) -> float:
        return self._updated_s + (self.beat_s or STEP_S)

    def _update(self) -> None:
        self.updated = {
            "ports": dict(self.sent_bytes),
            "buckets": dict(self.sent_by_bucket),
            "addresses": dict(self.sent_by_address),
        }

    def _carry(self, end_s: float) -> None:
        # Nothing is installed meanwhile.
        slots = self.slots()
        ways = [(vm, self.hash_of(vm.ofport), self.left_by(vm, slots)) for vm in self.vms]
        while self.now_s < end_s - 1e-9:
            step_s = min(STEP_S, end_s - self.now_s)
            for vm, number, uplink in ways:
                sent = vm.bps(self.now_s + step_s / 2) / 8 * step_s
                address = (vm.ofport, vm.mac, 0)
                if address in slots:
                    _count(self.sent_by_address, address, sent)
                elif number is not None:
                    _count(self.sent_by_bucket, (number, vm.bucket), sent)
                _count(self.sent_bytes, vm.ofport, sent)
                if uplink is not None:
                    _count(self.sent_bytes, uplink, sent)
            self.now_s += step_s
        if not self.beat_s:
            self._update()

    def left_by(self, vm: Vm, slots: Mapping[Address, int]) -> int | None:
        """The uplink by which what a VM sends leaves now."""
        if (vm.ofport, vm.mac, 0) in slots:
            return self.uplink_of_address(vm.ofport, vm.mac, slots=slots)
        if (number := self.hash_of(vm.ofport)) is not None:
            return self.uplink_of_bucket(number, vm.bucket)
        return self.uplink_of(vm.ofport)

    def carry_out(self, command: Command) -> list[Event]:
        if not isinstance(command, ReadStats):
            return super().carry_out(command)
        now = self.sent_by_bucket, self.sent_by_address
        self.sent_by_bucket = self.updated.get("buckets", {})
        self.sent_by_address = self.updated.get("addresses", {})
        try:
            return super().carry_out(command)
        finally:
            self.sent_by_bucket, self.sent_by_address = now

    def _counters(self, ofport: int) -> PortCounters:
        if ofport in self.patches:
            sent = int(self._updated_at(ofport))
        else:
            sent = int(self.sent_bytes.get(ofport, 0))
        is_vm_port = ofport in {vm.ofport for vm in self.vms}
        counted = (0, sent) if is_vm_port else (sent, 0)
        return PortCounters(ofport, self.now_s + 1000.0, *counted, 0, 0)

    def _unit_sample(self, ofport: int) -> Sample:
        return Sample(self.now_s + 700.0, int(self._updated_at(ofport)), 0)

    def _updated_at(self, ofport: int) -> float:
        return self.updated.get("ports", {}).get(ofport, 0.0)


def _count(counted: dict[Any, float], key: object, sent: float) -> None:
    counted[key] = counted.get(key, 0.0) + sent


def counted_late(
    policy: str,
    sending: Sequence[Vm],
    beat_s: float,
    capacities_mbps: Sequence[float] = (100, 100),
    paused: tuple[float, float] = (0.0, 0.0),
    unit: str = "port",
    keys: Mapping[str, str] | None = None,
) -> World:
    """A started bridge with all VM ports on eth1; vnet0, number 10, is a patch port."""
    ofports = sorted({vm.ofport for vm in sending})
    uplinks = [
        interface(f"eth{n}", n, ours(capacity_mbps=f"{mbps:g}"))
        for n, mbps in enumerate(capacities_mbps, 1)
    ]
    ports = [port(f"vnet{ofport - 10}", ofport, ours(**_keys(ofport, unit))) for ofport in ofports]
    row = bridge(bond(*uplinks), *ports, ids=ours(policy=policy, **(keys or {})))
    here = world(row)
    here.switches["br0"] = LateSwitch(
        here.switches["br0"].ports,
        vms=sending,
        beat_s=beat_s,
        patches=frozenset({10}) if beat_s else frozenset(),
        paused=paused,
        learned=tuple((vm.ofport, vm.mac, 0) for vm in sending),
    )
    return here.start()


def _keys(ofport: int, unit: str) -> dict[str, str]:
    return {"binding": "eth1"} | ({"unit": unit} if ofport == 10 and unit != "port" else {})
