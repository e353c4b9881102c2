"""Lists the configuration keys: the kind of value of each key, its default, and its meaning.

The reader, `ovs-lbt set` with its errors and help, the man page and the documents use this table.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from controller.config import kinds
from controller.config.kinds import DAY_S, Kind, Known
from controller.text.wording import one_of
from policies.model import Role, Teaming
from policies.presets import DEFAULT_PRESET, PRESETS

# The maximum length of a value, which is stored in the database and reported in one line.
MOST_VALUE_CHARACTERS = 4096


class Record(StrEnum):
    """A kind of database record that can have ovs-lbt keys."""

    HOST = "Open_vSwitch"
    BRIDGE = "Bridge"
    PORT = "Port, uplink"
    UPLINK = "Interface, uplink"
    VM_PORT = "Interface, VM port"


@dataclass(frozen=True, slots=True)
class Key:
    """A configuration key. `name` does not include the prefix.

    `meaning`: the description for operators, with literal words in backticks. `default`: the
    value that applies to a record without this key, as an operator writes it; None if the key has no
    default. `otherwise`: a description of the default, if the default is not a fixed value.
    """

    record: Record
    name: str
    takes: Kind
    meaning: str
    default: str | None = None
    otherwise: str = ""

    @property
    def settable(self) -> bool:
        """Whether operators can set this key."""
        return not self.takes.by_service

    @property
    def without(self) -> Any:
        """The parsed value that applies to a record without this key."""
        return None if self.default is None else self.takes.parse(self.default)

    @property
    def in_effect(self) -> str:
        """The default as text, with literal words in backticks; empty if there is no default."""
        return self.otherwise or (f"`{self.default}`" if self.default else "")

    @property
    def accepts(self) -> str:
        """The values that the key accepts, and its default, as sentences."""
        text = f"Value: {self.takes.expected}."
        return f"{text} Default: {self.in_effect}." if self.in_effect else text

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for.

        Raises:
            ValueError: `text` is not a valid value of this key.
        """
        if len(text) > MOST_VALUE_CHARACTERS and not self.takes.unlimited:
            raise ValueError(text)
        return self.takes.parse(text)

    def expects(self, found: str) -> str:
        """Return the description of valid values for an error about the invalid value `found`."""
        if len(found) <= MOST_VALUE_CHARACTERS:
            return self.takes.expected
        return f"{self.takes.expected}; {MOST_VALUE_CHARACTERS} characters at most"


_host = functools.partial(Key, Record.HOST)
_bridge = functools.partial(Key, Record.BRIDGE)
_port = functools.partial(Key, Record.PORT)
_uplink = functools.partial(Key, Record.UPLINK)
_vm_port = functools.partial(Key, Record.VM_PORT)

# The units that each policy places, and when the policy moves units to balance load.
POLICIES = {
    "load-based": "VM ports; moves one at a time off an uplink above the threshold",
    "adaptive": "VM ports; moves as few as possible off a full uplink within 0.2 s; spreads the"
    " connections of a VM port whose load exceeds one uplink",
    "originating-port": "VM ports, by port number; static",
    "explicit": "everything on the first working uplink; no balancing",
    "dynamic": "connections; rebalances every 3 s",
    "address-hash": "connections; static",
    "ip-hash": "pairs of IP addresses, on a LAG; static",
    "source-mac": "source MAC addresses; static",
    "slb": "source MAC addresses in each VLAN; rebalances every 10 s",
    "set": "same as dynamic, for Switch Embedded Teaming (SET)",
    "set-port": "same as originating-port, for Switch Embedded Teaming (SET)",
}
assert POLICIES.keys() == PRESETS.keys(), "every policy is explained"
# `replay` adds other packages' policies to the presets.
_POLICY = replace(kinds.name_in(PRESETS), expected=one_of(POLICIES))
_SECONDS = kinds.seconds(0, DAY_S)
_SECONDS_OR_NEVER = replace(
    _SECONDS,
    parse=lambda text: math.inf if text == "never" else _SECONDS.parse(text),
    expected=f"{_SECONDS.expected}, or never",
)

KEYS = (
    _host(
        "leader",
        kinds.written(),
        "The leading service as `NAME@HOST`, while another service is on standby.",
    ),
    _host(
        "key-loss-grace-s",
        _SECONDS,
        "The time for which the service continues to use the last keys of a bridge whose"
        " `policy` disappears from the database. This time does not delay `detach`.",
        default="30",
    ),
    _bridge(
        "policy",
        _POLICY,
        "The teaming policy. A bridge that has this key is attached.",
        default=DEFAULT_PRESET,
    ),
    _bridge(
        "uplinks",
        kinds.INTERFACE_NAMES,
        "The uplinks, in failover order. On a bond, the uplinks are all members of the bond. An interface"
        " that appears to belong to a VM is not used as an uplink, unless the interface has `role=active`.",
        otherwise="the members of the bridge's bond",
    ),
    _bridge(
        "teaming",
        kinds.name_in(tuple(Teaming)),
        "The configuration of the upstream switch for the uplinks: separate links"
        " (`switch-independent`), a static LAG (`static`), or a LAG with LACP (`lacp`).",
        otherwise="`lacp` on a bond that negotiates LACP, else `switch-independent`",
    ),
    _bridge(
        "mode",
        kinds.name_in(("enforce", "observe")),
        "With `observe`, the service makes and reports decisions, but does not move VM ports.",
        default="enforce",
    ),
    _bridge(
        "threshold",
        kinds.amount("a percentage", 10, 100, lambda percent: percent / 100),
        "The utilization above which VM ports are moved off an uplink to balance load.",
        default="75",
    ),
    _bridge(
        "window-s",
        kinds.seconds(1, DAY_S),
        "The time over which loads are averaged, and the minimum time between two moves to balance load.",
        default="30",
    ),
    _bridge(
        "poll-interval-ms",
        kinds.amount("a number of milliseconds", 100, 60000, lambda ms: ms / 1000),
        "The time between two readings of the switch's counters.",
        otherwise="1000; 100 if `adaptive` is in use",
    ),
    _bridge(
        "failback-delay-s",
        _SECONDS_OR_NEVER,
        "The time for which an uplink carries no traffic after its link has come up again. With"
        " `never`, the uplink carries no traffic until another uplink fails.",
        default="45",
    ),
    _bridge(
        "path-check",
        kinds.FLAG,
        "With `on`, the uplinks send probes to each other, to detect faults that do not take a link down.",
        default="off",
    ),
    _bridge(
        "path-check-targets",
        kinds.HOSTS,
        "The hosts to which each uplink sends queries, to determine which of two uplinks is at fault.",
    ),
    _bridge(
        "connection-hash",
        kinds.name_in(("multipath", "dp_hash", "auto")),
        "The hash that the switch uses for policies that spread connections. With `multipath`,"
        " each connection uses an entry of the switch's flow cache. With `dp_hash`, all"
        " connections of a VM port share 256 entries. `auto` selects `dp_hash`, unless"
        " `hw-offload` is true and a network card may forward the traffic. `attach` sets `auto`.",
        otherwise="`multipath`; `auto` while traffic from a tunnel endpoint on the userspace datapath is spread over uplinks",
    ),
    _bridge(
        "patch-unit",
        kinds.name_in(("port", "source-mac")),
        "The `unit` of patch ports whose own `unit` is not set. This key remains when OVN"
        " removes a patch port and creates it again.",
        default="port",
    ),
    _bridge(
        "no-flood-before",
        kinds.written(lambda text: frozenset(text.split(","))),
        "The VM ports that had the flag `no-flood` before `attach`. `detach` does not clear this flag.",
    ),
    _bridge(
        "before", kinds.PREVIOUS_STATE, "The settings that `attach` changed and `detach` restores."
    ),
    _bridge(
        "team",
        kinds.written(Known.parse, unlimited=True),
        "The last valid team: the bond, the uplinks, and other ports that are not VM ports, as"
        " `BOND/UPLINKS/OTHERS`. This team stays in force while the configuration is invalid.",
    ),
    _bridge(
        "uplink-keys",
        kinds.written(unlimited=True),
        "A copy of the keys of each uplink's interface, and the ID of the interface's record, as JSON. If another"
        " program creates the record again without these keys, the service restores the keys.",
    ),
    _bridge(
        "unconfirmed",
        # Contains saved settings of many records. The reader of this key parses the JSON.
        kinds.written(unlimited=True),
        "The change that is rolled back unless it is confirmed, the time of the rollback, and the previous"
        " settings, as JSON. After `detach --rollback-after`, the detached bridge also has this key.",
    ),
    _port(
        "kept",
        kinds.written(unlimited=True),
        "A copy of the bridge's keys, which the service uses if the keys disappear. The copy is stored on"
        " the port that has the bridge's name (the local port). `detach` removes the copy.",
    ),
    _port(
        "protected",
        kinds.written(),
        "True if the service, not the operator, has set the column `protected`, which prevents NORMAL"
        " from forwarding between plain uplinks. `detach` clears the key and the column.",
    ),
    _uplink(
        "capacity-mbps",
        kinds.MBPS,
        "The capacity of the link.",
        otherwise="the `max-rate` of its QoS, else the speed that OpenFlow reports, else the speed in the"
        " database",
    ),
    _uplink(
        "qdisc",
        kinds.name_in(("keep", "replace")),
        "With `replace`, the service replaces another program's qdisc on an uplink that needs"
        " queues.",
        default="keep",
    ),
    _uplink(
        "role",
        Kind(Role, one_of(Role), words=tuple(Role)),
        "An `active` uplink always carries traffic. A `standby` uplink carries traffic only while no active uplink does. A"
        " `drained` uplink carries traffic only while no other uplink is up. An `unused` uplink never carries traffic.",
        default=Role.ACTIVE.value,
    ),
    _uplink("role-before", kinds.written(Role), "The role that `undrain` restores."),
    _vm_port(
        "pin",
        # Keys are parsed before the uplinks are known, so any name is accepted here.
        Kind(str, "the name of an uplink"),
        "The uplink that the VM port uses. The VM port uses another uplink only while this"
        " uplink is down or out of service.",
    ),
    _vm_port(
        "allow",
        kinds.UPLINKS,
        "The only uplinks that the VM port can use. While none of these uplinks carries"
        " traffic, the VM port has no uplink.",
        otherwise="every uplink",
    ),
    _vm_port(
        "prefer",
        kinds.UPLINKS,
        "The uplinks to prefer, in order of preference. The VM port avoids the uplinks that are written as `!NAME`.",
    ),
    _vm_port(
        "affinity", kinds.SET_NAME, "The set of VM ports that should all use the same uplink."
    ),
    _vm_port(
        "anti-affinity",
        kinds.SET_NAME,
        "The set of VM ports that should each use a different uplink.",
    ),
    _vm_port(
        "exclude",
        kinds.FLAG,
        "With `true`, no policy moves the VM port to balance load.",
        default="false",
    ),
    _vm_port(
        "policy", _POLICY, "The teaming policy of this VM port.", otherwise="the bridge's policy"
    ),
    _vm_port(
        "shares",
        kinds.integer(1, 100),
        "The weight of the VM port for sent traffic, relative to other VM ports on a full uplink.",
        otherwise="50",
    ),
    _vm_port(
        "reserve-mbps",
        kinds.MBPS,
        "The rate that is reserved on the uplink for traffic that the VM port sends. At most 95"
        " % of an uplink's capacity can be reserved. A reservation takes precedence over"
        " `affinity`, `anti-affinity` and `prefer`.",
    ),
    _vm_port("limit-mbps", kinds.MBPS, "The highest rate at which the VM port can send."),
    _vm_port(
        "unit",
        kinds.name_in(("port", "source-mac")),
        "The unit to which a policy assigns an uplink: the whole VM port, or each address behind the VM port.",
        otherwise="`port`; for a patch port, the bridge's `patch-unit`",
    ),
    _vm_port(
        "forged-transmits",
        kinds.name_in(("accept", "reject")),
        "With `accept`, the VM can send frames from addresses other than its `attached-mac`."
        " With `reject`, the switch drops these frames.",
        otherwise="`reject` if the VM has an `attached-mac` and `unit` is `port`, else `accept`",
    ),
    _vm_port("binding", kinds.written(), "The uplink that the VM port uses."),
    _vm_port(
        "moved",
        kinds.written(kinds.moves),
        "The moves that count against the VM port's budget under `adaptive`. For each move, the key contains the time"
        " since the epoch, and the number of consecutive moves to balance load (0 for a move with another reason).",
    ),
)


def keys_of(record: Record) -> dict[str, Key]:
    """Return all keys of a kind of record, keyed by their names."""
    return {key.name: key for key in KEYS if key.record is record}


def settable(keys: Mapping[str, Key]) -> dict[str, Key]:
    """Return those of `keys` that operators can set."""
    return {name: key for name, key in keys.items() if key.settable}


HOST_KEYS = keys_of(Record.HOST)
BRIDGE_KEYS = keys_of(Record.BRIDGE)
UPLINK_KEYS = keys_of(Record.UPLINK)
VM_KEYS = keys_of(Record.VM_PORT)
# The rules that a VM can have, on its Interface or as vm-ID-KEY on the Bridge.
VM_RULE_KEYS = settable(VM_KEYS)
# The keys of VM ports that only the service writes.
WRITTEN_VM_KEYS = VM_KEYS.keys() - VM_RULE_KEYS.keys()

TITLES = {
    Record.BRIDGE: "keys of a bridge",
    Record.UPLINK: "keys of an uplink's interface",
    Record.VM_PORT: "keys of a VM port's interface (KEY= removes one)",
}
WIDTH = 80
INDENT = 21


def manual() -> str:
    """Return the description of all keys that operators can set, for `set --help`."""
    parts = []
    for record, title in TITLES.items():
        keys = (key for key in KEYS if key.record is record and key.settable)
        parts.append("\n".join([f"{title}:", *map(_entry, keys)]))
    return "\n\n".join(parts)


def attach_manual() -> str:
    """Return the policies, and the keys that `attach` options set, for `attach --help`."""
    policies = [_filled(name, text) for name, text in POLICIES.items()]
    values = [_entry(BRIDGE_KEYS[name]) for name in ("policy", "teaming")]
    return "\n".join(["policies, and their units:", *policies, "", "values:", *values])


def _entry(key: Key) -> str:
    return _filled(key.name, f"{key.meaning} {key.accepts}".replace("`", ""))


def _filled(name: str, text: str) -> str:
    first = f"  {name} ".ljust(INDENT)
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=" " * INDENT, break_on_hyphens=False
    )
