"""Which interfaces are uplinks: no VM port becomes one by mistake, and none is taken for a VM's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import Write
from controller.api.events import PortChanged, PortState
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, PortRow
from controller.config.values import BridgeConfig
from policies.model import MAX_UPLINKS
from tests.goldens.adapter import changed
from tests.said import says
from tests.unit.controller.story import Story
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


class MembershipStory(Story):
    """With steps about what ports are taken for."""

    def do_port(self, name: str, number: str, *words: str) -> None:
        """A port comes, with these keys and columns."""
        row, state = self.rows["br0"], PortState(int(number), name, True, 1e9)
        ports = tuple(sorted((*row.ports, port(name, int(number))), key=lambda p: p.name))
        self.switch.ports[state.ofport] = state
        self.say(PortChanged("br0", state))
        self.write(changed(replace(row, ports=ports), words))

    def do_second_bond(self, name: str) -> None:
        """A bond of eth3 and eth4 comes."""
        members, row = (interface("eth3", 3), interface("eth4", 4)), self.rows["br0"]
        ports = tuple(sorted((*row.ports, PortRow(name, members)), key=lambda p: p.name))
        self.write(replace(row, ports=ports))

    def do_team(self, *names: str) -> None:
        assert teamed(self.bridge.config) == [*names]

    def do_vms(self, *names: str) -> None:
        assert vm_ports(self.bridge.config) == [*names]

    def do_missing(self, *names: str) -> None:
        assert self.bridge.config.missing == names

    def do_on_bond(self, on_bond: str) -> None:
        assert self.bridge.config.on_bond is (on_bond == "yes")


def also_after_restart(change: str, found: str) -> str:
    """What a service that was running has is what one has that starts."""
    return f"{change} | {found} | restart | {found}"


NOT_MEMBERS = "are not the members of bond0; name all members and no others: eth1, eth2"
LEFT_OUT = """Bridge br0 ovs-lbt-uplinks: eth3, an uplink until now, is missing from the uplinks; add eth3
    and set role=unused; or remove it: ovs-vsctl del-port br0 eth3"""
INTO_BOND = "add-bond-iface bond0"
STORIES = {
    # Asked for by a command, or written straight to the database; also at a start.
    **{
        f"uplinks on a bond are its members, not {named}": f"""bond | ask set bridge br0 uplinks={named}
        | refused Bridge br0 ovs-lbt-uplinks: {named} {NOT_MEMBERS}
        | do set bridge br0 uplinks=eth2,eth1 | set uplinks={named} | team eth2 eth1 | bound 1212
        | errors Bridge br0 ovs-lbt-uplinks: {named} {NOT_MEMBERS} | restart | team eth2 eth1
        | vms vnet0 vnet1 vnet2 vnet3"""
        for named in ("eth1,vnet0", "eth1,eth2,vnet0", "vnet0,vnet1")
    },
    "attach to a bond with other uplinks": f"""bond unattached | ask attach br0 uplinks=eth1,vnet0
        | refused Bridge br0 ovs-lbt-uplinks: eth1,vnet0 {NOT_MEMBERS} | column external_ids {{}}""",
    "members of a second bond": also_after_restart(
        "bond vms=1 | second-bond bond1",
        """team eth1 eth2 | vms vnet0 | on-bond yes | missing eth3 eth4
        | errors …bond1 (eth3, eth4) is a bond in addition…ovs-vsctl del-port br0 bond1…""",
    ),
    # They may lead to two networks. A bridge that was attached so before keeps them.
    "uplinks of two bonds": """bond vms=1 unattached | second-bond bond1 | ask attach br0
        | refused …2 bonds (bond0, bond1); keep one… | ask attach br0 uplinks=eth1,eth2,eth3,eth4
        | refused …bond members: eth1, eth2, eth3, eth4; name the members of one bond…
        | ask attach br0 uplinks=eth1,eth2 | refused …bond1 (eth3, eth4)…
        | set policy=load-based uplinks=eth1,eth2,eth3,eth4 | team eth1 eth2 eth3 eth4""",
    **{
        f"a bond with one member left: {kind}": also_after_restart(
            f"{kind} vms=1 | leave eth2",
            f"""team eth1 | vms vnet0 | on-bond yes | shows br0 teaming={teaming}
            | errors …bond bond0 has only one member…ovs-vsctl --if-exists del-port eth2 -- {INTO_BOND}
            eth2…""",
        )
        + f""" | port eth2 2 | vms vnet0 | missing eth2
        | errors …ovs-vsctl del-port br0 eth2 -- {INTO_BOND} eth2… | set uplinks=eth1,eth2
        | team eth1 eth2 | on-bond no | errors"""
        for kind, teaming in (("bond", "switch-independent"), ("lacp", "lacp"))
    },
    "a bond of one member from the start": f"""bond uplinks=1 vms=1 | team eth1 | vms vnet0 | on-bond yes
        | errors …has only one member…ovs-vsctl {INTO_BOND} NAME…""",
    "a bond that is added does not take the place of plain uplinks": also_after_restart(
        "plain vms=1 | second-bond bond0",
        "team eth1 eth2 | vms vnet0 | on-bond no | missing eth3 eth4",
    ),
    "a name that never was an uplink is no other port's old name": also_after_restart(
        "plain vms=1 | port veth5 11 | set uplinks=eth1,eth2,eth9",
        "team eth1 eth2 | missing | vms veth5 vnet0",
    ),
    "a pin to an uplink that is gone is in nobody's way": """plain vms=2 vnet0.pin=eth2 vnet1.pin=eth2
        | del eth2 | port ens2 9 | ask unpin vnet0 | told …no longer pinned to eth2… | ask unpin vnet0
        | told …had no pin… | do set bridge br0 uplinks=eth1,ens2 | team eth1 ens2
        | errors …Interface vnet1 ovs-lbt-pin: eth2 is invalid; expected one of ens2, eth1…""",
    # NORMAL would join it with the bond.
    "a card on a bond that is no member": also_after_restart(
        "bond vms=1 | port eth3 3 eth3@driver=ixgbe",
        f"vms vnet0 | missing eth3 | errors …ovs-vsctl del-port br0 eth3 -- {INTO_BOND} eth3…",
    ),
    **{
        f"a stored team that is none is written anew: {text}": f"""bond vms=1 team={text} | errors
        | keys br0 policy=load-based team=bond0/eth1,eth2/"""
        for text in ("x", "//", "bond0", "bond0/eth7,eth9/eth2/", "/eth1,eth2/eth9/")
    },
    "the team is written when it changes": """bond vms=1 | run 5
        | keys br0 policy=load-based team=bond0/eth1,eth2/ | watch | run 60 | unwritten
        | set uplinks=eth2,eth1 | run 1
        | keys br0 policy=load-based uplinks=eth2,eth1 team=bond0/eth2,eth1/ | do detach br0 | keys br0""",
    "what comes to seem a VM's later stays an uplink": """plain vms=0
        | port p3 3 uplinks=eth1,eth2,p3 | errors | set p3@driver=tun | team eth1 eth2 p3 | errors …p3…""",
    # The network would be joined to itself.
    "an uplink does not become a VM port by leaving the list": f"""plain uplinks=3 vms=1
        | ask set bridge br0 uplinks=eth1,eth2 | refused {LEFT_OUT} | set uplinks=eth1,eth2 | run 1
        | team eth1 eth2 eth3 | vms vnet0 | errors {LEFT_OUT} | del eth3 | run 1 | team eth1 eth2
        | errors""",
    "an uplink that an operator says is a VM port": """plain uplinks=3 vms=0
        | set uplinks=eth1,eth2 eth3.unit=port | team eth1 eth2 | vms eth3 | errors""",
    "a bond that is replaced by plain ports": """plain vms=1 | set uplinks= | set :fail_mode=None
        | errors …to name the previous uplinks: ovs-vsctl set bridge…eth1,eth2… | ask show br0
        | told …the uplinks will form a loop…ovs-vsctl set-fail-mode br0 secure…""",
    "a list that is taken away": """plain vms=1 | set uplinks= | team eth1 eth2 | vms vnet0
        | errors Bridge br0 ovs-lbt-uplinks: no uplinks…to name the previous uplinks: ovs-vsctl set bridge…eth1,eth2…""",
}


@pytest.mark.parametrize("story", STORIES)
def test_membership(story: str) -> None:
    MembershipStory(STORIES[story]).tell()


# ---- read without a service ------------------------------------------------------------------


def test_a_member_that_a_list_does_not_name_yet_is_an_uplink_and_never_a_vm_port() -> None:
    row = host(uplinks=3)
    config = read_bridge(with_ids(row, uplinks="eth2,eth1"), read_bridge(row))
    assert teamed(config) == ["eth1", "eth2", "eth3"], "the last good value"
    assert teamed(read_bridge(with_ids(row, uplinks="eth2,eth1"))) == ["eth2", "eth1", "eth3"]


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
    role = f"ovs-vsctl set interface {made.name} external_ids:ovs-lbt-role=active"
    remedy = f"if it is an uplink: {role}"
    if case == "LOCAL":
        remedy = "name the ports that lead to the network"
    error = f"Bridge br0 ovs-lbt-uplinks: {made.name} {what}; {remedy}"
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
