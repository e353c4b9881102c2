"""The engine: handles events of all bridges and returns commands, without I/O.

The path from port statistics to a group change: `openflow` decodes the reply, `load` converts
counters to loads and a snapshot for `Bridge`, the policy plans moves (`decisions`),
`dataplane.pipeline` compares the pipeline for the new bindings with the installed one, and
`openflow` encodes the differences as one bundle.

While another service leads, this one is on standby: see `Engine._stand_by` and `ovsdb.leadership`.
"""

from __future__ import annotations

import functools
import math

from controller.api import engine_commands, events
from controller.api.commands import READING
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import Fleet, failure_text
from controller.config.rows import PREFIX
from controller.operations import answers
from controller.operations.confirmations import Confirmations
from controller.operations.jobs import Jobs
from controller.operations.operator import Operator
from controller.text.wording import OUR_LOG, one_line


class Engine:
    """The engine of all bridges. Call `handle` on one thread only.

    `epoch_s`: the wall-clock time at which `now_s` was zero. `leads`: whether this service is
    assumed to lead before the first `Leading` event; if False, it manages no bridges. `name`: this
    service's name, which standby services show if it leads. `probe_key`: signs path-check probes.
    """

    def __init__(
        self,
        epoch_s: float = 0.0,
        leads: bool = True,
        name: str = "",
        probe_key: bytes = b"",
        listens_on: tuple[str, int] | None = None,
    ) -> None:
        self.fleet = Fleet(epoch_s, leads, probe_key=probe_key, listens_on=listens_on)
        self.jobs = Jobs(self.fleet)
        self.confirmations = Confirmations(self.fleet, self.jobs)
        self.operator = Operator(self.fleet, self.jobs, self.confirmations)
        # When the last event was handled.
        self._now_s = -math.inf
        # For each bridge: when its next timer is due.
        self._due_s: dict[str, float] = {}
        # For each bridge with a failover that waits for the switch: when the failover continues.
        self._resumes_s: dict[str, float] = {}
        # The bridges for which both times may have changed. Several events may be handled in between.
        self._changed: set[str] = set()
        self._name = name
        self._has_stood_by = False

    def handle(self, event: events.Event, now_s: float) -> tuple[engine_commands.Command, ...]:
        """Handle one event, and return the commands to carry out. `now_s` never decreases.

        Most events are handled by their bridge. After each event, unfinished requests continue, and
        bridges that may have changed announce their latest moves. Other timers of bridges wait for
        a `Tick`, which is due at `deadline_s`.
        """
        assert now_s >= self._now_s, "time never decreases"
        self._now_s = now_s
        concerned = self._concerned(event, now_s) | self.jobs.concerned
        commands = [*self._handle(event, now_s), *self.confirmations.revert_due(now_s)]
        commands += self.jobs.go_on(now_s)
        commands += self.fleet.end_failures(now_s)
        concerned |= self.jobs.concerned
        if (there := self.fleet.bridges.keys()) != self._due_s.keys():
            concerned |= there ^ self._due_s.keys()
        for bridge in self._in_order(concerned):
            if max(bridge.announces_at_s, self.fleet.held_until_s(bridge.config.name)) <= now_s:
                commands += self._tick(bridge, now_s)
        self._changed |= concerned
        return tuple(commands)

    def _schedule(self) -> None:
        """Compute the next due times of the bridges that may have changed."""
        if not self._changed:
            return
        for name in self._changed:
            self._resumes_s.pop(name, None)
            if (bridge := self.fleet.bridges.get(name)) is None:
                self._due_s.pop(name, None)
                continue
            held_s = self.fleet.held_until_s(name)
            self._due_s[name] = max(bridge.deadline_s(), held_s)
            if (resumes_s := bridge.resumes_s) < math.inf:
                self._resumes_s[name] = max(resumes_s, held_s)
        assert len(self._due_s) == len(self.fleet.bridges), "each bridge has a deadline"
        self._changed.clear()

    def _tick(self, bridge: Bridge, now_s: float) -> Commands:
        return self.fleet.alone(bridge.config.name, lambda: bridge.tick(now_s), now_s)

    def set_clock(self, epoch_s: float) -> Commands:
        """Use a new `epoch_s` after the wall clock was set. While a request is in progress, do nothing.

        The request may have computed a deadline with the previous clock, and not stored it yet.
        """
        if self.jobs.unanswered:
            return []
        self.fleet.set_clock(epoch_s)
        return self.confirmations.follow_clock()

    def deadline_s(self) -> float:
        """Return the time when the next `Tick` is due; infinity if no timer is set."""
        self._schedule()
        waiting_s = [self.jobs.next_s(), self.confirmations.reverts_s()]
        return min([*self._due_s.values(), *waiting_s, self.fleet.lost_keys.expires_s()])

    def _due(self, now_s: float) -> set[str]:
        """Return the name of the next bridge with due timers; empty if no timer is due.

        Bridges with a failover are first, because hundreds of polls may be late. Otherwise, return the
        bridge whose timer is due earliest; among equals, the bridge that was attached first.
        """
        self._schedule()
        bridges = self.fleet.bridges
        resuming = [name for name in bridges if name in self._resumes_s] if self._resumes_s else []
        for names, due_s in ((resuming, self._resumes_s), (bridges, self._due_s)):
            name = min(names, key=due_s.__getitem__, default=None)
            if name is not None and due_s[name] <= now_s:
                return {name}
        return set()

    def _in_order(self, names: set[str]) -> list[Bridge]:
        """Return the bridges with these names, in the order in which they were attached."""
        bridges = self.fleet.bridges
        if len(names) > 1:
            return [bridge for name, bridge in bridges.items() if name in names]
        return [bridges[name] for name in names if name in bridges]

    def _concerned(self, event: events.Event, now_s: float) -> set[str]:
        """Return the names of the bridges that an event may affect."""
        match event:
            case events.BridgeEvent():
                return {event.bridge}
            case events.Challenged() | events.Faulted() | events.Unstored():
                return set()
            case events.Tick():
                return self._due(now_s)
            case _:
                return set(self.fleet.bridges)

    def _handle(self, event: events.Event, now_s: float) -> Commands:
        match event:
            case events.DatabaseRead():
                self.fleet.database = event
                told = self.fleet.lost_keys.allow(event.key_loss_grace_s)
                followed = self.fleet.follow_database(self.jobs.in_hand, now_s)
                return [*told, *followed, *self.confirmations.follow_database(now_s)]
            case events.Leading(leads=leads):
                return self._lead(now_s) if leads else self._stand_by()
            case events.Challenged():
                self.fleet.challenged_s = now_s
                return self._answer()
            case events.Unstored(why=why):
                self.fleet.unstored = why
                return []
            case events.Faulted():
                self.fleet.faults[event.part] = event
                return []
            case events.AddressesRead(devices=addresses):
                # A device's address may be the source address of a tunnel.
                self.fleet.addresses = addresses
                return self.fleet.follow_database(self.jobs.in_hand, now_s)
            case events.Tick():
                commands = self.fleet.expire(self.jobs.in_hand, now_s)
                for due in self._in_order(self._due(now_s)):
                    commands += self._tick(due, now_s)
                return commands
            case events.Request() if not self.fleet.leads:
                return [self._refer(event, now_s)]
            case events.Request():
                try:
                    return self.operator.answer_request(event, now_s)
                except Exception as error:
                    return self._request_failed(event, error, now_s)
            case events.Written():
                answered = self.jobs.take_answer(event, now_s)
                return [*answered, *self.fleet.let_go(self.jobs.in_hand)]
            case events.ForwardingByOne():
                return self.jobs.forwards_by_one(event, now_s)
            case events.CommandFailed(bridge=name, error=error):
                return self.fleet.failed(name, error, now_s) if name in self.fleet.bridges else []
            case _:
                assert isinstance(event, events.BridgeEvent), event
                if (bridge := self.fleet.bridges.get(event.bridge)) is None:
                    return []
                decides = isinstance(event, events.PortStatsRead | events.UnitCountersRead)
                handle = functools.partial(bridge.handle, event, now_s)
                return self.fleet.alone(event.bridge, handle, now_s, decides)

    def _request_failed(self, request: events.Request, error: Exception, now_s: float) -> Commands:
        """Refuse a request after an internal error, and read all bridges, because some may have changed."""
        command = request.words[0]
        why = f"{command}: ovs-lbt itself failed: {failure_text(error)}; {OUR_LOG}"
        done: Commands = [engine_commands.ReportFailure(f"request {command}", error, again=False)]
        for bridge in self.fleet.serving if command not in READING else ():
            done += bridge.recover(now_s, now_s, why)
        return [*done, engine_commands.Reply(request.request_id, why, refused=True)]

    # ---- with a standby ----------------------------------------------------------------

    def _lead(self, now_s: float) -> Commands:
        """Start to manage the attached bridges, because this service leads from now on."""
        if self.fleet.leads:
            return []
        assert not self.fleet.bridges, "a standby serves no bridge"
        report = engine_commands.Report("warning", "this service leads now")
        return [*([report] if self._has_stood_by else []), *self.fleet.lead(now_s)]

    def _stand_by(self) -> Commands:
        """Stop managing bridges, because another service leads from now on."""
        self._has_stood_by = True
        text = "another service leads; this service is on standby"
        report = engine_commands.Report("warning", text)
        commands = [report, *self.operator.abandon(), *self.fleet.stand_by()]
        assert not self.fleet.bridges and not self.jobs.concerned, "a standby does nothing"
        return commands

    def _answer(self) -> Commands:
        """Answer a standby that checks whether this service is alive, and write the key `leader` for it.

        The key is written again until it is in the database. Writes have no effect if this service was
        stopped and has lost the lead.
        """
        if not self.fleet.leads:
            return []
        if self.fleet.database.leader == self._name:
            return [engine_commands.Answer()]
        name = engine_commands.Setting("Open_vSwitch", ".", PREFIX + "leader", self._name)
        return [engine_commands.Answer(), engine_commands.Write((name,))]

    def _refer(self, request: events.Request, now_s: float) -> engine_commands.Reply:
        """Return the answer to a request while this service is on standby."""
        leader = one_line(self.fleet.database.leader or "another service")
        as_json = "--json" in request.words
        if request.words[0] == "show" and len(request.words) - as_json == 1:
            faults = self.fleet.recent_faults(now_s)
            text = answers.shown((), as_json, faults, standby=True, leader=leader)
            return engine_commands.Reply(request.request_id, text)
        text = f"this service is on standby; ask the service that leads: {leader}"
        return engine_commands.Reply(request.request_id, text, refused=True)
