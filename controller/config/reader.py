"""Reads a bridge's configuration from database records. Reports values that conflict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controller.config import columns, controllers, membership, offload
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS
from controller.config.kinds import Known
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, PortRow
from controller.config.settings import Settings
from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from controller.config.vlans import port_vlans
from controller.config.vm_ports import Common, has_ofport, read_vm_ports
from controller.text.wording import VANISHED, keys_again, quoted
from policies.model import OfPort, Role, Teaming
from policies.presets import DEFAULT_PRESET, PRESETS

# The effect of `flow-restore-wait`.
WAITS = (
    "Open_vSwitch other_config:flow-restore-wait is set: after a start, ovs-vswitchd does not forward"
    " frames, and ovs-lbt does not connect, until this key is removed; to remove it:"
    " ovs-vsctl --no-wait remove Open_vSwitch . other_config flow-restore-wait"
)


def read_bridge(row: BridgeRow, last: BridgeConfig | None = None) -> BridgeConfig:
    """Return the configuration of an attached bridge.

    `last`: the configuration in force. Instead of an invalid value, the last valid value is used, or
    the default if no value was valid. The result lists invalid values in `errors`.
    """
    asked = last and last.asked
    return _Reader(row, asked, Settings(asked.settings if asked else {})).read()


@dataclass(slots=True)
class _Reader:
    """Reads one bridge. `last`: the configuration that the operator last requested."""

    row: BridgeRow
    last: BridgeConfig | None
    settings: Settings

    def read(self) -> BridgeConfig:
        ids, name, record = self.row.external_ids, self.row.name, f"Bridge {self.row.name}"
        bridge = self.settings.section(record, ids, BRIDGE_KEYS)
        team = self._team(bridge["uplinks"], bridge["team"])
        records = self._records(team.uplinks)
        members = [(port, interface) for port, interface in records if has_ofport(interface)]
        if self.row.keys_lost:
            self.settings.report(record, PREFIX + "policy", VANISHED, keys_again(name))
        for at, column, key in self.row.misplaced:
            problem = f"ovs-lbt does not read {column} of table {at.partition(' ')[0]}"
            remedy = "use ovs-lbt set instead, and remove the key: "
            self.settings.report_unread(at, column, key, problem, remedy)
        neither = {*team.uplinks, *team.missing, *self.row.mirrored_to}
        uplinks = tuple(self._uplink(port, interface) for port, interface in members)
        names = [uplink.name for uplink in uplinks]
        absent = dict.fromkeys((*team.uplinks, *team.last.uplinks)).keys() - {*names}
        bond = team.bond
        macs = {i.mac: i.name for i in bond.interfaces} if bond else {}
        teaming = self._teaming(bridge["teaming"], bond)
        last_policy = self.last.policy if self.last else DEFAULT_PRESET
        policy = self.settings.policy(record, bridge["policy"], last_policy, teaming, uplinks)
        offloaded = offload.read(self.row, [interface for _, interface in members])
        patch_unit, in_userspace = bridge["patch-unit"], self.row.in_userspace
        common = Common(name, ids, uplinks, policy, teaming, offloaded, patch_unit, in_userspace)
        neither |= membership.members_of_bonds(self.row)
        read = read_vm_ports(self.row, common, neither, self.last, self.settings)
        assert neither.isdisjoint(read.by_name), "an uplink as a VM port would form a loop"
        vm_ports = _several_marked(tuple(vm_port.config for vm_port in read.by_name.values()))
        policies = (policy, *(port.policy for port in vm_ports))
        # Open vSwitch sets the source port of its own tunnels after multipath has hashed the frame.
        native = next((p.name for p in vm_ports if p.counted_by_flows and p.may_spread), None)
        connection_hash = bridge["connection-hash"] or ("auto" if native else "multipath")
        return BridgeConfig(
            name=name,
            policy=policy,
            teaming=teaming,
            mode=bridge["mode"],
            threshold_ratio=bridge["threshold"],
            window_s=bridge["window-s"],
            poll_interval_s=bridge["poll-interval-ms"] or min(PRESETS[p].poll_s for p in policies),
            failback_delay_s=bridge["failback-delay-s"],
            on_bond=bond is not None,
            bond_mode=bond.bond_mode if bond else None,
            uplinks=uplinks,
            absent=tuple(self._uplink(*record) for record in self._records(sorted(absent))),
            missing=tuple(sorted(team.missing)),
            team=team.last,
            team_in_database=ids.get(PREFIX + "team"),
            vm_ports=vm_ports,
            active_member=macs.get(bond.active_mac) if bond and bond.active_mac else None,
            lacp_current=frozenset(i.name for _, i in members if i.lacp_current),
            falls_back=bond is not None
            and bond.other_config.get("lacp-fallback-ab", "").lower() == "true"
            and (teaming, bridge["mode"]) == ("lacp", "enforce"),
            connection_hash=connection_hash,
            hashed_for=None if bridge["connection-hash"] else native,
            path_check=bridge["path-check"],
            path_check_targets=bridge["path-check-targets"] or (),
            patch_unit=patch_unit,
            hw_offload=self.row.hw_offload,
            no_flood_before=bridge["no-flood-before"] or frozenset(),
            in_userspace=in_userspace,
            forwards_bpdu=self.row.other_config.get("forward-bpdu", "").lower() == "true",
            snoops=self.row.mcast_snooping_enable,
            offload=offload.with_policies(offloaded, policies, connection_hash),
            not_done=(
                *columns.reported(self.row, columns.DIFFERENT),
                *columns.reported(self.row, columns.REFUSED),
                *multiplied(self.row, names),
                *returned(self.row, names, teaming != Teaming.SWITCH_INDEPENDENT),
                *controllers.not_done(self.row, 0 if bond else len(bridge["uplinks"] or names)),
                *_unspread(vm_ports, bridge["connection-hash"]),
                *((WAITS,) if self.row.restores_flows else ()),
                *_unchecked(bridge, teaming, bond is not None),
            ),
            errors=tuple(self.settings.errors),
            settings=self.settings.in_force,
            read=read,
        )

    def _teaming(self, wanted: str | None, bond: PortRow | None) -> str:
        """Return `wanted` if the uplinks support it, else the last teaming mode, else the default.

        Report an error if the uplinks do not support `wanted`.
        """
        default = "lacp" if _negotiates(bond) else "switch-independent"
        if wanted is None:
            return default
        record, key = f"Bridge {self.row.name}", PREFIX + "teaming"
        violations = list(_teaming_violations(wanted, bond))
        for problem, remedy in violations:
            self.settings.report(record, key, problem, remedy)
        last = self.settings.last.get((record, key), default)
        fitting = [t for t in (wanted, last, default) if not any(_teaming_violations(t, bond))]
        self.settings.in_force[record, key] = fitting[0]
        return fitting[0]

    def _team(self, named: tuple[str, ...] | None, saved: Known | None) -> membership.Team:
        """Return the uplinks in force. Report errors in the requested list."""
        record, key = f"Bridge {self.row.name}", PREFIX + "uplinks"
        known = self.last.team if self.last else saved or Known()
        vm_ports = (port.name for port in self.last.vm_ports) if self.last else ()
        found = membership.team(self.row, named, replace(known, vm_ports=frozenset(vm_ports)))
        for problem, remedy in found.wrong:
            self.settings.report(record, key, problem, remedy)
        self.settings.in_force[record, key] = found.last.uplinks
        return found

    def _records(self, names: Iterable[str]) -> list[tuple[PortRow, InterfaceRow]]:
        """Return the records of uplinks. Without a record, an uplink has defaults."""
        present = {i.name: (port, i) for port in self.row.ports for i in port.interfaces}
        return [present.get(name, (PortRow(name, ()), InterfaceRow(name))) for name in names]

    def _uplink(self, port: PortRow, interface: InterfaceRow) -> UplinkConfig:
        values = self.settings.section(
            f"Interface {interface.name}", interface.external_ids, UPLINK_KEYS
        )
        return UplinkConfig(
            name=interface.name,
            ofport=OfPort(interface.ofport or 0),
            capacity_bps=values["capacity-mbps"] or port.qos_max_rate_bps or None,
            link_speed_bps=interface.link_speed_bps,
            role=values["role"],
            role_before=values["role-before"] or Role.ACTIVE,
            vlans=port_vlans(port.vlan_mode, port.tag, port.trunks),
            mac=interface.mac,
            replaces_qdisc=values["qdisc"] == "replace",
            watched_by=tuple(_watchers(port, interface)),
            blocked=port.blocked,
        )


def _several_marked(ports: tuple[VmPortConfig, ...]) -> tuple[VmPortConfig, ...]:
    """Return the ports. If several are tunnel endpoints of the userspace datapath, mark these."""
    endpoints = [p for p in ports if p.tunnel_mac is not None and p.counted_by_flows]
    if len(endpoints) < 2:
        return ports
    return tuple(replace(p, one_of_several=True) if p in endpoints else p for p in ports)


def _teaming_violations(teaming: str, bond: PortRow | None) -> Iterator[tuple[str, str]]:
    """Report why the uplinks do not support a teaming mode: each problem, and its solution.

    `bond`: the bond that has the uplinks as members; None for plain uplinks.
    """
    where = "plain uplinks" if bond is None else f"bond {bond.name} with lacp {bond.lacp or 'off'}"
    if teaming == "lacp" and not _negotiates(bond):
        remedy = "use a bond with lacp active or passive, or teaming switch-independent or static"
        yield f"lacp is not possible on {where}", remedy
    if teaming != "lacp" and _negotiates(bond):
        remedy = "use lacp, because the upstream switch treats the members as one link"
        yield f"{teaming} is not possible on {where}", remedy


def _watchers(port: PortRow, interface: InterfaceRow) -> Iterator[str]:
    """Return the protocols that take an uplink out of use if its peer is silent, even if the link is up."""
    if _negotiates(port):
        yield "LACP"
    if interface.bfd:
        yield "BFD"
    if interface.cfm:
        yield "CFM"


def _negotiates(bond: PortRow | None) -> bool:
    return bond is not None and bond.lacp in ("active", "passive")


# ---- unsupported features, and settings without effect ---------------------------------


def multiplied(row: BridgeRow, uplinks: Collection[str]) -> Iterator[str]:
    """Report mirrors whose frames are sent on several plain uplinks. `uplinks`: the names of all uplinks.

    Open vSwitch itself sends mirrored frames to every port that carries the output VLAN. A bond counts
    as one port.
    """
    for mirror in row.mirrors:
        to = (i.name for p in row.ports if p.name == mirror.output_port for i in p.interfaces)
        if any(name in uplinks for name in to):
            found = f"Bridge {row.name} mirrors: {mirror.name} has the uplink {mirror.output_port} as output_port"
            remove = f"ovs-vsctl --id=@m get mirror {quoted(mirror.name)} -- remove bridge {quoted(row.name)} mirrors @m"
            yield f"{found}, so frames leave on two uplinks; to remove the mirror: {remove}"
        by = _carry(row, uplinks, mirror.output_vlan, inside=True)
        if len(by) > 1:
            found = f"Bridge {row.name} mirrors: {mirror.name} sends VLAN {mirror.output_vlan} on {', '.join(by)}"
            yield f"{found}, which form a loop; set trunks without that VLAN on all uplinks but one"


def returned(row: BridgeRow, uplinks: Collection[str], lag: bool) -> Iterator[str]:
    """Report mirrors whose frames return on other bond members, because mirrored frames bypass our flows.

    `lag`: whether the upstream switch treats the uplinks as one link, so that no frame returns.
    A mirrored frame's source is an address in another VLAN, so the frame looks like another host's.
    """
    bond = next((p for p in row.ports if {i.name for i in p.interfaces} == {*uplinks}), None)
    for mirror in row.mirrors if bond is not None and not lag else ():
        by, to = (_carry(row, uplinks, mirror.output_vlan, inside) for inside in (True, False))
        if by and to:
            found = f"Bridge {row.name} mirrors: {', '.join(to)} may receive each frame"
            remedy = "use LACP, use output_port instead of output_vlan, or remove the VLAN from these ports"
            yield f"{found} of mirror {mirror.name} (output_vlan {mirror.output_vlan}) twice; {remedy}"


def _carry(row: BridgeRow, uplinks: Collection[str], vlan: int | None, inside: bool) -> list[str]:
    """Return the ports that carry a VLAN: uplinks (`inside`) or other ports. A bond is one port."""
    return [
        port.name
        for port in row.ports
        if vlan is not None
        and all((i.name in uplinks) == inside for i in port.interfaces)
        and vlan in port_vlans(port.vlan_mode, port.tag, port.trunks).carried
    ]


def _unspread(ports: Iterable[VmPortConfig], connection_hash: str | None) -> Iterator[str]:
    """Report the tunnel endpoints whose connections are spread less than the policy requires."""
    for port in ports:
        endpoint = f"{port.name}, a tunnel endpoint on the userspace datapath"
        if port.keeps_address:
            yield (
                f"{port.policy} does not spread {endpoint}, because remote endpoints reply to source"
                " MAC addresses, and some uplinks lack the port's VLANs; configure these on all uplinks"
            )
        elif connection_hash == "multipath" and port.counted_by_flows and port.may_spread:
            yield (
                f"{port.policy} spreads the traffic of tunnel endpoint {port.name} only by peer, because"
                " multipath cannot hash tunnel source ports; set connection-hash=dp_hash"
            )


def _unchecked(bridge: Mapping[str, Any], teaming: str, on_bond: bool) -> Iterator[str]:
    """Report path checks that are configured, but have no effect."""
    if bridge["path-check"] and teaming != Teaming.SWITCH_INDEPENDENT:
        yield f"path-check has no effect with teaming {teaming}, where the upstream switch chooses the uplink"
    elif bridge["path-check"] and on_bond and bridge["mode"] == "observe":
        yield "path-check has no effect in mode observe, which installs no flows; set mode=enforce"
    elif bridge["path-check-targets"] and not bridge["path-check"]:
        yield "path-check-targets has no effect while path-check is off; set path-check=on"
