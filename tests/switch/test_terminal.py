"""`top`, `show` and `explain` as an operator sees them: in a terminal of 80 columns and 24 lines.

A real switch carries real traffic meanwhile; what the screen says is held against
`ovs-ofctl dump-ports`, and what keys ask for has to happen there.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service
from tests.switch.tmux import PROMPT, Pane, pane
from tests.switch.waiting import NotThere, wait_until
from tests.switch.wire import Stream

CAPACITY_MBPS = 100
POLL_INTERVAL_MS = 1000
# A flow's rate is set by the size of its frames, so that few frames make much traffic.
FLOW_PPS = 400
FRAME_BYTES_MAX = 9000
# The policy by itself does nothing as long as these tests take.
WINDOW_S = 600
SENT_MBPS = (24, 14, 6)
RECEIVED_MBPS = 9
MEASURED_OVER_S = 2.0
COLUMNS, LINES = 80, 24

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 3, (None,), mtu_bytes=FRAME_BYTES_MAX))


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """Three VMs that send all the time; the first receives, too, and has a name."""
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=POLL_INTERVAL_MS)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    bed.ovs.vsctl("set", "interface", bed.vms[0].port, "external_ids:vm-id=web-frontend-01")
    host, first = bed.hosts[0], bed.vms[0]
    sent = [(vm.point, vm.mac, host.mac) for vm in bed.vms]
    flows = [*sent, (host.point, host.mac, first.mac)]
    rates = [*SENT_MBPS, RECEIVED_MBPS]
    streamed = [
        (point, frames.udp(source, target, frame_bytes=round(rate * 1e6 / 8 / FLOW_PPS)))
        for (point, source, target), rate in zip(flows, rates, strict=True)
    ]
    with session_service.attached(bed, "--policy", "load-based"), Stream(streamed, FLOW_PPS):
        yield bed


@pytest.fixture
def terminal(team: Bed, service: Service, tmp_path: Path) -> Iterator[Pane]:
    """A shell, with all VMs on the first uplink and LOCAL on the second."""
    first, second = (uplink.name for uplink in team.uplinks)
    wanted = {vm.port: first for vm in team.vms} | {team.local.port: second}
    if service.bindings(team) != wanted:
        service.place(team, 0, 0, 0, 1)
    env = {**service.ovs.env, "PATH": f"{service.executable.parent}:{service.ovs.env['PATH']}"}
    with pane(tmp_path, env, COLUMNS, LINES) as made:
        yield made


@pytest.fixture
def top(team: Bed, terminal: Pane) -> Pane:
    """The same with `top` on the screen, which looks twice a second."""
    terminal.enter(f"ovs-lbt top {team.bridge} --interval 0.5")
    terminal.shows("TEAM-UPLINK")
    return terminal


def row_line(screen: str, name: str) -> str:
    """The row of a VM port or uplink."""
    found = [line for line in screen.splitlines() if line.split()[:1] == [name]]
    if len(found) != 1:
        # It may be read while it is drawn.
        raise NotThere(f"{name} has {len(found)} rows in\n{screen}")
    return found[0]


def row(screen: str, name: str) -> list[str]:
    """Its cells."""
    return row_line(screen, name).split()


def order(screen: str, bed: Bed) -> list[str]:
    """VM ports from above."""
    ports = {station.port for station in bed.stations}
    return [
        words[0] for line in screen.splitlines() if (words := line.split()) and words[0] in ports
    ]


def counted(bed: Bed, port: str) -> tuple[int, int]:
    """Bytes that came in by a port and left by it, as the switch says."""
    said = bed.ofctl("dump-ports", port)
    received, sent = (int(n) for n in re.findall(r"bytes=(\d+)", said))
    return received, sent


def measured_mbps(bed: Bed, ports: list[str]) -> dict[str, tuple[float, float]]:
    """What came in by ports and left by them, from two readings of their counters."""
    before, began_s = {port: counted(bed, port) for port in ports}, time.monotonic()
    time.sleep(MEASURED_OVER_S)
    after, over_s = {port: counted(bed, port) for port in ports}, time.monotonic() - began_s
    return {
        port: (
            8e-6 * (after[port][0] - before[port][0]) / over_s,
            8e-6 * (after[port][1] - before[port][1]) / over_s,
        )
        for port in ports
    }


def near(mbps: float) -> object:
    return pytest.approx(mbps, rel=0.1, abs=0.2)


def test_rates_are_those_of_dump_ports(team: Bed, top: Pane) -> None:
    bed, first = team, team.vms[0]
    names = [*(vm.port for vm in bed.vms), *(uplink.name for uplink in bed.uplinks)]

    def agree() -> bool:
        """A VM sends what comes in by its port; an uplink sends what leaves by its own."""
        real = measured_mbps(bed, names)
        screen = top.text()
        told = {vm.port: row(screen, vm.port)[3:5] for vm in bed.vms}
        figures = {
            u.name: re.findall(r"\d+\.\d\d", " ".join(row(screen, u.name))) for u in bed.uplinks
        }
        sent = {port: (float(tx), float(rx)) for port, (tx, rx) in told.items()}
        carried = {name: (float(rx), float(tx)) for name, (tx, rx) in figures.items()}
        return all(
            real[name] == (near(both[0]), near(both[1]))
            for name, both in {**sent, **carried}.items()
        )

    wait_until(agree, "the screen and dump-ports agree within 10 %")

    def is_told() -> bool:
        screen = top.text()
        mine = row(screen, first.port)
        return (
            mine[1:3] == ["web-frontend-01", bed.uplinks[0].name]
            and float(mine[4]) == near(RECEIVED_MBPS)
            and "connected" in screen
            and f"[{'█' * 3}" in row_line(screen, bed.uplinks[0].name)
        )

    wait_until(is_told, "the first VM has a name and receives, and its uplink is in use")


def busiest_above(bed: Bed, top: Pane) -> list[str]:
    """Wait until VM ports are in the order of what they send, which `top` has to hear of first."""
    by_load = [vm.port for vm in bed.vms] + [bed.local.port]
    wait_until(lambda: order(top.text(), bed) == by_load, "the busiest sender is above")
    return by_load


def test_a_move_is_asked_about_and_made(team: Bed, service: Service, top: Pane) -> None:
    bed, vm = team, team.vms[1]
    first, second = (uplink.name for uplink in bed.uplinks)
    busiest_above(bed, top)
    top.type("Down", "m")
    top.shows(f"move {vm.port} to:")
    top.type("Enter")
    top.shows(f"[y/n] move {vm.port} from {first} to {second} now?")
    top.type("n")
    top.shows("cancelled")
    assert service.bindings(bed)[vm.port] == first
    top.type("m", "Enter", "y")
    top.shows(f"{vm.port}: moved from {first} to {second}")
    assert service.bindings(bed)[vm.port] == second
    top.shows(f"{vm.port}: {first} -> {second}, manual")
    wait_until(lambda: bed.homes()[str(vm)] == [second], "its frames leave by that uplink")
    wait_until(lambda: row(top.text(), vm.port)[2] == second, "it is shown there")


def drawn(terminal: Pane, columns: int, lines: int) -> bool:
    """Whether `top` fills the screen, its last line too."""
    shown = terminal.lines
    last = "q quit" if lines > 1 else " "
    return len(shown) == lines and f"{shown[-1]} ".startswith(last[:columns])


def test_every_size_and_the_way_back(team: Bed, terminal: Pane) -> None:
    bed, before = team, terminal.text()
    terminal.enter(f"ovs-lbt top {bed.bridge} --interval 0.5")
    terminal.shows("TEAM-UPLINK")
    for size in ((120, 40), (40, 10), (1, 1), (COLUMNS, LINES)):
        terminal.resize(*size)
        wait_until(functools.partial(drawn, terminal, *size), f"the screen is drawn on {size}")
    wait_until(lambda: order(terminal.text(), bed), "all is there again")
    for end in ("q", "C-c"):
        terminal.type(end)
        wait_until(lambda: terminal.lines[-1] == PROMPT, f"{end} ends it")
        assert terminal.text().splitlines()[0].startswith(before.splitlines()[0].rstrip())
        assert "TEAM-UPLINK" not in terminal.text(), "the screen is what it was"
        assert terminal.run("stty -a | grep -o ' echo '").strip() == "echo"
        terminal.enter("clear; ovs-lbt top")
        terminal.shows("TEAM-UPLINK")
