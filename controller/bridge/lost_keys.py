"""Keeps the last keys of a bridge for some time if they disappear from the database.

Network scripts such as netplan remove keys, and write them again seconds later. If the service stopped
managing the bridge, flows would not be updated in those seconds. The database keeps a copy of the keys
(`config.kept_keys`) in case they disappear while the service is stopped, and for later commands.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import Report, Setting, Write
from controller.bridge.bridge import Commands
from controller.config import kept_keys
from controller.config.keys import HOST_KEYS
from controller.config.rows import PREFIX, BridgeRow
from controller.config.settings import Settings
from controller.config.values import BridgeConfig
from controller.features import no_flood
from controller.text.wording import keys_again

GRACE = "key-loss-grace-s"
# Keys that the service has written, and that scripts do not write again.
OF_SERVICE = (PREFIX + "before", no_flood.KEY, PREFIX + "unconfirmed", kept_keys.UPLINK_KEYS_COPY)


def of_service(
    name: str, keys: Mapping[str, str], besides: Collection[str] = ()
) -> tuple[Setting, ...]:
    """Return settings that restore keys written by the service, except for those in `besides`."""
    found = (key for key in OF_SERVICE if key in keys and key not in besides)
    return tuple(Setting("Bridge", name, key, keys[key]) for key in found)


def copied(row: BridgeRow) -> Iterator[Setting]:
    """Yield the setting that stores a copy of a bridge's keys, unless this copy is stored already."""
    if not row.keys_lost and kept_keys.copy_on(row) not in (None, text := kept_keys.copy_of(row)):
        yield Setting("Port", row.name, kept_keys.KEYS_COPY, text)


def uplink_keys_kept(row: BridgeRow, config: BridgeConfig) -> Iterator[Setting]:
    """Return the settings that restore keys on new records of uplinks, and that store all uplinks' keys.

    `row`: the bridge, including the restored keys. An uplink without a record keeps its stored keys.
    """
    names = {uplink.name for uplink in (*config.uplinks, *config.absent)}
    stored = kept_keys.uplink_keys(row)
    kept = {name: found for name, found in stored.items() if name in names}
    for one in row.interfaces:
        if one.name in names:
            keys = {key: v for key, v in one.external_ids.items() if key in kept_keys.COPIED}
            uuid, before = stored.get(one.name, (one.uuid, {}))
            if uuid != one.uuid:
                yield from (Setting("Interface", one.name, key, keys[key]) for key in before)
            kept[one.name] = one.uuid, keys
    kept = {name: found for name, found in sorted(kept.items()) if found[1]}
    text = json.dumps(kept, sort_keys=True) if kept else None
    if text != row.external_ids.get(kept_keys.UPLINK_KEYS_COPY) and not row.keys_lost:
        yield Setting("Bridge", row.name, kept_keys.UPLINK_KEYS_COPY, text)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A bridge's last keys before they disappeared, and the time until which they apply."""

    keys: Mapping[str, str]
    until_s: float


@dataclass(slots=True)
class LostKeys:
    """The keys that have disappeared from the database, by bridge."""

    grace_s: float = HOST_KEYS[GRACE].without
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _invalid: tuple[str, ...] = ()

    def allow(self, text: str | None) -> Commands:
        """Set `grace_s` to `text`, the value of key-loss-grace-s; if the value is invalid, to the default."""
        settings = Settings({("Open_vSwitch .", PREFIX + GRACE): self.grace_s})
        ids = {} if text is None else {PREFIX + GRACE: text}
        found = settings.given("Open_vSwitch .", ids, HOST_KEYS)
        self.grace_s = found.get(GRACE, HOST_KEYS[GRACE].without)
        before, self._invalid = self._invalid, tuple(map(str, settings.errors))
        return [Report("warning", error) for error in self._invalid if error not in before]

    def with_lost_keys(
        self, row: BridgeRow, before: BridgeRow | None, may_begin: bool, now_s: float
    ) -> tuple[BridgeRow, Commands]:
        """Return the row, completed with the lost keys, and the resulting reports and writes.

        `before`: the row that this method returned last for the bridge; None the first time.
        `may_begin`: whether to use the bridge's last keys if its keys have disappeared now: the
        service manages the bridge or has just started, and no request is changing the bridge.
        """
        name, commands = row.name, Commands()
        were_lost = before is not None and before.keys_lost
        keys = kept_keys.last_keys(row) if before is None or not before.attached else before.keys
        if row.attached and before is not None and (were_lost or not before.attached):
            keys = self._kept[name].keys if were_lost else kept_keys.last_keys(before)
            if missing := of_service(name, keys, besides=row.external_ids):
                commands.append(Write(missing))
            if were_lost or keys:
                commands.append(Report("info", f"Bridge {name}: the lost keys have been restored"))
        elif not row.attached and not were_lost and may_begin and keys and self.grace_s:
            self._kept[name] = _Kept(keys, now_s + self.grace_s)
            found = f"Bridge {name} {PREFIX}policy: the key was removed from the database"
            serves = f"the service continues with the last keys for {self.grace_s:g} s"
            commands.append(Report("warning", f"{found}, and {serves}; {keys_again(name)}"))
        return self.completed(row, now_s), commands

    def completed(self, row: BridgeRow, now_s: float) -> BridgeRow:
        """Return the row, completed with the bridge's lost keys until these expire."""
        kept = self._kept.get(row.name)
        if kept is None or now_s >= kept.until_s:
            self._kept.pop(row.name, None)
            return row
        ids = {**kept.keys, **row.external_ids}
        return replace(row, external_ids=ids, keys_lost=not row.attached)

    def recall(self, row: BridgeRow) -> None:
        """Use the last keys of a bridge until the request that detaches the bridge is done."""
        if keys := kept_keys.last_keys(row):
            self._kept[row.name] = _Kept(keys, float("inf"))

    def forget_lost(self, name: str) -> None:
        """Forget the lost keys of a bridge, because a request changes the bridge's keys."""
        self._kept.pop(name, None)

    def keep_lost(self, names: Collection[str]) -> None:
        """Forget the lost keys of all bridges except `names`."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in names}

    def expires_s(self) -> float:
        """Return when lost keys next expire; infinity if no keys are lost."""
        return min((kept.until_s for kept in self._kept.values()), default=float("inf"))
