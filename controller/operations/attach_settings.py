"""The settings that attach and detach write: whether they give a valid team, what goes and what stays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.api.engine_commands import Setting
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet, isolation
from controller.config.controllers import SECURE
from controller.config.keys import BRIDGE_KEYS
from controller.config.membership import bond_of, bonds_of, to_attach
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import BridgeConfig
from controller.config.vlans import most_ports
from controller.dataplane.tables import PORTS_PER_VLAN_MAX
from controller.operations import unconfirmed
from controller.text.wording import Refused, quoted, shortened


def attachable(
    row: BridgeRow,
    values: Mapping[str, str],
    last: BridgeConfig | None = None,
    as_before: bool = False,
) -> BridgeConfig:
    """The configuration that the bridge would have. `last`: its present one, with invalid values.

    `as_before`: it had these values, so invalid ones are no reason to refuse.

    Raises:
        Refused: the bridge would not have a valid team.
    """
    has_uplinks = "uplinks" in values or (row.attached and f"{PREFIX}uplinks" in row.keys)
    if not has_uplinks and bond_of(row) is None:
        found, expected = "no bond", f"its uplinks, in failover order: {to_attach(row)}"
        if bonds := ", ".join(bond.name for bond in bonds_of(row)):
            found = f"{len(bonds_of(row))} bonds, {bonds}"
            expected = "one bond; a bond to another network needs a bridge of its own"
        raise Refused(f"bridge {row.name}: {found} -> {expected}")
    ids = {**row.external_ids, **{PREFIX + key: value for key, value in values.items()}}
    if not row.attached:
        ids[PREFIX + "team"] = "//"  # one from an earlier time is not in force
    # Without a bond, attach sets it.
    mode = row.fail_mode if row.attached else SECURE
    config = read_bridge(replace(row, external_ids=ids, fail_mode=mode), last)
    known = {*last.errors} if last is not None else set()
    bad = (error for error in config.errors if error not in known)
    errors = [str(error) for error in bad if error.record == f"Bridge {row.name}"]
    if errors and not as_before:
        raise Refused("; ".join(errors))
    if len(config.uplinks) < 2:
        found = ", ".join(uplink.name for uplink in config.uplinks) or "none"
        raise Refused(
            f"bridge {row.name} uplinks: {found} -> two or more ports that exist on the switch"
        )
    if (ports := most_ports(port.vlans.carried for port in config.vm_ports)) > PORTS_PER_VLAN_MAX:
        # Open vSwitch stops forwarding a frame after 4096 steps.
        expected = f"at most {PORTS_PER_VLAN_MAX}"
        raise Refused(f"bridge {row.name}: {ports} VM ports in one VLAN -> {expected}")
    return config


def settings_of_attach(
    row: BridgeRow, values: Mapping[str, str], config: BridgeConfig, own: tuple[Setting, ...] = ()
) -> tuple[list[Setting], list[Setting]]:
    """The settings that an attach writes, and those that undo it. `own`: what the service keeps besides."""
    name = row.name
    settings = [Setting("Bridge", name, PREFIX + key, value) for key, value in values.items()]
    also = [*own, *isolation(row, config)]
    undo = [*unconfirmed.before_set(row, settings)]
    settings += also
    undo += [replace(setting, value=None) for setting in also]
    if not config.on_bond and row.fail_mode != SECURE:
        # In fail mode standalone, the bridge returns to NORMAL when ovs-vswitchd restarts, and
        # plain uplinks then form a loop.
        before = json.dumps({"fail_mode": row.fail_mode})
        settings.append(Setting("Bridge", name, PREFIX + "before", before))
        settings.append(Setting("Bridge", name, "fail_mode", SECURE, column="fail_mode"))
        undo.append(Setting("Bridge", name, PREFIX + "before", None))
        undo.append(Setting("Bridge", name, "fail_mode", row.fail_mode, column="fail_mode"))
    return settings, undo


def attached_already(name: str, values: Mapping[str, str]) -> str:
    """Refuse to attach twice, and say how to change the settings instead."""
    wanted = " ".join(f"{key}={value}" for key, value in values.items() if key != "policy")
    wanted = wanted or f"policy={values['policy']}"
    expected = f"a bridge that is not attached; to change this one: ovs-lbt set bridge {quoted(name)} {wanted}"
    return f"bridge {name}: already attached -> {expected}"


def traces(fleet: Fleet, row: BridgeRow) -> tuple[Setting, ...]:
    """The settings that remove all our keys from a bridge's records, also those of operators.

    They also remove the key of the database itself, unless other bridges are attached.
    """
    settings = [*removed(row)]
    settings += (replace(setting, value=None) for setting in unconfirmed.keys_of(row))
    if not any(other.attached for other in fleet.rows.values() if other.name != row.name):
        settings.append(Setting("Open_vSwitch", ".", PREFIX + "leader", None))
    return unconfirmed.merged(settings)


def removed(row: BridgeRow) -> tuple[Setting, ...]:
    """The settings that remove all our keys from a bridge, and those we wrote from its ports.

    Rules that are kept on the bridge are removed with it. What operators set on uplinks and VM
    ports stays for the next attach. The keys that we wrote are removed even if they have not been
    read yet.
    """
    there = {*row.keys, PREFIX + "team"}
    settings = [Setting("Bridge", row.name, key, None) for key in sorted(there)]
    settings += isolation(row)
    for interface in row.interfaces:
        for key in (PREFIX + "binding", PREFIX + "moved"):
            settings.append(Setting("Interface", interface.name, key, None))
    return tuple(settings)


def staying(row: BridgeRow, settings: Iterable[Setting]) -> str:
    """Our keys that stay on a bridge's ports after these settings, in words; may be empty."""
    gone = {setting.place for setting in settings}
    kept: dict[str, list[str]] = {}
    for s in unconfirmed.keys_of(row):
        if s.table == "Interface" and s.place not in gone:
            kept.setdefault(s.record, []).append(s.key.removeprefix(PREFIX))
    if not kept:
        return ""
    listed = "; ".join(f"{name} {', '.join(of)}" for name, of in sorted(kept.items()))
    removed = f"ovs-lbt detach {quoted(row.name)} --purge"
    return f"{row.name}: settings stay for the next attach: {listed} -> to remove them: {removed}"


def fail_mode_back(row: BridgeRow, bridge: Bridge) -> tuple[tuple[Setting, ...], str | None]:
    """The settings that restore the fail mode from before attach, or why it is not restored."""
    text = row.external_ids.get(PREFIX + "before")
    if text is None:
        return (), None
    by_hand = f"ovs-vsctl del-fail-mode {quoted(row.name)}"
    try:
        before = BRIDGE_KEYS["before"].parse(text)["fail_mode"]
    except ValueError:
        expected = f"the fail mode that attach saved; to remove the fail mode: {by_hand}"
        found = f"{shortened(text)}, so fail_mode stays {row.fail_mode or 'standalone'}"
        return (), f"Bridge {row.name} {PREFIX}before: {found} -> {expected}"
    if count := len(bridge.foreign):
        return (), (
            f"bridge {row.name} fail_mode: left at {row.fail_mode}, because restoring it would"
            f" flush {count} flows of other programs -> {by_hand}"
        )
    return (Setting("Bridge", row.name, "fail_mode", before, column="fail_mode"),), None


def was_standalone(row: BridgeRow) -> bool:
    """Whether a detach restores fail mode standalone."""
    try:
        before = BRIDGE_KEYS["before"].parse(row.external_ids.get(PREFIX + "before", ""))
    except ValueError:
        return False
    return bool(before["fail_mode"] != SECURE)


def looping(row: BridgeRow, bridge: Bridge) -> list[str]:
    """The plain uplinks that NORMAL would join into a loop, which takes two with a link."""
    if row.stp_enable or row.rstp_enable or bridge.config.on_bond:
        return []
    linked = [uplink.name for uplink in bridge.config.uplinks if bridge.links.up(uplink)]
    return linked if len(linked) > 1 else []


def refuse_waiting(row: BridgeRow, epoch_now_s: float) -> None:
    """Refuse a change of a bridge on which another one waits to be confirmed.

    Raises:
        Refused: one does.
    """
    if (change := unconfirmed.of(row)) is not None:
        left_s = change.left_s(epoch_now_s)
        found = f"{change.what} waits to be confirmed, for another {left_s:.0f} s"
        expected = f"ovs-lbt confirm {quoted(row.name)}, or ovs-lbt rollback {quoted(row.name)}"
        raise Refused(f"bridge {row.name}: {found} -> {expected}")
