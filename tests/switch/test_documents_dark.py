"""A dark host, and a bridge beneath another: what the documents say, word for word.

On an Open vSwitch that these tests may stop; see test_documents.py.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from tests import documents
from tests.switch import datapath
from tests.switch.bed import ACTIVE_BACKUP, PLAIN, Bed, BedSpec, Upstream, run
from tests.switch.following import bridges, follow, typed
from tests.switch.service import Service
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.test_reconnect import flows_of
from tests.switch.test_rescue import OUTSIDER, check_by
from tests.switch.waiting import wait_until


@contextlib.contextmanager
def attached(own: Service, tor: Upstream, spec: BedSpec) -> Iterator[Bed]:
    own.start()
    with Bed(own.ovs, tor, spec) as bed:
        own.attach(bed, "--policy", "originating-port")
        yield bed


def test_a_dark_host_gets_its_network_back_by_hand(own: Service, tor: Upstream) -> None:
    with attached(own, tor, BedSpec(PLAIN, 2, (None, None, 10))) as bed:
        make_dark(own, bed)
        assert "ovs-lbt-policy" in next(follow("dark", own, bed))
        (said,) = follow("dark-rescue", own, bed)
        assert said.startswith(f"{bed.bridge}: NORMAL forwards on {bed.uplinks[0].name}")
        check_by(bed, 0)
        make_dark(own, bed)
        list(follow("dark-hand", own, bed))
        wait_until(lambda: not bed.carrier(bed.uplinks[1]), "the other uplink is down")
        check_by(bed, 0)
        own.start()
        own.wait_ready(bed)
        list(follow("dark-hand-back", own, bed))
        wait_until(lambda: bed.carrier(bed.uplinks[1]), "the other uplink is up")
        wait_until(lambda: "actions=NORMAL" not in "".join(flows_of(bed)), "what was typed is gone")
        bed.introduce()
        check_everything(bed, settled_homes(bed))


def test_without_us_for_good_plain_uplinks_are_a_bond(own: Service, tor: Upstream) -> None:
    with attached(own, tor, BedSpec(PLAIN)) as bed:
        make_dark(own, bed)
        list(follow("dark-bond", own, bed))
        check_on_normal(bed)
        own.start()
        assert bed.bridge not in bridges(own)


def test_a_bond_is_left_to_normal_by_hand(own: Service, tor: Upstream) -> None:
    with attached(own, tor, BedSpec(ACTIVE_BACKUP)) as bed:
        wait_until(lambda: bed.not_flooded() != set(), "NORMAL leaves VM ports out")
        own.kill()
        list(follow("dark-off-bond", own, bed))
        bed.revalidated()
        assert bed.not_flooded() == set()
        check_on_normal(bed)
        bed.ovs.vsctl("clear", "bridge", bed.bridge, "external_ids")


def make_dark(service: Service, bed: Bed) -> None:
    """After a boot at which the service did not start."""
    service.kill()
    bed.restart_switch()
    assert all(by == [] for by in bed.homes().values()), "the test did not make it dark"


def check_on_normal(bed: Bed) -> None:
    """Nothing of ours forwards, every VM speaks by one uplink, and hears each frame once."""
    flows = flows_of(bed)
    assert all("actions=NORMAL" in flow for flow in flows), flows
    assert "group_id=" not in bed.ofctl("dump-groups")
    bed.introduce_to_normal()
    wait_until(lambda: all(len(by) == 1 for by in bed.homes().values()), "each has one uplink")
    host, everybody = bed.hosts[0], sorted(map(str, bed.stations))

    def heard() -> list[str]:
        points = bed.comes_out(bed.frame_of(host, source=OUTSIDER))
        return [point for point in points if point in everybody]

    wait_until(lambda: heard() == everybody, "each station hears a broadcast once")


def test_a_bridge_beneath_that_of_neutrons_agent(own: Service) -> None:
    """With the tests' datapath, as not every machine has the kernel's."""
    own.start()
    links = ["eth0", "eth1"]
    try:
        for link in links:
            run("ip", "link", "add", link, "type", "veth", "peer", "name", f"{link}far")
        own.ovs.vsctl("add-br", "br-ex", "--", "set", "bridge", "br-ex", datapath.SETTING)
        (block,) = documents.labelled("below")
        typed(block, own, {"add-br br-up": f"add-br br-up -- set bridge br-up {datapath.SETTING}"})
        shown = own.show_json("br-up")
        assert [uplink["name"] for uplink in shown["uplinks"]] == links
        assert "to-ex" in {port["name"] for port in shown["ports"]}
        assert own.ovs.vsctl("get", "interface", "to-ex", "external_ids:ovs-lbt-unit")
        own.do("detach", "br-up")
    finally:
        for bridge in ("br-up", "br-ex"):
            own.ovs.vsctl("--if-exists", "del-br", bridge)
        for link in links:
            subprocess.run(["ip", "link", "del", link], capture_output=True)
