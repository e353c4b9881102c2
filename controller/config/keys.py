"""From database records to a bridge's configuration; bad values keep the last good one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from controller.config import membership, normal
from controller.config.membership import Known, Words, bond_of, members_of_bonds
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, PortRow
from controller.config.vlans import TRUNK, PortVlans, carriers, port_vlans
from controller.text.wording import one_line, shortened
from policies.damping import Moved
from policies.model import MAX_UPLINKS, OFPORT_LOCAL, OFPORT_MAX, OfPort, Role, Teaming, Uplink
from policies.presets import DEFAULT_PRESET, PRESETS

TEAMINGS = tuple(teaming.value for teaming in Teaming)
MODES = ("enforce", "observe")
FAIL_MODES = ("standalone", "secure")
MOST_NOTE_CHARACTERS = 100
# Of any value, as they are kept in the database and told in one line.
MOST_VALUE_CHARACTERS = 4096
# While LACP is not negotiated.
FALLBACK_POLICY = "explicit"
VM_ID_KEYS = ("vm-id", "vm-uuid", "iface-id")
MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that was not taken: where it stands, what it is, what was expected."""

    record: str
    key: str
    found: str
    expected: str

    def __str__(self) -> str:
        found = shortened(self.found)
        return one_line(f"{self.record} {self.key}: {found} -> {self.expected}")


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """A member of the team. `capacity_bps` is None where only the switch knows the speed."""

    name: str
    ofport: OfPort
    capacity_bps: float | None
    link_speed_bps: float | None
    role: Role
    # What it was before a drain.
    role_before: Role = Role.ACTIVE
    vlans: PortVlans = TRUNK
    mac: str | None = None
    # Whether a qdisc that somebody else chose for it may be replaced.
    replaces_qdisc: bool = False
    # What watches its link beyond carrier.
    watched_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VmPortConfig:
    """A port that is not an uplink, LOCAL included.

    `policy`: its own, else the bridge's. `carriers`: the uplinks that carry its VLANs, and
    `allow` those that an operator says it may use, where those are not all of the team;
    `allowed`: both. `prefer`, `avoid`, `affinity` and `anti_affinity` as in `Unit`.
    """

    name: str
    ofport: OfPort
    vm: str
    policy: str = DEFAULT_PRESET
    vlans: PortVlans = TRUNK
    allowed: frozenset[str] | None = None
    carriers: frozenset[str] | None = None
    allow: frozenset[str] | None = None
    # Its own addresses, in lower case, and whether frames from others are taken from it.
    attached_macs: tuple[str, ...] = ()
    forges: bool = True
    pin: str | None = None
    prefer: tuple[str, ...] = ()
    avoid: frozenset[str] = frozenset()
    affinity: str | None = None
    anti_affinity: str | None = None
    excluded: bool = False
    binding: str | None = None
    # The moves that count against its budget; times since the epoch.
    moved: tuple[Moved, ...] = ()
    unit: str = "port"
    # Whether rules for it can be kept on the Bridge, where a VM's power cycle spares them.
    vm_id: str | None = None
    # Its part of an uplink, for what it sends; None where nobody said so.
    shares: int | None = None
    reserve_bps: float | None = None
    limit_bps: float | None = None
    # Whether a policy that may split it does so now: the state of its bridge, no configuration.
    split: bool = False

    @property
    def ruled(self) -> bool:
        """Whether there is an uplink that it should use, or should not."""
        return bool(self.prefer or self.avoid or self.affinity or self.anti_affinity)

    @property
    def whole(self) -> bool:
        """Whether all of it leaves by its home, whatever its policy is."""
        return self.pin is not None or self.allow is not None or self.ruled

    @property
    def parted(self) -> bool:
        """Whether each address behind it is a unit of its own.

        A hash parts them already, and a rule holds all of them.
        """
        if self.unit != "source-mac":
            return False
        return not (self.whole or PRESETS[self.policy].classifier.hashed)


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """Everything an attached bridge's records say; times in seconds, shares as ratios."""

    name: str
    policy: str = DEFAULT_PRESET
    teaming: str = "switch-independent"
    mode: str = "enforce"
    threshold_ratio: float = 0.75
    window_s: float = 30.0
    poll_interval_s: float = 1.0
    failback_delay_s: float = 45.0
    on_bond: bool = False
    bond_mode: str | None = None
    uplinks: tuple[UplinkConfig, ...] = ()
    # Neither uplinks nor VM ports: the network seems to be behind them, and nobody named them.
    missing: tuple[str, ...] = ()
    vm_ports: tuple[VmPortConfig, ...] = ()
    # The only member of an active-backup bond from which NORMAL takes anything.
    active_member: str | None = None
    # The members that have heard of their LACP partner, and whether the bond goes on without.
    lacp_current: frozenset[str] = frozenset()
    falls_back: bool = False
    # What the operator asked for, while LACP is not negotiated and this is in force instead.
    instead_of: BridgeConfig | None = None
    # VM ports that NORMAL did not flood to before we came.
    no_flood_before: frozenset[str] = frozenset()
    in_userspace: bool = False
    not_done: tuple[str, ...] = ()
    errors: tuple[BadValue, ...] = ()
    settings: Mapping[tuple[str, str], Any] = field(default_factory=dict, compare=False)

    @property
    def on_a_lag(self) -> bool:
        """Whether the switch upstream takes the uplinks for one link."""
        return self.teaming != Teaming.SWITCH_INDEPENDENT

    @property
    def asked(self) -> BridgeConfig:
        """What the operator asked for."""
        return self.instead_of or self

    @property
    def fallen_back(self) -> bool:
        """Whether something else is in force, as LACP is not negotiated."""
        return self.instead_of is not None

    def in_force(self, up: frozenset[str]) -> BridgeConfig:
        """What is done now, given the uplinks that carry traffic.

        Where a bond goes on without LACP, the switch upstream takes its members for ports of
        their own and floods each frame by each. None of them carries anything while LACP
        gives its partner up: what is needed then is ready before they do again. (A member
        that is down may be called current; it still hopes for its partner.)
        """
        asked = self.asked
        if not asked.falls_back or not asked.lacp_current.isdisjoint(up):
            return asked
        ports = tuple(replace(p, policy=FALLBACK_POLICY, binding=None) for p in asked.vm_ports)
        return replace(
            asked,
            policy=FALLBACK_POLICY,
            teaming="switch-independent",
            vm_ports=ports,
            instead_of=asked,
        )


@dataclass(frozen=True, slots=True)
class Key:
    """One key's meaning: how it is read, what is expected, what holds without it.

    `salvage`: what is taken of a bad value, where there was no good one before.
    """

    parse: Callable[[str], Any]
    expected: str
    default: Any = None
    salvage: Callable[[str], Any] | None = None

    def expects(self, found: str) -> str:
        """What is expected instead of a bad value."""
        if len(found) <= MOST_VALUE_CHARACTERS:
            return self.expected
        return f"{self.expected}; {MOST_VALUE_CHARACTERS} characters at most"


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return parse


# As people write them: Python's own reading takes digits of other scripts, spaces and underscores.
NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", re.ASCII)
WHOLE_NUMBER = re.compile(r"[0-9]+", re.ASCII)
MOST_DIGITS = 40


def number(text: str) -> float:
    """A number that is not negative.

    Raises:
        ValueError: the text is none.
    """
    if len(text) > MOST_DIGITS or not NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def whole_number(text: str) -> int:
    """The same, without a fraction.

    Raises:
        ValueError: the text is none.
    """
    if len(text) > MOST_DIGITS or not WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _number(lowest: float, highest: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = number(text)
        if not lowest <= value <= highest:
            raise ValueError(text)
        return value

    return parse


def _integer(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole_number(text)
        if not lowest <= value <= highest:
            raise ValueError(text)
        return value

    return parse


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not 2 <= len(names) <= MAX_UPLINKS or not all(names) or len(set(names)) != len(names):
        raise ValueError(text)
    return names


def _flag(text: str) -> bool:
    return _choice("true", "false")(text) == "true"


@dataclass(frozen=True, slots=True)
class Choice:
    """Uplinks that are named, in order, and those that are named with a "!"."""

    named: tuple[str, ...]
    ruled_out: tuple[str, ...]

    EXPECTED: ClassVar[str] = "names of uplinks, comma-separated, each with ! before it to rule out"

    @classmethod
    def of(cls, text: str) -> Choice:
        words = [word.strip() for word in text.split(",")]
        named = tuple(word for word in words if not word.startswith("!"))
        ruled_out = tuple(word[1:].strip() for word in words if word.startswith("!"))
        if not all((*named, *ruled_out)) or len({*named, *ruled_out}) != len(words):
            raise ValueError(text)
        return cls(named, ruled_out)

    def known(self, uplinks: Collection[str]) -> Choice:
        """Without the uplinks that are not of the team."""
        named, ruled_out = (
            tuple(name for name in names if name in uplinks)
            for names in (self.named, self.ruled_out)
        )
        return Choice(named, ruled_out)

    def allowed(self, uplinks: Iterable[str]) -> frozenset[str]:
        """The uplinks that are left: of those named, if any are, else of all."""
        return frozenset(self.named or uplinks) - frozenset(self.ruled_out)


def _moves(text: str) -> tuple[Moved, ...]:
    pairs = [word.split(":") for word in text.split(",")]
    at, steps = _number(0, LAST_S), _integer(0, MOST_STEPS)
    return tuple(Moved(at(at_s), steps(step)) for at_s, step in pairs)


def _note(text: str) -> dict[str, str | None]:
    """What attach noted of the bridge as it was."""
    if len(text) > MOST_NOTE_CHARACTERS:
        raise ValueError(text)
    note = json.loads(text)
    if not isinstance(note, dict) or note.keys() != {"fail_mode"}:
        raise ValueError(text)
    if note["fail_mode"] not in (None, *FAIL_MODES):
        raise ValueError(text)
    return note


def _set_name(text: str) -> str:
    """The name of a set: no list, and nothing that a table of them could not show."""
    if not text or len(text) > MOST_NAME_CHARACTERS or not text.isprintable():
        raise ValueError(text)
    if re.search(r"[\s,]", text):
        raise ValueError(text)
    return text


def one_of(words: Iterable[str]) -> str:
    """What is expected, in the order given."""
    listed = ", ".join(words)
    return f"one of {listed}" if listed else "nothing there is"


# The end of the year 9999, as times are written; and many more moves in a row than ever were.
LAST_S = 253_402_300_799.0
MOST_STEPS = 100
# The longest window and delay a timer is sensibly given: a day.
DAY_S = 86400.0

MOST_NAME_CHARACTERS = 64
SET_NAME = (
    f"the name of a set, without commas and spaces, {MOST_NAME_CHARACTERS} characters at most"
)
MAX_MBPS = 10_000_000
MBPS_EXPECTED = "Mbit/s from 0.001 to 10000000"
# What is done with a qdisc that somebody else chose for an uplink.
QDISCS = ("keep", "replace")
MAX_SHARES = 100

# Expected of keys that are not an operator's to set.
WRITTEN_BY_US = "written by the service"
# What is placed as a whole: a VM port, or each address behind it.
UNITS = ("port", "source-mac")
# What becomes of a VM's frames from addresses that are not attached to it.
FORGED = ("accept", "reject")

BRIDGE_KEYS = {
    "policy": Key(_choice(*PRESETS), one_of(PRESETS), DEFAULT_PRESET),
    "uplinks": Key(_names, f"2 to {MAX_UPLINKS} interface names, comma-separated"),
    "teaming": Key(_choice(*TEAMINGS), one_of(TEAMINGS)),
    "mode": Key(_choice(*MODES), one_of(MODES), "enforce"),
    "threshold": Key(_number(10, 100), "a percentage from 10 to 100", 75.0),
    "window-s": Key(_number(1, DAY_S), "seconds from 1 to 86400", 30.0),
    "poll-interval-ms": Key(_number(100, 60000), "milliseconds from 100 to 60000"),
    "failback-delay-s": Key(_number(0, DAY_S), "seconds from 0 to 86400", 45.0),
    "no-flood-before": Key(lambda text: frozenset(text.split(",")), WRITTEN_BY_US, frozenset()),
    "before": Key(_note, f'{WRITTEN_BY_US}, as JSON: {{"fail_mode": ...}}'),
}
UPLINK_KEYS = {
    "capacity-mbps": Key(_number(0.001, MAX_MBPS), MBPS_EXPECTED),
    "qdisc": Key(_choice(*QDISCS), one_of(QDISCS), "keep"),
    "role": Key(_choice(*Role), one_of(Role), Role.ACTIVE.value),
    "role-before": Key(_choice(*Role), WRITTEN_BY_US, Role.ACTIVE.value),
}
# What a rule for a VM may say, on its Interface or as vm-ID-KEY on the Bridge.
VM_RULE_KEYS = {
    "pin": Key(str, "the name of an uplink"),
    "allow": Key(Choice.of, Choice.EXPECTED),
    "prefer": Key(Choice.of, Choice.EXPECTED),
    "affinity": Key(_set_name, SET_NAME),
    "anti-affinity": Key(_set_name, SET_NAME),
    "exclude": Key(_flag, "true or false", False),
    "policy": Key(_choice(*PRESETS), one_of(PRESETS)),
    "shares": Key(_integer(1, MAX_SHARES), f"an integer from 1 to {MAX_SHARES}"),
    "reserve-mbps": Key(_number(0.001, MAX_MBPS), MBPS_EXPECTED),
    "limit-mbps": Key(_number(0.001, MAX_MBPS), MBPS_EXPECTED),
    "unit": Key(_choice(*UNITS), one_of(UNITS), "port"),
    "forged-transmits": Key(_choice(*FORGED), one_of(FORGED)),
}
VM_KEYS = VM_RULE_KEYS | {
    "binding": Key(str, WRITTEN_BY_US),
    "moved": Key(_moves, WRITTEN_BY_US, ()),
}


def without_own(keys: Mapping[str, Key]) -> dict[str, Key]:
    """The keys that are an operator's to set."""
    return {key: spec for key, spec in keys.items() if not spec.expected.startswith(WRITTEN_BY_US)}


# What says of an interface that it is an uplink, or a VM port.
WORDS = Words(
    of_uplinks=UPLINK_KEYS,
    of_vm_ports=VM_KEYS,
    written=VM_KEYS.keys() - without_own(VM_KEYS),
)


def moves_text(moves: Iterable[Moved]) -> str:
    """The value of `moved`: of each move the time, and how many by load in a row it was."""
    return ",".join(f"{move.at_s:.3f}:{move.step}" for move in moves)


def parse_value(keys: Mapping[str, Key], key: str, text: str) -> Any:
    """The value of one key.

    Raises:
        KeyError: there is no such key.
        ValueError: the text is not a value of it.
    """
    if len(text) > MOST_VALUE_CHARACTERS:
        raise ValueError(text)
    return keys[key].parse(text)


def vm_identity(external_ids: Mapping[str, str]) -> str | None:
    """The name libvirt, OpenStack or Proxmox gave the VM behind an interface, if any."""
    return next((external_ids[key] for key in VM_ID_KEYS if external_ids.get(key)), None)


def teaming_violations(teaming: str, bond: PortRow | None) -> Iterator[tuple[str, str]]:
    """Why uplinks cannot be teamed like this, each as what was found and what is expected.

    `bond`: the one that the uplinks are members of; None on plain uplinks.
    """
    where = "plain uplinks" if bond is None else f"bond {bond.name} with lacp {bond.lacp or 'off'}"
    if teaming == "lacp" and not _negotiates(bond):
        expected = "a bond with lacp active or passive; without LACP switch-independent or static"
        yield f"lacp on {where}", expected
    if teaming != "lacp" and _negotiates(bond):
        expected = "lacp, as the switch upstream takes the members for one link"
        yield f"{teaming} on {where}", expected


def _watchers(port: PortRow, interface: InterfaceRow) -> Iterator[str]:
    """What takes an uplink out of use when it hears no answer, though its link is there."""
    if _negotiates(port):
        yield "LACP"
    if interface.bfd:
        yield "BFD"
    if interface.cfm:
        yield "CFM"


def _negotiates(bond: PortRow | None) -> bool:
    return bond is not None and bond.lacp in ("active", "passive")


def read_bridge(row: BridgeRow, last: BridgeConfig | None = None) -> BridgeConfig:
    """The configuration of an attached bridge.

    `last` is the configuration in force: where a value is bad, its value stays, and the
    default holds where there is none. Every such value is named in `errors`.
    """
    return _Reader(row, last).read()


class _Reader:
    """Reads one bridge, collecting bad values and the good ones that replace them later."""

    def __init__(self, row: BridgeRow, last: BridgeConfig | None) -> None:
        self.row = row
        last = last.asked if last else None
        self.last_settings = last.settings if last else {}
        self.last_policy = last.policy if last else DEFAULT_PRESET
        self.last_vm_ports = frozenset(port.name for port in last.vm_ports) if last else frozenset()
        self.last_missing = frozenset(last.missing) if last else frozenset[str]()
        self.last_policies = {port.name: port.policy for port in last.vm_ports} if last else {}
        self.errors: list[BadValue] = []
        self.settings: dict[tuple[str, str], Any] = {}

    def read(self) -> BridgeConfig:
        ids, name = self.row.external_ids, self.row.name
        bridge = self._section(f"Bridge {name}", ids, BRIDGE_KEYS)
        team = self._team(bridge["uplinks"])
        members = self._members(team.uplinks)
        neither = {*team.uplinks, *team.missing, *members_of_bonds(self.row)}
        uplinks = tuple(self._uplink(port, interface) for port, interface in members)
        uplink_names = {uplink.name for uplink in uplinks}
        bond = bond_of(self.row)
        on_bond = bond is not None and uplink_names <= {i.name for i in bond.interfaces}
        bond = bond if on_bond else None
        teaming = self._teaming(bridge["teaming"], bond)
        policy = self._policy(
            f"Bridge {name}", bridge["policy"], self.last_policy, teaming, uplinks
        )
        vm_ports = tuple(
            self._vm_port(port, interface, uplinks, policy, teaming)
            for port, interface in self._interfaces()
            if interface.name not in neither and _has_ofport(interface)
        )
        return BridgeConfig(
            name=name,
            policy=policy,
            teaming=teaming,
            mode=bridge["mode"],
            threshold_ratio=bridge["threshold"] / 100,
            window_s=bridge["window-s"],
            poll_interval_s=_poll_interval_s(bridge["poll-interval-ms"], vm_ports, policy),
            failback_delay_s=bridge["failback-delay-s"],
            on_bond=on_bond,
            bond_mode=bond.bond_mode if bond else None,
            uplinks=uplinks,
            missing=tuple(sorted(team.missing)),
            vm_ports=vm_ports,
            active_member=_active_member(bond),
            lacp_current=frozenset(i.name for _, i in members if i.lacp_current),
            falls_back=bool(bond and bond.lacp_fallback)
            and (teaming, bridge["mode"]) == ("lacp", "enforce"),
            no_flood_before=bridge["no-flood-before"],
            in_userspace=self.row.in_userspace,
            not_done=normal.not_done(self.row),
            errors=tuple(self.errors),
            settings=self.settings,
        )

    def _teaming(self, wanted: str | None, bond: PortRow | None) -> str:
        """The teaming that is wanted, unless it is none for these uplinks.

        Then the last one stays, if it is one for them; else the default.
        """
        default = "lacp" if _negotiates(bond) else "switch-independent"
        if wanted is None:
            return default
        record, key = f"Bridge {self.row.name}", PREFIX + "teaming"
        violations = list(teaming_violations(wanted, bond))
        for found, expected in violations:
            self._report(BadValue(record, key, found, expected))
        last = self.last_settings.get((record, key), default)
        fitting = [t for t in (wanted, last, default) if not any(teaming_violations(t, bond))]
        self.settings[record, key] = fitting[0]
        return fitting[0]

    def _interfaces(self) -> Iterator[tuple[PortRow, InterfaceRow]]:
        for port in self.row.ports:
            for interface in port.interfaces:
                yield port, interface

    def _team(self, named: tuple[str, ...] | None) -> membership.Team:
        """The uplinks in force; what is wrong with those that are asked for is reported."""
        record, key = f"Bridge {self.row.name}", PREFIX + "uplinks"
        known = Known(
            self.last_settings.get((record, key), ()), self.last_vm_ports, self.last_missing
        )
        found = membership.team(self.row, named, known, WORDS)
        for what, expected in found.wrong:
            self._report(BadValue(record, key, what, expected))
        self.settings[record, key] = found.uplinks
        return found

    def _members(self, names: Iterable[str]) -> list[tuple[PortRow, InterfaceRow]]:
        """The records of those uplinks that the switch has."""
        present = {interface.name: (port, interface) for port, interface in self._interfaces()}
        return [present[n] for n in names if n in present and _has_ofport(present[n][1])]

    def _uplink(self, port: PortRow, interface: InterfaceRow) -> UplinkConfig:
        values = self._section(f"Interface {interface.name}", interface.external_ids, UPLINK_KEYS)
        capacity_mbps = values["capacity-mbps"]
        return UplinkConfig(
            name=interface.name,
            ofport=OfPort(interface.ofport or 0),
            capacity_bps=capacity_mbps * 1e6 if capacity_mbps else port.qos_max_rate_bps,
            link_speed_bps=interface.link_speed_bps,
            role=Role(values["role"]),
            role_before=Role(values["role-before"]),
            vlans=port_vlans(port.vlan_mode, port.tag, port.trunks),
            mac=interface.mac,
            replaces_qdisc=values["qdisc"] == "replace",
            watched_by=tuple(_watchers(port, interface)),
        )

    def _policy(
        self, record: str, wanted: str, last: str, teaming: str, uplinks: tuple[UplinkConfig, ...]
    ) -> str:
        """The policy that is wanted, unless the team is none for it; then the last one stays."""
        team = [
            Uplink(u.name, u.ofport, u.capacity_bps or u.link_speed_bps or 0.0, u.role)
            for u in uplinks
        ]
        violations = list(PRESETS[wanted].limits.violations(teaming, team))
        for found, expected in violations:
            self._report(BadValue(record, PREFIX + "policy", f"{wanted} with {found}", expected))
        return last if violations else wanted

    def _vm_port(
        self,
        port: PortRow,
        interface: InterfaceRow,
        uplinks: tuple[UplinkConfig, ...],
        policy: str,
        teaming: str,
    ) -> VmPortConfig:
        ids = interface.external_ids
        vm_id = next((i for key in reversed(VM_ID_KEYS) if (i := ids.get(key))), None)
        vlans = port_vlans(port.vlan_mode, port.tag, port.trunks)
        carriers = self._carriers(port, vlans, uplinks)
        team = [uplink.name for uplink in uplinks]
        chosen = _chosen_of(team)
        pinned = Key(_choice(*carriers), one_of(sorted(carriers)))
        keys = {**VM_KEYS, "pin": pinned, "allow": chosen, "prefer": chosen}
        # The Interface's own rules win over those that the Bridge keeps for its VM.
        rules = self._vm_rules(ids, keys) | self._given(f"Interface {interface.name}", ids, keys)
        self._report_unknown(f"Interface {interface.name}", ids, keys)
        record, last = f"Interface {interface.name}", self.last_policies.get(interface.name, policy)
        if own := rules.get("policy"):
            policy = self._policy(record, own, last, teaming, uplinks)
        allow, prefer = (_in_force(rules.get(key), team) for key in ("allow", "prefer"))
        may_use = allow.allowed(team) if allow else frozenset(team)
        wishes = prefer or Choice((), ())
        limit_bps = _bps(rules.get("limit-mbps"))
        unit, attached = rules.get("unit", "port"), self._attached_macs(record, ids)
        return VmPortConfig(
            name=interface.name,
            ofport=OfPort(interface.ofport or 0),
            vm=vm_identity(ids) or interface.name,
            policy=policy,
            vlans=vlans,
            allowed=_unless_all(carriers & may_use, team),
            carriers=_unless_all(carriers, team),
            allow=_unless_all(may_use, team),
            attached_macs=attached or _own_macs(interface),
            forges=self._forges(record, rules.get("forged-transmits"), unit, attached),
            pin=rules.get("pin"),
            prefer=wishes.named,
            avoid=frozenset(wishes.ruled_out),
            affinity=rules.get("affinity"),
            anti_affinity=rules.get("anti-affinity"),
            excluded=rules.get("exclude", False),
            binding=rules.get("binding"),
            moved=rules.get("moved", ()),
            unit=unit,
            vm_id=vm_id,
            shares=rules.get("shares"),
            reserve_bps=self._reserve(record, _bps(rules.get("reserve-mbps")), limit_bps),
            limit_bps=limit_bps,
        )

    def _attached_macs(self, record: str, ids: Mapping[str, str]) -> tuple[str, ...]:
        """The addresses that libvirt or OpenStack say the VM has."""
        text = ids.get("attached-mac", "")
        macs = [mac.lower() for mac in re.split(r"[\s,]+", text) if mac]
        if all(MAC.fullmatch(mac) and not int(mac[1], 16) & 1 for mac in macs):
            return tuple(sorted(set(macs)))
        self._report(BadValue(record, "attached-mac", text, "MAC addresses of six bytes"))
        return ()

    def _forges(
        self, record: str, wanted: str | None, unit: str, attached: tuple[str, ...]
    ) -> bool:
        """Whether a VM's frames from addresses that are not its own are taken."""
        if wanted == "reject" and not attached:
            expected = "attached-mac in external_ids, too: the addresses that it may send from"
            self._report(BadValue(record, PREFIX + "forged-transmits", wanted, expected))
            return True
        return not attached or (wanted or _FORGED_BY_UNIT[unit]) == "accept"

    def _reserve(
        self, record: str, reserve_bps: float | None, limit_bps: float | None
    ) -> float | None:
        """What a VM port is promised, which is at most what it may use."""
        if reserve_bps is None or limit_bps is None or reserve_bps <= limit_bps:
            return reserve_bps
        found, expected = f"{reserve_bps / 1e6:g}", f"at most its limit-mbps {limit_bps / 1e6:g}"
        self._report(BadValue(record, PREFIX + "reserve-mbps", found, expected))
        return limit_bps

    def _carriers(
        self, port: PortRow, vlans: PortVlans, uplinks: tuple[UplinkConfig, ...]
    ) -> frozenset[str]:
        """The uplinks a VM port may use; where there is none, that is reported."""
        allowed = carriers(vlans, {uplink.name: uplink.vlans for uplink in uplinks})
        if uplinks and not allowed:
            key = "trunks" if port.tag is None else "tag"
            found = ",".join(map(str, port.trunks if port.tag is None else (port.tag,))) or "none"
            self._report(BadValue(f"Port {port.name}", key, found, "a VLAN that an uplink carries"))
        return allowed

    def _vm_rules(self, ids: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, Any]:
        """What the Bridge says of this VM, under any of its names."""
        record, rules = f"Bridge {self.row.name}", {key: keys[key] for key in VM_RULE_KEYS}
        found: dict[str, Any] = {}
        for identity in (ids[key] for key in VM_ID_KEYS if ids.get(key)):
            prefix = f"{PREFIX}vm-{identity}-"
            found |= self._given(record, self.row.external_ids, rules, prefix)
        return found

    def _is_vm_rule(self, key: str) -> bool:
        return key.startswith("vm-") and any(key.endswith("-" + rule) for rule in VM_RULE_KEYS)

    def _section(
        self, record: str, ids: Mapping[str, str], keys: Mapping[str, Key]
    ) -> dict[str, Any]:
        """Every key's value, the default where there is none."""
        self._report_unknown(record, ids, keys)
        defaults = {key: spec.default for key, spec in keys.items()}
        return defaults | self._given(record, ids, keys)

    def _given(
        self,
        record: str,
        ids: Mapping[str, str],
        keys: Mapping[str, Key],
        prefix: str = PREFIX,
    ) -> dict[str, Any]:
        """The values of the keys that are there; the last good one in place of a bad one."""
        values: dict[str, Any] = {}
        for key in keys:
            if (text := ids.get(prefix + key)) is None:
                continue
            slot = (record, prefix + key)
            try:
                values[key] = parse_value(keys, key, text)
            except ValueError:
                self._report(BadValue(record, prefix + key, text, keys[key].expects(text)))
                salvage = keys[key].salvage
                otherwise = salvage(text) if salvage else keys[key].default
                values[key] = self.last_settings.get(slot, otherwise)
            self.settings[slot] = values[key]
        return values

    def _report_unknown(self, record: str, ids: Mapping[str, str], keys: Mapping[str, Key]) -> None:
        """Keys with our prefix that do not exist."""
        for key in sorted(key for key in ids if key.startswith(PREFIX)):
            name = key.removeprefix(PREFIX)
            left = name in WORDS.written or name == "role-before"
            if name not in keys and not (keys is BRIDGE_KEYS and self._is_vm_rule(name)):
                if left and keys is not BRIDGE_KEYS:
                    # Of what the interface was before.
                    continue
                expected = one_of(PREFIX + known for known in without_own(keys))
                self._report(BadValue(record, key, ids[key], expected))

    def _report(self, error: BadValue) -> None:
        """Once, also where one value speaks for several ports of a VM."""
        if error not in self.errors:
            self.errors.append(error)


# Of a port with many VMs behind it, the addresses are not known beforehand.
_FORGED_BY_UNIT = {"port": "reject", "source-mac": "accept"}


def _own_macs(interface: InterfaceRow) -> tuple[str, ...]:
    """The host's own address, where an interface is the bridge's."""
    if interface.ofport != OFPORT_LOCAL or interface.mac is None:
        return ()
    return (interface.mac.lower(),)


def _chosen_of(team: list[str]) -> Key:
    """Uplinks of a team, of which at least one is left."""

    def parse(text: str) -> Choice:
        choice = Choice.of(text)
        if _in_force(choice, team) != choice:
            raise ValueError(text)
        return choice

    def salvage(text: str) -> Choice | None:
        try:
            return _in_force(Choice.of(text), team)
        except ValueError:
            return None

    expected = f"some of {', '.join(team)}, comma-separated, or with ! before it all but that"
    return Key(parse, expected, salvage=salvage)


def _in_force(choice: Choice | None, team: Collection[str]) -> Choice | None:
    """What is left of a choice of uplinks; None where nothing is that could be meant.

    A VM is not cut off because an uplink has left the team.
    """
    if choice is None:
        return None
    known = choice.known(team)
    if (choice.named and not known.named) or not known.allowed(team):
        return None
    return known if known.named or known.ruled_out else None


def _unless_all(names: frozenset[str], team: Collection[str]) -> frozenset[str] | None:
    return names if len(names) < len(team) else None


def _bps(mbps: float | None) -> float | None:
    return None if mbps is None else mbps * 1e6


def _active_member(bond: PortRow | None) -> str | None:
    macs = {i.mac: i.name for i in bond.interfaces} if bond else {}
    return macs.get(bond.active_mac) if bond and bond.active_mac else None


def _has_ofport(interface: InterfaceRow) -> bool:
    """Whether the switch has given the interface a port number we can match on."""
    return interface.ofport is not None and (
        0 < interface.ofport < OFPORT_MAX or interface.ofport == OFPORT_LOCAL
    )


def _poll_interval_s(asked_ms: float | None, ports: Iterable[VmPortConfig], policy: str) -> float:
    """As an operator says; else as the policy in use that looks most often."""
    if asked_ms is not None:
        return asked_ms / 1000
    return min(PRESETS[name].poll_s for name in (policy, *(port.policy for port in ports)))
