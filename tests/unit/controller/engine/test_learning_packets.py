"""Learning packets: after which moves they are sent, how often, when, and in which VLANs."""

from __future__ import annotations

from controller.api.engine_commands import DeliverFrame, SendFrame
from controller.dataplane import frames
from controller.dataplane.frames import rarp
from tests.goldens.adapter import changed
from tests.unit.fake_switch import world
from tests.unit.rows import host


def test_with_each_announcement_the_vm_is_asked_for_its_multicast_groups() -> None:
    """Untagged, and on a trunk in every VLAN that it speaks."""
    here = world(host(failback_delay_s="1")).start()
    mac = "52:54:00:00:00:01"
    here.switch.learned = ((10, mac, 7), (10, mac, 8), (11, mac, 9))
    here.log.clear()
    here.do("move vnet0 eth2").run_for(10)
    queries = [(at_s, c.ofport, c.frame) for at_s, c in here.log if isinstance(c, DeliverFrame)]
    wanted = [q(vlan) for vlan in (0, 7, 8) for q in (frames.igmp_query, frames.mld_query)]
    sent_s = sorted({at_s for at_s, _, _ in queries})
    assert [at_s - sent_s[0] for at_s in sent_s] == [0, 1, 3]
    assert queries == [(at_s, 10, frame) for at_s in sent_s for frame in wanted]
    assert {at_s for at_s, _ in here.frames()} == set(sent_s)
    here.log.clear()
    here.set_link(2, up=False).run_for(10)
    asked = {c.ofport for c in here.commands(DeliverFrame)}
    assert asked == {10, 11, 13}, "those whose uplink failed"


def test_a_learning_packet_says_the_vlan_as_the_vm_would() -> None:
    here = world(host()).start()
    macs = {ofport: f"52:54:00:00:00:{ofport:02x}" for ofport in (10, 11, 12)}
    words = "vnet0:vlan_mode=native-untagged vnet0:tag=7 vnet1:tag=7 vnet2:trunks=(7,20)"
    here.write(changed(here.rows["br0"], words.split()))
    here.switch.learned = [(port, mac, vlan) for port, mac in macs.items() for vlan in (7, 20)]
    here.log.clear()
    for name, number in (("vnet0", 10), ("vnet1", 11), ("vnet2", 12)):
        other = {"eth1": "eth2", "eth2": "eth1"}[here.bindings()[name]]
        here.ask("move", name, other)
        assert here.switch.uplink_of(number) == int(other[-1])
    expected = ((10, 0), (10, 20), (11, 0), (12, 7), (12, 20))
    sent = {(c.ofport, c.frame) for c in here.commands(SendFrame)}
    assert sent == {(port, rarp(macs[port], vlan)) for port, vlan in expected}
