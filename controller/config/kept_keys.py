"""Copies the keys of a bridge and of its uplinks, and recovers keys that have disappeared.

Some network scripts clear the keys of bridges, even while the service is stopped. The copy on the bridge's
local port remains until the bridge is deleted. Scripts also delete uplinks and create them again, without
keys. The copy of uplinks' keys is on the bridge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from controller.config.keys import UPLINK_KEYS
from controller.config.membership import bonds_of
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow

KEYS_COPY = PREFIX + "kept"
UPLINK_KEYS_COPY = PREFIX + "uplink-keys"
# This key is not copied, because a change may have been confirmed after the copy was made.
NOT_COPIED = PREFIX + "unconfirmed"


def copy_of(row: BridgeRow) -> str:
    """Return the current keys of a bridge as JSON, to be stored as the copy."""
    return json.dumps({key: v for key, v in sorted(row.keys.items()) if key != NOT_COPIED})


def copy_on(row: BridgeRow) -> str | None:
    """Return the stored copy of a bridge's keys: empty if none; None if there is no local port."""
    own = (port.external_ids.get(KEYS_COPY, "") for port in row.ports if port.name == row.name)
    return next(own, None)


def last_keys(row: BridgeRow) -> Mapping[str, str]:
    """Return the last keys of a bridge whose keys have disappeared; empty for any other bridge.

    The result is also empty if plain uplinks were turned into a bond, for use without ovs-lbt.
    """
    if row.keys_lost or row.attached:
        return row.keys if row.keys_lost else {}
    try:
        found = json.loads(copy_on(row) or "{}")
        ours = {key: found[key] for key in found if key.startswith(PREFIX)}
        was_plain = ours.get(PREFIX + "team", "/").startswith("/")
    except (ValueError, TypeError, AttributeError, RecursionError):
        # Another program has written the copy.
        return {}
    is_valid = PREFIX + "policy" in ours and all(isinstance(v, str) for v in ours.values())
    return ours if is_valid and not (was_plain and bonds_of(row)) else {}


def recalled(row: BridgeRow) -> BridgeRow:
    """Return the bridge, with its last keys if its keys have disappeared."""
    keys = last_keys(row)
    return replace(row, external_ids={**keys, **row.external_ids}, keys_lost=True) if keys else row


# ---- the keys of uplinks ---------------------------------------------------------------

COPIED = frozenset(PREFIX + key for key in UPLINK_KEYS)
# By uplink: the ID of its record, and the keys.
UplinkKeys = dict[str, tuple[str, dict[str, str]]]


def uplink_keys(row: BridgeRow) -> UplinkKeys:
    """Return the stored copy of the keys of a bridge's uplinks; empty if there is none."""
    try:
        found = json.loads(row.external_ids.get(UPLINK_KEYS_COPY, "{}"))
        return {
            name: (str(uuid), {key: str(keys[key]) for key in keys if key in COPIED})
            for name, (uuid, keys) in found.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        # Another program has written the copy.
        return {}


def with_uplink_keys(row: BridgeRow) -> BridgeRow:
    """Return the bridge with the stored keys on uplinks whose records were created again."""
    stored = uplink_keys(row) if UPLINK_KEYS_COPY in row.external_ids else {}

    def restored(one: InterfaceRow) -> InterfaceRow:
        uuid, keys = stored.get(one.name, (one.uuid, {}))
        return one if uuid == one.uuid else replace(one, external_ids={**keys, **one.external_ids})

    return row.with_interfaces(restored) if stored else row
