"""Clients of the metrics port who scrape without pause, or who never finish: Prometheus and failovers wait for neither."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, on_beds
from tests.switch.judging import at_most, judges_time
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.processes import cpu_s

SPEC = BedSpec(BALANCE_SLB, 2, (None, None))
CLIENTS = 16
ATTACK = """
import contextlib, socket, sys, threading, time
def greedy(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
        caller.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
        while caller.recv(65536):
            pass
def slow(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
        while True:
            caller.sendall(b"G")
            time.sleep(0.5)
def repeat(attack, port):
    while True:
        with contextlib.suppress(OSError):
            attack(port)
for _ in range(int(sys.argv[3])):
    threading.Thread(target=repeat, args=(globals()[sys.argv[1]], int(sys.argv[2]))).start()
time.sleep(0.5)
print("all of them", flush=True)
"""
FAILOVER_MAX_S, SCRAPE_MAX_S, CORES_MAX = 0.2, 1.5, 0.3


@contextlib.contextmanager
def attacked(service: Service, attack: str) -> Iterator[None]:
    words = [sys.executable, "-c", ATTACK, attack, str(service.metrics_port), str(CLIENTS)]
    attackers = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert attackers.stdout is not None and attackers.stdout.readline()
        yield
    finally:
        attackers.kill()
        attackers.wait()


@judges_time
@pytest.mark.parametrize("attack", ["greedy", "slow"])
@on_beds(SPEC)
def test_neither_prometheus_nor_a_failover_waits(
    attached: Bed, service: Service, attack: str
) -> None:
    service.place(attached, 0, 1)
    with attacked(service, attack):
        used_s, begun_s = cpu_s(service.pid), time.monotonic()
        scrapes_s = [_scraped(service) for _ in range(5)]
        time.sleep(1.0)
        core_ratio = (cpu_s(service.pid) - used_s) / (time.monotonic() - begun_s)
        failover_s = _failed_over(attached, service)
    attached.plug_cable(attached.uplinks[0])
    places = service.bindings
    wait_until(lambda: attached.uplinks[0].name in places(attached).values(), "failback")
    at_most(f"cores with {attack} clients", core_ratio, CORES_MAX, 0.9)
    at_most(f"failover with {attack} clients", failover_s, FAILOVER_MAX_S, 5.0)
    at_most(f"scrape with {attack} clients", max(scrapes_s), SCRAPE_MAX_S, 5.0)


@on_beds(SPEC)
def test_whoever_takes_the_port_first_keeps_the_service_from_nothing_else(
    attached: Bed, service: Service
) -> None:
    """Any user of the host can listen there before a service that starts again."""
    address = ("127.0.0.1", service.metrics_port)
    with contextlib.ExitStack() as taken:
        with service.dead():
            taken.enter_context(socket.create_server(address))
        assert f"{address[1]}: Address already in use" in service.log_tail()

    def served() -> bool:
        with contextlib.suppress(OSError):
            return _scraped(service) > 0
        return False

    wait_until(served, "metrics are served once the port is free")


def _scraped(service: Service) -> float:
    """How long Prometheus waits."""
    begun_s = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{service.metrics_port}/", timeout=10) as answer:
        assert b"ovslbt_leader" in answer.read()
    return time.monotonic() - begun_s


def _failed_over(bed: Bed, service: Service) -> float:
    """How long after its uplink lost the carrier a VM was moved, by the history."""
    pulled_s = time.time()
    bed.pull_cable(bed.uplinks[0])

    def moved_s() -> list[float]:
        return [
            entry["at"]
            for entry in service.history(bed)
            if entry["at"] >= pulled_s - 0.01
            and any(move["reason"] == "failover" for move in entry.get("moves", []))
        ]

    return wait_until(moved_s, "the VM has failed over")[0] - pulled_s
