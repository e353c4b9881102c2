"""Reads the configuration of a bridge's VM ports whose records or common values have changed."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from controller.config import guests, kinds, values
from controller.config.guests import VmNames
from controller.config.keys import VM_KEYS, VM_RULE_KEYS, Key
from controller.config.kinds import Choice
from controller.config.offload import Offload
from controller.config.rows import PREFIX, BridgeRow, Guest, InterfaceRow, PortRow
from controller.config.settings import Settings
from controller.config.vlans import PortVlans, carriers, port_vlans
from controller.text.wording import one_of
from policies.model import OFPORT_LOCAL, OFPORT_MAX, OfPort, Rules, Teaming
from policies.presets import PRESETS

MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
# The default of `forged-transmits`: with many VMs behind a port, the addresses are not known in
# advance.
FORGED_BY_UNIT = {"port": "reject", "source-mac": "accept"}
# The unit of a VM port that connects one VM.
WHOLE = "port"
# The keys of a VM port that require queues on uplinks.
SHAPING_KEYS = ("shares", "reserve-mbps", "limit-mbps")
# The values of a VM port without keys.
VM_DEFAULTS = {name: key.without for name, key in VM_KEYS.items()}


class Common(NamedTuple):
    """The values on which all VM ports of a bridge depend. `ids`: the bridge's external_ids."""

    bridge: str
    ids: Mapping[str, str]
    uplinks: tuple[values.UplinkConfig, ...]
    policy: str
    teaming: str
    offload: Offload
    patch_unit: str
    in_userspace: bool


def read_vm_ports(
    row: BridgeRow,
    common: Common,
    others: Collection[str],
    last: values.BridgeConfig | None,
    settings: Settings,
) -> values.ReadVmPorts:
    """Read the VM ports: all interfaces with an ofport, except for the interfaces in `others`.

    Unchanged records are not read again. Their invalid values have the same effect as before.
    """
    policies = {port.name: port.policy for port in last.vm_ports} if last else {}
    read = last.read if last else None
    before = read.by_name if read is not None and read.common == common else {}
    found = {}
    for port in row.ports:
        for interface in port.interfaces:
            name = interface.name
            if name in others or not has_ofport(interface):
                continue
            known = before.get(name)
            if known is None or (known.port, known.interface) != (port, interface):
                # The values and errors of each VM port are collected separately.
                own = Settings(settings.last)
                last_policy = policies.get(name, common.policy)
                config = _Reader(common, own, port, interface).read(last_policy)
                known = values.ReadVmPort(port, interface, config, own.in_force, tuple(own.errors))
            settings.in_force |= known.settings
            settings.errors |= dict.fromkeys(known.errors)
            found[name] = known
    return values.ReadVmPorts(common, found)


@dataclass(slots=True)
class _Reader:
    """Reads one VM port."""

    common: Common
    settings: Settings
    port: PortRow
    interface: InterfaceRow

    def read(self, last_policy: str) -> values.VmPortConfig:
        """Return the configuration. `last_policy` stays in force if a new policy is not supported."""
        interface, common, teaming = self.interface, self.common, self.common.teaming
        names = VmNames.of(interface)
        vlans = port_vlans(self.port.vlan_mode, self.port.tag, self.port.trunks)
        carriers = self._carriers(vlans)
        team = [uplink.name for uplink in common.uplinks]
        keys = vm_keys(carriers, tuple(team))
        # Rules on the interface take precedence over rules that the bridge stores for its VM.
        rules = (
            VM_DEFAULTS
            | self._kept(names.identities, {key: keys[key] for key in VM_RULE_KEYS})
            | self.settings.given(self.record, interface.external_ids, keys)
        )
        self.settings.report_unknown(self.record, interface.external_ids, keys)
        self._unset_queues(rules)
        policy = common.policy
        if own := rules["policy"]:
            policy = self.settings.policy(self.record, own, last_policy, teaming, common.uplinks)
        allow, prefer = (
            choice and choice.within(team) for choice in (rules["allow"], rules["prefer"])
        )
        may_use = allow.allowed(team) if allow else frozenset(team)
        wishes = prefer or Choice((), ())
        unit = rules["unit"] or (common.patch_unit if interface.kind == "patch" else WHOLE)
        attached = self._attached_macs()
        # The bridge's own port has the host's own address.
        mac = interface.mac.lower() if interface.mac else None
        own_macs = (mac,) if mac is not None and interface.ofport == OFPORT_LOCAL else ()
        # An endpoint can have off-home addresses if it can use all uplinks and they are not a LAG.
        moves_home = teaming == Teaming.SWITCH_INDEPENDENT and carriers >= set(team)
        tunnel_mac = mac if interface.endpoint and moves_home else None
        counted_by_flows = interface.endpoint is not None and common.in_userspace
        return values.VmPortConfig(
            name=interface.name,
            ofport=OfPort(interface.ofport or 0),
            vm=names.vm or interface.name,
            policy=policy,
            vlans=vlans,
            allowed=_unless_all(carriers & may_use, team),
            carriers=_unless_all(carriers, team),
            allow=_unless_all(may_use, team),
            attached_macs=attached or own_macs,
            forges=self._forges(rules["forged-transmits"], unit, attached),
            trusted=rules["forged-transmits"] == "accept",
            rules=Rules(
                pin=rules["pin"],
                confined=_unless_all(may_use, team) is not None,
                prefer=wishes.named,
                avoid=frozenset(wishes.ruled_out),
                affinity=rules["affinity"],
                anti_affinity=rules["anti-affinity"],
                reserve_bps=self._reserve(rules["reserve-mbps"], rules["limit-mbps"]),
            ),
            excluded=rules["exclude"],
            binding=rules["binding"],
            moved=rules["moved"] or (),
            unit=unit,
            vm_id=names.default_identity,
            vm_ids=names.own_identities,
            shares=rules["shares"],
            limit_bps=rules["limit-mbps"],
            tunnel_mac=tunnel_mac,
            endpoint=interface.endpoint,
            tunnel_peers=interface.tunnel_peers,
            # A peer with Open vSwitch's userspace datapath sends tunnel frames to the source address of
            # the frames that it receives, which may be an off-home address. The hosts of a cloud
            # usually have the same datapath, so peers are assumed to have the same datapath as this bridge.
            keeps_address=tunnel_mac is None
            and counted_by_flows
            and teaming == Teaming.SWITCH_INDEPENDENT
            and PRESETS[policy].spreads_connections,
            is_patch=interface.kind == "patch",
            counted_by_flows=counted_by_flows,
            mtu=interface.mtu,
            guests=tuple(self._pinned(guest, keys["pin"]) for guest in interface.guests),
        )

    @property
    def record(self) -> str:
        return f"Interface {self.interface.name}"

    def _kept(self, names: Iterable[str], keys: Mapping[str, Key]) -> dict[str, Any]:
        """Return the rules that the bridge stores under `names`. Later names take precedence."""
        found: dict[str, Any] = {}
        for name in names:
            record, prefix = f"Bridge {self.common.bridge}", f"{PREFIX}vm-{name}-"
            found |= self.settings.given(record, self.common.ids, keys, prefix)
        return found

    def _pinned(self, guest: Guest, pin: Key) -> Guest:
        """Return a VM behind a patch port, with the pin that the bridge stores for the VM."""
        found = self._kept(guest.identities or (guest.identity,), {"pin": pin})
        return replace(guest, pin=found["pin"]) if found else guest

    def _unset_queues(self, rules: dict[str, Any]) -> None:
        """Report and unset rules that need queues, if this interface's frames cannot use queues."""
        if (reason := self.common.offload.unshaped(self.interface.name)) is not None:
            for key in SHAPING_KEYS:
                if (value := rules[key]) is not None:
                    problem = f"{value if key == 'shares' else value / 1e6:g} cannot be applied"
                    self.settings.report(self.record, PREFIX + key, problem, reason)
                    rules[key] = None

    def _attached_macs(self) -> tuple[str, ...]:
        """Return the VM's addresses, as written by libvirt or OpenStack; empty if one is invalid."""
        ids = self.interface.external_ids
        macs = guests.addresses(ids)
        if all(MAC.fullmatch(mac) and not int(mac[1], 16) & 1 for mac in macs):
            return tuple(sorted(set(macs)))
        expected = "unicast MAC addresses, in the form xx:xx:xx:xx:xx:xx"
        found = ids.get("attached-mac", "")
        self.settings.report_value(self.record, "attached-mac", found, expected)
        return ()

    def _forges(self, wanted: str | None, unit: str, attached: tuple[str, ...]) -> bool:
        """Whether frames from addresses that are not in `attached-mac` are accepted."""
        if wanted == "reject" and not attached:
            problem = "reject has no effect without attached-mac in external_ids"
            remedy = "set attached-mac to the addresses that the VM sends from"
            self.settings.report(self.record, PREFIX + "forged-transmits", problem, remedy)
        return not attached or (wanted or FORGED_BY_UNIT[unit]) == "accept"

    def _reserve(self, reserve_bps: float | None, limit_bps: float | None) -> float:
        """Return the rate that is reserved for the VM port, at most its limit; 0 without a reservation."""
        if reserve_bps is None or limit_bps is None or reserve_bps <= limit_bps:
            return reserve_bps or 0.0
        found, expected = f"{reserve_bps / 1e6:g}", f"at most its limit-mbps {limit_bps / 1e6:g}"
        self.settings.report_value(self.record, PREFIX + "reserve-mbps", found, expected)
        return limit_bps

    def _carriers(self, vlans: PortVlans) -> frozenset[str]:
        """Return the uplinks that carry a VM port's VLANs. Report an error if there are none."""
        port, uplinks = self.port, self.common.uplinks
        allowed = carriers(vlans, {uplink.name: uplink.vlans for uplink in uplinks})
        if uplinks and not allowed:
            key = "trunks" if port.tag is None else "tag"
            found = ",".join(map(str, port.trunks if port.tag is None else (port.tag,))) or "none"
            problem = f"no uplink carries VLAN {found}"
            remedy = "choose a VLAN that an uplink carries"
            self.settings.report(f"Port {port.name}", key, problem, remedy)
        return allowed


@functools.lru_cache(maxsize=64)
def vm_keys(carriers: frozenset[str], team: tuple[str, ...]) -> Mapping[str, Key]:
    """Return a VM port's keys. `carriers`: uplinks allowed in `pin`. `team`: those allowed in other rules."""
    takes = {
        "pin": replace(kinds.name_in(carriers), expected=one_of(sorted(carriers))),
        "allow": kinds.uplinks_of(team),
        "prefer": kinds.uplinks_of(team),
    }
    return VM_KEYS | {name: replace(VM_KEYS[name], takes=kind) for name, kind in takes.items()}


def has_ofport(interface: InterfaceRow) -> bool:
    """Whether the switch has assigned the interface a port number that flows can match."""
    return interface.ofport is not None and (
        0 < interface.ofport < OFPORT_MAX or interface.ofport == OFPORT_LOCAL
    )


def _unless_all(names: frozenset[str], team: Collection[str]) -> frozenset[str] | None:
    return names if len(names) < len(team) else None
