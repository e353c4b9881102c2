"""A switch that attacks the service: it uses little memory there, and other bridges fail over in time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.switch.judging import at_most, benching, judges_time, repetitions
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.wire.hostile import ATTACKS, HostileSwitch
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.scale.bed import Bed
from topologies.scale.openflow import SwitchView

GOOD, HOSTILE, PORTS = "s0", "s1", 50
MOST_KB = 64 << 10
# How long an attack lasts: memory grows meanwhile, if nothing limits it.
ATTACKED_S, ENOUGH_BYTES = 4, 1 << 16
# 40 ms without an attack, and 100 ms more.
PROMPT_S = 0.14
# On a busy machine. Without limits, an attack takes seconds.
ANYWHERE_S = 1.0
# Those that use most memory, or delay other bridges for longest, if nothing limits them.
WORST = ("learned", "echoes", "flapping")


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with private_network(), PrivateOvs(prefix="ovs-lbt-hostile-") as ovs:
        made = Bed(ovs, PORTS)
        for _ in made.grow(2):
            pass
        made.attach([GOOD, HOSTILE], {"failback-delay-s": "0"})
        yield made


def fail_over(bed: Bed, service: Service, bridge: str) -> float:
    """How long the service takes to follow the failure of an uplink of a bridge, in seconds."""

    def used() -> set[Any]:
        return {port["uplink"] for port in service.show_json(bridge)["ports"]}

    lost = min(wait_until(lambda: used() - {None, ""}, "VM ports have uplinks"))
    (left,) = {*bed.uplinks(bridge)} - {lost}
    with SwitchView(bed.management_socket(bridge)) as view:
        groups = view.groups()
        bed.set_cable(lost, plugged=False)
        told_s = view.await_port_change()
        followed_s, _ = view.await_group_change(groups)
    wait_until(lambda: used() == {left}, f"every VM port of {bridge} is on {left}")
    bed.set_cable(lost, plugged=True)
    return followed_s - told_s


def resident_kb(service: Service, what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{service.pid}/status").read_text())
    assert found
    return int(found[1])


@judges_time
@pytest.mark.parametrize("attack", [*ATTACKS] if benching else WORST)
def test_an_attack_takes_little_memory_and_delays_no_other_bridge(bed: Bed, attack: str) -> None:
    path, service = bed.management_socket(HOSTILE), Service(bed.ovs)
    aside = path.rename(path.with_suffix(".real"))
    try:
        with HostileSwitch(path, ATTACKS[attack]) as hostile:
            service.start()
            assert hostile.connected.wait(30), "the service dials the hostile switch"
            wait_until(
                lambda: service.show_json(GOOD)["connected"], "the other bridge is connected"
            )
            before_kb = resident_kb(service, "VmRSS")
            hostile.begin()
            until_s = time.monotonic() + repetitions(ATTACKED_S, 10)
            wait_until(
                lambda: time.monotonic() >= until_s and hostile.sent_bytes > ENOUGH_BYTES,
                "it has attacked for a while",
            )
            took_s = fail_over(bed, service, GOOD)
            assert resident_kb(service, "VmHWM") - before_kb <= MOST_KB
            what = f"{attack}: groups of the other bridge followed, s"
            at_most(what, took_s, PROMPT_S, ANYWHERE_S)
    finally:
        service.kill()
        path.unlink()
        aside.rename(path)
