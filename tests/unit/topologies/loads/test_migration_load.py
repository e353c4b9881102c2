"""Live migration: the figures, and the handover."""

from __future__ import annotations

from typing import Any

import pytest

from topologies.loads import migration_load
from topologies.loads.probing import Flow, FlowResult

MAC = bytes.fromhex("02aabbccddee")


def _migration(vm: str, start_s: float, copied_s: float, left_s: float) -> dict[str, Any]:
    rounds = [
        {"copied_bytes": 900, "start_s": start_s, "end_s": copied_s - 1},
        {"copied_bytes": 100, "start_s": copied_s - 0.25, "end_s": copied_s},
    ]
    stopped_s = copied_s - 0.25
    return {
        "vm": vm,
        "start_s": start_s,
        "stopped_s": stopped_s,
        "copied_s": copied_s,
        "port_left_s": left_s,
        "port_arrived_s": left_s + 0.1,
        "moved_s": copied_s + 0.5,
        "rounds": rounds,
    }


def _flow(start_s: float, end_s: float, silent: tuple[float, float]) -> FlowResult:
    """A flow of a datagram every 0.1 s, which loses the datagrams of a span."""
    times_s = [start_s + n / 10 for n in range(round((end_s - start_s) * 10) + 1)]
    arrivals = [(n, at) for n, at in enumerate(times_s) if not silent[0] < at < silent[1]]
    return FlowResult(len(times_s), start_s, end_s, arrivals)


def test_figures_of_migrations() -> None:
    migrations = [_migration("vm1", 100.0, 104.0, 104.1), _migration("vm2", 101.0, 110.0, 110.1)]
    to_vm1, from_vm1 = Flow("client1", "vm1", "10.0.0.1"), Flow("vm1", "client1", "10.0.0.9")
    to_vm2, from_vm2 = Flow("client1", "vm2", "10.0.0.2"), Flow("vm2", "client1", "10.0.0.9")
    probes = {
        to_vm1: _flow(100.0, 115.0, (104.05, 104.55)),
        from_vm1: _flow(100.0, 115.0, (104.05, 104.25)),
        # This gap ends long before the handover, so it does not count.
        to_vm2: _flow(100.0, 115.0, (102.05, 104.95)),
        from_vm2: _flow(100.0, 115.0, (110.05, 110.95)),
    }
    found = migration_load.outcome(migrations, probes, start_s=99.0)
    assert found.received_bytes == 2000
    assert found.throughput_bps == pytest.approx(2000 * 8 / 10)
    assert found.figures["migration_s"] == pytest.approx((4.5 + 9.5) / 2)
    assert found.figures["total_s"] == pytest.approx(10.5)
    assert found.figures["precopy_rounds"] == 1
    assert found.figures["stopped_ms"] == pytest.approx(250)
    assert found.figures["blackout_ms"] == pytest.approx((600 + 1000) / 2)
    assert found.figures["worst_blackout_ms"] == pytest.approx(1000)
    assert found.figures["longest_gap_ms"] == pytest.approx(3000)
    first = found.details[0]
    assert (first["vm"], first["start_s"], first["port_left_s"]) == ("vm1", 1.0, 5.1)
    assert first["blackout_ms"] == {"to": pytest.approx(600), "from": pytest.approx(300)}
