"""Reads a bridge's configuration from database records. Invalid values keep the last good one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.config import (
    controllers,
    guests,
    kinds,
    membership,
    normal,
    offload,
)
from controller.config.guests import identities, own_identities, rules_identity, vm_name
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_KEYS, VM_RULE_KEYS, Key
from controller.config.kinds import Choice, Known
from controller.config.membership import members_of_bonds
from controller.config.rows import PREFIX, BridgeRow, Guest, InterfaceRow, PortRow
from controller.config.settings import Settings
from controller.config.values import (
    BadValue,
    BridgeConfig,
    ReadVmPort,
    ReadVmPorts,
    UplinkConfig,
    VmPortConfig,
)
from controller.config.vlans import PortVlans, carriers, port_vlans
from controller.text.wording import one_of, quoted
from policies.model import OFPORT_LOCAL, OFPORT_MAX, OfPort, Role, Rules, Teaming, Uplink
from policies.presets import DEFAULT_PRESET, PRESETS

MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
# The default of `forged-transmits`: with many VMs behind a port, the addresses are not known in
# advance.
FORGED_BY_UNIT = {"port": "reject", "source-mac": "accept"}
# The unit of a VM port that leads to one VM.
WHOLE = "port"
# What a VM port can have of an uplink's queues.
SHAPING_KEYS = ("shares", "reserve-mbps", "limit-mbps")
# The values of a VM port without keys.
VM_DEFAULTS = {name: key.without for name, key in VM_KEYS.items()}


def read_bridge(row: BridgeRow, last: BridgeConfig | None = None) -> BridgeConfig:
    """The configuration of an attached bridge.

    `last`: the configuration in force. An invalid value keeps its last good value, or the default
    if there is none. All invalid values are in `errors`.
    """
    return _Reader(row, last).read()


class _Reader:
    """Reads one bridge. Collects invalid values, and good ones to replace later invalid ones."""

    def __init__(self, row: BridgeRow, last: BridgeConfig | None) -> None:
        self.row = row
        last = last.asked if last else None
        self.last_policy = last.policy if last else DEFAULT_PRESET
        self.last_vm_ports = frozenset(port.name for port in last.vm_ports) if last else frozenset()
        self.last_team = last.team if last else None
        self.last_policies = {port.name: port.policy for port in last.vm_ports} if last else {}
        self.last_read = last.read if last else None
        self.settings = Settings(last.settings if last else {})

    def read(self) -> BridgeConfig:
        ids, name = self.row.external_ids, self.row.name
        bridge = self.settings.section(f"Bridge {name}", ids, BRIDGE_KEYS)
        team = self._team(bridge["uplinks"], self.last_team or bridge["team"])
        members = self._members(team.uplinks)
        if self.row.keys_lost:
            expected = (
                f"the keys again; or, to stop managing the bridge: ovs-lbt detach {quoted(name)}"
            )
            self.settings.report(BadValue(f"Bridge {name}", PREFIX + "policy", "removed", expected))
        reserved = self.row.mirrored_to
        neither = {*team.uplinks, *team.missing, *reserved, *members_of_bonds(self.row)}
        uplinks = tuple(self._uplink(port, interface) for port, interface in members)
        bond = team.bond
        teaming = self._teaming(bridge["teaming"], bond)
        policy = self._policy(
            f"Bridge {name}", bridge["policy"], self.last_policy, teaming, uplinks
        )
        on_uplinks = [interface for _, interface in members]
        self.offload = offload.read(self.row, on_uplinks)
        self.patch_unit = bridge["patch-unit"]
        read = self._vm_ports(neither, uplinks, policy, teaming)
        vm_ports = _several_marked(tuple(vm_port.config for vm_port in read.by_name.values()))
        # Open vSwitch fills in the source port of its own tunnels after multipath has seen the frame.
        native = next((port.name for port in vm_ports if _spreads_native_tunnels(port)), None)
        connection_hash = bridge["connection-hash"] or ("auto" if native else "multipath")
        return BridgeConfig(
            name=name,
            policy=policy,
            teaming=teaming,
            mode=bridge["mode"],
            threshold_ratio=bridge["threshold"],
            window_s=bridge["window-s"],
            poll_interval_s=_poll_interval_s(bridge["poll-interval-ms"], vm_ports, policy),
            failback_delay_s=bridge["failback-delay-s"],
            on_bond=bond is not None,
            bond_mode=bond.bond_mode if bond else None,
            uplinks=uplinks,
            missing=tuple(sorted(team.missing)),
            team=team.last,
            team_in_database=ids.get(PREFIX + "team"),
            vm_ports=vm_ports,
            active_member=_active_member(bond),
            lacp_current=frozenset(i.name for _, i in members if i.lacp_current),
            falls_back=bool(bond and bond.lacp_fallback)
            and (teaming, bridge["mode"]) == ("lacp", "enforce"),
            connection_hash=connection_hash,
            hashed_for=None if bridge["connection-hash"] else native,
            path_check=bridge["path-check"] == "on",
            path_check_targets=bridge["path-check-targets"] or (),
            patch_unit=self.patch_unit,
            hw_offload=self.row.hw_offload,
            no_flood_before=bridge["no-flood-before"] or frozenset(),
            in_userspace=self.row.in_userspace,
            forwards_bpdu=self.row.forwards_bpdu,
            offload=offload.with_policies(
                self.offload, (policy, *(port.policy for port in vm_ports)), connection_hash
            ),
            not_done=(
                *normal.not_done(
                    self.row, {u.name for u in uplinks}, teaming != Teaming.SWITCH_INDEPENDENT
                ),
                *controllers.not_done(self.row, 0 if bond else len(bridge["uplinks"] or ())),
                *_unspread(vm_ports, bridge["connection-hash"]),
                *_waits(self.row),
                *_unchecked(bridge, teaming, bond is not None),
            ),
            errors=tuple(self.settings.errors),
            settings=self.settings.in_force,
            read=read,
        )

    def _teaming(self, wanted: str | None, bond: PortRow | None) -> str:
        """The requested teaming, if the uplinks support it.

        Otherwise the last one, if they support that; else the default.
        """
        default = "lacp" if _negotiates(bond) else "switch-independent"
        if wanted is None:
            return default
        record, key = f"Bridge {self.row.name}", PREFIX + "teaming"
        violations = list(teaming_violations(wanted, bond))
        for found, expected in violations:
            self.settings.report(BadValue(record, key, found, expected))
        last = self.settings.last.get((record, key), default)
        fitting = [t for t in (wanted, last, default) if not any(teaming_violations(t, bond))]
        self.settings.in_force[record, key] = fitting[0]
        return fitting[0]

    def _interfaces(self) -> Iterator[tuple[PortRow, InterfaceRow]]:
        for port in self.row.ports:
            for interface in port.interfaces:
                yield port, interface

    def _team(self, named: tuple[str, ...] | None, last: Known | None) -> membership.Team:
        """The uplinks in force. Errors in the requested list are reported."""
        record, key = f"Bridge {self.row.name}", PREFIX + "uplinks"
        known = replace(last or Known(), vm_ports=self.last_vm_ports)
        found = membership.team(self.row, named, known)
        for what, expected in found.wrong:
            self.settings.report(BadValue(record, key, what, expected))
        self.settings.in_force[record, key] = found.last.uplinks
        return found

    def _members(self, names: Iterable[str]) -> list[tuple[PortRow, InterfaceRow]]:
        """The records of the uplinks that exist on the switch."""
        present = {interface.name: (port, interface) for port, interface in self._interfaces()}
        return [present[n] for n in names if n in present and _has_ofport(present[n][1])]

    def _uplink(self, port: PortRow, interface: InterfaceRow) -> UplinkConfig:
        values = self.settings.section(
            f"Interface {interface.name}", interface.external_ids, UPLINK_KEYS
        )
        return UplinkConfig(
            name=interface.name,
            ofport=OfPort(interface.ofport or 0),
            capacity_bps=values["capacity-mbps"] or port.qos_max_rate_bps,
            link_speed_bps=interface.link_speed_bps,
            role=values["role"],
            role_before=values["role-before"] or Role.ACTIVE,
            vlans=port_vlans(port.vlan_mode, port.tag, port.trunks),
            mac=interface.mac,
            replaces_qdisc=values["qdisc"] == "replace",
            watched_by=tuple(_watchers(port, interface)),
            blocked=port.blocked,
        )

    def _policy(
        self, record: str, wanted: str, last: str, teaming: str, uplinks: tuple[UplinkConfig, ...]
    ) -> str:
        """The requested policy, if the team supports it; otherwise the last one."""
        team = [
            Uplink(u.name, u.ofport, u.capacity_bps or u.link_speed_bps or 0.0, u.role)
            for u in uplinks
        ]
        violations = list(PRESETS[wanted].limits.violations(teaming, team))
        for found, expected in violations:
            self.settings.report(
                BadValue(record, PREFIX + "policy", f"{wanted} with {found}", expected)
            )
        return last if violations else wanted

    def _vm_ports(
        self,
        others: Collection[str],
        uplinks: tuple[UplinkConfig, ...],
        policy: str,
        teaming: str,
    ) -> ReadVmPorts:
        """Read the VM ports: all interfaces with an ofport except for `others`, by name.

        The same records are not read again: an invalid value keeps what it kept the last time.
        """
        row, last = self.row, self.last_read
        common = (
            uplinks,
            policy,
            teaming,
            self.offload,
            self.patch_unit,
            row.external_ids,
            row.in_userspace,
        )
        before = last.by_name if last is not None and last.common == common else {}

        def read(port: PortRow, interface: InterfaceRow) -> VmPortConfig:
            return self._vm_port(port, interface, uplinks, policy, teaming)

        found = {}
        for port, interface in self._interfaces():
            if interface.name in others or not _has_ofport(interface):
                continue
            known = before.get(interface.name)
            if known is None or (known.port, known.interface) != (port, interface):
                known = self._read_apart(port, interface, read)
            self.settings.add(known.settings, known.errors)
            found[interface.name] = known
        return ReadVmPorts(common, found)

    def _read_apart(
        self,
        port: PortRow,
        interface: InterfaceRow,
        read: Callable[[PortRow, InterfaceRow], VmPortConfig],
    ) -> ReadVmPort:
        """Read a VM port, with its values and errors apart from those of others."""
        of_bridge, self.settings = self.settings, Settings(self.settings.last)
        config = read(port, interface)
        own, self.settings = self.settings, of_bridge
        return ReadVmPort(port, interface, config, own.in_force, tuple(own.errors))

    def _vm_port(
        self,
        port: PortRow,
        interface: InterfaceRow,
        uplinks: tuple[UplinkConfig, ...],
        policy: str,
        teaming: str,
    ) -> VmPortConfig:
        ids = interface.external_ids
        vlans = port_vlans(port.vlan_mode, port.tag, port.trunks)
        carriers = self._carriers(port, vlans, uplinks)
        team = [uplink.name for uplink in uplinks]
        keys = vm_keys(carriers, tuple(team))
        # Rules on the Interface take precedence over rules that the Bridge keeps for its VM.
        rules = (
            VM_DEFAULTS
            | self._vm_rules(interface, keys)
            | self.settings.given(f"Interface {interface.name}", ids, keys)
        )
        self.settings.report_unknown(f"Interface {interface.name}", ids, keys)
        rules |= self._without_queues(interface, rules)
        record, last = f"Interface {interface.name}", self.last_policies.get(interface.name, policy)
        if own := rules["policy"]:
            policy = self._policy(record, own, last, teaming, uplinks)
        allow, prefer = (
            choice and choice.within(team) for choice in (rules["allow"], rules["prefer"])
        )
        may_use = allow.allowed(team) if allow else frozenset(team)
        wishes = prefer or Choice((), ())
        limit_bps = rules["limit-mbps"]
        unit = rules["unit"] or (self.patch_unit if interface.kind == "patch" else WHOLE)
        attached = self._attached_macs(record, ids)
        tunnel_mac = _tunnel_mac(interface, teaming, carriers >= set(team))
        return VmPortConfig(
            name=interface.name,
            ofport=OfPort(interface.ofport or 0),
            vm=vm_name(interface) or interface.name,
            policy=policy,
            vlans=vlans,
            allowed=_unless_all(carriers & may_use, team),
            carriers=_unless_all(carriers, team),
            allow=_unless_all(may_use, team),
            attached_macs=attached or _own_macs(interface),
            forges=self._forges(record, rules["forged-transmits"], unit, attached),
            trusted=rules["forged-transmits"] == "accept",
            rules=Rules(
                pin=rules["pin"],
                confined=_unless_all(may_use, team) is not None,
                prefer=wishes.named,
                avoid=frozenset(wishes.ruled_out),
                affinity=rules["affinity"],
                anti_affinity=rules["anti-affinity"],
                reserve_bps=self._reserve(record, rules["reserve-mbps"], limit_bps),
            ),
            excluded=rules["exclude"],
            binding=rules["binding"],
            moved=rules["moved"] or (),
            unit=unit,
            vm_id=rules_identity(interface),
            vm_ids=own_identities(interface),
            shares=rules["shares"],
            limit_bps=limit_bps,
            tunnel_mac=tunnel_mac,
            tunnel_addresses=interface.tunnel_addresses,
            tunnel_peers=interface.tunnel_peers,
            keeps_address=tunnel_mac is None and self._is_answered(interface, policy, teaming),
            counted_by_flows=interface.sends_tunnels and self.row.in_userspace,
            mtu=interface.mtu,
            guests=self._guests(interface, keys["pin"]),
        )

    def _guests(self, interface: InterfaceRow, pin: Key) -> tuple[Guest, ...]:
        """The VMs behind a patch port, with the pins that the Bridge keeps for them."""
        record, ids = f"Bridge {self.row.name}", self.row.external_ids

        def pinned(guest: Guest) -> Guest:
            found: dict[str, Any] = {}
            for identity in guest.identities or (guest.identity,):
                prefix = f"{PREFIX}vm-{identity}-"
                found |= self.settings.given(record, ids, {"pin": pin}, prefix)
            return replace(guest, pin=found["pin"]) if found else guest

        return tuple(map(pinned, interface.guests))

    def _is_answered(self, interface: InterfaceRow, policy: str, teaming: str) -> bool:
        """Whether peers may send to a source address of ours, which frames would have under the policy.

        Where Open vSwitch's userspace datapath receives a tunnel, it sends its own frames of the
        tunnel to the source address of those that it received. Off the home that is one of ours.
        The hosts of a cloud mostly have the same datapath, so ours tells which one peers have.
        """
        return (
            interface.sends_tunnels
            and self.row.in_userspace
            and teaming == Teaming.SWITCH_INDEPENDENT
            and PRESETS[policy].spreads_connections
        )

    def _without_queues(self, interface: InterfaceRow, rules: Mapping[str, Any]) -> dict[str, None]:
        """The rules that need queues, if frames of this interface pass none. They are reported."""
        unset: dict[str, None] = {}
        if (expected := self.offload.unshaped(interface.name)) is not None:
            for key in SHAPING_KEYS:
                if (value := rules[key]) is not None:
                    found = f"{value if key == 'shares' else value / 1e6:g}"
                    record = f"Interface {interface.name}"
                    self.settings.report(BadValue(record, PREFIX + key, found, expected))
                    unset[key] = None
        return unset

    def _attached_macs(self, record: str, ids: Mapping[str, str]) -> tuple[str, ...]:
        """The addresses of the VM, as libvirt or OpenStack wrote them."""
        text = ids.get("attached-mac", "")
        macs = guests.addresses(ids)
        if all(MAC.fullmatch(mac) and not int(mac[1], 16) & 1 for mac in macs):
            return tuple(sorted(set(macs)))
        self.settings.report(BadValue(record, "attached-mac", text, "MAC addresses of six bytes"))
        return ()

    def _forges(
        self, record: str, wanted: str | None, unit: str, attached: tuple[str, ...]
    ) -> bool:
        """Whether frames of a VM from foreign addresses are accepted."""
        if wanted == "reject" and not attached:
            expected = (
                "attached-mac in external_ids as well: the addresses from which the VM may send"
            )
            self.settings.report(BadValue(record, PREFIX + "forged-transmits", wanted, expected))
            return True
        return not attached or (wanted or FORGED_BY_UNIT[unit]) == "accept"

    def _reserve(self, record: str, reserve_bps: float | None, limit_bps: float | None) -> float:
        """The rate reserved for a VM port, at most its limit; 0: none."""
        if reserve_bps is None or limit_bps is None or reserve_bps <= limit_bps:
            return reserve_bps or 0.0
        found, expected = f"{reserve_bps / 1e6:g}", f"at most its limit-mbps {limit_bps / 1e6:g}"
        self.settings.report(BadValue(record, PREFIX + "reserve-mbps", found, expected))
        return limit_bps

    def _carriers(
        self, port: PortRow, vlans: PortVlans, uplinks: tuple[UplinkConfig, ...]
    ) -> frozenset[str]:
        """The uplinks that carry a VM port's VLANs. If there is none, that is reported."""
        allowed = carriers(vlans, {uplink.name: uplink.vlans for uplink in uplinks})
        if uplinks and not allowed:
            key = "trunks" if port.tag is None else "tag"
            found = ",".join(map(str, port.trunks if port.tag is None else (port.tag,))) or "none"
            self.settings.report(
                BadValue(f"Port {port.name}", key, found, "a VLAN that an uplink carries")
            )
        return allowed

    def _vm_rules(self, interface: InterfaceRow, keys: Mapping[str, Key]) -> dict[str, Any]:
        """The rules that the Bridge keeps for this VM port, under any of its identities."""
        record, rules = f"Bridge {self.row.name}", {key: keys[key] for key in VM_RULE_KEYS}
        found: dict[str, Any] = {}
        for identity in identities(interface):
            prefix = f"{PREFIX}vm-{identity}-"
            found |= self.settings.given(record, self.row.external_ids, rules, prefix)
        return found


def _tunnel_mac(interface: InterfaceRow, teaming: str, uses_all: bool) -> str | None:
    """The address of a tunnel endpoint that may have off-home addresses, which no LAG needs."""
    if not interface.sends_tunnels or teaming != Teaming.SWITCH_INDEPENDENT or not uses_all:
        return None
    return interface.mac.lower() if interface.mac else None


def _several_marked(ports: tuple[VmPortConfig, ...]) -> tuple[VmPortConfig, ...]:
    """The same ports; if several send tunnels of the userspace datapath without a LAG, these say so."""
    endpoints = [p for p in ports if p.tunnel_mac is not None and p.counted_by_flows]
    if len(endpoints) < 2:
        return ports
    return tuple(replace(p, one_of_several=True) if p in endpoints else p for p in ports)


def _spreads_native_tunnels(port: VmPortConfig) -> bool:
    """Whether the connections of tunnels of the userspace datapath are spread, always or at times."""
    return port.counted_by_flows and port.may_spread


def _unspread(ports: Iterable[VmPortConfig], connection_hash: str | None) -> Iterator[str]:
    """The tunnel endpoints that are spread less than their policy would spread other ports."""
    for port in ports:
        endpoint = f"{port.name}, a tunnel endpoint on the userspace datapath"
        if port.keeps_address:
            yield (
                f"{port.policy} does not spread {endpoint}: peers there answer to the source address of"
                " a frame, and not every uplink carries its VLANs -> uplinks that carry them"
            )
        elif connection_hash == "multipath" and _spreads_native_tunnels(port):
            yield (
                f"{port.policy} spreads {endpoint}, by peers only: multipath sees no source ports of"
                " tunnels -> connection-hash=dp_hash"
            )


def _unchecked(bridge: Mapping[str, Any], teaming: str, on_bond: bool) -> Iterator[str]:
    """Why paths are not checked although the operator asked for it."""
    if bridge["path-check"] == "on" and teaming != Teaming.SWITCH_INDEPENDENT:
        yield f"path-check: teaming {teaming}, where the network chooses the uplink -> switch-independent"
    elif bridge["path-check"] == "on" and on_bond and bridge["mode"] == "observe":
        yield "path-check: mode observe, where nothing of ovs-lbt is on the switch -> enforce"
    elif bridge["path-check"] == "off" and bridge["path-check-targets"]:
        yield "path-check-targets: path-check is off, so no host is asked -> path-check=on"


def _waits(row: BridgeRow) -> Iterator[str]:
    if row.restores_flows:
        yield (
            "Open_vSwitch other_config:flow-restore-wait: when ovs-vswitchd has started, it forwards"
            " nothing until this key is removed, and ovs-lbt connects only then"
        )


def teaming_violations(teaming: str, bond: PortRow | None) -> Iterator[tuple[str, str]]:
    """Why these uplinks cannot be teamed like this, each as what was found and what is expected.

    `bond`: the bond whose members the uplinks are; None for plain uplinks.
    """
    where = "plain uplinks" if bond is None else f"bond {bond.name} with lacp {bond.lacp or 'off'}"
    if teaming == "lacp" and not _negotiates(bond):
        expected = "a bond with lacp active or passive; without LACP switch-independent or static"
        yield f"lacp on {where}", expected
    if teaming != "lacp" and _negotiates(bond):
        expected = "lacp, because the upstream switch treats the members as one link"
        yield f"{teaming} on {where}", expected


def _watchers(port: PortRow, interface: InterfaceRow) -> Iterator[str]:
    """The protocols whose silence takes an uplink out of use, although its link is up."""
    if _negotiates(port):
        yield "LACP"
    if interface.bfd:
        yield "BFD"
    if interface.cfm:
        yield "CFM"


def _negotiates(bond: PortRow | None) -> bool:
    return bond is not None and bond.lacp in ("active", "passive")


def _own_macs(interface: InterfaceRow) -> tuple[str, ...]:
    """The host's own address, if the interface is the bridge's own port."""
    if interface.ofport != OFPORT_LOCAL or interface.mac is None:
        return ()
    return (interface.mac.lower(),)


@functools.lru_cache(maxsize=64)
def vm_keys(carriers: frozenset[str], team: tuple[str, ...]) -> Mapping[str, Key]:
    """The keys of a VM port, for the uplinks that they may name."""
    takes = {
        "pin": replace(kinds.word(*carriers), expected=one_of(sorted(carriers))),
        "allow": kinds.uplinks_of(team),
        "prefer": kinds.uplinks_of(team),
    }
    return VM_KEYS | {name: replace(VM_KEYS[name], takes=kind) for name, kind in takes.items()}


def _unless_all(names: frozenset[str], team: Collection[str]) -> frozenset[str] | None:
    return names if len(names) < len(team) else None


def _active_member(bond: PortRow | None) -> str | None:
    macs = {i.mac: i.name for i in bond.interfaces} if bond else {}
    return macs.get(bond.active_mac) if bond and bond.active_mac else None


def _has_ofport(interface: InterfaceRow) -> bool:
    """Whether the switch has given the interface a port number that flows can match."""
    return interface.ofport is not None and (
        0 < interface.ofport < OFPORT_MAX or interface.ofport == OFPORT_LOCAL
    )


def _poll_interval_s(asked_s: float | None, ports: Iterable[VmPortConfig], policy: str) -> float:
    """The configured interval, else the shortest one that a policy in use asks for."""
    if asked_s is not None:
        return asked_s
    return min(PRESETS[name].poll_s for name in (policy, *(port.policy for port in ports)))
