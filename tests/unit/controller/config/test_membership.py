"""Which interfaces are uplinks: no VM port becomes one by mistake, and none is taken for a VM's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import Write
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, PortRow
from controller.config.values import BridgeConfig
from policies.model import MAX_UPLINKS
from tests.said import says
from tests.unit.fake_switch import done, refusal, world
from tests.unit.rows import bond, bridge, host, interface, ours, port, with_ids, with_interface

UPLINKS, MAC = (port("eth1", 1), port("eth2", 2)), "02:00:00:00:00:02"


def plain(*ports: PortRow, uplinks: str = "eth1,eth2") -> BridgeRow:
    ids = ours(policy="load-based", uplinks=uplinks)
    return bridge(*UPLINKS, *ports, ids=ids, fail_mode="secure")


def unattached(row: BridgeRow) -> BridgeRow:
    return replace(row, external_ids={})


def teamed(config: BridgeConfig) -> list[str]:
    return [uplink.name for uplink in config.uplinks]


def vm_ports(config: BridgeConfig) -> list[str]:
    return [vm_port.name for vm_port in config.vm_ports]


def told(config: BridgeConfig) -> list[str]:
    return [str(error) for error in config.errors]


# ---- on a bond --------------------------------------------------------------------------

OF_THE_BOND = "not the members of bond0; name all members and no others: eth1, eth2"


@pytest.mark.parametrize("named", ["eth1,vnet0", "eth1,eth2,vnet0", "vnet0,vnet1"])
def test_uplinks_on_a_bond_are_its_members(named: str) -> None:
    """Asked for by a command, or written straight to the database; also at a start."""
    here = world(host()).start()
    error = f"Bridge br0 ovs-lbt-uplinks: {named} are {OF_THE_BOND}"
    assert refusal(here.ask("set", "bridge", "br0", f"uplinks={named}")) == error
    free = world(unattached(host())).start()
    assert refusal(free.ask("attach", "br0", f"uplinks={named}")) == error
    assert free.rows["br0"].external_ids == {}
    done(here.ask("set", "bridge", "br0", "uplinks=eth2,eth1"))
    before = here.bindings()
    here.write(with_ids(here.rows["br0"], uplinks=named))
    in_force = here.engine.fleet.bridges["br0"].config
    assert teamed(in_force) == ["eth2", "eth1"], "the last good order"
    assert here.bindings() == before and set(before.values()) == {"eth1", "eth2"}
    assert told(in_force) == [error]
    started = read_bridge(here.rows["br0"])
    assert sorted(teamed(started)) == ["eth1", "eth2"]
    assert vm_ports(started) == ["vnet0", "vnet1", "vnet2", "vnet3"]


def test_a_member_that_a_list_does_not_name_yet_is_an_uplink_and_never_a_vm_port() -> None:
    row = host(uplinks=3)
    config = read_bridge(with_ids(row, uplinks="eth2,eth1"), read_bridge(row))
    assert teamed(config) == ["eth1", "eth2", "eth3"], "the last good value"
    assert teamed(read_bridge(with_ids(row, uplinks="eth2,eth1"))) == ["eth2", "eth1", "eth3"]


def test_members_of_a_second_bond_are_no_vm_ports() -> None:
    storage = PortRow("bond1", (interface("eth3", 3), interface("eth4", 4)))
    row = bridge(bond(interface("eth1", 1), interface("eth2", 2)), storage, port("vnet0", 10))
    for config in (read_bridge(with_ids(row, uplinks="eth1,eth2")), after_restart(row, ON_BOND)):
        assert (teamed(config), vm_ports(config)) == (["eth1", "eth2"], ["vnet0"])
        assert (config.on_bond, config.missing) == (True, ("eth3", "eth4"))
        (line,) = told(config)
        assert says(
            line, "bond1 (eth3, eth4) is a bond in addition", "ovs-vsctl del-port br0 bond1"
        )


def test_uplinks_of_two_bonds_are_refused() -> None:
    """They may lead to two networks. A bridge that was attached so before keeps them."""
    ports = [bond(interface("eth1", 1), interface("eth2", 2)), port("vnet0", 10)]
    ports.append(PortRow("bond1", (interface("eth3", 3), interface("eth4", 4))))
    here, named = world(bridge(*ports, ids={})).start(), "eth1,eth2,eth3,eth4"
    assert says(refusal(here.ask("attach", "br0")), "2 bonds (bond0, bond1); keep one")
    told = refusal(here.ask("attach", "br0", f"uplinks={named}"))
    assert says(told, "bond members: eth1, eth2, eth3, eth4; name the members of one bond")
    assert says(refusal(here.ask("attach", "br0", "uplinks=eth1,eth2")), "bond1 (eth3, eth4)")
    config = read_bridge(bridge(*ports, ids=ours(policy="load-based", uplinks=named)))
    assert teamed(config) == named.split(",")


# ---- the last valid team ----------------------------------------------------------------

ON_BOND = bridge(bond(interface("eth1", 1), interface("eth2", 2)), port("vnet0", 10))


def after_restart(row: BridgeRow, before: BridgeRow) -> BridgeConfig:
    """The configuration of a service that starts; it must be that of one that was running."""
    last = read_bridge(before)
    running = read_bridge(row, last)
    started = read_bridge(with_ids(row, team=last.team.text))
    again = read_bridge(with_ids(row, team=running.team.text), running)
    for config in (started, again):
        for name in ("uplinks", "missing", "team", "errors", "on_bond"):
            assert getattr(config, name) == getattr(running, name), name
    return started


@pytest.mark.parametrize("lacp", [None, "active"])
def test_a_bond_with_one_member_left_stays_the_bond(lacp: str | None) -> None:
    left = replace(bond(interface("eth1", 1)), lacp=lacp)
    before = replace(ON_BOND, ports=(replace(ON_BOND.ports[0], lacp=lacp), ON_BOND.ports[1]))
    config = after_restart(bridge(left, port("vnet0", 10)), before)
    assert (teamed(config), vm_ports(config), config.on_bond) == (["eth1"], ["vnet0"], True)
    assert config.teaming == ("lacp" if lacp else "switch-independent")
    (line,) = told(config)
    assert says(
        line,
        "bond bond0 has only one member",
        "ovs-vsctl --if-exists del-port eth2 -- add-bond-iface bond0 eth2",
    )
    apart = after_restart(bridge(left, port("eth2", 2), port("vnet0", 10)), before)
    assert (vm_ports(apart), apart.missing) == (["vnet0"], ("eth2",))
    assert "ovs-vsctl del-port br0 eth2 -- add-bond-iface bond0 eth2" in told(apart)[0]
    named = read_bridge(
        with_ids(bridge(left, port("eth2", 2), port("vnet0", 10)), uplinks="eth1,eth2"),
        read_bridge(before),
    )
    assert (teamed(named), named.on_bond, told(named)) == (["eth1", "eth2"], False, [])


def test_one_that_was_left_before_the_service_knew_the_team_is_no_vm_port() -> None:
    config = read_bridge(bridge(bond(interface("eth1", 1)), port("vnet0", 10)))
    assert (teamed(config), vm_ports(config), config.on_bond) == (["eth1"], ["vnet0"], True)
    assert says(told(config)[0], "has only one member", "ovs-vsctl add-bond-iface bond0 NAME")


def test_a_bond_that_is_added_does_not_take_the_place_of_plain_uplinks() -> None:
    added = PortRow("bond0", (interface("eth3", 3), interface("eth4", 4)))
    config = after_restart(plain(added, port("vnet0", 10)), plain(port("vnet0", 10)))
    assert (teamed(config), vm_ports(config)) == (["eth1", "eth2"], ["vnet0"])
    assert (config.on_bond, config.missing) == (False, ("eth3", "eth4"))


def test_uplinks_that_become_a_bond_are_one() -> None:
    """In one transaction; and in two, with a bridge without uplinks in between."""
    made, gone = bridge(*ON_BOND.ports), bridge(port("vnet0", 10))
    for row in (made, with_ids(made, uplinks="eth1,eth2")):
        assert read_bridge(row, read_bridge(plain())).on_bond
        assert read_bridge(row, read_bridge(gone, read_bridge(plain()))).on_bond
        assert read_bridge(row, read_bridge(gone, read_bridge(ON_BOND))).on_bond
    parted = plain(port("vnet0", 10))
    config = read_bridge(parted, read_bridge(ON_BOND))
    assert (teamed(config), config.on_bond, told(config)) == (["eth1", "eth2"], False, [])


RENAMED = {
    "removed": (port("eth1", 1),),
    "not openable": (port("eth1", 1), port("eth2", -1)),
    "same address": (port("eth1", 1), port("eth2", 2, mac=MAC)),
}


@pytest.mark.parametrize("case", RENAMED)
def test_what_comes_while_an_uplink_is_gone_is_no_vm_port_until_somebody_says_so(case: str) -> None:
    """It may be that uplink under another name."""
    new, vms = port("ens2", 9, mac=MAC), (port("vnet0", 10), port("veth5", 11, ours(binding="x")))
    ids = ours(policy="load-based", uplinks="eth1,eth2")
    row = bridge(*RENAMED[case], new, *vms, ids=ids, fail_mode="secure")
    config = after_restart(row, plain(*vms))
    assert (vm_ports(config), config.missing) == (["veth5", "vnet0"], ("ens2",))
    line = next(line for line in told(config) if "ens2" in line)
    dead = "" if case == "removed" else "del-port br0 eth2 -- "
    command = f"""ovs-vsctl {dead}set bridge br0 external_ids:ovs-lbt-uplinks='"eth1,ens2"';"""
    assert says(line, "ens2, which may be eth2 under another name, is missing", command)
    is_vm = read_bridge(with_interface(row, "ens2", unit="port"), config)
    assert vm_ports(is_vm) == ["ens2", "veth5", "vnet0"]
    returned = plain(port("ens2", 9), *vms)
    assert vm_ports(read_bridge(returned, config)) == ["ens2", "veth5", "vnet0"], "not for ever"
    ids = ours(policy="load-based", uplinks="eth1,ens2")
    named = read_bridge(bridge(port("eth1", 1), new, *vms, ids=ids, fail_mode="secure"), config)
    assert (teamed(named), told(named)) == (["eth1", "ens2"], [])


def test_a_name_that_never_was_an_uplink_is_no_other_ports_old_name() -> None:
    row = with_ids(plain(port("vnet0", 10), port("veth5", 11)), uplinks="eth1,eth2,eth9")
    for config in (read_bridge(row), after_restart(row, plain(port("vnet0", 10)))):
        assert (teamed(config), config.missing) == (["eth1", "eth2"], ())
        assert vm_ports(config) == ["veth5", "vnet0"]


def test_a_pin_to_an_uplink_that_is_gone_is_in_nobodys_way() -> None:
    """It was a bad value before. `unpin` says what it has removed."""
    ids = ours(policy="load-based", uplinks="eth1,eth2")
    vms = (port("vnet0", 10, ours(pin="eth2")), port("vnet1", 11, ours(pin="eth2")))
    gone = bridge(port("eth1", 1), port("ens2", 9), *vms, ids=ids, fail_mode="secure")
    here = world(gone).start()
    assert says(done(here.ask("unpin", "vnet0")), "no longer pinned to eth2")
    assert says(done(here.ask("unpin", "vnet0")), "had no pin")
    done(here.ask("set", "bridge", "br0", "uplinks=eth1,ens2"))
    config = here.engine.fleet.bridges["br0"].config
    assert teamed(config) == ["eth1", "ens2"]
    (line,) = told(config)
    assert says(line, "Interface vnet1 ovs-lbt-pin: eth2 is invalid; expected one of ens2, eth1")


def test_a_card_on_a_bond_that_is_no_member_is_no_vm_port() -> None:
    """NORMAL would join it with the bond."""
    row = bridge(*ON_BOND.ports, port("eth3", 3, driver="ixgbe"))
    config = after_restart(row, ON_BOND)
    assert (vm_ports(config), config.missing) == (["vnet0"], ("eth3",))
    assert "ovs-vsctl del-port br0 eth3 -- add-bond-iface bond0 eth3" in told(config)[0]


@pytest.mark.parametrize(
    "text", ["", "x", "//", "bond0", "bond0/eth7,eth9/eth2/", "/eth1,eth2/eth9/"]
)
def test_a_stored_team_that_is_none_is_reported_and_written_anew(text: str) -> None:
    here = world(with_ids(ON_BOND, team=text)).start()
    assert here.rows["br0"].external_ids["ovs-lbt-team"] == "bond0/eth1,eth2/"
    assert told(here.engine.fleet.bridges["br0"].config) == []


def test_the_team_is_written_when_it_changes_and_removed_with_the_rest() -> None:
    here = world(ON_BOND).start().run_for(5)
    writes = [write for write in here.commands(Write) if isinstance(write, Write)]
    written = [s.value for write in writes for s in write.settings if s.key == "ovs-lbt-team"]
    assert {*written} == {"bond0/eth1,eth2/"}
    writes_after = len(here.run_for(60).commands(Write))
    assert writes_after == len(writes), "nothing changes"
    here.write(with_ids(here.rows["br0"], uplinks="eth2,eth1")).run_for(1)
    assert here.rows["br0"].external_ids["ovs-lbt-team"] == "bond0/eth2,eth1/"
    done(here.ask("detach", "br0"))
    assert here.rows["br0"].external_ids == {}


# ---- plain uplinks ----------------------------------------------------------------------

NOT_OUT = "which is unusual for an uplink"
OF_A_VM = {
    **{
        key: (port("p3", 3, {key: MAC}), f"is an interface of a VM, because it has {key}")
        for key in ("iface-id", "vm-id", "vm-uuid", "attached-mac")
    },
    "bound": (port("p3", 3, ours(binding="eth1")), "is a VM port, because it has ovs-lbt-binding"),
    "pinned": (port("p3", 3, ours(pin="eth1")), "is a VM port, because it has ovs-lbt-pin"),
    "patch": (port("p3", 3, kind="patch"), f"has type patch, {NOT_OUT}"),
    "internal": (port("p3", 3, kind="internal"), f"has type internal, {NOT_OUT}"),
    "vhost": (
        port("p3", 3, kind="dpdkvhostuserclient"),
        f"has type dpdkvhostuserclient, {NOT_OUT}",
    ),
    "tap": (port("p3", 3, driver="tun"), "is a tap device, which is typical of a VM"),
    "representor": (
        port("eth3", 3, driver="mlx5e_rep", represents=True),
        "is the representor of a VM's virtual function",
    ),
    "libvirt": (port("vnet2", 3), "has a name that libvirt uses for VM interfaces"),
    "Proxmox": (port("tap101i0", 3), "has a name that Proxmox uses for VM interfaces"),
    "LOCAL": (port("br0", 0xFFFE), "is the bridge's own port"),
}
# What operators have as uplinks, and Mininet, containers and laboratories.
LEGITIMATE = {
    "card": port("eth3", 3, driver="ixgbe"),
    "bond of the kernel's": port("bond3", 3, driver="bonding"),
    "VLAN": port("eth3.20", 3, driver="802.1Q VLAN Support"),
    "virtio": port("ens4", 3, driver="virtio_net"),
    "veth": port("s1-eth3", 3, driver="veth"),
    "port of a switchdev card": port("eth3", 3, driver="mlx5_core"),
    "representor by an operator's word": port("eth3", 3, ours(role="active"), represents=True),
    "DPDK": port("dpdk0", 3, kind="dpdk", driver="net_ixgbe"),
    "tunnel": port("vx0", 3, kind="vxlan"),
    "driver not known yet": port("eth3", 3),
    "card that was forgotten": port("eth3", 3, ours(binding="eth1"), driver="ixgbe"),
    "tap by an operator's word": port("tap0", 3, ours(role="active"), driver="tun"),
    "patch by an operator's word": port("up0", 3, ours(role="active"), kind="patch"),
}


@pytest.mark.parametrize("case", OF_A_VM)
def test_what_seems_to_lead_to_a_vm_is_no_uplink(case: str) -> None:
    made, what = OF_A_VM[case]
    row, named = plain(made), f"eth1,eth2,{made.name}"
    error = (
        f"Bridge br0 ovs-lbt-uplinks: {made.name} {what}; if it is an uplink:"
        f" ovs-vsctl set interface {made.name} external_ids:ovs-lbt-role=active"
    )
    here = world(unattached(row)).start()
    assert refusal(here.ask("attach", "br0", f"uplinks={named}")) == error
    here = world(row).start()
    assert refusal(here.ask("set", "bridge", "br0", f"uplinks={named}")) == error
    written = with_ids(row, uplinks=named)
    for config in (read_bridge(written), read_bridge(written, read_bridge(row))):
        assert (teamed(config), vm_ports(config)) == (["eth1", "eth2"], [made.name])
        assert told(config) == [error]


@pytest.mark.parametrize("case", LEGITIMATE)
def test_what_operators_have_as_uplinks_is_taken(case: str) -> None:
    made = LEGITIMATE[case]
    row = plain(made, uplinks=f"eth1,eth2,{made.name}")
    assert (teamed(read_bridge(row)), told(read_bridge(row))) == (["eth1", "eth2", made.name], [])
    here = world(unattached(row)).start()
    done(here.ask("attach", "br0", f"uplinks=eth1,eth2,{made.name}"))


def test_what_comes_to_seem_a_vms_later_stays_an_uplink_while_the_service_runs() -> None:
    row = plain(port("p3", 3), uplinks="eth1,eth2,p3")
    later = plain(port("p3", 3, driver="tun"), uplinks="eth1,eth2,p3")
    config = read_bridge(later, read_bridge(row))
    assert teamed(config) == ["eth1", "eth2", "p3"] and len(config.errors) == 1


LEFT_OUT = "add eth3 and set role=unused; or remove it: ovs-vsctl del-port br0 eth3"


def test_an_uplink_does_not_become_a_vm_port_by_leaving_the_list() -> None:
    """The network would be joined to itself."""
    here = world(plain(port("eth3", 3), port("vnet0", 10), uplinks="eth1,eth2,eth3")).start()
    error = f"Bridge br0 ovs-lbt-uplinks: eth3, an uplink until now, is missing from the uplinks; {LEFT_OUT}"
    assert refusal(here.ask("set", "bridge", "br0", "uplinks=eth1,eth2")) == error
    here.write(with_ids(here.rows["br0"], uplinks="eth1,eth2")).run_for(1)
    config = here.engine.fleet.bridges["br0"].config
    assert (teamed(config), vm_ports(config)) == (["eth1", "eth2", "eth3"], ["vnet0"])
    assert told(config) == [error]
    here.remove_port("eth3").run_for(1)
    config = here.engine.fleet.bridges["br0"].config
    assert (teamed(config), told(config)) == (["eth1", "eth2"], [])


def test_an_uplink_that_an_operator_says_is_a_vm_port_becomes_one() -> None:
    row = plain(port("eth3", 3, ours(unit="port")), uplinks="eth1,eth2")
    config = read_bridge(row, read_bridge(plain(port("eth3", 3), uplinks="eth1,eth2,eth3")))
    assert (teamed(config), vm_ports(config), told(config)) == (["eth1", "eth2"], ["eth3"], [])


def test_a_list_that_is_taken_away_leaves_the_team_as_it_is() -> None:
    row = plain(port("vnet0", 10))
    config = read_bridge(bridge(*row.ports), read_bridge(row))
    assert (teamed(config), vm_ports(config)) == (["eth1", "eth2"], ["vnet0"])
    (error,) = told(config)
    assert says(error, "Bridge br0 ovs-lbt-uplinks: no uplinks", "two or more interface names")


FORGOTTEN = {
    "card": (port("eth3", 3, driver="ixgbe"), "a network card (ixgbe)"),
    "in use": (port("eth3", 3), "an uplink to which VM ports are bound"),
    "role": (port("eth3", 3, ours(role="drained")), "an uplink with ovs-lbt-role"),
}


def test_a_command_quotes_names_for_the_shell() -> None:
    """Such a name would run something when the command is pasted."""
    config = read_bridge(plain(port("$(reboot)", 3, ours(role="drained")), port("vnet0", 10)))
    (error,) = (line for line in told(config) if "ovs-lbt-uplinks" in line)
    assert says(
        error, "ovs-vsctl del-port br0 '$(reboot)';", "ovs-vsctl set interface '$(reboot)' "
    )


@pytest.mark.parametrize("case", FORGOTTEN)
def test_what_seems_to_be_an_uplink_is_no_vm_port(case: str) -> None:
    """Forgotten at an attach, or left out while the service was away: it carries nothing."""
    made, what = FORGOTTEN[case]
    row = plain(made, port("vnet0", 10, ours(binding="eth3") if case == "in use" else None))
    config = read_bridge(row)
    assert (teamed(config), vm_ports(config)) == (["eth1", "eth2"], ["vnet0"])
    assert config.missing == ("eth3",)
    (error,) = (line for line in told(config) if "ovs-lbt-uplinks" in line)
    assert error == (
        f"Bridge br0 ovs-lbt-uplinks: eth3, {what}, is missing from the uplinks; add eth3 as well; or remove it:"
        " ovs-vsctl del-port br0 eth3; or, if it leads to a VM:"
        " ovs-vsctl set interface eth3 external_ids:ovs-lbt-unit=port"
    )
    here = world(unattached(row)).start()
    assert error in refusal(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    said = with_interface(row, "eth3", unit="port")
    assert vm_ports(read_bridge(said)) == ["eth3", "vnet0"]


def test_what_was_in_use_at_a_start_stays_no_vm_port_when_vm_ports_have_left_it() -> None:
    row = plain(port("eth3", 3), port("vnet0", 10, ours(binding="eth3")))
    first = read_bridge(row)
    moved = with_interface(row, "vnet0", binding="eth1")
    config = read_bridge(moved, first)
    assert (vm_ports(config), config.missing) == (["vnet0"], ("eth3",))
    named = read_bridge(with_ids(moved, uplinks="eth1,eth2,eth3"), config)
    assert (teamed(named), told(named)) == (["eth1", "eth2", "eth3"], [])


def test_a_port_that_comes_to_a_bridge_without_uplinks_is_a_vm_port() -> None:
    row = bridge(port("ns1", 10), ids=ours(policy="load-based"))
    config = read_bridge(replace(row, ports=(*row.ports, port("ns2", 11))), read_bridge(row))
    assert (teamed(config), vm_ports(config), config.missing) == ([], ["ns1", "ns2"], ())


def test_a_card_that_is_a_vm_port_already_stays_one() -> None:
    row = plain(port("eth3", 3, ours(binding="eth1"), driver="ixgbe"))
    assert vm_ports(read_bridge(row)) == ["eth3"]


def too_many(spare: int = 1) -> BridgeRow:
    members = [interface(f"eth{i}", i) for i in range(1, MAX_UPLINKS + spare + 1)]
    return bridge(bond(*members), port("vnet0", 100))


def test_a_bond_of_too_many_members_is_not_attached() -> None:
    assert told(read_bridge(too_many(spare=0))) == []
    here = world(unattached(too_many())).start()
    found = "bond bond0 has 65 members; expected at most 64"
    assert found in refusal(here.ask("attach", "br0"))
    assert found in done(here.ask("check", "br0"))
    assert here.commands(Write) == [] and here.applied() == []


def test_a_bond_that_gets_too_many_members_keeps_its_last_team() -> None:
    here = world(too_many(spare=0)).start()
    here.run_for(1)
    before = here.bindings()
    here.write(replace(too_many(), external_ids=here.rows["br0"].external_ids))
    for _ in range(2):
        config = here.engine.fleet.bridges["br0"].config
        assert len(config.uplinks) == MAX_UPLINKS and config.missing == ("eth65",)
        assert told(config) == [
            "Bridge br0 ovs-lbt-uplinks: bond bond0 has 65 members; expected at most 64"
        ]
        assert here.bindings() == before
        here.restart_service()
    assert teamed(read_bridge(too_many())) == [], "NORMAL forwards while no team was ever valid"


def test_too_many_plain_uplinks_are_refused_or_the_last_ones_stay() -> None:
    ports = [port(f"eth{i}", i) for i in range(1, MAX_UPLINKS + 2)]
    names = [one.name for one in ports]
    here = world(bridge(*ports, port("vnet0", 100), ids={})).start()
    assert "2 to 64 interface names" in refusal(
        here.ask("attach", "br0", f"uplinks={','.join(names)}")
    )
    assert here.commands(Write) == [] and here.applied() == []
    row = bridge(*ports[:-1], ids=ours(policy="load-based", uplinks=",".join(names[:-1])))
    last = read_bridge(row)
    config = read_bridge(
        with_ids(bridge(*ports, ids=row.external_ids), uplinks=",".join(names)), last
    )
    assert teamed(config) == names[:-1] and config.missing == (names[-1],)
    assert "2 to 64 interface names" in told(config)[0]
