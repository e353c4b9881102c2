"""A bond of Linux as `ip` shows it, what becomes of it, and what is said about that."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from controller.cli import bonds
from controller.operations import linux_bond
from controller.operations.linux_bond import Host, Links, LinuxBond, Stack
from controller.text.wording import Refused
from tests.said import says

MAC = "02:1b:00:00:00:01"
# What `ip -json -details` of iproute2 6.1 shows, as far as it is read.
ACTIVE_BACKUP = {
    "mode": "active-backup",
    "active_slave": "eth0",
    "miimon": 100,
    "updelay": 200,
    "downdelay": 0,
    "peer_notify_delay": 0,
    "use_carrier": 1,
    "arp_interval": 0,
    "arp_missed_max": 2,
    "arp_validate": None,
    "arp_all_targets": "any",
    "primary": "eth1",
    "primary_reselect": "always",
    "fail_over_mac": "none",
    "xmit_hash_policy": "layer2",
    "resend_igmp": 1,
    "num_peer_notif": 1,
    "all_slaves_active": 0,
    "min_links": 0,
    "lp_interval": 1,
    "packets_per_slave": 1,
    "ad_lacp_active": "on",
    "ad_lacp_rate": "slow",
    "ad_select": "stable",
    "tlb_dynamic_lb": 1,
}
LACP = {**ACTIVE_BACKUP, "mode": "802.3ad", "ad_lacp_rate": "fast", "xmit_hash_policy": "layer3+4"}
del LACP["primary"], LACP["active_slave"]


def links(data: dict[str, Any] | None = None, *more: dict[str, Any], **bond: Any) -> Links:
    info = {"info_kind": "bond", "info_data": data or ACTIVE_BACKUP}
    found: list[dict[str, Any]] = [
        {"ifname": "lo"},
        {"ifname": "eth0", "master": "bond0", "linkinfo": {"info_slave_kind": "bond"}},
        {"ifname": "eth1", "master": "bond0", "linkinfo": {"info_slave_kind": "bond"}},
        {"ifname": "bond0", "address": MAC, "mtu": 1500, "linkinfo": info, **bond},
        *more,
    ]
    return {link["ifname"]: link for link in found}


def vlan(name: str = "bond0.20", **keys: Any) -> dict[str, Any]:
    data = {"protocol": "802.1Q", "id": 20, "flags": ["REORDER_HDR"]}
    info = {"info_kind": "vlan", "info_data": data}
    return {"ifname": name, "link": "bond0", "mtu": 1400, "linkinfo": info, **keys}


def read(shown: Links, bridge: str = "br0", at: str | None = None) -> LinuxBond:
    return linux_bond.read("bond0", shown, bridge, at)


def address(local: str, length: int, **keys: Any) -> dict[str, Any]:
    family = "inet6" if ":" in local else "inet"
    return {"family": family, "local": local, "prefixlen": length, "scope": "global", **keys}


def stack(*addresses: dict[str, Any], routes: str = "", routes6: str = "") -> Stack:
    device = {"ifname": "bond0", "addr_info": list(addresses)}
    return linux_bond.stack(json.dumps([device]), routes, routes6)


# ---- what there is ----------------------------------------------------------------------


def test_the_active_member_moves_last() -> None:
    assert read(links()).members == ("eth1", "eth0")
    assert read(links(ACTIVE_BACKUP | {"active_slave": "eth1"})).members == ("eth0", "eth1")


def test_a_bond_keeps_what_open_vswitch_has_too() -> None:
    bond = read(links())
    assert bond.settings == (
        "bond_mode=active-backup",
        "bond_updelay=200",
        "other_config:bond-primary=eth1",
    )
    assert (bond.mac, bond.mtu_bytes, bond.lost, bond.is_port) == (MAC, 1500, (), False)


def test_lacp_is_negotiated_at_the_same_rate() -> None:
    bond = read(links(LACP))
    assert bond.settings[:3] == (
        "bond_mode=balance-tcp",
        "lacp=active",
        "other_config:lacp-time=fast",
    )
    assert bond.lost == ("xmit_hash_policy layer3+4: the bridge's policy selects uplinks",)
    assert "lacp_rate fast" in " ".join(bond.options)


@pytest.mark.parametrize(("mode", "lost"), [("balance-tlb", 0), ("balance-alb", 1)])
def test_modes_without_a_lag_are_balance_slb(mode: str, lost: int) -> None:
    bond = read(links(ACTIVE_BACKUP | {"mode": mode}))
    assert "bond_mode=balance-slb" in bond.settings
    assert [text.split(" (")[0] for text in bond.lost] == ["receive balancing"] * lost


def test_options_are_those_that_ip_takes_for_the_mode() -> None:
    options = " ".join(read(links()).options)
    assert "miimon 100 updelay 200" in options
    absent = r"lacp|ad_|arp_|tlb_|min_links|num_peer_notif|downdelay|None"
    assert not re.search(absent, options), options
    watched = ACTIVE_BACKUP | {"miimon": 0, "arp_interval": 100, "arp_ip_target": ["192.0.2.1"]}
    bond = read(links(watched))
    assert "arp_interval 100 arp_ip_target 192.0.2.1" in " ".join(bond.options)
    assert bond.lost[0].startswith("ARP monitoring") and "path-check-targets" in bond.lost[0]


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (links(ACTIVE_BACKUP | {"mode": "balance-xor"}), "bond bond0 has mode balance-xor"),
        (links(None, {"ifname": "v", "link": "bond0", "linkinfo": {"info_kind": "macvtap"}}),
            "macvtap v is on bond0, but only VLAN devices move"),
        (links(None, vlan(), {"ifname": "v", "link": "bond0.20", "linkinfo": {"info_kind": "vlan"}}),
            "vlan v is on bond0.20, but "),
        (links(None, master="virbr0"), "bond bond0 is a port of virbr0; "),
        ({name: link for name, link in links().items() if name != "eth1"}, "bond bond0 has fewer than two members"),
        ({name.replace("bond0", "bond9"): link for name, link in links().items()},
            "bond0 is not a Linux bond; the host's bonds are bond9"),
        ({"bond0": {}}, "bond0 is not a Linux bond; this host has no bonds"),
    ],
)  # fmt: skip
def test_what_cannot_move(shown: Links, why: str) -> None:
    with pytest.raises(Refused) as refused:
        read(shown)
    assert str(refused.value).startswith(why)


def test_a_port_of_open_vswitch_stays_on_its_bridge() -> None:
    assert read(links(master="ovs-system"), at="br0").is_port
    with pytest.raises(Refused, match="bond bond0 is a port of bridge br1; attach br1"):
        read(links(master="ovs-system"), at="br1")


# ---- what stands on it ------------------------------------------------------------------


def test_addresses_and_routes_follow_as_they_are() -> None:
    own = stack(
        address("192.0.2.10", 24, broadcast="192.0.2.255", label="bond0"),
        address("192.0.2.11", 24, label="bond0:1", noprefixroute=True, metric=300),
        address("10.0.0.1", 32, address="10.0.0.2", label="bond0"),
        address("192.0.2.12", 24, dynamic=True, valid_life_time=600, preferred_life_time=300),
        address("2001:db8::10", 64),
        address("fe80::1", 64, scope="link"),
        routes="default via 192.0.2.1 proto static metric 100 linkdown\n"
        "192.0.2.0/24 proto kernel scope link src 192.0.2.10\n"
        "local 192.0.2.10 table local proto kernel scope host src 192.0.2.10\n"
        "broadcast 192.0.2.255 table local proto kernel scope link src 192.0.2.10\n"
        "203.0.113.0/24 via 192.0.2.1 table 100 onlink\n",
        routes6="2001:db8::/64 proto kernel metric 256 pref medium\n"
        "fe80::/64 proto kernel metric 256 pref medium\n"
        "default via fe80::2 proto ra metric 1024 expires 1796sec hoplimit 64 pref medium\n"
        "multicast ff00::/8 table local proto kernel metric 256 pref medium\n"
        "local 2001:db8::10 table local proto kernel metric 0 pref medium\n",
    )
    assert own.addresses == (
        "192.0.2.10/24 broadcast 192.0.2.255 scope global",
        "192.0.2.11/24 scope global label DEVICE:1 metric 300 noprefixroute",
        "10.0.0.1 peer 10.0.0.2/32 scope global",
        "192.0.2.12/24 scope global valid_lft 600 preferred_lft 300",
        "2001:db8::10/64 nodad",
    )
    assert own.routes == (
        "192.0.2.0/24 proto kernel scope link src 192.0.2.10",
        "default via 192.0.2.1 proto static metric 100",
        "203.0.113.0/24 via 192.0.2.1 table 100 onlink",
    )
    assert own.routes6 == ("2001:db8::/64 proto kernel metric 256 pref medium",)


def test_a_route_with_several_next_hops_is_refused() -> None:
    with pytest.raises(Refused, match="with one next hop"):
        stack(routes="default nhid 7 via 192.0.2.1\n")


def test_everything_changes_sides_in_one_batch() -> None:
    own = stack(address("192.0.2.10", 24, label="bond0:1"), routes="default via 192.0.2.1\n")
    (on_it,) = linux_bond.vlans(
        "bond0", links(None, vlan(master="virbr20")), lambda _: Stack(("198.51.100.1/24",))
    )
    own = replace(own, routes6=("default via 2001:db8::1",))
    lines, lines6 = linux_bond.moved("bond0", "br0", own, [on_it], {"bond0.20": {}})
    assert lines == [
        "link del bond0.20",
        "link set bond0 down",
        "addr flush dev bond0",
        "link set br0 up",
        "addr replace 192.0.2.10/24 scope global label br0:1 dev br0",
        "route replace default via 192.0.2.1 dev br0",
        "link add link br0 name bond0.20 mtu 1400 type vlan protocol 802.1Q id 20",
        "link set bond0.20 master virbr20",
        "link set bond0.20 up",
        "addr replace 198.51.100.1/24 dev bond0.20",
    ]
    assert lines6 == ["route replace default via 2001:db8::1 dev br0"]


def test_a_label_that_is_too_long_for_the_bridges_name_is_dropped() -> None:
    own = stack(address("192.0.2.10", 24, label="bond0:management"))
    lines, _ = linux_bond.moved("bond0", "br-provider0", own, [], {})
    assert lines[-1] == "addr replace 192.0.2.10/24 scope global dev br-provider0"


# ---- the record, and what is said -------------------------------------------------------


def test_a_record_is_read_as_it_was_written() -> None:
    bond = read(links(LACP))
    assert linux_bond.recorded(linux_bond.record(bond, made_bridge=True)) == (bond, True)
    for text in ("{}", "[]", "bond0", '{"made_bridge": true, "name": "bond0"}'):
        with pytest.raises(Refused, match="expected the value that attach --from-bond stored"):
            linux_bond.recorded(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": ["eth0", "eth1\nnetns exec x sh"]},
        {"options": ["miimon", "100\nlink del eth0"]},
        {"primary": "eth0\n"},
        {"mac": "02:00:00:00:00:01 type dummy"},
        {"options": ["miimon"]},
        {"members": "eth0"},
        {"mtu_bytes": "1500\nlink del eth0"},
    ],
)
def test_a_record_that_another_wrote_becomes_no_command(wrong: dict[str, Any]) -> None:
    """`detach --to-bond` runs `ip -batch` with its words, as root."""
    record = json.loads(linux_bond.record(read(links(LACP)), made_bridge=True)) | wrong
    for text in (json.dumps(record), '{"made_bridge":' + "[" * 5000):
        with pytest.raises(Refused, match="expected the value that attach --from-bond stored"):
            linux_bond.recorded(text)


def moved(data: dict[str, Any] | None = None) -> Host:
    own = stack(address("192.0.2.10", 24), routes="default via 192.0.2.1\n")
    on_it = linux_bond.vlans("bond0", links(data, vlan()), lambda _: Stack())
    return Host(read(links(data)), "br0", own, on_it, (), makes_bridge=True)


def test_the_plan_says_what_moves_and_the_risk() -> None:
    said = bonds.forward(moved()).splitlines()
    parts = [
        ("bond0: ", "active-backup", "eth1, eth0", MAC, "1500"),
        ("becomes: ", "bond0 on br0", *read(links()).settings),
        ("moves to br0: ", "192.0.2.10/24"),
        ("moves to br0: ", "default via 192.0.2.1"),
        ("moves to br0: ", "VLAN 20", "bond0.20"),
        ("risk: ", "ovs-vswitchd"),
    ]
    for line, due in zip(said, parts, strict=False):
        assert says(line, *due)
    assert says(bonds.back(moved()), "becomes: ", "active-backup", "miimon 100")


@pytest.mark.parametrize("data", [ACTIVE_BACKUP, LACP])
def test_what_to_write_names_members_addresses_and_the_mac_address(data: dict[str, Any]) -> None:
    said = bonds.configuration(moved(data))
    _, ifupdown, netplan, networkmanager = said.split("---")[:4]
    for text in (ifupdown, netplan, networkmanager):
        for part in ("eth0", "eth1", "192.0.2.10/24", "192.0.2.1", MAC, "br0", "bond0"):
            assert part in text, part
    parsed = yaml.safe_load(netplan.partition("\n")[2])["network"]
    mode = "balance-tcp" if data is LACP else "active-backup"
    assert parsed["bonds"]["bond0"]["parameters"] == {"mode": mode}
    assert parsed["bridges"]["br0"]["routes"] == [{"to": "default", "via": "192.0.2.1"}]
    assert f"bond_mode={mode}" in ifupdown
    assert f"ovs-port.bond-mode {mode}" in networkmanager


def test_what_to_write_has_every_address_that_lasts() -> None:
    host = moved()
    host.own = Stack(
        (
            "192.0.2.10/24 scope global",
            "192.0.2.11/24 scope global",
            "2001:db8::7/64 nodad",
            "2001:db8::8/64 valid_lft 86400 preferred_lft 14400 nodad",
        ),
        ("default via 192.0.2.1",),
        ("default via 2001:db8::1",),
    )
    said = bonds.configuration(host)
    ifupdown, netplan, networkmanager = said.split("---")[1:4]
    assert ifupdown.partition("inet static\n")[2].partition("    ovs_type")[0].splitlines() == [
        "    address 192.0.2.10/24",
        "    gateway 192.0.2.1",
        "    up ip address add 192.0.2.11/24 dev br0",
        "    up ip address add 2001:db8::7/64 dev br0",
        "    up ip route add default via 2001:db8::1 dev br0",
    ]
    parsed = yaml.safe_load(netplan.partition("\n")[2])["network"]["bridges"]["br0"]
    assert parsed["addresses"] == ["192.0.2.10/24", "192.0.2.11/24", "2001:db8::7/64"]
    assert [route["via"] for route in parsed["routes"]] == ["192.0.2.1", "2001:db8::1"]
    assert "ipv4.addresses 192.0.2.10/24,192.0.2.11/24 ipv4.gateway 192.0.2.1" in networkmanager
    assert "ipv6.addresses 2001:db8::7/64 ipv6.gateway 2001:db8::1" in networkmanager


def test_what_to_write_asks_for_an_address_from_dhcp_instead_of_fixing_it() -> None:
    leased = {"dynamic": True, "valid_life_time": 3600, "preferred_life_time": 1800}
    host = moved()
    routes = "default via 192.0.2.1 proto dhcp"
    host.own = stack(address("192.0.2.10", 24, **leased), address("192.0.2.11", 24), routes=routes)
    said = bonds.configuration(host)
    ifupdown, netplan, networkmanager = said.split("---")[1:4]
    assert ifupdown.partition("inet dhcp\n")[2].partition("    ovs_type")[0].splitlines() == [
        "    up ip address add 192.0.2.11/24 dev br0"
    ]
    parsed = yaml.safe_load(netplan.partition("\n")[2])["network"]["bridges"]["br0"]
    assert parsed["dhcp4"] is True and parsed["addresses"] == ["192.0.2.11/24"]
    assert "routes" not in parsed
    assert "ipv4.method auto ipv4.addresses 192.0.2.11/24 ipv6.method" in networkmanager
    assert "192.0.2.10" not in said and "DHCP client on br0" in said
