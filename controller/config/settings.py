"""Reads the values of our keys. Reports invalid values, and keeps the last valid values in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.config.keys import BRIDGE_KEYS, VM_RULE_KEYS, WRITTEN_VM_KEYS, Key, settable
from controller.config.rows import PREFIX
from controller.config.values import BadValue, UplinkConfig
from controller.text.wording import is_invalid, one_of, quoted
from policies.model import Uplink
from policies.presets import PRESETS

# The suffixes of the keys in which a bridge stores the rules of VMs.
RULES = tuple(f"-{rule}" for rule in VM_RULE_KEYS)


class Settings:
    """The values of our keys in one bridge's records.

    `last`: the previous values in force, keyed by record and key. `in_force`: the values in force.
    `errors`: the invalid values, without duplicates.
    """

    def __init__(self, last: Mapping[tuple[str, str], Any]) -> None:
        self.last = last
        self.in_force: dict[tuple[str, str], Any] = {}
        self.errors: dict[BadValue, None] = {}

    def section(
        self, record: str, ids: Mapping[str, str], keys: Mapping[str, Key]
    ) -> dict[str, Any]:
        """Return the values of all keys, with defaults for absent keys."""
        self.report_unknown(record, ids, keys)
        defaults = {name: key.without for name, key in keys.items()}
        return defaults | self.given(record, ids, keys)

    def given(
        self, record: str, ids: Mapping[str, str], keys: Mapping[str, Key], prefix: str = PREFIX
    ) -> dict[str, Any]:
        """Return the values of `keys` in `ids`, or, for an invalid value, the last valid value."""
        values: dict[str, Any] = {}
        for name, key in keys.items():
            if (text := ids.get(prefix + name)) is None:
                continue
            slot = (record, prefix + name)
            try:
                values[name] = key.parse(text)
            except ValueError:
                self.report_value(record, prefix + name, text, key.expects(text))
                salvage = key.takes.salvage
                otherwise = salvage(text) if salvage else key.without
                values[name] = self.last.get(slot, otherwise)
            self.in_force[slot] = values[name]
        return values

    def report_unknown(self, record: str, ids: Mapping[str, str], keys: Mapping[str, Key]) -> None:
        """Report unknown keys that have our prefix."""
        expected = ""
        for key in sorted(key for key in ids if key.startswith(PREFIX)):
            name = key.removeprefix(PREFIX)
            left = name in WRITTEN_VM_KEYS or name == "role-before"
            is_rule = keys is BRIDGE_KEYS and name.startswith("vm-") and name.endswith(RULES)
            if name not in keys and not is_rule:
                if left and keys is not BRIDGE_KEYS:
                    # The service wrote this key when the interface had another role.
                    continue
                expected = expected or one_of(PREFIX + known for known in settable(keys))
                remedy = f"expected {expected}, or remove the key: "
                self.report_unread(record, "external_ids", key, "the key is unknown", remedy)

    def report_unread(self, record: str, column: str, key: str, problem: str, remedy: str) -> None:
        """Report a key that has no effect. `remedy`: the text before the command to remove the key."""
        table, _, name = record.partition(" ")
        remove = f"ovs-vsctl remove {table.lower()} {quoted(name)} {column} {quoted(key)}"
        self.report(record, key, problem, remedy + remove)

    def policy(
        self, record: str, wanted: str, last: str, teaming: str, uplinks: Iterable[UplinkConfig]
    ) -> str:
        """Return `wanted` if the team supports this policy; otherwise report errors and return `last`."""
        team = [
            Uplink(u.name, u.ofport, u.capacity_bps or u.link_speed_bps or 0.0, u.role)
            for u in uplinks
        ]
        violations = list(PRESETS[wanted].limits.violations(teaming, team))
        for found, expected in violations:
            problem = f"{wanted} does not support {found}"
            self.report(record, PREFIX + "policy", problem, f"expected {expected}")
        return last if violations else wanted

    def report_value(self, record: str, key: str, found: str, expected: str) -> None:
        """Add an error about an invalid value."""
        self.report(record, key, is_invalid(found), f"expected {expected}")

    def report(self, record: str, key: str, problem: str, remedy: str) -> None:
        """Add an error, unless it was added before, for example for another port of the same VM."""
        self.errors[BadValue(record, key, problem, remedy)] = None
