"""The table of keys: the kind of value of each key, its default, and its meaning.

The reader, `ovs-lbt set` with its errors and help, the man page and the documents use this table.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from controller.config import kinds
from controller.config.kinds import DAY_S, Kind
from controller.config.membership import Known, Words
from policies.model import Role, Teaming
from policies.presets import DEFAULT_PRESET, PRESETS

# The most characters of a value: it is kept in the database and reported in one line.
MOST_VALUE_CHARACTERS = 4096


class Record(StrEnum):
    """The kinds of records that can have our keys."""

    HOST = "Open_vSwitch"
    BRIDGE = "Bridge"
    PORT = "Port, uplink"
    UPLINK = "Interface, uplink"
    VM_PORT = "Interface, VM port"


@dataclass(frozen=True, slots=True)
class Key:
    """One key, without its prefix.

    `default`: the value of a record without this key, as an operator writes it; None if there is
    none. `otherwise`: words for what applies without the key, if the default does not say it.
    `meaning`: sentences for people, with literal words between backquotes.
    """

    record: Record
    name: str
    takes: Kind
    default: str | None
    meaning: str
    otherwise: str = ""

    @property
    def settable(self) -> bool:
        """Whether operators may set it."""
        return not self.takes.by_service

    @property
    def expected(self) -> str:
        return self.takes.expected

    @property
    def without(self) -> Any:
        """The value of a record without this key."""
        return None if self.default is None else self.takes.parse(self.default)

    def parse(self, text: str) -> Any:
        """Parse a value.

        Raises:
            ValueError: the text is not a valid value.
        """
        if len(text) > MOST_VALUE_CHARACTERS and not self.takes.unlimited:
            raise ValueError(text)
        return self.takes.parse(text)

    def expects(self, found: str) -> str:
        """What errors expect instead of the invalid value `found`."""
        if len(found) <= MOST_VALUE_CHARACTERS:
            return self.expected
        return f"{self.expected}; {MOST_VALUE_CHARACTERS} characters at most"


_host = functools.partial(Key, Record.HOST)
_bridge = functools.partial(Key, Record.BRIDGE)
_port = functools.partial(Key, Record.PORT)
_uplink = functools.partial(Key, Record.UPLINK)
_vm_port = functools.partial(Key, Record.VM_PORT)

KEYS = (
    _host(
        "leader",
        kinds.written(),
        None,
        "The leading service, as `NAME@HOST`, if another one is on standby.",
    ),
    _host(
        "key-loss-grace-s",
        kinds.seconds(0, DAY_S),
        "30",
        "How long the service continues with the last keys of a bridge whose `policy` vanishes from the"
        " database. `detach` does not wait.",
    ),
    _bridge(
        "policy",
        kinds.name_in(PRESETS),
        DEFAULT_PRESET,
        "The teaming policy. A bridge that has this key is attached.",
    ),
    _bridge(
        "uplinks",
        kinds.interface_names(),
        None,
        "The uplinks, in failover order. On a bond they are all of its members. An interface that"
        " looks like a VM's is not an uplink, unless it has `role=active`.",
        otherwise="the members of the bridge's bond",
    ),
    _bridge(
        "teaming",
        kinds.word(*Teaming),
        None,
        "How the uplinks look to the upstream switch: as separate links, as one static link"
        " aggregation, or as one that LACP negotiates.",
        otherwise="`lacp` on a bond that negotiates LACP, else `switch-independent`",
    ),
    _bridge(
        "mode",
        kinds.word("enforce", "observe"),
        "enforce",
        "With `observe`, the service decides and reports, but moves nothing.",
    ),
    _bridge(
        "threshold",
        kinds.percent(10, 100),
        "75",
        "The share of an uplink's capacity above which load moves VM ports.",
    ),
    _bridge(
        "window-s",
        kinds.seconds(1, DAY_S),
        "30",
        "The time over which loads are averaged, and the least time between two moves.",
    ),
    _bridge(
        "poll-interval-ms",
        kinds.milliseconds(100, 60000),
        None,
        "The time between two readings of the switch's counters.",
        otherwise="1000; 100 where `adaptive` is in use",
    ),
    _bridge(
        "failback-delay-s",
        kinds.seconds_or_never(0, DAY_S),
        "45",
        "How long an uplink carries nothing after its link has returned. With `never`, it carries"
        " nothing until another uplink fails.",
    ),
    _bridge(
        "path-check",
        kinds.word("off", "on"),
        "off",
        "With `on`, the uplinks probe each other, so that a fault that keeps their links up is found.",
    ),
    _bridge(
        "path-check-targets",
        kinds.hosts(),
        None,
        "The hosts that each uplink queries, to find out which of two uplinks is at fault.",
    ),
    _bridge(
        "connection-hash",
        kinds.word("multipath", "dp_hash", "auto"),
        None,
        "How the switch hashes connections, under a policy that spreads them. With `multipath`, each"
        " connection takes an entry of the switch's flow cache. With `dp_hash`, 256 entries serve all"
        " connections of a VM port. `auto` is `dp_hash`, unless `hw-offload` is true and a card may forward."
        " `attach` writes `auto`.",
        "`multipath`; `auto` while a tunnel endpoint of the userspace datapath is spread",
    ),
    _bridge(
        "patch-unit",
        kinds.word("port", "source-mac"),
        "port",
        "The `unit` of patch ports that have none of their own. It outlives a patch port that OVN"
        " removes and creates again.",
    ),
    _bridge(
        "no-flood-before",
        kinds.written(kinds.port_names),
        None,
        "The VM ports that had the flag `no-flood` before attach. Detach does not clear it.",
    ),
    _bridge(
        "before",
        kinds.note(),
        None,
        "What attach changed and detach restores.",
    ),
    _bridge(
        "team",
        kinds.written(Known.parse, unlimited=True),
        None,
        "The last valid team, which stays in force while the configuration is invalid: the bond, the"
        " uplinks, and what is neither they nor a VM port, as `BOND/UPLINKS/OTHERS`.",
    ),
    _bridge(
        "unconfirmed",
        # What it saved of many records. The part that reads it parses it.
        kinds.written(unlimited=True),
        None,
        "The change that is rolled back unless it is confirmed, until when, and the settings from before"
        " it, as JSON. Also on a bridge that was detached with `--rollback-after`.",
    ),
    _port(
        "protected",
        kinds.written(),
        None,
        "The service has set the column `protected`, so that NORMAL never forwards between plain uplinks."
        " Detach clears both.",
    ),
    _uplink(
        "capacity-mbps",
        kinds.mbps(),
        None,
        "The capacity of the link.",
        otherwise="the `max-rate` of its QoS, else the speed that OpenFlow reports, else that in the"
        " database",
    ),
    _uplink(
        "qdisc",
        kinds.word("keep", "replace"),
        "keep",
        "Whether the service replaces a qdisc that another program has set on the uplink, where it"
        " needs queues.",
    ),
    _uplink(
        "role",
        kinds.role(),
        Role.ACTIVE.value,
        "An `active` uplink always carries traffic, a `standby` one while no active one does, a"
        " `drained` one while no other has a link, and an `unused` one never.",
    ),
    _uplink(
        "role-before",
        kinds.written(Role),
        None,
        "The role that `undrain` restores.",
    ),
    _vm_port(
        "pin",
        kinds.uplink(),
        None,
        "The uplink that the VM port uses. The VM port uses another one only while this one is"
        " down or out of service.",
    ),
    _vm_port(
        "allow",
        kinds.uplinks(),
        None,
        "The only uplinks that the VM port may use. It has no uplink while none of them carries"
        " traffic.",
        otherwise="every uplink",
    ),
    _vm_port(
        "prefer",
        kinds.uplinks(),
        None,
        "The uplinks that the VM port should use, the best first, and those that it should not.",
    ),
    _vm_port(
        "affinity",
        kinds.set_name(),
        None,
        "The set of VM ports that should all use one uplink.",
    ),
    _vm_port(
        "anti-affinity",
        kinds.set_name(),
        None,
        "The set of VM ports that should each use a different uplink.",
    ),
    _vm_port(
        "exclude",
        kinds.flag(),
        "false",
        "With `true`, no policy moves the VM port because of load.",
    ),
    _vm_port(
        "policy",
        kinds.name_in(PRESETS),
        None,
        "The teaming policy for this VM port.",
        otherwise="the bridge's",
    ),
    _vm_port(
        "shares",
        kinds.integer(1, 100),
        None,
        "The weight of the VM port among those on a full uplink, for sent traffic.",
        otherwise="50",
    ),
    _vm_port(
        "reserve-mbps",
        kinds.mbps(),
        None,
        "The rate that is reserved for the VM port on its uplink, for sent traffic. At most 95 % of"
        " an uplink's capacity can be reserved. A reservation comes before `affinity`,"
        " `anti-affinity` and `prefer`.",
    ),
    _vm_port(
        "limit-mbps",
        kinds.mbps(),
        None,
        "The highest rate at which the VM port may send.",
    ),
    _vm_port(
        "unit",
        kinds.word("port", "source-mac"),
        None,
        "What gets an uplink of its own: the whole VM port, or each address behind it.",
        otherwise="`port`; for a patch port the bridge's `patch-unit`",
    ),
    _vm_port(
        "forged-transmits",
        kinds.word("accept", "reject"),
        None,
        "Whether the service accepts frames that the VM sends from addresses other than its"
        " `attached-mac`.",
        otherwise="`reject` if the VM has an `attached-mac` and `unit` is `port`, else `accept`",
    ),
    _vm_port(
        "binding",
        kinds.written(),
        None,
        "The uplink in use.",
    ),
    _vm_port(
        "moved",
        kinds.written(kinds.moves),
        None,
        "Under `adaptive`, the moves that count against the VM port's budget. Of each: the time"
        " since the epoch, and how many by load in a row it was (0: not by load).",
    ),
)


def keys_of(record: Record) -> dict[str, Key]:
    """All keys of one kind of record, by name."""
    return {key.name: key for key in KEYS if key.record is record}


def settable(keys: Mapping[str, Key]) -> dict[str, Key]:
    """The keys that operators may set."""
    return {name: key for name, key in keys.items() if key.settable}


HOST_KEYS = keys_of(Record.HOST)
BRIDGE_KEYS = keys_of(Record.BRIDGE)
UPLINK_KEYS = keys_of(Record.UPLINK)
VM_KEYS = keys_of(Record.VM_PORT)
# The rules that a VM can have, on its Interface or as vm-ID-KEY on the Bridge.
VM_RULE_KEYS = settable(VM_KEYS)
# The keys that mark an interface as an uplink or as a VM port.
WORDS = Words(
    of_uplinks=UPLINK_KEYS,
    of_vm_ports=VM_KEYS,
    written=VM_KEYS.keys() - VM_RULE_KEYS.keys(),
)
