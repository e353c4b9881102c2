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
import json
from collections.abc import Callable, Iterable, Mapping
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
from controller.bridge.fleet import Fleet, isolation
from controller.bridge.handover import GATHERED_AFTER_S
from controller.bridge.lost_keys import of_service
from controller.bridge.phase import Phase
from controller.config import controllers, normal
from controller.config.controllers import SECURE
from controller.config.keys import BRIDGE_KEYS
from controller.config.membership import bond_of, bonds_of
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import BridgeConfig
from controller.config.vlans import most_ports
from controller.dataplane.tables import PORTS_PER_VLAN_MAX
from controller.operations import advice, check, releases, unconfirmed
from controller.operations.unconfirmed import UNCONFIRMED, Unconfirmed, What
from controller.text.check_view import JsonObject
from controller.text.wording import OUR_LOG, lines_of, quoted, shortened

# Instead of an attach: tell whether one would succeed, by the answer of `check`. Nothing is written.
Trial = Callable[[JsonObject], Reply]
# If the switch has not confirmed the pipeline within this time, the attach is undone.
ATTACH_TIMEOUT_S = 10.0
# More for each VM port of a large bridge: each has some twenty flows and groups.
TIMEOUT_PER_PORT_S, LARGE_PORTS = 0.03, 300
# A switch that has not answered within this time counts as unreachable.
DETACH_TIMEOUT_S = 5.0
NO_REVERSAL_YET = "a switch that answers; the change that was not confirmed is rolled back then"
# What attach writes unless the key is set. A bridge without the key keeps `multipath`, as releases
# before 0.2 left it: a change of the hash moves most connections to another uplink once.
HASH, HASH_AT_ATTACH = "connection-hash", "auto"


class Refused(Exception):
    """A request is refused. The text: what was found -> what is expected."""


@dataclass(slots=True)
class Attach:
    """An attach in progress: read the bridge, write the configuration, wait for the pipeline.

    `waits`: the change that waits to be confirmed from then on, if it does. `trial`: it ends when the
    bridge has been read.
    """

    request_id: int
    began_s: float
    deadline_s: float
    settings: tuple[Setting, ...]
    undo: tuple[Setting, ...]
    writing: bool = False
    written: bool = False
    applied: bool = False
    waits: Unconfirmed | None = None
    trial: Trial | None = None

    @property
    def fail_mode(self) -> tuple[Setting, ...]:
        """The new fail mode. The switch flushes all flows when it applies it.

        To lose few frames, our flows must follow at once. So they are installed as soon as the
        default flow is seen to be gone, and checked again when the database reports that everything
        is applied.
        """
        return tuple(setting for setting in self.settings if setting.column == "fail_mode")


@dataclass(slots=True)
class Detach:
    """A detach in progress: gather VM ports, remove our flows, then the configuration.

    `purge`: also remove what operators set. `lost`: what could not be done, in words. `stays`: the
    settings that stay in the database, in words. `waits`: the change that waits to be confirmed from
    then on, if it does. `reverts`: the change that this detach reverts, if it does. `one_uplink`:
    it is reverted, but forwards by one uplink only, because the others would form a loop.
    """

    request_id: int
    began_s: float
    deadline_s: float
    purge: bool = False
    removing: bool = False
    writing: bool = False
    lost: str | None = None
    stays: str = ""
    waits: Unconfirmed | None = None
    reverts: Unconfirmed | None = None
    one_uplink: ForwardByOne | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(slots=True)
class Leaving:
    """A bridge that is detached, but may still have flows of ours.

    If the switch did not answer in time, it may still receive what was sent before. That is removed
    when it answers. `reply`: the answer to give once the configuration is restored.
    """

    reply: Reply | None


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

    def deadline_s(self) -> float:
        """When the first of them has something to do; infinity if none has."""
        times = [attach.deadline_s for attach in self.attaching.values()]
        for name, detach in self.detaching.items():
            if not detach.writing:
                times.append(detach.deadline_s)
                bridge = self.fleet.bridges.get(name)
                if bridge is not None and not detach.removing:
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
            refuse_waiting(row, self.fleet.epoch_s + now_s)
        if row.attached:
            raise Refused(_attached_already(name, values))
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
        config = attachable(row, values, as_before=reverts is not None)
        uplinks = [uplink.name for uplink in config.uplinks]
        if looping := [*normal.multiplied(row, uplinks)]:
            raise Refused("; ".join(looping))
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
            now_s + ATTACH_TIMEOUT_S + _longer_s(config),
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
            refuse_waiting(row, self.fleet.epoch_s + now_s)
            if _was_standalone(row) and (linked := _looping(row, bridge)):
                found = (
                    f"the fail mode before attach, standalone, with links on {', '.join(linked)}"
                )
                expected = "one uplink with a link, because NORMAL would join them into a loop"
                raise Refused(f"bridge {name}: {found} -> {expected}")
            back = unconfirmed.keys_of(row)
            until_s = self.fleet.epoch_s + now_s + confirm_s
            waits = Unconfirmed(What.DETACH, until_s, confirm_s, back)
        deadline_s = now_s + DETACH_TIMEOUT_S + _longer_s(bridge.config)
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
        return [Write(traces(row, self._others_attached(row.name)), request_id)]

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

    def abandon(self) -> list[int]:
        """Drop all requests as they are. Returns the ids of those that wait for an answer."""
        numbers = [attach.request_id for attach in self.attaching.values()]
        numbers += [detach.request_id for detach in self.detaching.values()]
        replies = [leaving.reply for leaving in self.leaving.values()]
        numbers += [reply.request_id for reply in replies if reply is not None]
        self.attaching, self.detaching, self.leaving = {}, {}, {}
        return numbers

    def proceed(self, now_s: float) -> Commands:
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
        if not attach.writing:
            return self._write(name, bridge, attach, now_s) if bridge.known else []
        if not attach.written or not row.attached:
            return []
        if bridge.phase is Phase.INSPECTING:
            if not bridge.settled:
                return []
            if attach.fail_mode and bridge.read is not None and bridge.read.by_default:
                return bridge.read_anew()
            commands = bridge.take_over(read_bridge(row, bridge.config), now_s)
            if attach.fail_mode:
                commands.append(Write(attach.fail_mode, attach.request_id, applied=True))
            return commands
        if attach.fail_mode and not attach.applied:
            return []
        if not bridge.installing.has_all:
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
            lines.append(waiting(name, attach.waits, self.fleet.epoch_s + now_s))
        return [*followed, Reply(attach.request_id, lines_of(lines))]

    def _held_up(self, bridge: Bridge, attach: Attach) -> str:
        """Why an attach is not done. Only blames the switch if nothing else is the cause."""
        if (fault := self.fleet.blamed(bridge.config.name, attach.began_s)) is not None:
            return f", because ovs-lbt itself failed: {fault.text} -> {OUR_LOG}"
        row = self.fleet.rows.get(bridge.config.name)
        if attach.writing and not (attach.written and row is not None and row.attached):
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
        attach.writing = True
        # The new fail mode flushes everything, and from then on each millisecond costs frames.
        ahead = bridge.installing.foreseen(now_s) if attach.fail_mode else []
        return [*ahead, Write(attach.settings, attach.request_id)]

    def _attach_written(self, name: str, attach: Attach, event: Written, now_s: float) -> Commands:
        bridge = self.fleet.bridges.get(name)
        if event.error is None and attach.written and bridge is not None:
            attach.applied = True
            return bridge.read_anew()
        if event.error is None:
            attach.written = True
            return []
        if attach.written and bridge is not None:
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
        if not attach.writing:
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
        if detach.writing and row is not None:
            return []
        if row is None or bridge is None:
            del self.detaching[name]
            return [Reply(detach.request_id, "")]
        if not detach.removing:
            looked = bridge.settled and not bridge.handover.is_gathering
            if looked and bridge.handover.gather(now_s):
                detach.deadline_s += GATHERED_AFTER_S
                return bridge.reconcile(now_s)
            if looked or now_s >= bridge.handover.gathered_s:
                detach.removing = True
                if detach.waits is not None:
                    bridge.handover.introduce()
                given = self._give_back(bridge, now_s)
                return [*given, *self._proceed_detach(name, detach, now_s)]
        gone = detach.removing and bridge.settled and not bridge.installed_anything
        if (not gone or not bridge.shaping.cleared) and now_s < detach.deadline_s:
            return []
        found = "does not answer" if bridge.connected else "is not connected"
        if not gone and detach.reverts is not None:
            # What remains to be done stays in the database until the switch answers.
            detach.deadline_s = now_s + DETACH_TIMEOUT_S
            return [Report("warning", f"bridge {name}: the switch {found} -> {NO_REVERSAL_YET}")]
        detach.writing = True
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
        settings, warning = _fail_mode_back(row, bridge)
        if detach.reverts is not None and settings and (linked := _looping(row, bridge)):
            before = [up for up in linked if up in detach.reverts.linked]
            settings, chosen = (), (before or linked)[0]
            others = [u.name for u in bridge.config.uplinks if u.name != chosen]
            others += bridge.config.missing
            detach.one_uplink = ForwardByOne(name, chosen, tuple(others))
        ours = traces(row, self._others_attached(name)) if detach.purge else _leaving(row)
        detach.stays = _staying(row, ours)
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
                told.append(waiting(name, detach.waits, self.fleet.epoch_s + now_s))
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


def _longer_s(config: BridgeConfig) -> float:
    """How much more time the pipeline of a large bridge may take."""
    return TIMEOUT_PER_PORT_S * max(0, len(config.vm_ports) - LARGE_PORTS)


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
    if "uplinks" not in values and bond_of(row) is None:
        found, expected = "0 bonds", "one bond, or --uplink at least twice"
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


def _attached_already(name: str, values: Mapping[str, str]) -> str:
    """Refuse to attach twice, and say how to change the settings instead."""
    wanted = " ".join(f"{key}={value}" for key, value in values.items() if key != "policy")
    wanted = wanted or f"policy={values['policy']}"
    expected = f"a bridge that is not attached; to change this one: ovs-lbt set bridge {quoted(name)} {wanted}"
    return f"bridge {name}: already attached -> {expected}"


def traces(row: BridgeRow, others_attached: bool) -> tuple[Setting, ...]:
    """The settings that remove all our keys from a bridge's records, also those of operators.

    They also remove the key of the database itself, unless there are `others_attached`.
    """
    settings = [*_leaving(row)]
    settings += (replace(setting, value=None) for setting in unconfirmed.keys_of(row))
    if not others_attached:
        settings.append(Setting("Open_vSwitch", ".", PREFIX + "leader", None))
    return unconfirmed.merged(settings)


def _leaving(row: BridgeRow) -> tuple[Setting, ...]:
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


def _staying(row: BridgeRow, settings: Iterable[Setting]) -> str:
    """Our keys that stay on a bridge's ports after these settings, in words; may be empty."""
    gone = {(setting.table, setting.record, setting.key) for setting in settings}
    kept: dict[str, list[str]] = {}
    for s in unconfirmed.keys_of(row):
        if s.table == "Interface" and (s.table, s.record, s.key) not in gone:
            kept.setdefault(s.record, []).append(s.key.removeprefix(PREFIX))
    if not kept:
        return ""
    listed = "; ".join(f"{name} {', '.join(of)}" for name, of in sorted(kept.items()))
    removed = f"ovs-lbt detach {quoted(row.name)} --purge"
    return f"{row.name}: settings stay for the next attach: {listed} -> to remove them: {removed}"


def _fail_mode_back(row: BridgeRow, bridge: Bridge) -> tuple[tuple[Setting, ...], str | None]:
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


def _was_standalone(row: BridgeRow) -> bool:
    """Whether a detach restores fail mode standalone."""
    try:
        before = BRIDGE_KEYS["before"].parse(row.external_ids.get(PREFIX + "before", ""))
    except ValueError:
        return False
    return bool(before["fail_mode"] != SECURE)


def _looping(row: BridgeRow, bridge: Bridge) -> list[str]:
    """The plain uplinks that NORMAL would join into a loop, which takes two with a link."""
    if row.stp_enable or row.rstp_enable or bridge.config.on_bond:
        return []
    linked = [uplink.name for uplink in bridge.config.uplinks if bridge.links.up(uplink)]
    return linked if len(linked) > 1 else []


def waiting(name: str, change: Unconfirmed, epoch_now_s: float) -> str:
    """What happens unless a change is confirmed, for the operator who has just made it."""
    left_s = change.left_s(epoch_now_s)
    return f"{name}: {change.what} is rolled back in {left_s:.0f} s, unless: ovs-lbt confirm {quoted(name)}"


def refuse_waiting(row: BridgeRow, epoch_now_s: float) -> None:
    """Refuse a change of a bridge on which another one waits to be confirmed.

    Raises:
        Refused: one does.
    """
    try:
        change = unconfirmed.of(row)
    except ValueError:
        return
    if change is not None:
        left_s = change.left_s(epoch_now_s)
        found = f"{change.what} waits to be confirmed, for another {left_s:.0f} s"
        expected = f"ovs-lbt confirm {quoted(row.name)}, or ovs-lbt rollback {quoted(row.name)}"
        raise Refused(f"bridge {row.name}: {found} -> {expected}")
