"""The only module of the goldens that knows names of `controller`: what goes in, what comes out.

If a commit moves or renames one of them, it changes this file, and no golden.
"""

# ruff: noqa: PT008
from __future__ import annotations

import ast
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from prometheus_client import generate_latest

from controller import cli
from controller.api import history
from controller.api.engine_commands import (
    Apply,
    Command,
    DeliverFrame,
    Observe,
    Record,
    Reply,
    SendFrame,
)
from controller.api.events import (
    AddressesRead,
    Challenged,
    CommandFailed,
    DatabaseRead,
    Event,
    Faulted,
    ForeignFlow,
    FrameHeard,
    Leading,
    PortChanged,
    PortRemoved,
    PortState,
    Sample,
)
from controller.cli.top import feed, keys, view
from controller.cli.top.state import State, with_picture
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, MirrorRow, Ovn, PortRow, Tunnel
from controller.dataplane import htb
from controller.dataplane.specs import Changes
from controller.dataplane.tables import OFPP_CONTROLLER
from controller.engine import Engine
from controller.host import client, journal
from controller.metrics.exporter import Exporter
from controller.text.drawing import plain
from controller.text.wording import Refused
from tests.goldens.rendering import brief, indented, told
from tests.unit.fake_switch import FakeSwitch, World

EPOCH_S = 1_800_000_000.0
MOST_EVENTS = 30_000
ETH_VLAN, ETH_ARP = b"\x81\x00", b"\x08\x06"
THEIR_MAC = bytes.fromhex("020000000099")


class Endless(Exception):
    """The engine does not come to rest."""


# ---- the database ------------------------------------------------------------------------


def value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def row_of(words: Sequence[str], name: str = "br0") -> BridgeRow:
    """A bridge in words: the kind of its team, numbers of ports, and what `changed` takes."""
    kind, *rest = words
    of = "" if name == "br0" else f"-{name}"
    numbers = {"uplinks": 2, "vms": 4}
    for word in rest:
        key, _, text = word.partition("=")
        if key in numbers:
            numbers[key] = int(text)
    uplinks = [
        InterfaceRow(f"eth{n}{of}", n, 1e9, mac=f"02:00:00:00:01:{n:02x}")
        for n in range(1, numbers["uplinks"] + 1)
    ]
    ports = [_port(f"vnet{n}{of}", 10 + n) for n in range(numbers["vms"])]
    ids: dict[str, str] = {} if "unattached" in rest else {f"{PREFIX}policy": "load-based"}
    if kind in ("plain", "static"):
        ports += [PortRow(one.name, (one,)) for one in uplinks]
        if ids:
            ids[f"{PREFIX}uplinks"] = ",".join(one.name for one in uplinks)
    else:
        with_lacp = kind.startswith("lacp")
        members = [replace(one, lacp_current=True if with_lacp else None) for one in uplinks]
        bond = PortRow("bond0", tuple(members), lacp="active" if with_lacp else None)
        if kind == "lacp-fallback":
            bond = replace(bond, other_config={"lacp-fallback-ab": "true"})
        if kind == "backup":
            bond = replace(bond, bond_mode="active-backup", active_mac=uplinks[-1].mac)
        ports.append(bond)
    if kind == "static" and ids:
        ids[f"{PREFIX}teaming"] = "static"
    row = BridgeRow(name, (), "secure" if kind in ("plain", "static") else None, ids)
    row = replace(row, ports=_sorted(ports))
    words = [w for w in rest if w != "unattached" and w.partition("=")[0] not in numbers]
    return changed(row, words)


def _port(name: str, ofport: int) -> PortRow:
    return PortRow(name, (InterfaceRow(name, ofport),))


def _sorted(ports: Sequence[PortRow]) -> tuple[PortRow, ...]:
    return tuple(sorted(ports, key=lambda port: port.name))


def changed(row: BridgeRow, words: Sequence[str]) -> BridgeRow:
    """The same bridge after these changes.

    `KEY=VALUE`, `NAME.KEY=VALUE`: keys of the bridge and of interfaces; `KEY=` removes one.
    `NAME!ID=VALUE`: another external_id. `:COLUMN=VALUE`, `NAME:COLUMN=VALUE`, `NAME@COLUMN=VALUE`:
    columns of the bridge, of ports and of interfaces.
    """
    for word in words:
        what, _, text = word.partition("=")
        mark = next((one for one in "!@:." if one in what), "")
        name, _, key = what.rpartition(mark) if mark else ("", "", what)
        if mark == ":" and not name:
            row = replace(row, **{key: _column(key, text)})
        elif mark == ":":
            ports = (
                replace(p, **{key: value_of(text)}) if p.name == name else p for p in row.ports
            )
            row = replace(row, ports=tuple(ports))
        elif not mark:
            row = replace(row, external_ids=_with(row.external_ids, PREFIX + key, text))
        else:
            row = row.with_interfaces(_changing(name, mark, key, text))
    return row


def _changing(name: str, mark: str, key: str, text: str) -> Callable[[InterfaceRow], InterfaceRow]:
    def change(one: InterfaceRow) -> InterfaceRow:
        if one.name != name:
            return one
        if mark == "@":
            return replace(one, **{key: _column(key, text)})
        full = key if mark == "!" else PREFIX + key
        return replace(one, external_ids=_with(one.external_ids, full, text))

    return change


def _column(key: str, text: str) -> Any:
    if key == "tunnel":
        return Tunnel(*text.split(","))
    if key == "mirrors":
        return (MirrorRow("m0", *((None, int(text)) if text.isdigit() else (text, None))),)
    return value_of(text)


def _with(ids: Mapping[str, str], key: str, text: str) -> dict[str, str]:
    return {**{k: v for k, v in ids.items() if k != key}, **({key: text} if text else {})}


# ---- the engine, its switches and its database ----------------------------------------------


class Forwarding(FakeSwitch):
    """Its flows may be counted late, as on a card."""

    late_s = 0.0
    _seen_s = 0.0
    _seen: Mapping[int, float] = {}

    def _unit_sample(self, ofport: int) -> Sample:
        now_s = self.now_s - self._seen_s
        if now_s >= self.late_s:
            self._seen_s, self._seen = self.now_s, dict(self.sent_bytes)
        kept, sent = super()._unit_sample(ofport), self._seen.get(ofport, 0.0)
        return kept._replace(tx_bytes=int(sent)) if self.late_s else kept


class Here(World):
    """Writes down what goes into the engine, what comes out, and when it wants to be called next."""

    def __init__(self, rows: Sequence[BridgeRow]) -> None:
        super().__init__(*rows)
        # The bridge that steps are about.
        self.chosen = "br0"
        self.lines: list[str] = []
        self.handled = 0
        self.quiet = False
        self.expects_failures = True
        self.ovn: Ovn | None = None
        self.cut: set[int] = set()
        self.answers_targets = True
        self.owners: dict[str, int] = {}
        self.exporter = Exporter(
            lambda: self.engine.fleet.status(), "1.2.3", lambda: self.engine.fleet.leads
        )
        self.entries: list[str] = []
        for row in rows:
            self.add_switch(row)

    @staticmethod
    def new_engine() -> Engine:
        return Engine(epoch_s=EPOCH_S, name="ovs-lbt@here", probe_key=b"k" * 32)

    def add_switch(self, row: BridgeRow) -> None:
        ports = {
            i.ofport: PortState(i.ofport, i.name, True, 1e9 if i.name.startswith("eth") else 0.0)
            for i in row.interfaces
            if i.ofport is not None
        }
        switch = Forwarding(ports)
        vms = [number for number in ports if number >= 10]
        switch.learned = tuple((n, f"52:54:00:00:00:{n:02x}", 0) for n in vms)
        switch.offered_bps = {n: _steady(1e6 * n) for n in vms}
        self.switches[row.name] = switch

    def read(self) -> DatabaseRead:
        return replace(super().read(), ovn=self.ovn)

    def _handled(self, event: Event) -> None:
        self.handled += 1
        if self.handled > MOST_EVENTS:
            raise Endless(f"{MOST_EVENTS} events")
        if not self.quiet:
            wakes_s = told(round(self.engine.deadline_s(), 6))
            self.lines.append(f"{told(self.now_s)} > {brief(event)} next {wakes_s}")

    def ask(self, *words: str) -> Reply | None:
        """Some requests wait for the switch, or until an uplink is idle."""
        super().ask(*words)
        until_s = self.now_s + 40.0
        while self.asked not in self.replies and self.now_s < until_s:
            self.run_for(0.5)
        return self.replies.get(self.asked)

    def _carry_out(self, command: Command) -> None:
        if not self.quiet:
            self.lines += in_words(command)
        super()._carry_out(command)
        match command:
            case DeliverFrame(bridge=bridge, ofport=ofport, frame=frame) if ofport < 10:
                self._network(bridge, ofport, frame)
            case SendFrame(bridge=bridge, ofport=ofport, frame=frame) if ofport == OFPP_CONTROLLER:
                self._events.append(FrameHeard(bridge, ofport, frame))
            case Record(entry=entry):
                self.entries.append(history.as_line(entry, EPOCH_S))
            case Observe(bridge=bridge, histogram=histogram, seconds=seconds):
                self.exporter.observe(bridge, histogram, seconds)

    def _network(self, bridge: str, sender: int, frame: bytes) -> None:
        """Upstream switches learn, forward and flood; the hosts that are asked answer."""
        to, own = frame[:6].hex(), frame[6:12].hex()
        ports, at = self.switches[bridge].ports, 16 if frame[12:14] == ETH_VLAN else 12
        if sender in self.cut or not ports[sender].up:
            return
        self.owners[own] = sender
        goes = [self.owners[to]] if to in self.owners else [n for n in ports if n < 10]
        for ofport in goes:
            if ofport != sender and ofport not in self.cut and ports[ofport].up:
                self._events.append(FrameHeard(bridge, ofport, frame))
        if frame[at : at + 2] == ETH_ARP and self.answers_targets:
            body = frame[at + 2 :]
            reply = frame[6:12] + THEIR_MAC + frame[12:at] + ETH_ARP + body[:6] + b"\0\2"
            reply += THEIR_MAC + body[24:28] + body[8:18] + body[28:]
            self._events.append(FrameHeard(bridge, sender, reply))

    # ---- steps of scenarios, with their words; more of them are in `steps`

    @property
    def switch(self) -> Forwarding:
        found = self.switches[self.chosen]
        assert isinstance(found, Forwarding)
        return found

    def do_add(self, name: str, number: str) -> None:
        ofport = int(number)
        self.switch.offered_bps[ofport] = _steady(1e6 * ofport)
        self.add_port(_port(name, ofport), self.chosen)

    def do_renumber(self, name: str, number: str) -> None:
        switch, ofport = self.switch, int(number)
        before = next(n for n, port in switch.ports.items() if port.name == name)
        state = replace(switch.ports.pop(before), ofport=ofport)
        switch.ports[ofport] = state
        switch.offered_bps[ofport] = switch.offered_bps.pop(before, _steady(1e6))
        row = changed(self.rows[self.chosen], [f"{name}@ofport={ofport}"])
        self.say(PortRemoved(self.chosen, before), PortChanged(self.chosen, state))
        self.write(row)

    def do_join(self, name: str, number: str) -> None:
        """An uplink joins the bond."""
        ofport = int(number)
        row = self._with_members(
            name, InterfaceRow(name, ofport, 1e9, mac=f"02:00:00:00:01:{ofport:02x}")
        )
        self.switch.ports[ofport] = PortState(ofport, name, True, 1e9)
        self.say(PortChanged(self.chosen, self.switch.ports[ofport]))
        self.write(row)

    def do_leave(self, name: str) -> None:
        """An uplink leaves the bond and the switch."""
        ofport = next(n for n, port in self.switch.ports.items() if port.name == name)
        row = self._with_members(name)
        del self.switch.ports[ofport]
        self.say(PortRemoved(self.chosen, ofport))
        self.write(row)

    def _with_members(self, name: str, *joining: InterfaceRow) -> BridgeRow:
        """The bridge once an interface has left the bond, and others have joined."""
        row = self.rows[self.chosen]
        bond = next(port for port in row.ports if port.name == "bond0")
        others = tuple(port for port in row.ports if port is not bond)
        members = (*(one for one in bond.interfaces if one.name != name), *joining)
        return replace(row, ports=_sorted((*others, replace(bond, interfaces=members))))

    def do_hear(self, what: str, *words: str) -> None:
        match what:
            case "lead":
                self.say(Leading(words == ("yes",)))
            case "challenge":
                self.say(Challenged())
            case "fault":
                self.say(Faulted(words[0], "KeyError: 'x'", EPOCH_S + self.now_s, 1))
            case "failed":
                self.say(CommandFailed("br0", ValueError("too long")))

    def do_addresses(self, *words: str) -> None:
        devices = (word.split("=") for word in words)
        self.addresses = AddressesRead({name: tuple(ips.split(",")) for name, ips in devices})
        self.say(self.addresses)

    def do_ovn(self, *addresses: str) -> None:
        self.ovn = Ovn(addresses, mapped=("br0",))
        self.say(self.read())

    def errors(self) -> list[str]:
        """What is wrong with the configurations."""
        return [str(error) for one in self.engine.fleet.status() for error in one.config.errors]

    def do_spoil(self) -> None:
        """Somebody deletes a flow of ours and adds one of another program."""
        self.switch.flows.pop(min(self.switch.flows, key=repr, default=None), None)  # type: ignore[arg-type]
        self.switches["br0"].foreign = (ForeignFlow(0, 40000, 7, "in_port=10", (5,)),)

    def do_queue(self, name: str, kind: str) -> None:
        self.queueing[name] = htb.Found(kind, 0x8001)

    # ---- what operators see

    def do_look(self) -> None:
        """Everything that can be asked, as text and JSON, and how it is drawn."""
        self.quiet = True
        row = self.rows[self.chosen]
        ports = [i.name for p in row.ports for i in p.interfaces if i.name.startswith("vnet")][:3]
        for words in (
            ["show"],
            ["show", self.chosen, "--json"],
            ["plan"],
            ["plan", "--json"],
            ["check"],
            ["check", "--json"],
            *(["explain", port] for port in ports),
            *(["explain", port, "--json"] for port in ports[:1]),
            ["history"],
            ["history", self.chosen, "--last", "3", "--json"],
        ):
            self.do_cli(*words)
        self.lines.append("request show")
        reply = self.ask("show")
        self.lines += indented(reply.text if reply else "no answer")
        self.lines.append("metrics")
        self.lines += indented(self.metrics())
        self.quiet = False

    def metrics(self) -> str:
        page = generate_latest(self.exporter._registry).decode()
        kept = (line for line in page.splitlines() if "_created" not in line)
        return "\n".join(kept)

    def do_cli(self, *words: str) -> None:
        """One command as it is typed: its output, errors and exit status."""
        self.lines.append(f"$ ovs-lbt {' '.join(words)}")
        with (
            mock.patch.object(client, "ask", self._asked),
            mock.patch.object(client, "obstacle", lambda: None),
            mock.patch.object(client, "running", lambda: True),
        ):
            self.lines += run_command(words)

    def _asked(self, method: str, words: Sequence[str], _timeout_s: float | None = None) -> str:
        command = method.removeprefix("lbt/")
        if command == "version":
            return "ovs-lbt 1.2.3"
        reply = self._history(words) if command == "history" else self.ask(command, *words)
        if reply is None:
            raise client.Unanswered("no answer")
        if reply.refused:
            raise Refused(reply.text)
        return reply.text

    def _history(self, words: Sequence[str]) -> Reply:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "history.jsonl")
            path.write_text("".join(f"{line}\n" for line in self.entries))
            try:
                return Reply(0, journal.answer(path, tuple(words), self.engine.fleet.names()))
            except (ValueError, OSError) as error:
                return Reply(0, str(error), refused=True)

    def do_top(self, *typed: str) -> None:
        """What `top` shows after these keys, one screen for each."""
        self.quiet = True
        now_s = [self.now_s]
        clock = SimpleNamespace(
            monotonic=lambda: now_s[0],
            strftime=lambda form, at=None: time.strftime(form, at or _moment(now_s[0])),
            gmtime=lambda at_s=None: _moment(now_s[0] if at_s is None else at_s - EPOCH_S),
        )
        with mock.patch.object(client, "ask", self._asked), mock.patch.object(feed, "time", clock):
            state = State(now_s=now_s[0])
            for _ in range(2):
                self.run_for(4.0)
                now_s[0] = self.now_s
                state = with_picture(replace(state, now_s=now_s[0]), feed.read())
            for key in ("", *typed):
                if key:
                    page = view.page(state, 96, 30)
                    state, effects = keys.press(state, key, page)
                    self.lines.append(f"top: {key} {told(effects)}")
                    for effect in effects:
                        if isinstance(effect, keys.Ask):
                            reply = self.ask(*effect.words)
                            answer = (reply.text, reply.refused) if reply else ("", True)
                            state = keys.answered(state, effect.words, *answer)
                self.lines += [
                    f"    |{plain(line)}".rstrip() for line in view.screen(state, 96, 30)
                ]
        self.quiet = False


def _steady(bps: float) -> Callable[[float], float]:
    return lambda _: bps


def _moment(at_s: float) -> time.struct_time:
    return time.gmtime(EPOCH_S + at_s)


def run_command(words: Sequence[str]) -> Iterator[str]:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
    columns = {"COLUMNS": "100", "TZ": "UTC", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    with (
        mock.patch.dict(os.environ, columns),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.object(sys, "argv", ["ovs-lbt"]),
        # argparse looks for translations of each of its words.
        mock.patch("gettext.find", lambda *_, **__: []),
    ):
        time.tzset()
        try:
            status: object = cli.main(list(words))
        except SystemExit as ended:
            status = ended.code
        texts = [one.buffer.getvalue().decode(errors="replace") for one in (out, err)]
    time.tzset()
    yield from indented(texts[0])
    yield from indented(texts[1], "    ! ")
    if status:
        yield f"    status {status}"


def in_words(command: Command) -> Iterator[str]:
    """A command as lines: a bundle as one line for each change, sorted, and a digest of its bytes."""
    if not isinstance(command, Apply):
        yield f"  < {told(command)}"
        return
    yield f"  < Apply({command.bridge}, {command.bundle_id})"
    yield from _changes(command.changes)


def _changes(changes: Changes) -> Iterator[str]:
    lines = [f"    + {told(group)}" for group in changes.add_groups]
    lines += [f"    ~ {told(group)}" for group in changes.modify_groups]
    lines += [f"    + {told(flow)}" for flow in changes.add_flows]
    lines += [f"    - {told(flow.key)}" for flow in changes.delete_flows]
    lines += [f"    - group {number:#x}" for number in changes.delete_groups]
    yield from sorted(lines)
    if changes.clear:
        yield "    - all"
