"""Converts a Linux bond, its addresses, routes and VLANs to an Open vSwitch bond, or refuses to.

Reads the output of `ip -json`, and returns commands for `ip -batch` and arguments for `ovs-vsctl`.
`controller/from_linux_bond.py` runs these commands.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from typing import Any

from controller.dataplane import frames
from controller.text.wording import Refused

# The output of `ip -details -json link show`, keyed by the name of the device.
Links = Mapping[str, Mapping[str, Any]]
# The key of a Port that stores the Linux bond which the Port replaces.
RECORD = "ovs-lbt-linux-bond"
WORD = re.compile(r"\S+")
MODES = {
    "active-backup": "active-backup",
    "802.3ad": "balance-tcp",
    "balance-tlb": "balance-slb",
    "balance-alb": "balance-slb",
}
LACP = "802.3ad"
# The options that a restored Linux bond gets from the old bond. The options of the LACP actor
# (ad_actor_system, ad_actor_sys_prio, ad_user_port_key) are missing: `ip link add` rejects them.
OPTIONS = (
    *("miimon", "updelay", "downdelay", "use_carrier", "arp_interval", "arp_validate"),
    *("arp_ip_target", "primary_reselect", "fail_over_mac", "xmit_hash_policy", "resend_igmp"),
    *("num_peer_notif", "all_slaves_active", "min_links", "lp_interval"),
    *("ad_lacp_rate", "ad_select", "tlb_dynamic_lb", "peer_notify_delay", "ad_lacp_active"),
)
# The names that `ip link add` accepts, for options that `ip` shows under another name.
TAKEN_AS = {
    "ad_lacp_rate": "lacp_rate",
    "ad_lacp_active": "lacp_active",
    "num_peer_notif": "num_grat_arp",
}
# The mode of each option that only one mode has.
MODE_OF = {
    **dict.fromkeys(("ad_lacp_rate", "ad_select", "ad_lacp_active", "min_links"), LACP),
    "tlb_dynamic_lb": "balance-tlb",
}
ZERO_IS_NONE = {"arp_interval", "updelay", "downdelay", "peer_notify_delay"}
ESSENTIAL = {"miimon", "updelay", "downdelay", "arp_interval", "arp_ip_target", "lacp_rate"}
# Routes that the kernel creates automatically when an address is configured.
LOCAL_KINDS = {"local", "broadcast", "anycast", "multicast"}
# States of a route that `ip` shows, but does not accept as input.
STATES = {"linkdown", "dead", "offload", "rt_offload", "trap"}
IFNAME_MAX = 15


@dataclass(frozen=True, slots=True)
class Stack:
    """The addresses and routes of a device, as `ip` accepts them, without the device's name."""

    addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    routes6: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vlan:
    """A VLAN device on the bond. `make`: the words that follow its name in `ip link add`."""

    name: str
    tag: int
    make: str
    mtu_bytes: int
    master: str | None
    stack: Stack


@dataclass(frozen=True, slots=True)
class LinuxBond:
    """A Linux bond. `is_port`: it is a bridge's port. `members`: in the order in which they move.

    `options`: for `ip link add`. `settings`: the new Port's columns. `lost`: settings without a column.
    """

    name: str
    mode: str
    mac: str
    mtu_bytes: int
    members: tuple[str, ...]
    options: tuple[str, ...]
    settings: tuple[str, ...]
    lost: tuple[str, ...]
    is_port: bool
    primary: str | None


@dataclass(slots=True)
class Host:
    """The host's network configuration, as read before it is changed.

    `own`, `vlans`: the addresses, routes and VLANs of the device that has the host's addresses.
    `answering`: the gateways that answer. `cut`: whether the move of `own` and `vlans` has begun.
    """

    bond: LinuxBond
    bridge: str
    own: Stack
    vlans: tuple[Vlan, ...]
    answering: tuple[str, ...]
    makes_bridge: bool
    cut: bool = False

    @property
    def announcements(self) -> list[bytes]:
        """Frames that announce the host's MAC address on its new uplink to switches and to peers.

        In mode balance-alb, peers have cached the MAC addresses of bond members for the host.
        """
        stacks = [(None, self.own), *((vlan.tag, vlan.stack) for vlan in self.vlans)]
        mac, made = self.bond.mac, list[bytes]()
        for tag, stack in stacks:
            made.append(frames.rarp(mac, tag))
            plain = (re.split("[/ ]", address)[0] for address in stack.addresses)
            made += [frames.garp(mac, IPv4Address(ip), tag) for ip in plain if ":" not in ip]
        return made


def read(name: str, links: Links, bridge: str, bridge_of_bond: str | None) -> LinuxBond:
    """Return the bond `name`. `links`: descriptions of all links.

    `bridge_of_bond`: the Open vSwitch bridge that has the bond as a port.

    Raises:
        Refused: the bond does not exist, or cannot be replaced by an Open vSwitch bond.
    """
    bonds = sorted(n for n, link in links.items() if _kind(link) == "bond")
    if name not in bonds:
        there = f"the host's bonds are {', '.join(bonds)}" if bonds else "this host has no bonds"
        raise Refused(f"{name} is not a Linux bond; {there}")
    link = links[name]
    data: dict[str, Any] = link["linkinfo"]["info_data"]
    members = [other for other, of in links.items() if of.get("master") == name]
    _refuse_stacked(name, links)
    mode = data["mode"]
    if mode not in MODES:
        found = f"bond {name} has mode {mode}, but Open vSwitch does not support a LAG without LACP"
        raise Refused(f"{found}; expected one of {', '.join(MODES)}")
    if len(members) < 2:
        raise Refused(f"bond {name} has fewer than two members")
    if bridge_of_bond not in (None, bridge):
        raise Refused(f"bond {name} is a port of bridge {bridge_of_bond}; attach {bridge_of_bond}")
    if bridge_of_bond is None and (master := link.get("master")):
        expected = "expected a bond with its own addresses, or a port of an Open vSwitch bridge"
        raise Refused(f"bond {name} is a port of {master}; {expected}")
    last = data.get("active_slave") or members[0]
    ordered = (*(m for m in members if m != last), last)
    return LinuxBond(
        name,
        mode,
        link["address"],
        link["mtu"],
        ordered,
        tuple(_options(data)),
        tuple(_settings(data)),
        tuple(_lost(data)),
        bridge_of_bond is not None,
        data.get("primary"),
    )


def vlans(name: str, links: Links, stack_on: Callable[[str], Stack]) -> tuple[Vlan, ...]:
    """Return the VLAN devices on device `name`, in the order of their names."""
    found = list[Vlan]()
    for device in vlan_names(name, links):
        link, data = links[device], links[device]["linkinfo"]["info_data"]
        words = ["type", "vlan", "protocol", data["protocol"], "id", str(data["id"])]
        for option in ("ingress_qos", "egress_qos"):
            if maps := data.get(option):
                pairs = (f"{one['from']}:{one['to']}" for one in maps)
                words += [f"{option}-map".replace("_", "-"), *pairs]
        made, own = " ".join(words), stack_on(device)
        found.append(Vlan(device, data["id"], made, link["mtu"], link.get("master"), own))
    return tuple(sorted(found, key=lambda vlan: vlan.name))


def vlan_names(device: str, links: Links) -> tuple[str, ...]:
    """Return the names of the VLAN devices on `device`."""
    on_it = (name for name, one in links.items() if one.get("link") == device)
    return tuple(name for name in on_it if _kind(links[name]) == "vlan")


def stack(addresses: str, routes: str, routes6: str) -> Stack:
    """Return the addresses and routes that are configured on a device.

    `addresses`: the output of `ip -json address show dev DEVICE`. `routes`, `routes6`: the output of
    `ip route show table all dev DEVICE` for IPv4 and for IPv6.
    """
    (device,) = json.loads(addresses) or [{"addr_info": []}]
    # The kernel derives link-local addresses from the device's MAC address.
    moved = (i for i in device["addr_info"] if (i["family"], i["scope"]) != ("inet6", "link"))
    taken = [_address(info, device["ifname"]) for info in moved]
    return Stack(tuple(taken), _routes(routes), _routes(routes6))


def moved(
    old: str, new: str, own: Stack, on_it: Sequence[Vlan], links: Links
) -> tuple[list[str], list[str]]:
    """Return two lists of lines that move addresses, routes and VLANs from device `old` to `new`.

    The first list is for `ip -batch`; the second one configures IPv6 routes and is for `ip -6 -batch`.
    """
    lines = [f"link del {vlan.name}" for vlan in on_it if vlan.name in links]
    lines += [f"link set {old} down", f"addr flush dev {old}", f"link set {new} up"]
    lines += _stacked(new, own)
    for vlan in on_it:
        lines.append(f"link add link {new} name {vlan.name} mtu {vlan.mtu_bytes} {vlan.make}")
        if vlan.master:
            lines.append(f"link set {vlan.name} master {vlan.master}")
        lines += [f"link set {vlan.name} up", *_stacked(vlan.name, vlan.stack)]
    stacks = {new: own} | {vlan.name: vlan.stack for vlan in on_it}
    routes6 = ((route, at) for at, stack in stacks.items() for route in stack.routes6)
    return lines, [f"route replace {route} dev {at}" for route, at in routes6]


def made_anew(bond: LinuxBond, options: Sequence[str]) -> list[str]:
    """Return lines for `ip -batch` that create the Linux bond again, without members."""
    device = f"{bond.name} address {bond.mac} mtu {bond.mtu_bytes}"
    return [f"link add {device} type bond mode {bond.mode} {' '.join(options)}"]


def essential(bond: LinuxBond) -> tuple[str, ...]:
    """Return the options that the bond needs to detect link failures, and to negotiate LACP."""
    pairs = zip(bond.options[::2], bond.options[1::2], strict=True)
    return tuple(word for pair in pairs if pair[0] in ESSENTIAL for word in pair)


def record(bond: LinuxBond, made_bridge: bool) -> str:
    """Return the bond as text, to be stored on the Port that replaces the bond."""
    return json.dumps({**asdict(bond), "made_bridge": made_bridge}, separators=(",", ":"))


def recorded(text: str) -> tuple[LinuxBond, bool]:
    """Return the bond from the output of `record`, and whether the bridge was created for it.

    Raises:
        Refused: `text` was not written by `record`.
    """
    try:
        values = json.loads(text)
        made_bridge = bool(values.pop("made_bridge"))
        tuples: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        bond = LinuxBond(**tuples)
        lists = bond.members, bond.options, bond.settings
        words = (bond.name, bond.mode, bond.mac, bond.primary or "-", *itertools.chain(*lists))
        # The words become lines of `ip -batch`, where a line break would begin another command.
        good = all(isinstance(one, tuple) for one in lists) and not len(bond.options) % 2
        if not (good and type(bond.mtu_bytes) is int and all(map(WORD.fullmatch, words))):
            raise ValueError(text)
        return bond, made_bridge
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        found = f"Port external_ids:{RECORD} is {text}"
        raise Refused(f"{found}; expected the value that attach --from-bond stored") from None


def _refuse_stacked(name: str, links: Links) -> None:
    """Refuse devices on the bond that are not VLANs, and devices on the bond's VLANs."""
    movable = vlan_names(name, links)
    for device, link in links.items():
        on = link.get("link")
        if (on == name and device not in movable) or on in movable:
            kind = _kind(link) or "device"
            only = "only VLAN devices move with the bond"
            raise Refused(f"{kind} {device} is on {on}, but {only}; remove {device} first")


def _options(data: Mapping[str, Any]) -> Iterator[str]:
    mode = data["mode"]
    for option in OPTIONS:
        value = data.get(option)
        unset = value is None or (option in ZERO_IS_NONE and not value)
        without_arp = option.startswith("arp_") and not data.get("arp_interval")
        if not (unset or without_arp) and MODE_OF.get(option, mode) == mode:
            values = value if isinstance(value, list) else [value]
            yield from (TAKEN_AS.get(option, option), ",".join(map(str, values)))


def _settings(data: Mapping[str, Any]) -> Iterator[str]:
    mode = data["mode"]
    yield f"bond_mode={MODES[mode]}"
    if mode == LACP:
        fast = data.get("ad_lacp_rate") in ("fast", 1)
        yield "lacp=active"
        yield f"other_config:lacp-time={'fast' if fast else 'slow'}"
        # As on Linux, the bond forwards on one member while no LACP partner answers.
        yield "other_config:lacp-fallback-ab=true"
    for theirs, ours in (("updelay", "bond_updelay"), ("downdelay", "bond_downdelay")):
        if delay_ms := data.get(theirs):
            yield f"{ours}={delay_ms}"
    if (primary := data.get("primary")) and mode == "active-backup":
        yield f"other_config:bond-primary={primary}"


def _lost(data: Mapping[str, Any]) -> Iterator[str]:
    """Describe the functions of the Linux bond that the Open vSwitch bond does not have."""
    if data.get("arp_interval"):
        yield "ARP monitoring (arp_interval): only carrier is checked; use path-check-targets instead"
    if data["mode"] == "balance-alb":
        yield "receive balancing (balance-alb): each address receives on one uplink"
    if data.get("xmit_hash_policy") not in (None, "layer2") and data["mode"] != "active-backup":
        yield f"xmit_hash_policy {data['xmit_hash_policy']}: the bridge's policy selects uplinks"


def _kind(link: Mapping[str, Any]) -> str:
    return str(link.get("linkinfo", {}).get("info_kind", ""))


def _address(info: Mapping[str, Any], device: str) -> str:
    """Return an address as `ip address add` accepts it, with DEVICE for the name of the device."""
    peer = info.get("address")
    prefix = f"{peer or info['local']}/{info['prefixlen']}"
    words = [info["local"], "peer", prefix] if peer else [prefix]
    if info.get("broadcast"):
        words += ["broadcast", info["broadcast"]]
    if info["family"] == "inet":
        words += ["scope", info["scope"]]
        label = str(info.get("label", device))
        if label != device and label.startswith(f"{device}:"):
            words += ["label", f"DEVICE{label.removeprefix(device)}"]
    if info.get("metric"):
        words += ["metric", str(info["metric"])]
    if info.get("dynamic"):
        words += ["valid_lft", str(info["valid_life_time"])]
        words += ["preferred_lft", str(info["preferred_life_time"])]
    if info.get("noprefixroute"):
        words.append("noprefixroute")
    # Duplicate address detection is not needed: the host keeps its address and its MAC address.
    return " ".join([*words, *(["nodad"] if info["family"] == "inet6" else [])])


def _route(words: list[str]) -> str:
    """Return a route as `ip route` accepts it, without its device; empty if the kernel creates it."""
    if not words or words[0] in LOCAL_KINDS or "fe80::/64" in words[:1] or "ff00::/8" in words[:2]:
        return ""
    if "proto" in words and words[words.index("proto") + 1] == "ra":
        return ""
    if words[0] == "nexthop" or "nhid" in words:
        expected = "expected routes with one next hop, without nexthop objects"
        raise Refused(f"route {' '.join(words)} cannot be moved; {expected}")
    words = [word for word in words if word not in STATES]
    for option in ("dev", "expires", "error"):
        if option in words:
            at = words.index(option)
            words = words[:at] + words[at + 2 :]
    return " ".join(words)


def _stacked(device: str, stack: Stack) -> list[str]:
    """Return lines for `ip -batch` that configure addresses and IPv4 routes on a device."""
    named = []
    for address in stack.addresses:
        words = address.replace("label DEVICE", f"label {device}")
        label = words.partition(" label ")[2].partition(" ")[0]
        if len(label) > IFNAME_MAX:
            words = words.replace(f" label {label}", "")
        named.append(f"addr replace {words} dev {device}")
    return [*named, *(f"route replace {route} dev {device}" for route in stack.routes)]


def _routes(text: str) -> tuple[str, ...]:
    kept = [route for line in text.splitlines() if (route := _route(line.split()))]
    # A route through a gateway requires that the route to the gateway exists.
    return tuple(sorted(kept, key=lambda route: " via " in route))
