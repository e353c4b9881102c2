"""Learning packets: after which moves they are sent, how often, when, and in which VLANs."""

from __future__ import annotations

from dataclasses import replace

from controller.api.engine_commands import Apply, DeliverFrame, SendFrame
from controller.dataplane import frames
from controller.dataplane.frames import rarp
from tests.unit.fake_switch import re_tagged, world
from tests.unit.rows import host, ours, port, with_interface


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


def test_a_failover_is_announced_before_the_switch_is_told_of_it() -> None:
    """The switch fails over by itself. The service waits for that before it sends a bundle."""
    here = world(host()).start().run_for(10)
    mac = "52:54:00:00:00:01"
    here.switch.learned = ((10, mac, 0), (11, mac, 0), (12, mac, 0), (13, mac, 0))
    on_eth2 = {10 + int(name[-1]) for name, uplink in here.bindings().items() if uplink == "eth2"}
    assert on_eth2 and len(on_eth2) < 4
    here.log.clear()
    here.set_link(2, up=False)
    assert {ofport for _, ofport in here.frames()} == on_eth2
    assert here.commands(Apply) == []
    here.run_for(10)
    assert len(here.frames()) == 4 * len(on_eth2), "now, and 0, 1 and 3 s after the bundle"


def test_when_uplinks_carry_again_after_none_did_every_vm_is_announced() -> None:
    """The switches upstream forget what was behind a link that fails."""
    here = world(host(failback_delay_s="0")).start().run_for(10)
    here.switch.learned = ((10, "52:54:00:00:00:01", 0), (11, "52:54:00:00:00:02", 0))
    here.set_link(2, up=False).run_for(10)
    here.log.clear()
    here.set_link(1, up=False).run_for(0.02)
    assert here.frames() == [], "no uplink is left"
    here.run_for(10)
    here.log.clear()
    here.set_link(1, up=True).run_for(10)
    assert {ofport for _, ofport in here.frames()} == {10, 11}


def test_an_uplink_that_is_unused_does_not_count_among_those_that_carry() -> None:
    """Frames for a VM are flooded by it, too, until the VM is announced by the one that returns."""
    here = world(with_interface(host(), "eth2", role="unused")).start()
    here.switch.learned = ((10, "52:54:00:00:00:01", 0),)
    here.set_link(1, up=False).run_for(10)
    here.log.clear()
    here.set_link(1, up=True).run_for(10)
    begin_s = here.frames()[0][0]
    sent = [(at_s - begin_s, ofport) for at_s, ofport in here.frames()]
    assert sent == [(0, 10), (1, 10), (3, 10)]


def test_who_may_have_come_while_a_lag_was_down_is_announced_by_it() -> None:
    """Switches further on believe a VM that has moved in where it was before."""
    vnet0, vnet1 = (port(f"vnet{i}", 10 + i, ids=ours(allow=f"eth{2 - i}")) for i in range(2))
    row = host("originating-port", teaming="static", failback_delay_s="0")
    here = world(replace(row, ports=(*row.ports[:1], vnet0, vnet1))).start().run_for(10)
    learned = ((10, "52:54:00:00:00:01", 0), (11, "52:54:00:00:00:02", 0))
    here.switch.learned = learned
    assert here.bindings() == {"vnet0": "eth2", "vnet1": "eth1"}

    here.set_link(2, up=False).run_for(10)
    assert here.frames() == [], "the one that cannot speak, and the one that need not"
    here.set_link(2, up=True).run_for(10)
    sent = here.commands(SendFrame)
    assert [(c.ofport, c.frame) for c in sent] == [(10, rarp("52:54:00:00:00:01"))] * 3

    here.set_link(1, up=False).set_link(2, up=False).run_for(10)
    here.log.clear()
    here.set_link(1, up=True).set_link(2, up=True).run_for(10)
    assert {ofport for _, ofport in here.frames()} == {10, 11}


def test_a_learning_packet_says_the_vlan_as_the_vm_would() -> None:
    here = world(host()).start()
    mac = "52:54:00:00:00:01"
    re_tagged(here, "vnet0", vlan_mode="native-untagged", tag=7)
    re_tagged(here, "vnet1", tag=7)
    re_tagged(here, "vnet2", trunks=(7, 20))
    here.switch.learned = tuple((ofport, mac, vlan) for ofport in (10, 11, 12) for vlan in (7, 20))
    here.log.clear()
    for name, number in (("vnet0", 10), ("vnet1", 11), ("vnet2", 12)):
        other = {"eth1": "eth2", "eth2": "eth1"}[here.bindings()[name]]
        here.ask("move", name, other)
        assert here.switch.uplink_of(number) == int(other[-1])
    sent = here.commands(SendFrame)
    assert {(c.ofport, c.frame) for c in sent} == {
        (10, rarp(mac)),
        (10, rarp(mac, 20)),
        (11, rarp(mac)),
        (12, rarp(mac, 7)),
        (12, rarp(mac, 20)),
    }
