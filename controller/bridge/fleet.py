"""Manages the bridges of this host according to their records in the database."""

from __future__ import annotations

import functools
import hmac
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import (
    Connect,
    Disconnect,
    Report,
    ReportFailure,
    Setting,
    Write,
)
from controller.api.events import DatabaseRead, Faulted
from controller.api.history import Names
from controller.api.status import BridgeStatus
from controller.bridge import status
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.lost_keys import LostKeys, copied, uplink_keys_kept
from controller.bridge.phase import Phase, Turn, after
from controller.config import controllers
from controller.config.guests import VmNames
from controller.config.marks import Marks
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import BridgeConfig
from controller.text.wording import OUR_LOG, keys_again, one_line

# How long `show` reports a fault.
TOLD_FOR_S = 86_400.0
# A failed part of this service is restarted within this time.
STILL_FELT_S = 30.0
# Parts of this service that do not exchange messages with a switch.
BESIDE = frozenset({"history", "metrics", "commands"})
# The flows are kept, because the operator's only network connection may use them.
FORGOTTEN = (
    "Bridge {0} ovs-lbt-policy: the key has disappeared from the database, so the bridge is no longer"
    " managed, and its flows stay installed; {1}"
)
# This key marks a port if the service has set the port's column `protected`.
PROTECTED = PREFIX + "protected"
# After an error, a bridge is handled again after a pause, which doubles with each error up to the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 60.0
MOST_DOUBLED = 10
# A failure ends if no error occurs for this long after the pause: a policy with a window decides late.
OVER_AFTER_S = 60.0
# The number of different errors of a bridge that are remembered as reported.
MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """Repeated internal errors of one bridge, and when to retry.

    `texts`: the logged errors, the newest last. `count`: the number of retries. `until_s`: when to
    retry next, in seconds of engine time. `holds`: whether all timers, and not only polls, wait until
    `until_s`. `is_new`: whether the last error must be reported.
    """

    texts: tuple[str, ...]
    count: int
    until_s: float
    holds: bool
    is_new: bool = True

    @property
    def text(self) -> str:
        """The text of the last error."""
        return self.texts[-1]

    @property
    def why(self) -> str:
        """The answer to requests that wait for the bridge."""
        return f"ovs-lbt itself failed: {self.text}; {OUR_LOG}"


@dataclass(slots=True)
class Fleet:
    """All attached and inspected bridges; none while another service leads (`leads` is False).

    `epoch_s`: the wall-clock time at which `now_s` was zero, for times in output and in the database.
    """

    epoch_s: float = 0.0
    leads: bool = True
    # The content of the database, as last read.
    database: DatabaseRead = field(default_factory=lambda: DatabaseRead(()))
    # Why the database does not store settings, for which no request waits; empty if it stores them.
    unstored: str = ""
    # When a service on standby last checked whether this service is alive.
    challenged_s: float | None = None
    bridges: dict[str, Bridge] = field(default_factory=dict)
    # The row from which each bridge was last configured. Bridges that a request is attaching or
    # detaching are not included.
    _followed: dict[str, BridgeRow] = field(default_factory=dict)
    # The last fault of each part of this service. A waiting request can report the fault as its cause.
    faults: dict[str, Faulted] = field(default_factory=dict)
    # The internal errors of each bridge, by its name.
    failures: dict[str, Failure] = field(default_factory=dict)
    # The reports that `end_failures` returns next.
    _unreported: Commands = field(default_factory=list)
    # The IP addresses of this host, by device.
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The key from which the bridges' keys for path-check probes are derived.
    probe_key: bytes = field(default=b"", repr=False)
    # The address and TCP port on which the service accepts bridges, which have it as a controller.
    listens_on: tuple[str, int] | None = None
    _lives: Iterator[int] = field(default_factory=itertools.count)
    lost_keys: LostKeys = field(default_factory=LostKeys)
    _marks: Marks = field(default_factory=Marks)

    @property
    def rows(self) -> Mapping[str, BridgeRow]:
        """The records of all bridges, attached or not, by name.

        The records include keys that disappeared from the database a short time ago (`lost_keys`).
        """
        return self._marks.rows

    def recent_faults(self, now_s: float) -> tuple[Faulted, ...]:
        """Return the faults of the last `TOLD_FOR_S` seconds, the newest first."""
        since_s = self.epoch_s + now_s - TOLD_FOR_S
        recent = [fault for fault in self.faults.values() if fault.at_s >= since_s]
        return tuple(sorted(recent, key=lambda fault: fault.at_s, reverse=True))

    # ---- internal errors ---------------------------------------------------------------

    def alone(
        self, name: str, handle: Callable[[], Commands], now_s: float, decides: bool = False
    ) -> Commands:
        """Call `handle` for a bridge. An internal error affects only this bridge (see `failed`)."""
        try:
            return handle()
        except Exception as error:
            return self.failed(name, error, now_s, decides)

    def failed(self, name: str, error: Exception, now_s: float, decides: bool = False) -> Commands:
        """Handle an internal error: the bridge keeps its flows, and is handled again later.

        `decides`: the error occurred in a decision. A repeated error is logged once.
        """
        bridge, last = self.bridges.get(name), self.failures.get(name)
        text = failure_text(error)
        again = last is not None and text in last.texts
        # Earlier errors do not delay a request that changes the bridge.
        paced = None if self._begins_anew(bridge) else last
        self.failures[name] = found = _failure_after(paced, text, decides, now_s)
        reports: Commands = [ReportFailure(f"bridge {name}", error, again)] if found.is_new else []
        if bridge is None:
            return reports
        read_s = found.until_s if found.holds else now_s
        return [*reports, *bridge.recover(read_s, found.until_s, found.why)]

    @staticmethod
    def _begins_anew(bridge: Bridge | None) -> bool:
        """Whether a request is changing the bridge, and no error has interrupted the request."""
        return bridge is not None and not bridge.phase.is_attached and not bridge.interrupted

    def held_until_s(self, name: str) -> float:
        """Return when timers suspended by an internal error run again; 0 if none are suspended."""
        found = self.failures.get(name)
        if found is None or not found.holds or self._begins_anew(self.bridges.get(name)):
            return 0.0
        return found.until_s

    def end_failures(self, now_s: float) -> Commands:
        """Forget errors that have not occurred again, and return all pending reports."""
        reports, self._unreported = self._unreported, []
        for name, found in list(self.failures.items()):
            if now_s > found.until_s + OVER_AFTER_S:
                del self.failures[name]
                reports.append(Report("info", f"{name}: recovered from internal errors"))
        return reports

    def blamed(self, bridge: str, since_s: float) -> Faulted | None:
        """Return the latest fault since `since_s` that may explain why a switch does not answer."""
        at_s = self.epoch_s + since_s - STILL_FELT_S
        found = [f for f in self.faults.values() if f.at_s >= at_s and f.part not in BESIDE]
        found = [f for f in found if f.part != "bridge" or f.text.startswith(f"bridge {bridge}: ")]
        return max(found, key=lambda fault: fault.at_s, default=None)

    def set_clock(self, epoch_s: float) -> None:
        """Use a new `epoch_s` for all bridges, after the wall clock was set."""
        self.epoch_s = epoch_s
        for bridge in self.bridges.values():
            bridge.epoch_s = epoch_s

    def follow_database(self, in_hand: set[str], now_s: float) -> Commands:
        """Add, remove and configure bridges according to the database.

        `in_hand`: the bridges that a request is attaching or detaching. These bridges are kept
        even if they are not attached, and the request configures them.
        """
        earlier, commands, completed = self.rows, Commands(), []
        for row in self.database.bridges:
            begins = row.name in self.bridges or row.name not in earlier
            begins = begins and self.leads and row.name not in in_hand
            found = self.lost_keys.with_lost_keys(row, earlier.get(row.name), begins, now_s)
            completed.append(found[0])
            commands += found[1]
        self._mark(completed)
        self.lost_keys.keep_lost(self.rows)
        if not self.leads:
            return []
        commands += self.let_go(in_hand)
        for name, row in sorted(self.rows.items()):
            bridge = self.bridges.get(name)
            if not row.attached or name in in_hand:
                self._followed.pop(name, None)
                continue
            if self._followed.get(name) == row:
                continue
            follow = functools.partial(self._follow, bridge, row, earlier.get(name, row), now_s)
            commands += self.alone(name, follow, now_s)
        return commands

    def _follow(
        self, bridge: Bridge | None, row: BridgeRow, earlier: BridgeRow, now_s: float
    ) -> Commands:
        config = read_bridge(row, bridge.config if bridge else None)
        commands = _secured(row) if controllers.was_loosened(row, config.on_bond) else []
        kept = (*copied(row), *uplink_keys_kept(row, config))
        if settings := (*isolation(row, config), *kept):
            commands.append(Write(settings))
        for name in sorted({one.record for one in kept if one.table == "Interface"}):
            found = f"Interface {name}: another program has created the record again"
            commands.append(Report("info", f"{found}; the service restores its ovs-lbt keys"))
        if bridge is None:
            commands += self.manage(config)
        else:
            commands += bridge.configure(config, now_s)
            if controllers.may_flush(earlier, row):
                bridge.installation.expect_flush(now_s)
        self._followed[row.name] = row
        return commands

    def lead(self, now_s: float) -> Commands:
        """Start to manage every attached bridge, as after a start of the service."""
        self.leads, self._marks = True, Marks()
        return self.follow_database(set(), now_s)

    def expire(self, in_hand: set[str], now_s: float) -> Commands:
        """Stop managing bridges whose lost keys were not written again in time."""
        due = now_s >= self.lost_keys.expires_s()
        return self.follow_database(in_hand, now_s) if due else []

    def as_stored(self, row: BridgeRow) -> BridgeRow:
        """Return a bridge's record as it is stored in the database, without lost keys."""
        stored = next(one for one in self.database.bridges if one.name == row.name)
        return replace(row, external_ids=stored.external_ids, keys_lost=False)

    def forget_lost_keys(self, name: str, now_s: float) -> None:
        """Forget the lost keys of a bridge that a request attaches or detaches."""
        self.lost_keys.forget_lost(name)
        self._mark_again(now_s)

    def recall(self, name: str, now_s: float) -> Commands:
        """Use the lost keys of a bridge until a request detaches it, even if they have expired."""
        self.lost_keys.recall(self.rows[name])
        self._mark_again(now_s)
        managed = name in self.bridges or not self.rows[name].attached
        return [] if managed else self.manage(read_bridge(self.rows[name]), inspects=True)

    def _mark_again(self, now_s: float) -> None:
        self._mark(self.lost_keys.completed(row, now_s) for row in self.database.bridges)

    def _mark(self, rows: Iterable[BridgeRow]) -> None:
        self._marks.mark(rows, self.database.ovn, self.addresses)

    def stand_by(self) -> Commands:
        """Stop managing all bridges, because another service leads."""
        self.leads = False
        # The records must not show lost keys any more: this service does not restore them.
        self.lost_keys.keep_lost(())
        self._mark(self.database.bridges)
        return [command for name in sorted(self.bridges) for command in self.drop(name)]

    def manage(self, config: BridgeConfig, inspects: bool = False) -> Commands:
        """Start to manage a bridge. `inspects`: begin in phase INSPECTING."""
        assert self.leads, "only the service that leads decides"
        assert config.name not in self.bridges, "a bridge is managed once"
        phase = after(Phase.INSPECTING, Turn.TAKE_OVER, config.observes_bond)
        if inspects:
            phase = Phase.INSPECTING
        # The numbers of probe rounds start again when a bridge is managed again, so the bridge gets a new key.
        life = f"{config.name}\0{next(self._lives)}".encode(errors="surrogatepass")
        probe_key = hmac.digest(self.probe_key, life, "sha256")
        self.bridges[config.name] = Bridge(config, self.epoch_s, phase, probe_key=probe_key)
        reports = [Report("warning", str(error)) for error in config.errors]
        reports += [Report("warning", f"not done: {text}") for text in config.not_done]
        return [*reports, Connect(config.name)]

    def let_go(self, in_hand: set[str]) -> Commands:
        """Stop managing bridges that are neither attached nor `in_hand` (see `follow_database`)."""
        attached = {name for name, row in self.rows.items() if row.attached}
        wanted = attached | in_hand & self.rows.keys()
        gone = sorted(self.bridges.keys() - wanted)
        reports = [
            Report("warning", FORGOTTEN.format(n, keys_again(n))) for n in gone if n in self.rows
        ]
        return [*reports, *(command for name in gone for command in self.drop(name))]

    def drop(self, name: str) -> Commands:
        """Forget a bridge and close its connection. The switch keeps installed flows."""
        del self.bridges[name]
        self._followed.pop(name, None)
        self.failures.pop(name, None)
        return [Disconnect(name)]

    def names(self) -> Names:
        """Return the names of every bridge, port and VM in the database."""
        interfaces = [i for row in self.rows.values() for p in row.ports for i in p.interfaces]
        vms = (VmNames.of(interface).vm for interface in interfaces)
        ports = {interface.name for interface in interfaces} | {vm for vm in vms if vm}
        return Names(frozenset(self.rows), frozenset(ports))

    @property
    def serving(self) -> list[Bridge]:
        """The attached bridges, sorted by name, except those that a request is attaching or detaching."""
        bridges = [bridge for _, bridge in sorted(self.bridges.items())]
        return [bridge for bridge in bridges if bridge.phase.is_attached]

    def status(self, *names: str) -> tuple[BridgeStatus, ...]:
        """Return the status of the attached bridges in `names`, or of all if no name is given."""
        wanted = [b for b in self.serving if not names or b.config.name in names]
        return tuple(filter(None, map(self._status, wanted)))

    def status_after(self, name: str) -> BridgeStatus | None:
        """Return the status of the first attached bridge whose name sorts after `name`; None if there is none."""
        behind = [bridge for bridge in self.serving if bridge.config.name > name]
        return next(filter(None, map(self._status, behind)), None)

    def _status(self, bridge: Bridge) -> BridgeStatus | None:
        """Return the status of a bridge. After an internal error, report the error and return None."""
        name = bridge.config.name
        failed = self.failures.get(name)
        try:
            found = status.status(bridge)
        except Exception as error:
            self._unreported.append(
                ReportFailure(f"bridge {name}", error, again=failed is not None)
            )
            return None
        return found if failed is None else replace(found, failure=failed.text)


def isolation(row: BridgeRow, config: BridgeConfig | None = None) -> Iterator[Setting]:
    """Yield the settings that keep NORMAL from forwarding between plain uplinks.

    NORMAL forwards briefly when the fail mode changes, and for longer while no service runs. Open
    vSwitch never forwards between ports that are `protected`. If other programs use that column, for
    example to isolate VMs, it is not changed: those VMs could then not reach uplinks. The key PROTECTED
    marks ports that we protect, and is removed with the protection. `config` None: the bridge is detached.
    """
    uplinks: Collection[str] = ()
    others_use_it = any(p.protected and PROTECTED not in p.external_ids for p in row.ports)
    if config is not None and not config.on_bond and not others_use_it:
        named = config.settings.get((f"Bridge {row.name}", PREFIX + "uplinks"), ())
        uplinks = {*named, *config.missing}
    for port in row.ports:
        is_uplink = port.name in uplinks
        if is_uplink and not port.protected:
            value: str | None = "true"
        elif not is_uplink and PROTECTED in port.external_ids:
            value = None
        else:
            continue
        yield Setting("Port", port.name, "protected", value, column="protected")
        yield Setting("Port", port.name, PROTECTED, value)


def _secured(row: BridgeRow) -> Commands:
    """Restore the fail mode that `attach` has set."""
    found = f"Bridge {row.name} fail_mode: changed to {row.fail_mode or 'standalone'} after attach"
    why = "because plain uplinks form a loop without ovs-lbt; detach restores the previous mode"
    return [
        Report("warning", f"{found}; {controllers.SECURE} is set again, {why}"),
        Write((Setting("Bridge", row.name, "fail_mode", controllers.SECURE, column="fail_mode"),)),
    ]


def failure_text(error: Exception) -> str:
    """Return the type and text of an error, as one line."""
    return one_line(f"{type(error).__name__}: {error}")


def _failure_after(last: Failure | None, text: str, decides: bool, now_s: float) -> Failure:
    """Return the failure after one more error. `decides`: a decision failed, so only polls must wait."""
    before = last.texts if last is not None else ()
    texts = (*(one for one in before if one != text), text)[-MOST_TOLD:]
    if last is not None and now_s < last.until_s:
        holds = last.holds or not decides
        return Failure(texts, last.count, last.until_s, holds, is_new=text not in before)
    count = last.count + 1 if last is not None else 0
    pause_s = min(FIRST_PAUSE_S * 2 ** min(count, MOST_DOUBLED), LONGEST_PAUSE_S)
    return Failure(texts, count, now_s + pause_s, not decides)
