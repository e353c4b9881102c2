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

# So finely a load that changes is followed.
STEP_S = 0.05


def vms(ofport: int, *mbps: float | Rate) -> dict[Address, Rate]:
    """What VMs send by a VM port: each one connection, from an address of its own."""

    def bps(rate: float | Rate) -> Rate:
        return lambda now_s: 1e6 * (rate(now_s) if callable(rate) else rate)

    return {(ofport, f"52:54:00:00:{ofport:02x}:{n:02x}", 0): bps(of) for n, of in enumerate(mbps)}


@dataclass
class LateSwitch(FakeSwitch):
    """`beat_s`: how often counters are updated; 0: all is counted at once.

    `patches`: the VM ports that are counted with it. `paused`: from when to when none is updated.
    """

    beat_s: float = 0.0
    patches: frozenset[int] = frozenset()
    paused: tuple[float, float] = (0.0, 0.0)
    # What was counted at the last update.
    updated: dict[str, dict[Any, float]] = field(default_factory=dict)
    _updated_s: float = 0.0

    def forward_until(self, now_s: float) -> None:
        while self.now_s < now_s - 1e-9:
            due_s = self._updated_s + (self.beat_s or STEP_S)
            super().forward_until(min(now_s, due_s, self.now_s + STEP_S))
            if self.now_s >= due_s - 1e-9:
                self._updated_s = self.now_s
                if not self.paused[0] <= self.now_s < self.paused[1]:
                    self._update()
        if not self.beat_s:
            self._update()

    def _update(self) -> None:
        self.updated = {
            "ports": dict(self.sent_bytes),
            "buckets": dict(self.sent_by_bucket),
            "addresses": dict(self.sent_by_address),
        }

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
        now, self.sent_bytes = self.sent_bytes, dict(self.sent_bytes)
        self.sent_bytes |= {patch: self._updated_at(patch) for patch in self.patches}
        try:
            return super()._counters(ofport)
        finally:
            self.sent_bytes = now

    def _unit_sample(self, ofport: int) -> Sample:
        return Sample(self.now_s + 700.0, int(self._updated_at(ofport)), 0)

    def _updated_at(self, ofport: int) -> float:
        return self.updated.get("ports", {}).get(ofport, 0.0)


def counted_late(
    policy: str,
    sending: Mapping[Address, Rate],
    beat_s: float,
    capacities_mbps: Sequence[float] = (100, 100),
    paused: tuple[float, float] = (0.0, 0.0),
    unit: str = "port",
    keys: Mapping[str, str] | None = None,
) -> World:
    """A started bridge with all VM ports on eth1; vnet0, number 10, is a patch port."""
    uplinks = [
        interface(f"eth{n}", n, ours(capacity_mbps=f"{mbps:g}"))
        for n, mbps in enumerate(capacities_mbps, 1)
    ]
    ofports = sorted({ofport for ofport, *_ in sending})
    ports = [port(f"vnet{ofport - 10}", ofport, ours(**_keys(ofport, unit))) for ofport in ofports]
    row = bridge(bond(*uplinks), *ports, ids=ours(policy=policy, **(keys or {})))
    here = world(row)
    here.switches["br0"] = LateSwitch(
        here.switch.ports,
        behind_bps=dict(sending),
        beat_s=beat_s,
        patches=frozenset({10}) if beat_s else frozenset(),
        paused=paused,
    )
    here.switch.learned = tuple(sending)
    return here.start()


def _keys(ofport: int, unit: str) -> dict[str, str]:
    return {"binding": "eth1"} | ({"unit": unit} if ofport == 10 and unit != "port" else {})
