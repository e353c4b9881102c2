"""A copy of a bridge's keys, on the record of the bridge's own port.

Network scripts clear the keys of bridges, also while the service is stopped. The copy remains, and is
removed with the bridge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from controller.config.membership import bonds_of
from controller.config.rows import PREFIX, BridgeRow

KEYS_COPY = PREFIX + "kept"
# A change may have been confirmed since, so it is not repeated.
NOT_COPIED = PREFIX + "unconfirmed"


def copy_of(row: BridgeRow) -> str:
    """The copy of the keys that a bridge has now."""
    return json.dumps({key: v for key, v in sorted(row.keys.items()) if key != NOT_COPIED})


def copy_on(row: BridgeRow) -> str | None:
    """The copy in the database, empty if there is none; None if the bridge has no port of its own."""
    own = (port.external_ids.get(KEYS_COPY, "") for port in row.ports if port.name == row.name)
    return next(own, None)


def last_keys(row: BridgeRow) -> Mapping[str, str]:
    """The last keys before they disappeared; empty if they are present, or the bridge was detached.

    Also empty if plain uplinks have been made a bond, which is to be used without ovs-lbt.
    """
    if row.keys_lost or row.attached:
        return row.keys if row.keys_lost else {}
    try:
        found = json.loads(copy_on(row) or "{}")
        ours = {key: found[key] for key in found if key.startswith(PREFIX)}
        was_plain = ours.get(PREFIX + "team", "/").startswith("/")
    except (ValueError, TypeError, AttributeError, RecursionError):
        # Another program has written that.
        return {}
    is_valid = PREFIX + "policy" in ours and all(isinstance(v, str) for v in ours.values())
    return ours if is_valid and not (was_plain and bonds_of(row)) else {}


def recalled(row: BridgeRow) -> BridgeRow:
    """The bridge with its last keys before they disappeared."""
    keys = last_keys(row)
    return replace(row, external_ids={**keys, **row.external_ids}, keys_lost=True) if keys else row
