"""Attach and detach, step by step over several events.

Attach first reads the bridge and changes nothing. Then it writes the configuration, and it is done
when the switch has confirmed the pipeline. If a step fails, everything is undone. Detach first
removes our flows and groups from the switch, and then the configuration. On plain uplinks, the
bridge stays in fail mode secure, in which it forwards nothing without flows, until only its old
fail mode remains to be restored.

Both also revert each other, for `confirmations`. A detach that reverts an attach restores the keys
that the bridge had. It waits for the switch as long as it takes, and never restores a fail mode in
which plain uplinks would form a loop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.api.events import (
    ForwardByOne,
    ForwardingByOne,
    Reply,
    Report,
    Setting,
    Write,
    Written,
)
from controller.bridge import inspection
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import Fleet
from controller.bridge.handover import GATHERED_AFTER_S
from controller.bridge.lost_keys import of_service
from controller.config import controllers, normal
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.operations import advice, attach_settings, check, releases, unconfirmed
from controller.operations.attach_settings import Refused
from controller.operations.jobs import (
    ATTACH_TIMEOUT_S,
    DETACH_TIMEOUT_S,
    Attach,
    Detach,
    Leaving,
    Step,
    Trial,
    longer_s,
)
from controller.operations.unconfirmed import UNCONFIRMED, Unconfirmed, What
from controller.text.wording import OUR_LOG, lines_of

NO_REVERSAL_YET = "a switch that answers; the change that was not confirmed is rolled back then"
# What attach writes unless the key is set. A bridge without the key keeps `multipath`, as releases
# before 0.2 left it: a change of the hash moves most connections to another uplink once.
HASH, HASH_AT_ATTACH = "connection-hash", "auto"


@dataclass(slots=True)
class AttachDetach:
    """The attaches and detaches in progress, by bridge."""

    fleet: Fleet
    attaching: dict[str, Attach] = field(default_factory=dict)
    detaching: dict[str, Detach] = field(default_factory=dict)
    leaving: dict[str, Leaving] = field(default_factory=dict)

    @property
    def in_hand(self) -> set[str]:
        """The bridges that a request is changing now. Nothing else may change them."""
        return {*self.attaching, *self.detaching, *self.leaving}

    def next_step_s(self) -> float:
        """When the first of them has something to do; infinity if none has."""
        times = [attach.deadline_s for attach in self.attaching.values()]
        for name, detach in self.detaching.items():
            if detach.step is not Step.FORGET:
                times.append(detach.deadline_s)
                bridge = self.fleet.bridges.get(name)
                if bridge is not None and detach.step is Step.GATHER:
                    times.append(bridge.handover.gathered_s)
        return min(times, default=float("inf"))

    def attach(
        self,
        request_id: int,
        row: BridgeRow,
        values: Mapping[str, str],
        now_s: float,
        confirm_s: float | None = None,
        reverts: Unconfirmed | None = None,
        trial: Trial | None = None,
    ) -> Commands:
        """Start an attach by reading the bridge. `values`: its keys, each already checked.

        `confirm_s`: how long it waits to be confirmed, if it does. `reverts`: the detach that it
        reverts, if it does. With a `trial`, only find out whether an attach would succeed.

        Raises:
            Refused: the bridge is attached already, or would not have a valid team.
        """
        name, own = row.name, tuple[Setting, ...]()
        if row.keys_lost:
            # They are given again. What the service had written among them stays.
            own = of_service(name, row.keys)
            row = self.fleet.as_stored(row)
        if reverts is None:
            attach_settings.refuse_waiting(row, self.fleet.epoch_s + now_s)
        if row.attached:
            raise Refused(attach_settings.attached_already(name, values))
        self._refuse_in_hand(name)
        for why in (
            releases.refusal(self.fleet.ovs_version),
            controllers.refusal(row),
            advice.refusal(row, self.fleet.ovn),
        ):
            if why is not None:
                raise Refused(why)
        if PREFIX + HASH not in row.external_ids and reverts is None:
            values = {**values, HASH: HASH_AT_ATTACH}
        config = attach_settings.attachable(row, values, as_before=reverts is not None)
        uplinks = [uplink.name for uplink in config.uplinks]
        if looping := [*normal.multiplied(row, uplinks)]:
            raise Refused("; ".join(looping))
        settings, undo = attach_settings.settings_of_attach(row, values, config, own)
        waits = None
        if confirm_s is not None:
            back = unconfirmed.before_attach(row)
            until_s = self.fleet.epoch_s + now_s + confirm_s
            waits = Unconfirmed(What.ATTACH, until_s, confirm_s, back)
            undo.append(Setting("Bridge", name, UNCONFIRMED, None))
        if reverts is not None:
            missing = unconfirmed.missing(reverts, row)
            settings += [*missing, Setting("Bridge", name, UNCONFIRMED, None)]
            undo += [replace(setting, value=None) for setting in missing]
            undo.append(reverts.as_setting(name))
        self.attaching[name] = Attach(
            request_id,
            now_s,
            now_s + ATTACH_TIMEOUT_S + longer_s(config),
            tuple(settings),
            tuple(undo),
            waits=waits,
            trial=trial,
        )
        self.fleet.forget_lost_keys(name, now_s)
        dropped = self.fleet.drop(name) if name in self.fleet.bridges else []
        return [*dropped, *self.fleet.manage(config, inspects=True)]

    def detach(
        self,
        request_id: int,
        bridge: Bridge,
        now_s: float,
        purge: bool = False,
        confirm_s: float | None = None,
        reverts: Unconfirmed | None = None,
    ) -> Commands:
        """Start a detach by reading the bridge. From now on, nothing is decided about it.

        `confirm_s`: how long it waits to be confirmed, if it does. `reverts`: the attach that it
        reverts, if it does.

        Raises:
            Refused: another request is changing the bridge, or it would form a loop until it is
                confirmed.
        """
        name = bridge.config.name
        self._refuse_in_hand(name)
        waits = None
        if confirm_s is not None:
            row = self.fleet.rows[name]
            attach_settings.refuse_waiting(row, self.fleet.epoch_s + now_s)
            if attach_settings.was_standalone(row) and (
                linked := attach_settings.looping(row, bridge)
            ):
                found = (
                    f"the fail mode before attach, standalone, with links on {', '.join(linked)}"
                )
                expected = "one uplink with a link, because NORMAL would join them into a loop"
                raise Refused(f"bridge {name}: {found} -> {expected}")
            back = unconfirmed.keys_of(row)
            until_s = self.fleet.epoch_s + now_s + confirm_s
            waits = Unconfirmed(What.DETACH, until_s, confirm_s, back)
        deadline_s = now_s + DETACH_TIMEOUT_S + longer_s(bridge.config)
        self.detaching[name] = Detach(
            request_id, now_s, deadline_s, purge, waits=waits, reverts=reverts
        )
        return bridge.inspect()

    def purge(self, request_id: int, row: BridgeRow) -> Commands:
        """Remove our settings that a detach left in the database.

        Raises:
            Refused: another request is changing the bridge.
        """
        self._refuse_in_hand(row.name)
        return [Write(attach_settings.traces(row, self._others_attached(row.name)), request_id)]

    def _refuse_in_hand(self, name: str) -> None:
        if name in self.in_hand:
            raise Refused(f"bridge {name}: another request is changing it -> try again later")

    def _others_attached(self, name: str) -> bool:
        """Whether other bridges are attached as well."""
        return any(row.attached for row in self.fleet.rows.values() if row.name != name)

    def written(self, event: Written, now_s: float) -> Commands:
        """The database has stored or refused the settings of a request."""
        for name, attach in list(self.attaching.items()):
            if attach.request_id == event.request_id:
                return self._attach_written(name, attach, event, now_s)
        for name, detach in list(self.detaching.items()):
            if detach.request_id == event.request_id:
                return self._detach_written(name, detach, event, now_s)
        for leaving in self.leaving.values():
            if leaving.reply is not None and leaving.reply.request_id == event.request_id:
                reply, leaving.reply = leaving.reply, None
                if event.error is not None:
                    worse = f"its settings could not be restored: database: {event.error}"
                    reply = replace(reply, text=f"{reply.text}; {worse}")
                return [reply]
        failed = event.error is not None
        text = f"database: {event.error}" if failed else ""
        return [Reply(event.request_id, text, refused=failed)]

    def abandon_jobs(self) -> list[int]:
        """Drop all requests as they are. Returns the ids of those that wait for an answer."""
        numbers = [attach.request_id for attach in self.attaching.values()]
        numbers += [detach.request_id for detach in self.detaching.values()]
        replies = [leaving.reply for leaving in self.leaving.values()]
        numbers += [reply.request_id for reply in replies if reply is not None]
        self.attaching, self.detaching, self.leaving = {}, {}, {}
        return numbers

    def take_steps(self, now_s: float) -> Commands:
        """Take each request one step further. Called after each event."""
        commands: Commands = []
        for name, attach in list(self.attaching.items()):
            step = functools.partial(self._proceed_attach, name, attach, now_s)
            commands += self.fleet.alone(name, step, now_s)
        for name, detach in list(self.detaching.items()):
            step = functools.partial(self._proceed_detach, name, detach, now_s)
            commands += self.fleet.alone(name, step, now_s)
        for name, leaving in list(self.leaving.items()):
            commands += self._proceed_leaving(name, leaving)
        return commands

    # ---- attach ------------------------------------------------------------------------

    def _proceed_attach(self, name: str, attach: Attach, now_s: float) -> Commands:
        bridge, row = self.fleet.bridges.get(name), self.fleet.rows.get(name)
        if bridge is None or row is None:
            del self.attaching[name]
            return [
                Reply(
                    attach.request_id,
                    f"bridge {name}: deleted meanwhile -> an existing bridge",
                    refused=True,
                )
            ]
        if (failed := self.fleet.failures.get(name)) is not None:
            return self._give_up(name, attach, failed.why, now_s)
        if now_s >= attach.deadline_s:
            what = "flows not read" if attach.trial else "flows not installed"
            late = f"{what} within {attach.deadline_s - attach.began_s:.0f} s"
            why = f"{late}{self._held_up(bridge, attach)}"
            return self._give_up(name, attach, f"{why}; see the log", now_s)
        if attach.step is Step.READ:
            return self._write(name, bridge, attach, now_s) if bridge.known else []
        if attach.step is Step.WRITE or not row.attached:
            return []
        if attach.step is Step.TAKE_OVER:
            if not bridge.settled:
                return []
            if attach.fail_mode and bridge.read is not None and bridge.read.by_default:
                return bridge.read_anew()
            commands = bridge.take_over(read_bridge(row, bridge.config), now_s)
            attach.step = Step.FLUSH if attach.fail_mode else Step.INSTALL
            if attach.fail_mode:
                commands.append(Write(attach.fail_mode, attach.request_id, applied=True))
            return commands
        if attach.step is Step.FLUSH or not bridge.installing.has_all:
            return []
        del self.attaching[name]
        uplinks = ", ".join(uplink.name for uplink in bridge.config.uplinks)
        policy = bridge.config.asked.policy
        lines = [f"{name}: {policy} over {uplinks}, {len(bridge.placing.bound)} VM ports"]
        if unknown := releases.warning(self.fleet.ovs_version):
            lines.append(f"warning: {unknown}")
        lines += [f"warning: {text}" for text in bridge.config.not_done]
        if bridge.observing:
            known = bridge.addresses.by_port
            lines += [f"warning: {text}" for text in advice.dropped(bridge.config, row, known)]
        lines += [f"note: {text}" for text in bridge.config.offload.told]
        if (hashed := bridge.connection_hash.in_use) is not None and hashed.cost is not None:
            lines.append(f"note: {hashed}")
        lines += [f"note: {text}" for _, text in advice.advice(bridge.config, self.fleet)]
        # Changes of the database meanwhile were not followed.
        followed = bridge.configure(read_bridge(row, bridge.config), now_s)
        if attach.waits is not None:
            lines.append(unconfirmed.waiting(name, attach.waits, self.fleet.epoch_s + now_s))
        return [*followed, Reply(attach.request_id, lines_of(lines))]

    def _held_up(self, bridge: Bridge, attach: Attach) -> str:
        """Why an attach is not done. Only blames the switch if nothing else is the cause."""
        if (fault := self.fleet.blamed(bridge.config.name, attach.began_s)) is not None:
            return f", because ovs-lbt itself failed: {fault.text} -> {OUR_LOG}"
        row = self.fleet.rows.get(bridge.config.name)
        stored = attach.step not in (Step.READ, Step.WRITE) and row is not None and row.attached
        if attach.step is not Step.READ and not stored:
            return ", because its settings are not in the database -> a running ovsdb-server"
        return bridge.awaited

    def _write(self, name: str, bridge: Bridge, attach: Attach, now_s: float) -> Commands:
        """The bridge has been read: continue, unless other flows or groups are in the way."""
        assert bridge.read is not None
        if attach.fail_mode and bridge.foreign:
            found = f"fail mode standalone, and {len(bridge.foreign)} flows of other programs"
            expected = "fail mode secure, because setting it now would flush those flows"
            return self._give_up(name, attach, f"{found} -> {expected}", now_s)
        if found_there := inspection.obstacles(bridge.read, bridge.config.on_bond):
            found = "; ".join(obstacle.found for obstacle in found_there)
            expected = "; ".join(obstacle.expected for obstacle in found_there)
            return self._give_up(name, attach, f"{found} -> {expected}", now_s)
        row = self.fleet.rows[name]
        lost = [*advice.dropped(bridge.config, row, bridge.addresses.by_port)]
        if lost and not bridge.config.observes_bond:
            return self._give_up(name, attach, "; ".join(lost), now_s)
        if attach.trial is not None:
            del self.attaching[name]
            fit = check.fit(self.fleet, bridge, now_s)
            return [*self.fleet.drop(name), attach.trial(fit)]
        if flagged := bridge.no_flood.by_others:
            key = PREFIX + "no-flood-before"
            attach.settings += (Setting("Bridge", name, key, ",".join(flagged)),)
            attach.undo += (Setting("Bridge", name, key, None),)
        if attach.waits is not None:
            linked = tuple(u.name for u in bridge.config.uplinks if bridge.links.up(u))
            if not bridge.config.on_bond:
                attach.waits = replace(attach.waits, linked=linked)
            attach.settings += (attach.waits.as_setting(name),)
        attach.step = Step.WRITE
        # The new fail mode flushes everything, and from then on each millisecond costs frames.
        ahead = bridge.installing.foreseen(now_s) if attach.fail_mode else []
        return [*ahead, Write(attach.settings, attach.request_id)]

    def _attach_written(self, name: str, attach: Attach, event: Written, now_s: float) -> Commands:
        bridge = self.fleet.bridges.get(name)
        if event.error is None and attach.step is Step.WRITE:
            attach.step = Step.TAKE_OVER
            return []
        if event.error is None:
            attach.step = Step.INSTALL
            return bridge.read_anew() if bridge is not None else []
        if attach.step is not Step.WRITE and bridge is not None:
            return self._give_up(name, attach, f"database: {event.error}", now_s)
        del self.attaching[name]
        return [Reply(event.request_id, f"database: {event.error}", refused=True)]

    def _give_up(self, name: str, attach: Attach, why: str, now_s: float) -> Commands:
        """Undo everything, and answer when it is undone."""
        del self.attaching[name]
        reply = Reply(attach.request_id, f"bridge {name}: {why}", refused=True)
        if attach.trial is not None:
            reply = attach.trial(check.unfit(name, why))
        bridge = self.fleet.bridges[name]
        if attach.step is Step.READ:
            return [*self.fleet.drop(name), reply]
        self.leaving[name] = Leaving(reply)
        removing = self._give_back(bridge, now_s)
        return [*removing, Write(attach.undo, attach.request_id)]

    def _give_back(self, bridge: Bridge, now_s: float) -> Commands:
        """Take everything of ours off the switch. What follows is done even if an error of ours delays it."""
        return self.fleet.alone(bridge.config.name, lambda: bridge.give_back(now_s), now_s)

    # ---- detach ------------------------------------------------------------------------

    def _proceed_detach(self, name: str, detach: Detach, now_s: float) -> Commands:
        bridge, row = self.fleet.bridges.get(name), self.fleet.rows.get(name)
        if detach.step is Step.FORGET and row is not None:
            return []
        if row is None or bridge is None:
            del self.detaching[name]
            return [Reply(detach.request_id, "")]
        if detach.step is Step.GATHER:
            looked = bridge.settled and not bridge.handover.is_gathering
            if looked and bridge.handover.gather(now_s):
                detach.deadline_s += GATHERED_AFTER_S
                return bridge.reconcile(now_s)
            if looked or now_s >= bridge.handover.gathered_s:
                detach.step = Step.REMOVE
                if detach.waits is not None:
                    bridge.handover.introduce()
                given = self._give_back(bridge, now_s)
                return [*given, *self._proceed_detach(name, detach, now_s)]
        gone = detach.step is Step.REMOVE and bridge.settled and not bridge.installed_anything
        if (not gone or not bridge.shaping.cleared) and now_s < detach.deadline_s:
            return []
        found = "does not answer" if bridge.connected else "is not connected"
        if not gone and detach.reverts is not None:
            # What remains to be done stays in the database until the switch answers.
            detach.deadline_s = now_s + DETACH_TIMEOUT_S
            return [Report("warning", f"bridge {name}: the switch {found} -> {NO_REVERSAL_YET}")]
        detach.step = Step.FORGET
        commands: Commands = []
        if not gone:
            expected = f"a switch that answers within {detach.deadline_s - detach.began_s:.0f} s"
            if (fault := self.fleet.blamed(name, detach.began_s)) is not None:
                found, expected = (
                    f"was not reached because ovs-lbt itself failed ({fault.text})",
                    OUR_LOG,
                )
            detach.lost = (
                f"bridge {name}: the switch {found}, so only the configuration was removed"
                f" -> {expected}"
            )
            commands = self._give_back(bridge, now_s)
        settings, warning = attach_settings.fail_mode_back(row, bridge)
        if (
            detach.reverts is not None
            and settings
            and (linked := attach_settings.looping(row, bridge))
        ):
            before = [up for up in linked if up in detach.reverts.linked]
            settings, chosen = (), (before or linked)[0]
            others = [u.name for u in bridge.config.uplinks if u.name != chosen]
            others += bridge.config.missing
            detach.one_uplink = ForwardByOne(name, chosen, tuple(others))
        ours = (
            attach_settings.traces(row, self._others_attached(name))
            if detach.purge
            else attach_settings.removed(row)
        )
        detach.stays = attach_settings.staying(row, ours)
        if detach.reverts is not None:
            detach.stays = ""
            ours = unconfirmed.merged(ours, unconfirmed.restored(detach.reverts, row))
        if detach.waits is not None:
            ours = unconfirmed.merged(ours, [detach.waits.as_setting(name)])
        settings = (*ours, *settings)
        if not bridge.shaping.cleared:
            found = f"bridge {name}: the queues of {', '.join(bridge.shaping.on()) or 'uplinks'}"
            warning = warning or f"{found} were not removed -> tc qdisc del dev UPLINK root"
        detach.lost = detach.lost or warning
        if detach.one_uplink is not None:
            # Its flows would be taken for remains of ours: nothing of ours manages the bridge then.
            detach.settings = settings
            return [*commands, *self.fleet.drop(name), detach.one_uplink]
        waits = gone and any(setting.column == "fail_mode" for setting in settings)
        return [*commands, Write(settings, detach.request_id, applied=waits)]

    def forwards_by_one(self, event: ForwardingByOne) -> Commands:
        """A bridge of plain uplinks forwards by one of them now, or could not be made to."""
        detach, row = self.detaching.get(event.bridge), self.fleet.rows.get(event.bridge)
        if detach is None:
            return []
        if event.error is None:
            return [Write(detach.settings, detach.request_id)]
        del self.detaching[event.bridge]
        again = self.fleet.manage(read_bridge(row)) if row is not None and row.attached else []
        text = f"bridge {event.bridge}: {event.error}"
        return [*again, Reply(detach.request_id, text, refused=True)]

    def _detach_written(self, name: str, detach: Detach, event: Written, now_s: float) -> Commands:
        del self.detaching[name]
        bridge, row = self.fleet.bridges.get(name), self.fleet.rows.get(name)
        if event.error is None:
            self.fleet.forget_lost_keys(name, now_s)
            if bridge is not None:
                self.leaving[name] = Leaving(None)
            told = [part for part in (detach.lost, detach.stays) if part]
            if detach.waits is not None:
                told.append(unconfirmed.waiting(name, detach.waits, self.fleet.epoch_s + now_s))
            if (by := detach.one_uplink) is not None:
                told.append(f"by {by.uplink} alone, because NORMAL over all uplinks is a loop")
            text = ("\n" if detach.lost is None else "; ").join(told)
            refused = detach.lost is not None and detach.reverts is None
            return [Reply(event.request_id, text, refused=refused)]
        commands: Commands = []
        if bridge is not None and row is not None:
            commands = bridge.take_over(read_bridge(row, bridge.config), now_s)
        elif row is not None and row.attached:
            commands = self.fleet.manage(read_bridge(row))
        return [*commands, Reply(event.request_id, f"database: {event.error}", refused=True)]

    # ---- afterwards --------------------------------------------------------------------

    def _proceed_leaving(self, name: str, leaving: Leaving) -> Commands:
        """Drop a bridge once nothing of ours is left on it."""
        bridge, row = self.fleet.bridges.get(name), self.fleet.rows.get(name)
        if bridge is None or row is None:
            del self.leaving[name]
            return [leaving.reply] if leaving.reply is not None else []
        if leaving.reply is not None or not bridge.settled or bridge.installed_anything:
            return []
        del self.leaving[name]
        commands = self.fleet.drop(name)
        # An operator has attached it again meanwhile, directly in the database.
        return [*commands, *self.fleet.manage(read_bridge(row))] if row.attached else commands
