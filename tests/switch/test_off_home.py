"""Off-home addresses of tunnel endpoints, on a real switch: they move with what has them, and peers can answer.

The first VM stands for an endpoint, whose connections are spread over three uplinks. The pipeline is
installed as the service would, without it. tests/unit/controller/dataplane/test_endpoints.py carries out
its flows for everything else.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.dataplane import pipeline
from controller.dataplane.pipeline import build
from controller.dataplane.team import Endpoint, Team
from policies.classifiers import Classifier
from tests.switch import datapath, frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Shot, on_beds, run
from tests.switch.direct import Direct
from tests.switch.test_hashing import in_turn, install, segment, team_of
from tests.switch.waiting import wait_until
from tests.switch.wire import Heard

OFF_HOME = "0a:1c:00:00:00:{:02x}"
CONNECTIONS = 48
pytestmark = on_beds(BedSpec(PLAIN, 3, (None, None)))
by_either_hash = pytest.mark.parametrize("dp_hash", [False, True], ids=["multipath", "dp_hash"])


def overlay(bed: Bed, dp_hash: bool = False) -> Team:
    """The team with the first VM as an endpoint, whose home is the first uplink."""
    team = team_of(bed, Classifier.TRANSPORT, dp_hash=dp_hash)
    macs = tuple((uplink, OFF_HOME.format(uplink)) for uplink in team.uplinks)
    lanes = dict(zip(team.uplinks, in_turn(team.uplinks, len(team.uplinks)), strict=True))
    endpoint = Endpoint(team.vm_ports[0].ofport, bed.vms[0].mac, macs)
    return replace(team, endpoints=(endpoint,), lanes=lanes)


def to(bed: Bed, mac: str, count: int) -> list[Shot]:
    """Frames of a host upstream to an address."""
    sender = bed.hosts[0]

    def made(of: str, tag: int, frame_id: int) -> bytes:
        return frames.udp(of, mac, vlan=tag, frame_id=frame_id)

    return [bed.shot(sender.point, made, sender.mac, 0, 0, f"to {mac}") for _ in range(count)]


def received(bed: Bed, shots: list[Shot]) -> list[list[str]]:
    """Where copies of each frame came out, at stations or by uplinks; at the endpoint under its address."""
    found = copies(bed, shots)
    to_endpoint = [heard for of in found for name, heard in of if name == str(bed.vms[0])]
    assert all(heard.destination == bed.vms[0].mac for heard in to_endpoint)
    return [sorted(name for name, _ in of) for of in found]


def copies(bed: Bed, shots: list[Shot]) -> list[list[tuple[str, Heard]]]:
    """The copies of each frame that came out of the bridge, with the points where they did."""
    found: dict[int | None, list[tuple[str, Heard]]] = {shot.frame_id: [] for shot in shots}
    for name, all_heard in bed.fire_and_hear(shots).items():
        for heard in all_heard:
            if heard.frame_id in found and not heard.outgoing:
                found[heard.frame_id].append((name, heard))
    return [*found.values()]


def connections(bed: Bed) -> list[Shot]:
    """A frame of each of many connections of the endpoint with an outsider."""
    vm = bed.vms[0]
    builders = {n: functools.partial(segment, 4, frames.UDP, 40000 + n) for n in range(CONNECTIONS)}
    return [bed.shot(vm.point, build, vm.mac, 0, 0, str(n)) for n, build in builders.items()]


def left(bed: Bed, shots: list[Shot]) -> list[tuple[str, str]]:
    """The uplink and the source address of each frame, which left once and reached nobody here."""
    found = copies(bed, shots)
    assert all(len(of) == 1 for of in found), found
    return [(bed.ends[name], heard.source) for ((name, heard),) in found]


def sources(bed: Bed, team: Team) -> dict[str, str]:
    """The address of the endpoint's frames by each uplink while all are live, by the uplink's name."""
    off_home = dict(team.endpoints[0].off_home_macs)
    named = zip(bed.uplinks, team.uplinks, strict=True)
    macs = {uplink.name: off_home[number] for uplink, number in named}
    return macs | {bed.uplinks[0].name: bed.vms[0].mac}


def test_what_is_read_back_is_what_was_installed(bed: Bed, direct: Direct) -> None:
    team = overlay(bed)
    direct.install(build(team))
    assert not pipeline.changes(build(team), direct.installed())


def can_be_answered(bed: Bed, team: Team) -> None:
    """Assert that what is sent to each address of the endpoint reaches it once."""
    bed.revalidated()
    for mac in sources(bed, team).values():
        assert received(bed, to(bed, mac, 3)) == 3 * [["vm0"]]


@by_either_hash
def test_addresses_move_to_another_uplink_with_what_has_them(
    bed: Bed, direct: Direct, dp_hash: bool
) -> None:
    """Nobody tells switches upstream but the frames themselves: the service is not there."""
    team = install(bed, direct, overlay(bed, dp_hash))
    before = left(bed, connections(bed))
    assert {*before} == {*sources(bed, team).items()}
    can_be_answered(bed, team)
    for position, failed in enumerate(bed.uplinks):
        following = bed.uplinks[(position + 1) % len(bed.uplinks)].name
        with bed.cable_pulled(failed):
            bed.revalidated()
            kept = {uplink.name: uplink.name for uplink in bed.uplinks} | {failed.name: following}
            after = [(kept[uplink], mac) for uplink, mac in before]
            assert left(bed, connections(bed)) == after
            can_be_answered(bed, team)
        bed.revalidated()
        assert left(bed, connections(bed)) == before
        can_be_answered(bed, team)


# ---- tunnels of the kernel, with a peer in userspace ---------------------------------------


OUTER, PEER = "198.18.0.1", "198.18.0.2"
INNER = "198.19.0.1"
# Each has a connection of its own in the outer network.
INNER_PEERS = [f"198.19.0.{number}" for number in range(101, 117)]
VNI = "7"
# A switch that has no core for a second answers late.
ANSWERED_S = 30


@pytest.fixture
def tunnel(bed: Bed) -> Iterator[None]:
    """The first VM is a host whose kernel sends tunnels; the switch upstream ends them itself."""
    netns, tor, inner = str(bed.vms[0].point.netns), bed.tor, f"{bed.prefix}pn"
    device = ["type", "vxlan", "id", VNI, "local", OUTER, "remote", PEER, "dstport", "4789"]
    for words in (
        ["addr", "add", f"{OUTER}/24", "dev", "eth0"],
        ["link", "add", "vx0", *device, "dev", "eth0"],
        ["addr", "add", f"{INNER}/24", "dev", "vx0"],
        ["link", "set", "vx0", "up", "mtu", "1400"],
    ):
        run("ip", "-n", netns, *words)
    options = [f"options:remote_ip={OUTER}", f"options:key={VNI}"]
    setting = ["--", "set", "interface", "vx0", "type=vxlan", *options]
    datapath_type = ["--", "set", "bridge", inner, datapath.SETTING]
    tor.ovs.vsctl("add-br", inner, *datapath_type, "--", "add-port", inner, "vx0", *setting)
    # Otherwise the kernel answers for the switch's address at the ends of uplinks as well.
    run("sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1", netns=tor.netns)
    addresses = [f"addr add {address}/24 dev {inner}" for address in INNER_PEERS]
    own = [f"addr add {PEER}/24 dev {bed.upstream}", f"link set {bed.upstream} up"]
    lines = "\n".join([*own, f"link set {inner} up mtu 1400", *addresses])
    run("ip", "-n", tor.netns, "-batch", "-", stdin=lines)
    yield
    tor.ovs.vsctl("del-br", inner)
    run("ip", "-n", tor.netns, "addr", "del", f"{PEER}/24", "dev", bed.upstream)
    run("ip", "-n", netns, "link", "del", "vx0")
    run("ip", "-n", netns, "addr", "del", f"{OUTER}/24", "dev", "eth0")


def answers(bed: Bed, address: str, within_s: int = 1) -> bool:
    """Whether one ping is answered, within so many seconds."""
    ping = ["ping", "-c1", f"-W{within_s}", address]
    command = ["ip", "netns", "exec", str(bed.vms[0].point.netns), *ping]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert "DUP" not in said and "duplicates" not in said
    return "1 received" in said


def neighbour(bed: Bed) -> str:
    shown = bed.tor.ovs.run("ovs-appctl", "tnl/neigh/show").splitlines()
    (found,) = (words[1] for line in shown if (words := line.split())[:1] == [OUTER])
    return found


@pytest.mark.usefixtures("tunnel")
@pytest.mark.skipif(datapath.NAME != "userspace", reason="the peer is to have the other datapath")
def test_tunnels_of_the_kernel_work_with_a_peer_in_userspace(bed: Bed, direct: Direct) -> None:
    """The peer answers to the address that it heard last, whatever ARP said."""
    team = install(bed, direct, overlay(bed))
    macs = {mac for _, mac in team.endpoints[0].off_home_macs}
    heard = set()
    wait_until(lambda: answers(bed, INNER_PEERS[0]), "the peer answers")
    for address in INNER_PEERS:
        bed.tor.ovs.run("ovs-appctl", "revalidator/purge")
        assert answers(bed, address, ANSWERED_S), (
            f"{address}, while the peer sends to {neighbour(bed)}"
        )
        heard.add(neighbour(bed))
    assert heard <= {bed.vms[0].mac, *macs} and heard & macs, heard
    for failed in bed.uplinks:
        with bed.cable_pulled(failed):
            # The switch upstream learns where an address has gone from the next frame that has it.
            for address in INNER_PEERS:
                answers(bed, address)
            for address in INNER_PEERS:
                assert answers(bed, address, ANSWERED_S), f"{address}, without {failed}"
