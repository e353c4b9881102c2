"""A bond of Linux becomes one of Open vSwitch and goes back, under traffic: addresses, routes, VLANs.

On a kernel with the modules bonding, bridge and openvswitch: `make test-kernel`, in a guest if need be.
Each test prints what a probe of 100 packets a second has lost.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

BOND, BRIDGE, MEMBERS, UPSTREAM = "lbbond", "lbbr", ("lbm0", "lbm1"), "lbup"
MAC, MTU, VLAN = "02:1b:00:00:00:01", 1400, 20
HOST, GATEWAY, HOST6 = "192.0.2.10", "192.0.2.1", "2001:db8::10"
GATEWAY6 = "2001:db8::1"
VM, VM_IP = "lbvm", "192.0.2.50"
VLAN_HOST, VLAN_GATEWAY = "198.51.100.10", "198.51.100.1"
BEHIND = "203.0.113.0/24"
PROBE_INTERVAL_S = 0.01
# An outage would be more: a link of a veth comes up at once.
LOST_MAX = {"active-backup": 100, "802.3ad": 1500}


def run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{stdin or ''}"
    return done.stdout


def batch(*lines: str, netns: str | None = None) -> None:
    run("ip", *(["-n", netns] if netns else []), "-batch", "-", stdin="\n".join(lines))


def shown(*words: str) -> Any:
    return json.loads(run("ip", "-json", "-details", *words))


@dataclass(slots=True)
class Machine:
    """A host with a bond of Linux, and the switch upstream in a namespace."""

    mode: str
    service: Service

    def state(self, device: str) -> dict[str, Any]:
        """What a device is to its host."""
        (link,) = shown("link", "show", "dev", device)
        (address,) = shown("address", "show", "dev", device)
        routes = [
            sorted(
                line.strip()
                for line in run("ip", family, "route", "show", "dev", device).splitlines()
            )
            for family in ("-4", "-6")
        ]
        local = [a["local"] for a in address["addr_info"] if a["scope"] == "global"]
        return {"mac": link["address"], "mtu": link["mtu"], "addresses": local, "routes": routes}

    def bond(self) -> dict[str, Any]:
        """The bond of Linux, and its members."""
        (link,) = shown("link", "show", "dev", BOND)
        links = shown("link", "show")
        data = link["linkinfo"]["info_data"]
        kept = {
            key: data.get(key) for key in ("mode", "miimon", "updelay", "primary", "ad_lacp_rate")
        }
        members = {one["ifname"] for one in links if one.get("master") == BOND}
        return {**kept, "members": members}

    def vlan_parent(self) -> str:
        (link,) = shown("link", "show", "dev", f"{BOND}.{VLAN}")
        return str(link["link"])

    def command(self, *words: str) -> str:
        done = self.service.command(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with PrivateOvs(prefix="ovs-lbt-bond-") as ovs:
        made = Service(ovs)
        made.start()
        yield made
        made.kill()


@pytest.fixture(params=["active-backup", "802.3ad"])
def machine(request: pytest.FixtureRequest, service: Service) -> Iterator[Machine]:
    mode = request.param
    # Where the kernel has them built in, there is nothing to load.
    subprocess.run(["modprobe", "-a", "bonding", "bridge", "8021q"], capture_output=True)
    ends = [f"{member}u" for member in MEMBERS]
    run("ip", "netns", "add", UPSTREAM)
    lines = [
        f"link add {member} mtu {MTU} type veth peer name {end} mtu {MTU} netns {UPSTREAM}"
        for member, end in zip(MEMBERS, ends, strict=True)
    ]
    options = "miimon 50 lacp_rate fast" if mode == "802.3ad" else f"miimon 50 primary {MEMBERS[1]}"
    made_with = options.partition(" primary")[0]
    lines += [f"link add {BOND} address {MAC} mtu {MTU} type bond mode {mode} {made_with}"]
    lines += [f"link set {member} master {BOND}" for member in MEMBERS]
    if "primary" in options:
        lines += [f"link set {BOND} type bond primary {MEMBERS[1]}"]
    lines += [
        f"link set {BOND} up",
        f"addr add {HOST}/24 dev {BOND}",
        f"addr add {HOST6}/64 dev {BOND} nodad",
        f"route add default via {GATEWAY} dev {BOND} metric 100",
        f"route add {BEHIND} via {GATEWAY} dev {BOND} table 100",
        f"link add link {BOND} name {BOND}.{VLAN} type vlan id {VLAN}",
        f"link set {BOND}.{VLAN} up",
        f"addr add {VLAN_HOST}/24 dev {BOND}.{VLAN}",
    ]
    up = ["link add sw type bridge", "link set sw up"]
    if mode == "802.3ad":
        up += [f"link add lag type bond mode {mode} {options}", "link set lag master sw"]
        up += [f"link set {end} master lag" for end in ends] + ["link set lag up"]
    else:
        for end in ends:
            up += [f"link set {end} master sw", f"link set {end} up"]
    up += [
        f"addr add {GATEWAY}/24 dev sw",
        f"addr add {GATEWAY6}/64 dev sw nodad",
        f"link add link sw name sw.{VLAN} type vlan id {VLAN}",
        f"link set sw.{VLAN} up",
        f"addr add {VLAN_GATEWAY}/24 dev sw.{VLAN}",
    ]
    try:
        batch(*lines)
        batch(*up, netns=UPSTREAM)
        wait_until(lambda: answers(HOST), "the host answers")
        yield Machine(mode, service)
    finally:
        with contextlib.suppress(Exception):
            service.ovs.vsctl("--if-exists", "del-br", BRIDGE)
        for device in (BOND, *MEMBERS, VM):
            subprocess.run(["ip", "link", "del", device], capture_output=True)
        for netns in (UPSTREAM, VM):
            subprocess.run(["ip", "netns", "del", netns], capture_output=True)


def answers(address: str) -> bool:
    words = ("ip", "netns", "exec", UPSTREAM, "ping", "-n", "-c", "1", "-W", "1", address)
    return subprocess.run(words, capture_output=True).returncode == 0


@dataclass(slots=True)
class Probe:
    """A ping from upstream, in this block."""

    address: str
    lost: int = 0
    sent: int = 0
    _process: subprocess.Popen[str] | None = field(default=None)

    def __enter__(self) -> Probe:
        words = ["ip", "netns", "exec", UPSTREAM, "ping", "-n", "-q", "-i", str(PROBE_INTERVAL_S)]
        self._process = subprocess.Popen([*words, self.address], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        said = self._process.communicate()[0]
        found = re.search(r"(\d+) packets transmitted, (\d+) received", said)
        assert found, said
        self.sent = int(found[1])
        self.lost = self.sent - int(found[2])


def test_there_and_back_under_traffic(machine: Machine) -> None:
    bond, before = machine.bond(), machine.state(BOND)
    asked = machine.service.command("attach", BRIDGE, "--from-bond", BOND)
    assert asked.returncode == 1
    assert asked.stderr == "ovs-lbt: nothing was changed; to migrate the bond, add --yes\n"
    assert f"{BOND}: Linux bond, {machine.mode}" in asked.stdout
    assert f"moves to {BRIDGE}: {HOST}/24" in asked.stdout
    assert (machine.bond(), machine.state(BOND)) == (bond, before)
    with Probe(HOST) as there, Probe(VLAN_HOST) as there_in_vlan:
        said = machine.command("attach", BRIDGE, "--from-bond", BOND, "--yes")
    assert machine.state(BRIDGE) == json.loads(json.dumps(before).replace(BOND, BRIDGE))
    assert machine.vlan_parent() == BRIDGE
    assert answers(HOST) and answers(VLAN_HOST) and answers(HOST6)
    status = machine.service.show_json(BRIDGE)
    assert sorted(u["name"] for u in status["uplinks"]) == sorted(MEMBERS)
    assert status["teaming"] == ("lacp" if machine.mode == "802.3ad" else "switch-independent")
    assert BOND not in {link["ifname"] for link in shown("link", "show")}
    assert "ovs_bonds" in said and "openvswitch: {}" in said and "nmcli connection add" in said
    with Probe(HOST) as back, Probe(VLAN_HOST) as back_in_vlan:
        machine.command("detach", BRIDGE, "--to-bond", BOND, "--yes")
    assert (machine.bond(), machine.state(BOND)) == (bond, before)
    assert machine.vlan_parent() == BOND
    assert answers(HOST) and answers(VLAN_HOST) and answers(HOST6)
    assert BRIDGE not in machine.service.ovs.vsctl("list-br")
    probes = {
        "there": there,
        "there, in the VLAN": there_in_vlan,
        "back": back,
        "back, in the VLAN": back_in_vlan,
    }
    note("", machine, probes)


def test_a_bond_that_is_a_port_of_the_bridge_already(machine: Machine) -> None:
    """The host's address is on the bridge, beside a VM."""
    ovs = machine.service.ovs
    run("ip", "netns", "add", VM)
    batch(
        f"link del {BOND}.{VLAN}",
        f"addr flush dev {BOND}",
        f"link add {VM} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {VM}",
        f"link set {VM} up",
    )
    batch("link set eth0 up", f"addr add {VM_IP}/24 dev eth0", netns=VM)
    ovs.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, f'other_config:hwaddr="{MAC}"')
    ovs.vsctl("add-port", BRIDGE, BOND, "trunks=0,20", "--", "add-port", BRIDGE, VM)
    batch(f"link set {BRIDGE} up", f"addr add {HOST}/24 dev {BRIDGE}")
    wait_until(lambda: answers(HOST) and answers(VM_IP), "both answer")
    bond, before = machine.bond(), machine.state(BRIDGE)
    # Without a gateway that it could ask, the command does not wait for LACP upstream.
    with Probe(HOST) as there, Probe(VM_IP) as vm_there:
        machine.command("attach", BRIDGE, "--from-bond", BOND, "--yes")
        wait_until(lambda: answers(HOST) and answers(VM_IP), "both answer again")
    assert machine.state(BRIDGE) == before
    ports = {port["name"] for port in machine.service.show_json(BRIDGE)["ports"]}
    assert ports == {BRIDGE, VM}
    assert ovs.vsctl("get", "port", BOND, "trunks") == "[0, 20]", "the port keeps its VLANs"
    with Probe(HOST) as back, Probe(VM_IP) as vm_back:
        machine.command("detach", BRIDGE, "--to-bond", BOND, "--yes")
        wait_until(lambda: answers(HOST) and answers(VM_IP), "both answer again")
    assert (machine.bond(), machine.state(BRIDGE)) == (bond, before)
    assert ovs.vsctl("port-to-br", BOND) == BRIDGE
    assert ovs.vsctl("get", "port", BOND, "bond_mode") == "[]"
    probes = {"there": there, "there, a VM": vm_there, "back": back, "back, a VM": vm_back}
    note("a port of the bridge, ", machine, probes)


def note(what: str, machine: Machine, probes: dict[str, Probe]) -> None:
    """Print what probes have lost, and hold it against what would be an outage."""
    for name, probe in probes.items():
        print(f"probe {machine.mode}, {what}{name}: {probe.lost} of {probe.sent} lost")
    for name, probe in probes.items():
        assert probe.lost <= LOST_MAX[machine.mode], name


def test_a_member_without_a_link_upstream_lets_everything_go_back(machine: Machine) -> None:
    bond, before = machine.bond(), machine.state(BOND)
    moved_first = next(m for m in MEMBERS if m != active(machine))
    batch(f"link set {moved_first}u down", netns=UPSTREAM)
    wait_until(lambda: answers(HOST), "the host answers by the other member")
    done = machine.service.command("attach", BRIDGE, "--from-bond", BOND, "--yes")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("everything was rolled back"), done
    assert (machine.bond(), machine.state(BOND)) == (bond, before)
    assert BRIDGE not in machine.service.ovs.vsctl("list-br")
    assert answers(HOST) and answers(VLAN_HOST)


def active(machine: Machine) -> str:
    (link,) = shown("link", "show", "dev", BOND)
    return str(link["linkinfo"]["info_data"].get("active_slave") or MEMBERS[0])
