"""Many VM ports in one VLAN: attached and checked in time, and what floods reaches each of them once.

The ports are Open vSwitch's own dummies, which take frames from a command and count what they are sent.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

BRIDGE, UPLINKS = "br0", ("u0", "u1")
UPLINK_WORDS = ("--uplink", "u0", "--uplink", "u1")
ATTACHED_WITHIN_S = 30.0
# More fit into no message with a bucket for each.
MANY, BEYOND_A_MESSAGE, LIMIT = 3000, 1500, 4000
CHECKED, CHECKED_WITHIN_S = 300, 2.0
OURS, OTHERS, NOBODY = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"


@pytest.fixture
def ports(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def switch(ports: int) -> Iterator[PrivateOvs]:
    """A bridge with that many VM ports and two plain uplinks, before it is attached."""
    with PrivateOvs(prefix="ovs-lbt-many-", switch_options=["--enable-dummy"]) as ovs:
        ovs.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
        ovs.vsctl("set-fail-mode", BRIDGE, "secure")
        names = [*UPLINKS, *(f"p{number}" for number in range(ports))]
        added = []
        for name in names:
            added += ["--", "add-port", BRIDGE, name, "--", "set", "interface", name, "type=dummy"]
        ovs.run("ovs-vsctl", "--timeout=240", *added[1:], timeout_s=250.0)
        yield ovs


@pytest.fixture
def service(switch: PrivateOvs) -> Iterator[Service]:
    """A service of that switch only."""
    made = Service(switch)
    made.start()
    yield made
    made.kill()


def sent(ovs: PrivateOvs) -> Counter[str]:
    """How many frames the switch has sent by each port but LOCAL, whose device is down."""
    dumped = ovs.run("ovs-ofctl", "--names", "-O", "OpenFlow13", "dump-ports", BRIDGE)
    found = re.findall(r"port +\"?(\w+)\"?:.*?\n +tx pkts=(\d+)", dumped)
    return Counter({name: int(count) for name, count in found if name not in ("LOCAL", BRIDGE)})


def flooded(ovs: PrivateOvs, port: str, source: str, destination: str) -> Counter[str]:
    """Which ports send a frame that comes in by a port, and how often."""
    before = sent(ovs)
    frame = frames.plain(source, destination, 0, 1)
    ovs.run("ovs-appctl", "netdev-dummy/receive", port, frame.hex())
    total, since_s = -1, time.monotonic()
    while total != (total := (sent(ovs) - before).total()) or time.monotonic() - since_s < 0.5:
        time.sleep(0.1)
    return sent(ovs) - before


@judges_time
@pytest.mark.parametrize("ports", [BEYOND_A_MESSAGE, MANY], indirect=True)
def test_what_floods_reaches_each_port_once(
    switch: PrivateOvs, service: Service, ports: int
) -> None:
    began_s = time.monotonic()
    service.do("attach", BRIDGE, "--policy", "originating-port", *UPLINK_WORDS)
    took_s = time.monotonic() - began_s
    everybody = Counter(f"p{number}" for number in range(ports))
    for destination in (frames.BROADCAST, NOBODY):
        from_vm = flooded(switch, "p0", OURS, destination)
        (left,) = from_vm.keys() & set(UPLINKS)
        assert from_vm == everybody - Counter(["p0"]) + Counter([left])
        come = sum((flooded(switch, name, OTHERS, destination) for name in UPLINKS), Counter())
        assert come == everybody, "each port takes it from one of the uplinks"
    wait_until(lambda: service.command("detach", BRIDGE).returncode == 0, "it is detached")
    soon(f"{ports} VM ports: attached", took_s, ATTACHED_WITHIN_S)


@pytest.mark.parametrize("ports", [LIMIT], indirect=True)
def test_more_ports_than_the_switch_can_reach_are_refused(
    switch: PrivateOvs, service: Service, ports: int
) -> None:
    # LOCAL is one more.
    refused = service.command("attach", BRIDGE, *UPLINK_WORDS)
    assert refused.returncode == 1
    assert f"{ports + 1} VM ports in one VLAN" in refused.stderr
    assert "cookie" not in switch.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", BRIDGE)


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("ports", [CHECKED], indirect=True)
def test_hundreds_of_ports_are_checked_in_two_seconds(service: Service, ports: int) -> None:
    service.do("attach", BRIDGE, *UPLINK_WORDS)
    wait_until(lambda: service.command("check").returncode == 0, "nothing is found")
    spent_s = []
    for _ in range(5):
        begin_s = time.monotonic()
        assert service.command("check", BRIDGE).returncode == 0
        spent_s.append(time.monotonic() - begin_s)
    print(f"check of {ports} ports: {sorted(spent_s)[2]:.2f} s (median of 5)")
    assert sorted(spent_s)[2] <= CHECKED_WITHIN_S
