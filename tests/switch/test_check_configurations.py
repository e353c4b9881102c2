"""`ovs-lbt check` in healthy configurations finds nothing, and in broken ones first what is wrong.

The commands of each case are those of an operator. After the commands that `check` proposes, it finds nothing
more, and frames are delivered.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from dataclasses import dataclass

import pytest

from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    BALANCE_TCP,
    LACP,
    PLAIN,
    STATIC_LAG,
    Bed,
    BedSpec,
    run,
)
from tests.switch.service import Service
from tests.switch.test_invalid_teams import delivered, each_once
from tests.switch.waiting import wait_until

TEAMS = (PLAIN, STATIC_LAG, ACTIVE_BACKUP, BALANCE_SLB, LACP, BALANCE_TCP)
SPECS = {team: BedSpec(team, 2, (None, None, None)) for team in TEAMS}
BROADCASTS = 12
# A command that a finding proposes, behind what is wrong.
PROPOSED = re.compile(r": (ovs-(?:vsctl|lbt|ofctl) [^;]+?)(?:, (?:or|and) .*)?(?:;|$)")
MIRROR = "ovs-vsctl -- --id=@p get port {} -- --id=@m create mirror name=m select_all=true output_port=@p"
MIRROR += " -- set bridge br0 mirrors=@m"
PATCH = "add-port {0} {1} -- set interface {1} type=patch options:peer={2}"
# Notes about what an operator may have forgotten.
NOTES = ("drained", "port-down")


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration of a bed with a team. `undo` leads back where nothing else does.

    `found`: the kind of the first finding. `by_hand`: what the finding tells to do without a command.
    """

    team: str
    do: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    found: str = ""
    by_hand: str = ""


def on(team: str, *do: str, undo: str = "", found: str = "", by_hand: str = "") -> Case:
    return Case(team, do, (undo,) if undo else (), found, by_hand)


def by_lbt(team: str, record: str, setting: str) -> Case:
    key = setting.partition("=")[0]
    return on(team, f"ovs-lbt set {record} {setting}", undo=f"ovs-lbt set {record} {key}=")


def switched_on(column: str) -> Case:
    setting = f"ovs-vsctl set bridge br0 {column}="
    return on(BALANCE_SLB, f"{setting}true", undo=f"{setting}false")


# `br0`, `bond0`, `eth0`, `vnet0` and the like are replaced, and `tor` stands for the upstream switch.
HEALTHY = {
    **{team: on(team) for team in TEAMS},
    "observe on a bond": by_lbt(BALANCE_SLB, "bridge br0", "mode=observe"),
    "RSTP": switched_on("rstp_enable"),
    "multicast snooping": switched_on("mcast_snooping_enable"),
    "forward-bpdu": switched_on("other_config:forward-bpdu"),
    "flood_vlans": on(
        BALANCE_SLB,
        "ovs-vsctl set bridge br0 flood_vlans=7",
        undo="ovs-vsctl clear bridge br0 flood_vlans",
    ),
    "mirror": on(BALANCE_SLB, MIRROR.format("vnet2"), undo="ovs-vsctl clear bridge br0 mirrors"),
    "standby uplink": by_lbt(PLAIN, "interface eth1", "role=standby"),
    "path checks": by_lbt(PLAIN, "bridge br0", "path-check=on"),
    "BFD": on(
        PLAIN,
        "ovs-vsctl set interface eth0 bfd:enable=true -- set interface eth1 bfd:enable=true",
        "tor ovs-vsctl set interface end0 bfd:enable=true -- set interface end1 bfd:enable=true",
        undo="ovs-vsctl set interface eth0 bfd:enable=false -- set interface eth1 bfd:enable=false",
    ),
    "uplinks with QoS": on(
        PLAIN,
        "ovs-vsctl set port eth0 qos=@q -- --id=@q create qos type=linux-htb other-config:max-rate=1000000000",
        undo="ovs-vsctl clear port eth0 qos -- --all destroy qos",
    ),
    "passive controller": on(
        BALANCE_SLB,
        "ovs-vsctl set-controller br0 ptcp:16634:127.0.0.1",
        undo="ovs-vsctl del-controller br0",
    ),
    "Proxmox: host address in a VLAN": on(
        ACTIVE_BACKUP,
        "ovs-vsctl add-port br0 int0 tag=5 -- set interface int0 type=internal",
        undo="ovs-vsctl del-port int0",
    ),
    "XCP-ng: fake bridge": on(
        BALANCE_SLB, "ovs-vsctl add-br fake0 br0 33", undo="ovs-vsctl del-br fake0"
    ),
    "OVN, OpenNebula, OpenShift: patch port": on(
        BALANCE_SLB,
        "ovs-vsctl add-br brin -- set bridge brin datapath_type=netdev -- "
        + PATCH.format("brin", "pin", "pout")
        + " -- "
        + PATCH.format("br0", "pout", "pin"),
        "ovs-lbt set bridge br0 patch-unit=source-mac",
        undo="ovs-vsctl del-port br0 pout -- del-br brin",
    ),
}

BROKEN = {
    "uplink set down": on(PLAIN, "ip link set eth1 down", found="uplink-down"),
    "uplink down by mod-port": on(PLAIN, "ovs-ofctl mod-port br0 eth1 down", found="uplink-down"),
    "uplink no-forward": on(PLAIN, "ovs-ofctl mod-port br0 eth1 no-forward", found="port-flag"),
    "VM no-receive": on(PLAIN, "ovs-ofctl mod-port br0 vnet0 no-receive", found="port-flag"),
    "VM device down": on(PLAIN, "ip link set vnet0 down", found="port-down"),
    "access tag on an uplink": on(PLAIN, "ovs-vsctl set port eth1 tag=10", found="untagged"),
    "access tag on a bond": on(BALANCE_SLB, "ovs-vsctl set port bond0 tag=10", found="untagged"),
    "mirror to an uplink": on(PLAIN, MIRROR.format("eth1"), found="not-done"),
    "key with a typing error": on(
        PLAIN, "ovs-vsctl set bridge br0 external_ids:ovs-lbt-treshold=60", found="bad-value"
    ),
    "key in other_config": on(
        PLAIN, "ovs-vsctl set bridge br0 other_config:ovs-lbt-threshold=60", found="bad-value"
    ),
    "key on a Port record": on(
        PLAIN, "ovs-vsctl set port vnet0 external_ids:ovs-lbt-pin=eth1", found="bad-value"
    ),
    "role on a VM port": on(
        PLAIN, "ovs-vsctl set interface vnet0 external_ids:ovs-lbt-role=standby", found="bad-value"
    ),
    "pin that is not allowed": on(
        PLAIN,
        "ovs-vsctl set interface vnet0 external_ids:ovs-lbt-pin=eth0 external_ids:ovs-lbt-allow=eth1",
        undo="ovs-vsctl remove interface vnet0 external_ids ovs-lbt-allow",
        found="rule-broken",
    ),
    "stale drain": on(PLAIN, "ovs-lbt drain eth1", found="drained"),
    "unused uplink": on(PLAIN, "ovs-lbt set interface eth1 role=unused", found="no-failover"),
    "flow of another program": on(
        PLAIN, "ovs-ofctl add-flow br0 priority=60000,arp,actions=drop", found="overruled"
    ),
    "flow of another program, by address, on a bridge without OpenFlow 1.0": on(
        BALANCE_SLB,
        "ovs-vsctl set bridge br0 protocols=OpenFlow13",
        "ovs-ofctl -O OpenFlow13 add-flow br0 priority=60000,ip,nw_src=192.0.2.0/24,actions=drop",
        undo="ovs-vsctl clear bridge br0 protocols",
        found="overruled",
    ),
    "port flag on a bridge without OpenFlow 1.0": on(
        PLAIN,
        "ovs-vsctl set bridge br0 protocols=OpenFlow13",
        "ovs-ofctl -O OpenFlow13 mod-port br0 eth1 no-forward",
        undo="ovs-vsctl clear bridge br0 protocols",
        found="port-flag",
    ),
    "unknown uplink": on(
        PLAIN,
        """ovs-vsctl set bridge br0 'external_ids:ovs-lbt-uplinks="eth0,eth9"'""",
        found="bad-value",
    ),
    "uplinks that are no longer named": on(
        PLAIN, "ovs-vsctl remove bridge br0 external_ids ovs-lbt-uplinks", found="bad-value"
    ),
    "uplink on another bridge": on(
        PLAIN,
        "ovs-vsctl add-br bro -- set bridge bro datapath_type=netdev -- del-port eth1"
        " -- add-port bro eth1",
        undo="ovs-vsctl del-br bro",
        found="bad-value",
    ),
    "member on another bridge": on(
        BALANCE_SLB,
        "ovs-vsctl add-br bro -- set bridge bro datapath_type=netdev"
        " -- del-bond-iface bond0 eth1 -- add-port bro eth1",
        undo="ovs-vsctl del-br bro",
        found="bad-value",
    ),
    "BFD on one end": on(PLAIN, "ovs-vsctl set interface eth1 bfd:enable=true", found="silent"),
    "LACP on one end": on(
        LACP,
        "tor ovs-vsctl set port bond0 lacp=off",
        found="silent",
        by_hand="tor ovs-vsctl set port bond0 lacp=active",
    ),
    "LACP that was disabled": on(
        BALANCE_SLB,
        "ovs-vsctl set port bond0 lacp=active",
        "sleep 4",
        "ovs-vsctl set port bond0 lacp=off",
        found="uplink-down",
    ),
    "controller of another program": on(
        BALANCE_SLB, "ovs-vsctl set-controller br0 tcp:127.0.0.1:16699", found="hidden-flows"
    ),
    "protocols": on(
        BALANCE_SLB, "ovs-vsctl set bridge br0 protocols=OpenFlow10", found="not-connected"
    ),
    "flow-restore-wait": on(
        BALANCE_SLB,
        "ovs-vsctl set Open_vSwitch . other_config:flow-restore-wait=true",
        found="not-done",
    ),
    "fail mode": on(PLAIN, "ovs-vsctl set-fail-mode br0 standalone", found="not-done"),
    "emergency reset of the database": on(PLAIN, "ovs-vsctl emer-reset", found="not-done"),
    "MTU": on(
        PLAIN,
        "ip link set eth1 mtu 1400",
        found="mtu",
        by_hand="ip link set eth1 mtu 1500",
    ),
}


def of(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """The cases, with the bed of each. Beds are reused, so cases of one team follow one another."""
    ordered = sorted(cases, key=lambda name: TEAMS.index(cases[name].team))
    pairs = [pytest.param(SPECS[cases[n].team], cases[n], id=n) for n in ordered]
    return pytest.mark.parametrize(("bed", "case"), pairs, indirect=["bed"])


@of(HEALTHY)
def test_nothing_is_found_in_a_healthy_configuration(
    attached: Bed, service: Service, case: Case
) -> None:
    perform(attached, service, case.do)
    try:
        stations = [*attached.vms, *attached.hosts] * BROADCASTS
        attached.fire([attached.frame_of(station) for station in stations])
        wait_until(lambda: not problems(attached, service), "nothing is found", 15)
    finally:
        perform(attached, service, case.undo)
    wait_until(lambda: not problems(attached, service), "nothing is found afterwards")


@of(BROKEN)
def test_the_fault_is_found_first_and_the_proposed_command_ends_it(
    attached: Bed, service: Service, case: Case
) -> None:
    perform(attached, service, case.do)
    wait_until(
        lambda: case.found in [one["check"] for one in asked(attached, service)], "it is found", 20
    )
    told = asked(attached, service)
    assert told[0]["check"] == case.found, told
    for _ in range(4):
        proposals = [PROPOSED.search(one["text"].partition(";")[2]) for one in told]
        command = next((match[1] for match in proposals if match), "") or case.by_hand
        # A link may be down for a moment after the command.
        perform(attached, service, (command,) if command else ())
        before, end_s = told[0], time.monotonic() + 20
        while told and told[0] == before:
            assert time.monotonic() < end_s, f"{command} does not end {before}"
            told = asked(attached, service)
        if not told:
            break
    perform(attached, service, case.undo)
    wait_until(lambda: not asked(attached, service), "nothing is found")
    wait_until(lambda: each_once(attached, delivered(attached)), "frames are delivered")


def perform(bed: Bed, service: Service, commands: tuple[str, ...]) -> None:
    """Run commands, in which the bed's names replace those of the documents."""
    names = {"br0": bed.bridge, "bond0": bed.bond}
    for number, uplink in enumerate(bed.uplinks):
        names |= {f"eth{number}": uplink.name, f"end{number}": uplink.upstream_end.interface}
    names |= {f"vnet{number}": vm.port for number, vm in enumerate(bed.vms)}
    for command in commands:
        command = re.sub(
            r"\b(?:br|bond|eth|end|vnet)\d\b", lambda m: names.get(m[0], m[0]), command
        )
        program, *words = shlex.split(command)
        if program == "ovs-lbt":
            service.do(*words)
        elif program == "ip":
            run(program, *words)
        elif program == "sleep":
            time.sleep(float(words[0]))
        elif program == "tor":
            bed.tor.ovs.run(*words)
        else:
            bed.ovs.run(program, *words)


def asked(bed: Bed, service: Service) -> list[dict[str, str]]:
    """The findings that ask for a change, and the notes that do."""
    told = json.loads(service.command("check", bed.bridge, "--json").stdout)["findings"]
    return [one for one in told if one["severity"] != "note" or one["check"] in NOTES]


def problems(bed: Bed, service: Service) -> list[dict[str, str]]:
    return [one for one in asked(bed, service) if one["severity"] != "note"]
