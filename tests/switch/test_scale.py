"""Many bridges on one service: the short form of `make bench-scale`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.switch.judging import judges_time, soon
from tests.switch.service import Service
from tests.switch.test_hostile_switch import fail_over
from tests.switch.waiting import wait_until
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.scale.bed import Bed

BRIDGES, PORTS, POLLS = 10, 50, 3
# The service's threads, in addition to one for each connection.
OWN_THREADS = 20
# It takes milliseconds, but the machine may be busy.
PROMPT_S = 2.0


@contextlib.contextmanager
def many_bridges() -> Iterator[tuple[Bed, Service]]:
    """A bed whose bridges are all attached, and its service."""
    with private_network(), PrivateOvs(prefix="ovs-lbt-many-") as ovs:
        bed, service = Bed(ovs, PORTS), Service(ovs)
        for _ in bed.grow(BRIDGES):
            pass
        service.start()
        try:
            for bridge in bed.bridges:
                service.ask("attach", bridge, f"uplinks={','.join(bed.uplinks(bridge))}")
            yield bed, service
        finally:
            service.kill()


def decisions(service: Service) -> dict[str, float]:
    """The number of decisions by bridge."""
    name, metrics = "ovslbt_decision_duration_seconds_count", service.metrics()
    found = {sample: value for sample, value in metrics.items() if sample.startswith(name + "{")}
    return {sample.split('"')[1]: value for sample, value in found.items()}


@judges_time
def test_all_are_polled_and_a_failover_of_the_last_is_prompt() -> None:
    with many_bridges() as (bed, service):
        before = decisions(service)

        def are_polled() -> bool:
            more = [n - before.get(bridge, 0) for bridge, n in decisions(service).items()]
            return len(more) == BRIDGES and min(more) >= POLLS

        wait_until(are_polled, f"{BRIDGES} bridges were polled {POLLS} times more", interval_s=0.2)
        assert len([*Path(f"/proc/{service.pid}/task").iterdir()]) <= BRIDGES + OWN_THREADS

        took_s = fail_over(bed, service, bed.bridges[-1])
        soon("groups of the last bridge followed", took_s, PROMPT_S)
