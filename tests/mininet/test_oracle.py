"""The oracle's flows and groups on a real Open vSwitch."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.switch.waiting import wait_until
from topologies.compare.contenders import Oracle, Teams
from topologies.loads import flow_plan
from topologies.loads.pace import QUICK
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.network.switches import ServerBridge

pytestmark = pytest.mark.mininet

UPLINKS = ["up1", "up2", "up3"]


def _outputs(ovs: PrivateOvs, number: int) -> list[int]:
    """Where a frame leaves whose flow the oracle has placed on this uplink."""
    (client_port,) = flow_plan.client_ports([0], [number])
    frame = f"in_port=vm1,tcp,tp_src={flow_plan.SERVER_PORT},tp_dst={client_port}"
    said = ovs.run("ovs-appctl", "ofproto/trace", "server", frame)
    return [int(one) for one in re.findall(r"output:(\d+)", said)]


def _all_outputs(ovs: PrivateOvs) -> list[list[int]]:
    return [_outputs(ovs, number) for number in range(len(UPLINKS))]


def test_oracle_sends_by_the_uplink_in_the_port_and_by_the_next_one_when_it_fails(
    tmp_path: Path,
) -> None:
    server = cast(ServerBridge, SimpleNamespace(name="server", uplinks=UPLINKS))
    with private_network(), PrivateOvs() as ovs:
        ovs.vsctl("add-br", "server", "--", "set", "bridge", "server", "datapath_type=netdev")
        for number, name in enumerate([*UPLINKS, "vm1"], start=1):
            words = f"set interface {name} type=internal ofport_request={number}".split()
            ovs.vsctl("add-port", "server", name, "--", *words)
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        teams = Teams(ovs, [server], {}, QUICK, tmp_path)
        Oracle().take_over(teams, contextlib.ExitStack())
        wait_until(lambda: _all_outputs(ovs) == [[1], [2], [3]], "each by its uplink")
        subprocess.run(["ip", "link", "set", "up3", "down"], check=True)
        # Open vSwitch sees the link go down a moment later.
        wait_until(lambda: _all_outputs(ovs) == [[1], [2], [1]], "those of the third by the first")
