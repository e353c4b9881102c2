"""Detaches a bridge: removes our flows and groups from the switch, and then the configuration.

On plain uplinks, the bridge stays in fail mode secure, in which it forwards nothing without flows, until the
last step restores its previous fail mode.

To revert an unconfirmed attach (`confirmations`), a detach restores the bridge's previous keys, waits for
the switch without a time limit, and never restores a fail mode in which plain uplinks form a loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.api.engine_commands import ForwardByOne, Report, Setting, Write
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import Fleet, isolation
from controller.bridge.handover import GATHERED_AFTER_S
from controller.config.controllers import SECURE
from controller.config.kept_keys import KEYS_COPY, UPLINK_KEYS_COPY
from controller.config.keys import BRIDGE_KEYS
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.operations import unconfirmed
from controller.operations.jobs import Change, Doing, Jobs, Step, longer_s
from controller.operations.plans import listed
from controller.operations.unconfirmed import Unconfirmed, What
from controller.text.wording import OUR_LOG, STARTED, Refused, quoted, shortened

NO_FLOWS = "would remove all ovs-lbt flows and groups from bridge {}"
NO_REVERSAL_YET = "the unconfirmed change will be rolled back when the switch answers"
# A switch that has not answered within the first time counts as unreachable. A connected switch, which
# still answers echo requests but may be busy (for example with deleting many ports), gets the second.
DETACH_TIMEOUT_S, BUSY_TIMEOUT_S = 5.0, 30.0


@dataclass(slots=True, eq=False, kw_only=True)
class Detach(Change):
    """A detach in progress. Its steps: GATHER, REMOVE, FORWARD (only if needed), FORGET, LEAVE.

    `purge`: whether operators' settings are also removed. `did`: a description of the result. `lost`: a
    description of failed steps. `stays`: a description of the settings that stay in the database.
    `one_uplink`: a command to forward on only one uplink, if a loop would form otherwise; then
    `settings` are written.
    """

    step: Step = Step.GATHER
    purge: bool = False
    did: str = ""
    lost: str | None = None
    stays: str = ""
    one_uplink: ForwardByOne | None = None
    settings: tuple[Setting, ...] = ()

    def goes_on_s(self) -> float:
        if self.step in (Step.FORWARD, Step.FORGET, Step.LEAVE):
            return float("inf")
        if self.step is Step.GATHER and (bridge := self.bridge) is not None:
            return min(self.deadline_s, bridge.handover.gathered_s)
        return self.deadline_s

    def proceed(self, now_s: float) -> Commands:
        bridge, row = self.bridge, self.row
        if self.step is Step.LEAVE:
            return self.leave(now_s)
        if self.step in (Step.FORWARD, Step.FORGET) and row is not None:
            return []
        if row is None or bridge is None:
            return self.end("", now_s)
        given = Commands()
        if self.step is Step.GATHER:
            looked = bridge.settled and not bridge.handover.is_gathering
            if looked and bridge.handover.gather(now_s):
                self.deadline_s += GATHERED_AFTER_S
                return bridge.reconcile(now_s)
            if looked or now_s >= bridge.handover.gathered_s:
                self.step = Step.REMOVE
                if self.waits is not None:
                    bridge.handover.introduce()
                given = self.give_back(bridge, now_s)
        gone = self.step is Step.REMOVE and bridge.settled and not bridge.installed_anything
        is_late, busy_until_s = now_s >= self.deadline_s, self.began_s + BUSY_TIMEOUT_S
        waits = not gone and bridge.connected and self.reverts is None and now_s < busy_until_s
        if is_late and waits and not self.fleet.blamed(self.name, self.began_s):
            self.deadline_s = now_s + DETACH_TIMEOUT_S
        if (gone and not bridge.shaping.remains) or now_s >= self.deadline_s:
            given += self._forget(bridge, row, gone, now_s)
        return given

    def _forget(self, bridge: Bridge, row: BridgeRow, gone: bool, now_s: float) -> Commands:
        """Remove the settings. `gone`: whether our flows and groups have been removed."""
        assert self.step in (Step.GATHER, Step.REMOVE), "the settings are removed once"
        assert not gone or not bridge.installed_anything, "settings are removed after the flows"
        name = self.name
        found = "does not answer" if bridge.connected else "is not connected"
        if not gone and self.reverts is not None:
            # The database keeps the unconfirmed change until the switch answers.
            self.deadline_s = now_s + DETACH_TIMEOUT_S
            return [Report("warning", f"bridge {name}: the switch {found}; {NO_REVERSAL_YET}")]
        self.step = Step.FORGET
        commands = Commands()
        if not gone:
            advice = f"; {STARTED}"
            if bridge.connected:
                found = f"did not answer within {self.deadline_s - self.began_s:.0f} s"
                advice = "; the flows will be removed when the switch answers"
            if (fault := self.fleet.blamed(name, self.began_s)) is not None:
                found = f"was not reached because ovs-lbt itself failed ({fault.text})"
                advice = f"; {OUR_LOG}"
            removed = "so only the configuration was removed"
            self.lost = f"bridge {name}: the switch {found}, {removed}{advice}"
            commands = self.give_back(bridge, now_s)
        settings, warning = self._settings(bridge, row)
        queues, remove = bridge.shaping.remains, "to remove them: tc qdisc del dev UPLINK root"
        self.lost = (
            self.lost or warning or (queues and f"bridge {name}: {queues}; {remove}") or None
        )
        if self.one_uplink is not None:
            # Stop managing the bridge, or its flows would be handled as remaining ovs-lbt flows.
            self.step, self.settings = Step.FORWARD, settings
            return [*commands, *self.fleet.drop(name), self.one_uplink]
        modes = [one.value or "standalone" for one in settings if one.column == "fail_mode"]
        if self.reverts is None:
            restored = (f"fail mode {mode} restored" for mode in modes)
            self.did = f"{name}: {', '.join(['ovs-lbt flows and keys removed', *restored])}"
        return [*commands, Write(settings, self.number, applied=gone and bool(modes))]

    def _settings(self, bridge: Bridge, row: BridgeRow) -> tuple[tuple[Setting, ...], str | None]:
        """Return the settings to write, and a warning if some are not restored. Set `one_uplink`."""
        fail_mode, warning = _fail_mode_back(row, bridge)
        if self.reverts is not None and fail_mode and (linked := _looping(row, bridge)):
            before = [up for up in linked if up in self.reverts.linked]
            fail_mode, chosen = (), (before or linked)[0]
            others = [u.name for u in bridge.config.uplinks if u.name != chosen]
            others += bridge.config.missing
            self.one_uplink = ForwardByOne(self.name, chosen, tuple(others))
        ours = traces(self.fleet, row) if self.purge else removed(row)
        if self.reverts is not None:
            ours = unconfirmed.merged(ours, unconfirmed.restored(self.reverts, row))
        else:
            self.stays = _staying(row, ours)
        if self.waits is not None:
            ours = unconfirmed.merged(ours, [self.waits.as_setting(self.name)])
        return (*ours, *fail_mode), warning

    def written(self, error: str | None, now_s: float) -> Commands:
        assert self.step in (Step.FORWARD, Step.FORGET), "only these steps wait for an answer"
        bridge, row = self.bridge, self.row
        if error is None and self.step is Step.FORWARD:
            self.step = Step.FORGET
            return [Write(self.settings, self.number)]
        if error is None:
            return self._done(bridge, now_s)
        commands = Commands()
        if bridge is not None and row is not None:
            commands = bridge.take_over(read_bridge(row, bridge.config), now_s)
        elif row is not None and row.attached:
            commands = self.fleet.manage(read_bridge(row))
        refused_by = "database" if self.step is Step.FORGET else f"bridge {self.name}"
        return [*commands, *self.end(f"{refused_by}: {error}", now_s, refused=True)]

    def _done(self, bridge: Bridge | None, now_s: float) -> Commands:
        """Answer, now that the database has removed the settings."""
        self.fleet.forget_lost_keys(self.name, now_s)
        told = [part for part in (self.lost or self.did, self.stays) if part]
        if self.waits is not None:
            told.append(unconfirmed.waiting(self.name, self.waits, self.fleet.epoch_s + now_s))
        if (by := self.one_uplink) is not None:
            told.append(f"only {by.uplink} forwards, as NORMAL on all uplinks would form a loop")
        text = ("\n" if self.lost is None else "; ").join(told)
        refused = self.lost is not None and self.reverts is None
        if bridge is None:
            return self.end(text, now_s, refused)
        self.step = Step.LEAVE
        return self.give_answer(text, now_s, refused)


def detach(
    jobs: Jobs,
    number: int,
    bridge: Bridge,
    now_s: float,
    purge: bool = False,
    confirm_s: float | None = None,
    reverts: Unconfirmed | None = None,
) -> Doing:
    """Prepare a detach. When it begins, the bridge is read, and policies stop moving units.

    `confirm_s`: the time to confirm the detach, if it must be confirmed. `reverts`: the attach that this
    detach reverts, if any.

    Raises:
        Refused: another request is changing the bridge, or an unconfirmed detach would form a loop.
    """
    fleet, name = jobs.fleet, bridge.config.name
    jobs.refuse_in_hand(name)
    waits, row = None, fleet.rows[name]
    fail_mode, warning = _fail_mode_back(row, bridge)
    if confirm_s is not None:
        unconfirmed.refuse_waiting(row, fleet.epoch_s + now_s)
        if any(s.value != SECURE for s in fail_mode) and (linked := _looping(row, bridge)):
            loop = f"NORMAL would form a loop over {', '.join(linked)}"
            found = f"bridge {name} would return to fail mode standalone, and {loop}"
            raise Refused(f"{found}; take down all but one of these uplinks")
        back = unconfirmed.keys_of(row)
        waits = Unconfirmed(What.DETACH, fleet.epoch_s + now_s + confirm_s, confirm_s, back)
    job = Detach(
        jobs,
        number,
        name,
        began_s=now_s,
        deadline_s=now_s + DETACH_TIMEOUT_S + longer_s(fleet, bridge.config),
        purge=purge,
        waits=waits,
        reverts=reverts,
    )

    def carry_out() -> Commands:
        fleet.recall(name, now_s)
        jobs.begin(job)
        return bridge.inspect()

    ours = traces(fleet, row) if purge else removed(row)
    waiting = (waits.as_setting(name),) if waits is not None else ()
    member, bound = bridge.config.active_member, bridge.placing.bound.items()
    away = [port for port, at in bound if member not in (None, at.uplink)]
    gathers = f"would first move {listed(away)} to {member}" if away else None
    notes = (gathers, NO_FLOWS.format(name), warning, _staying(row, ours))
    return Doing(
        name,
        carry_out,
        unconfirmed.merged(ours, fail_mode, waiting),
        notes=tuple(filter(None, notes)),
    )


def traces(fleet: Fleet, row: BridgeRow) -> tuple[Setting, ...]:
    """Return the settings that remove all ovs-lbt keys from a bridge's records.

    Operators' keys are included, and also the host's key `leader` if no other bridge is attached.
    """
    settings = [*removed(row)]
    settings += (replace(setting, value=None) for setting in unconfirmed.keys_of(row))
    if not any(other.attached for other in fleet.rows.values() if other.name != row.name):
        settings.append(Setting("Open_vSwitch", ".", PREFIX + "leader", None))
    return unconfirmed.merged(settings)


def removed(row: BridgeRow) -> tuple[Setting, ...]:
    """Return the settings that remove all keys of a bridge, and the service's keys of its ports.

    Rules that are stored on the bridge are also removed. Operators' settings of uplinks and VM
    ports stay for the next attach. The service's keys are removed even if the service has not
    read them yet.
    """
    there = {*row.keys, PREFIX + "team", UPLINK_KEYS_COPY}
    settings = [Setting("Bridge", row.name, key, None) for key in sorted(there)]
    if any(port.name == row.name for port in row.ports):
        settings.append(Setting("Port", row.name, KEYS_COPY, None))
    settings += isolation(row)
    for interface in row.interfaces:
        for key in (PREFIX + "binding", PREFIX + "moved"):
            settings.append(Setting("Interface", interface.name, key, None))
    return tuple(settings)


def _staying(row: BridgeRow, settings: Iterable[Setting]) -> str:
    """Return a list of the ovs-lbt keys that `settings` leave on a bridge's ports; may be empty."""
    gone = {setting.place for setting in settings}
    kept: dict[str, list[str]] = {}
    for s in unconfirmed.keys_of(row):
        if s.table == "Interface" and s.place not in gone:
            kept.setdefault(s.record, []).append(s.key.removeprefix(PREFIX))
    if not kept:
        return ""
    listed = "; ".join(f"{name} {', '.join(of)}" for name, of in sorted(kept.items()))
    removed = f"ovs-lbt detach {quoted(row.name)} --purge"
    return f"{row.name}: settings kept for the next attach: {listed}; to remove them: {removed}"


def _fail_mode_back(row: BridgeRow, bridge: Bridge) -> tuple[tuple[Setting, ...], str | None]:
    """Return the settings that restore the previous fail mode, or the reason why it is not restored."""
    text = row.external_ids.get(PREFIX + "before")
    if text is None:
        return (), None
    # On several plain uplinks, NORMAL would form a loop.
    by_hand = f"take down all but one uplink, and run: ovs-vsctl del-fail-mode {quoted(row.name)}"
    try:
        before = BRIDGE_KEYS["before"].parse(text)["fail_mode"]
    except ValueError:
        found = f"Bridge {row.name}: {PREFIX}before is {shortened(text)}, an invalid value"
        stays = f"fail_mode stays {row.fail_mode or 'standalone'}"
        return (), f"{found}, so {stays}; to remove it, {by_hand}"
    if count := len(bridge.foreign):
        return (), (
            f"bridge {row.name}: fail_mode stays {row.fail_mode}, because changing it would flush"
            f" {count} flows that other programs added; to remove it anyway, {by_hand}"
        )
    return (Setting("Bridge", row.name, "fail_mode", before, column="fail_mode"),), None


def _looping(row: BridgeRow, bridge: Bridge) -> list[str]:
    """Return the plain uplinks that would form a loop with NORMAL; empty if fewer than two are up."""
    if row.stp_enable or row.rstp_enable or bridge.config.on_bond:
        return []
    linked = [uplink.name for uplink in bridge.config.uplinks if bridge.links.up(uplink)]
    return linked if len(linked) > 1 else []
