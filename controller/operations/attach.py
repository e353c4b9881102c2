"""Attaches a bridge: reads its state, writes the configuration, and installs the pipeline.

If a step fails, all changes are rolled back. An attach can also revert a detach (`confirmations`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from controller.api.engine_commands import Reply, Setting, Write
from controller.bridge import inspection
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import isolation
from controller.bridge.lost_keys import copied
from controller.config import columns, controllers, reader
from controller.config.controllers import SECURE
from controller.config.kept_keys import last_keys
from controller.config.keys import BRIDGE_KEYS, settable
from controller.config.membership import NO_OFPORT, bond_of, bonds_of, to_attach
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import BridgeConfig
from controller.config.vlans import most_ports
from controller.dataplane.tables import PORTS_PER_VLAN_MAX
from controller.features import no_flood
from controller.operations import advice, check, unconfirmed
from controller.operations.check import About, Told
from controller.operations.dry_run import of_attach, written
from controller.operations.jobs import Change, Jobs, Step, longer_s
from controller.operations.unconfirmed import UNCONFIRMED, Unconfirmed, What
from controller.text.show_view import JsonObject
from controller.text.wording import OUR_LOG, Refused, lines_of, no_device, quoted

# Formats the answer to `check`, which reports whether an attach would succeed, without writing.
Trial = Callable[[JsonObject], str]
# If the switch has not confirmed the pipeline within this time, the attach is rolled back.
ATTACH_TIMEOUT_S = 10.0
# The value that attach writes if the key is not set. A bridge without the key keeps `multipath`, the
# hash of releases before 0.2, because another hash moves most connections to another uplink once.
HASH, HASH_AT_ATTACH = "connection-hash", "auto"


@dataclass(slots=True, eq=False, kw_only=True)
class Attach(Change):
    """An attach. Steps: READ, STORE, TAKE_OVER, FLUSH (plain uplinks), INSTALL; on failure, LEAVE.

    `settings`: the settings that the attach writes. `undo`: the settings that roll it back. `trial`: if
    set, the job only reads the bridge. `dry_run`: the request is refused if the attach would fail.
    """

    step: Step = Step.READ
    settings: tuple[Setting, ...]
    undo: tuple[Setting, ...] = ()
    trial: Trial | None = None
    dry_run: bool = False

    @property
    def fail_mode(self) -> tuple[Setting, ...]:
        """The setting that changes the fail mode, if needed. The change flushes all flows.

        To lose few frames, the service installs our flows as soon as the switch reports that the
        default flow is gone. The flows are checked again when the database reports that all
        settings are applied.
        """
        return tuple(setting for setting in self.settings if setting.column == "fail_mode")

    def goes_on_s(self) -> float:
        return self.deadline_s if self.step is not Step.LEAVE else float("inf")

    def proceed(self, now_s: float) -> Commands:
        if self.step is Step.LEAVE:
            return self.leave(now_s)
        bridge, row = self.bridge, self.row
        if bridge is None or row is None:
            gone = f"bridge {self.name} was deleted during the attach"
            return self.end(gone, now_s, refused=True)
        if (failed := self.fleet.failures.get(self.name)) is not None:
            return self._give_up(bridge, failed.why, now_s)
        if now_s >= self.deadline_s:
            what = "read" if self.trial else "installed"
            late = f"the flows were not {what} within {self.deadline_s - self.began_s:.0f} s"
            return self._give_up(bridge, f"{late}{self._held_up(bridge)}", now_s)
        if self.step is Step.READ:
            return self._write(bridge, row, now_s) if bridge.known else []
        if self.step is Step.STORE or not row.attached:
            return []
        if self.step is Step.TAKE_OVER:
            return self._take_over(bridge, row, now_s)
        if self.step is Step.FLUSH or not bridge.installation.has_all:
            return []
        text = self._done(bridge, row, now_s)
        # Apply changes that were made in the database during the attach.
        followed = bridge.configure(reader.read_bridge(row, bridge.config), now_s)
        if kept := tuple(copied(row)):
            followed.append(Write(kept))
        return [*followed, *self.end(text, now_s)]

    def _take_over(self, bridge: Bridge, row: BridgeRow, now_s: float) -> Commands:
        """Send our pipeline, now that the database reports the new settings."""
        if not bridge.settled:
            return []
        if self.fail_mode and bridge.read is not None and bridge.read.by_default:
            return bridge.read_anew()
        commands = bridge.take_over(reader.read_bridge(row, bridge.config), now_s)
        self.step = Step.FLUSH if self.fail_mode else Step.INSTALL
        if self.fail_mode:
            commands.append(Write(self.fail_mode, self.number, applied=True))
        return commands

    def _done(self, bridge: Bridge, row: BridgeRow, now_s: float) -> str:
        """Return the answer: the bridge, its policy, uplinks and VM ports, and findings."""
        assert bridge.phase.is_attached, "only an attached bridge is reported as attached"
        uplinks = ", ".join(uplink.name for uplink in bridge.config.uplinks)
        policy = bridge.config.asked.policy
        lines = [f"{self.name}: {policy} over {uplinks}, {len(bridge.placing.bound)} VM ports"]
        about = About(self.fleet, bridge, row, now_s)
        lines += [f"{one.severity}: {one.text}" for one in check.of_bridge(about, Told.ATTACH)]
        if self.waits is not None:
            lines.append(unconfirmed.waiting(self.name, self.waits, self.fleet.epoch_s + now_s))
        return lines_of(lines)

    def _held_up(self, bridge: Bridge) -> str:
        """Return the cause of a late attach: a fault in ovs-lbt, else the database, else the switch."""
        if ours := self.blame(self.began_s):
            return ours
        row = self.row
        stored = self.step not in (Step.READ, Step.STORE) and row is not None and row.attached
        if self.step is not Step.READ and not stored:
            return ", because the settings of attach are not in the database; check that ovsdb-server runs"
        return f"{bridge.awaited}; {OUR_LOG}" if bridge.connected else bridge.awaited

    def _write(self, bridge: Bridge, row: BridgeRow, now_s: float) -> Commands:
        """Write the settings, unless the flows or groups that were read conflict with an attach."""
        assert bridge.read is not None
        if self.fail_mode and bridge.foreign:
            count = len(bridge.foreign)
            others = f"{count} flow{'' if count == 1 else 's'} that other programs added"
            why = f"its fail mode is standalone, and changing it now would flush {others}"
            return self._give_up(bridge, f"{why}; set it to secure, then add them again", now_s)
        if conflicts := inspection.obstacles(bridge.read, bridge.config.on_bond):
            return self._give_up(bridge, conflicts, now_s)
        lost = [*advice.dropped(bridge.config, row, bridge.addresses.by_port)]
        lost += columns.reported(row, columns.REFUSED)
        if lost and not bridge.config.observes_bond:
            return self._give_up(bridge, "; ".join(lost), now_s)
        if self.trial is not None:
            text = self.trial(check.fit(self.fleet, bridge, now_s))
            return [*self.fleet.drop(self.name), *self.end(text, now_s)]
        ports, flagged_at = bridge.config.vm_ports, bridge.no_flood.others
        if flagged := sorted(port.name for port in ports if port.ofport in flagged_at):
            self.settings += (Setting("Bridge", self.name, no_flood.KEY, ",".join(flagged)),)
        if self.waits is not None:
            linked = tuple(u.name for u in bridge.config.uplinks if bridge.links.up(u))
            if not bridge.config.on_bond:
                self.waits = replace(self.waits, linked=linked)
            self.settings += (self.waits.as_setting(self.name),)
        self.undo = unconfirmed.before_set(row, self.settings)
        if self.reverts is not None:
            self.undo = unconfirmed.merged(self.undo, [self.reverts.as_setting(self.name)])
        self.step = Step.STORE
        # The new fail mode flushes all flows. Frames are lost until the pipeline is installed.
        ahead = bridge.installation.foreseen(now_s) if self.fail_mode else []
        return [*ahead, Write(self.settings, self.number)]

    def written(self, error: str | None, now_s: float) -> Commands:
        bridge, failed = self.bridge, f"database: {error}"
        assert self.step is not Step.READ, "nothing is written before the switch is read"
        if self.step is Step.LEAVE:
            assert self.undone, "only an attach that has failed is undone"
            if self.tell is None:
                # A late answer to an earlier write was handled as the answer to the rollback.
                return []
            if error is not None:
                self.undone += f"; the bridge's settings could not be restored: {failed}"
            return self.give_answer(self.undone, now_s, refused=True)
        if error is None and self.step is Step.STORE:
            self.step = Step.TAKE_OVER
            return []
        if error is None:
            self.step = Step.INSTALL
            return bridge.read_anew() if bridge is not None else []
        if self.step is not Step.STORE and bridge is not None:
            return self._give_up(bridge, failed, now_s)
        return self.end(failed, now_s, refused=True)

    def _give_up(self, bridge: Bridge, why: str, now_s: float) -> Commands:
        """Roll back all changes, and refuse the request once they are rolled back."""
        self.undone = f"bridge {self.name}: {why}"
        if self.step is Step.READ:
            dropped, row = self.fleet.drop(self.name), self.row
            if self.trial is not None and row is not None and not self.dry_run:
                return [*dropped, *self.end(self.trial(check.unfit(row, why)), now_s)]
            return [*dropped, *self.end(self.undone, now_s, refused=True)]
        self.step = Step.LEAVE
        removing = self.give_back(bridge, now_s)
        return [*removing, Write(self.undo, self.number)]


def attach(
    jobs: Jobs,
    number: int,
    row: BridgeRow,
    values: Mapping[str, str],
    now_s: float,
    confirm_s: float | None = None,
    reverts: Unconfirmed | None = None,
    trial: Trial | None = None,
    dry_run: bool = False,
) -> Commands:
    """Begin an attach by reading the bridge. `values`: the bridge's keys, each already checked.

    Keys that have disappeared and are not in `values` are restored. `confirm_s`: the time to confirm the
    attach, if it must be confirmed. `reverts`: the detach that this attach reverts, if any. With a `trial`,
    only determine whether an attach would succeed. `dry_run`: only describe the attach, or refuse it.

    Raises:
        Refused: the bridge is already attached, or would not have a valid team.
    """
    fleet, name = jobs.fleet, row.name
    values, own = _restored(row, values)
    if row.keys_lost:
        row = fleet.as_stored(row)
    if reverts is None:
        unconfirmed.refuse_waiting(row, fleet.epoch_s + now_s)
    if row.attached:
        wanted = " ".join(f"{key}={value}" for key, value in values.items() if key != "policy")
        wanted = wanted or f"policy={values['policy']}"
        change = f"ovs-lbt set bridge {quoted(name)} {wanted}"
        raise Refused(f"bridge {name} is already attached; to change it: {change}")
    jobs.refuse_in_hand(name)
    version, ovn = fleet.database.ovs_version, fleet.database.ovn
    whys = advice.release_refusal(version), controllers.refusal(row), advice.refusal(row, ovn)
    for why in filter(None, whys):
        raise Refused(why)
    if PREFIX + HASH not in row.external_ids and reverts is None:
        values = {**values, HASH: HASH_AT_ATTACH}
    config = attachable(row, values, as_before=reverts is not None)
    uplinks = [uplink.name for uplink in config.uplinks]
    harmful = [*reader.multiplied(row, uplinks)]
    if reverts is None and not config.observes_bond:
        harmful += reader.returned(row, uplinks, config.on_a_lag)
        harmful += controllers.hidden_flows(row, config.on_bond, fleet.listens_on)
    if harmful:
        raise Refused("; ".join(harmful))
    settings = _settings(row, values, config, own)
    waits = None
    if confirm_s is not None:
        back = unconfirmed.before_attach(row)
        waits = Unconfirmed(What.ATTACH, fleet.epoch_s + now_s + confirm_s, confirm_s, back)
    if reverts is not None:
        missing = unconfirmed.missing(reverts, row)
        settings += [*missing, Setting("Bridge", name, UNCONFIRMED, None)]
    if dry_run:
        told = (*settings, waits.as_setting(name)) if waits is not None else settings
        if name in fleet.bridges:
            # The keys have disappeared. The bridge is managed as before, and not read again.
            return [Reply(number, lines_of(written(row, told)))]
        trial = partial(of_attach, row, told)
    jobs.begin(
        Attach(
            jobs,
            number,
            name,
            began_s=now_s,
            deadline_s=now_s + ATTACH_TIMEOUT_S + longer_s(fleet, config),
            settings=tuple(settings),
            waits=waits,
            reverts=reverts,
            trial=trial,
            dry_run=dry_run,
        )
    )
    fleet.forget_lost_keys(name, now_s)
    dropped = fleet.drop(name) if name in fleet.bridges else []
    return [*dropped, *fleet.manage(config, inspects=True)]


def attachable(
    row: BridgeRow,
    values: Mapping[str, str | None],
    last: BridgeConfig | None = None,
    as_before: bool = False,
) -> BridgeConfig:
    """Return the configuration that the bridge would have with `values`.

    `values`: the keys to change, without prefix; None removes a key. `last`: the bridge's current
    configuration, whose invalid values are not refused again. `as_before`: whether the bridge had
    `values` before, so that invalid values are not refused.

    Raises:
        Refused: the bridge would not have a valid team.
    """
    named = row.keys.get(f"{PREFIX}uplinks") if row.attached else None
    if not values.get("uplinks", named) and bond_of(row) is None:
        found, remedy = "no bond", f"name its uplinks in failover order: {to_attach(row)}"
        if bonds := ", ".join(bond.name for bond in bonds_of(row)):
            found = f"{len(bonds_of(row))} bonds ({bonds})"
            remedy = "keep one; a bond to another network needs its own bridge"
        raise Refused(f"bridge {row.name} has {found}; {remedy}")
    after = {**row.external_ids, **{PREFIX + key: value for key, value in values.items()}}
    ids = {key: value for key, value in after.items() if value is not None}
    if not row.attached:
        ids[PREFIX + "team"] = "//"  # a team from an earlier attach is not in force
    # Without a bond, attach sets fail mode secure.
    mode = row.fail_mode if row.attached else SECURE
    config = reader.read_bridge(replace(row, external_ids=ids, fail_mode=mode), last)
    known = {*last.errors} if last is not None else set()
    bad = (error for error in config.errors if error not in known)
    errors = [str(error) for error in bad if error.record == f"Bridge {row.name}"]
    absent = [uplink.name for uplink in config.absent if uplink.ofport == NO_OFPORT]
    if absent and not as_before and (errors or len(config.uplinks) < 2):
        raise Refused(no_device(absent[0]))
    if errors and not as_before:
        raise Refused("; ".join(errors))
    if len(config.uplinks) < 2:
        found = ", ".join(uplink.name for uplink in config.uplinks) or "none"
        expected = "expected two or more ports that exist on the switch"
        raise Refused(f"bridge {row.name} has fewer than two uplinks ({found}); {expected}")
    if (ports := most_ports(port.vlans.carried for port in config.vm_ports)) > PORTS_PER_VLAN_MAX:
        # Open vSwitch stops forwarding a frame after 4096 steps.
        expected = f"expected at most {PORTS_PER_VLAN_MAX}"
        raise Refused(f"bridge {row.name} has {ports} VM ports in one VLAN; {expected}")
    return config


def _restored(
    row: BridgeRow, values: Mapping[str, str]
) -> tuple[Mapping[str, str], tuple[Setting, ...]]:
    """Return `values` with lost keys added, and the settings that restore all other lost keys."""
    last = {key.removeprefix(PREFIX): value for key, value in last_keys(row).items()}
    set_by_operators = settable(BRIDGE_KEYS)
    values = {"policy": str(BRIDGE_KEYS["policy"].default)} | {
        **{name: value for name, value in last.items() if name in set_by_operators},
        **values,
    }
    # The team is determined again.
    others = [name for name in last if name not in set_by_operators and name != "team"]
    return values, tuple(Setting("Bridge", row.name, PREFIX + name, last[name]) for name in others)


def _settings(
    row: BridgeRow, values: Mapping[str, str], config: BridgeConfig, own: tuple[Setting, ...] = ()
) -> list[Setting]:
    """Return the settings that an attach writes. `own`: further settings of the service itself."""
    name = row.name
    settings = [Setting("Bridge", name, PREFIX + key, value) for key, value in values.items()]
    settings += [*own, *isolation(row, config)]
    if not config.on_bond and row.fail_mode != SECURE:
        # In fail mode standalone, the bridge returns to NORMAL when ovs-vswitchd restarts, and
        # plain uplinks then form a loop.
        before = json.dumps({"fail_mode": row.fail_mode})
        settings.append(Setting("Bridge", name, PREFIX + "before", before))
        settings.append(Setting("Bridge", name, "fail_mode", SECURE, column="fail_mode"))
    return settings
