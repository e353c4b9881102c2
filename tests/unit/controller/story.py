"""Stories: scenarios in the words of the goldens, with steps that say what must be seen.

A story is a team and its steps, as in tests/goldens/scenarios.py; uplinks have 1 Gbit/s. In a text that must
be seen, `…` stands for anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from controller.api.engine_commands import Apply, Record, Reply, SetPortFlags, Write
from controller.api.events import Event, ForeignFlow
from controller.config.rows import PREFIX
from controller.dataplane import tables
from controller.dataplane.specs import EMPTY, GroupSpec
from tests.goldens.adapter import Here, changed
from tests.goldens.steps import Played
from tests.said import pattern
from tests.unit.controller.engine.told import desired, entries, explained, shown, steady
from tests.unit.fake_switch import done, moves, refusal, reports

# Words of a team.
ALL_ON_ETH1 = "vnet0.binding=eth1 vnet1.binding=eth1 vnet2.binding=eth1 vnet3.binding=eth1"


class Story(Played):
    """One story. Each method `do_…` is a step."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.quiet, self.expects_failures = True, False
        self._checked: tuple[str, ...] = ()
        self._row = self.rows[self.chosen]

    def tell(self) -> Self:
        """Carry out the steps.

        Raises:
            AssertionError: something else was seen. A note names the step.
        """
        self.start()
        for step in self.steps:
            self.carry_out(step)
        return self

    def carry_out(self, step: str) -> None:
        word, *words = step.split()
        try:
            getattr(self, f"do_{word.replace('-', '_')}")(*words)
        except AssertionError as error:
            error.add_note(f"in the step: {' '.join(step.split())}")
            raise

    def ask(self, *words: str) -> Reply | None:
        return super(Here, self).ask(*words)

    def _handled(self, event: Event) -> None:
        super(Here, self)._handled(event)

    # ---- more that happens

    def do_do(self, *words: str) -> None:
        """An operator's command that is carried out."""
        done(self.ask(*words))

    def do_dry(self, *words: str) -> None:
        """An operator's command with --dry-run, which changes nothing."""
        before = self._state()
        done(self.ask(*words, "--dry-run"))
        assert self._state() == before and not self.engine.jobs.concerned

    def _state(self) -> tuple[object, ...]:
        """What a command may change. Flags are read with a command that changes no port."""
        flags = [c for c in self.commands(SetPortFlags) if c.no_flood or c.flood]
        sent = [c for kind in (Apply, Record, Write) for c in self.commands(kind)]
        switches = {name: switch.installed for name, switch in self.switches.items()}
        return dict(self.rows), dict(self.engine.fleet.bridges), switches, flags, sent

    def do_loads(self, *bps: str) -> None:
        """What VM ports send, each in turn; the others send nothing."""
        rates = [*map(float, bps), *[0.0] * (len(self._vm_ports()) - len(bps))]
        self.switch.offered_bps = {
            ofport: steady(rate)
            for ofport, rate in zip(self._vm_ports().values(), rates, strict=True)
        }

    def do_watch(self) -> None:
        """What was done until now does not count for `unchanged` and `reported`."""
        self.log.clear()

    def do_note_row(self) -> None:
        self._row = self.rows[self.chosen]

    def do_unseen(self, *words: str) -> None:
        """The records change while no service reads them."""
        self.rows[self.chosen] = changed(self.rows[self.chosen], words)

    def do_flagged(self, *names: str) -> None:
        """These ports have the flag no-flood, and no others."""
        self.switch.no_flood = set(map(self.named, names))

    def do_flush(self) -> None:
        """Another program deletes all flows and groups."""
        self.switch.flows.clear()
        self.switch.groups.clear()

    def do_foreign(self, *flows: str) -> None:
        """The flows of other programs, each as `TABLE/PRIORITY/MATCH`."""
        found = (flow.split("/", 2) for flow in flows)
        self.switch.foreign = tuple(ForeignFlow(int(t), int(p), 9, match) for t, p, match in found)

    def do_foreign_groups(self, *ids: str) -> None:
        """Groups of other programs."""
        self.switch.groups |= {int(number): GroupSpec(int(number), "all", ()) for number in ids}

    def do_no_switch(self) -> None:
        """The switch does not answer from here on."""
        self.gone = self.switches.pop(self.chosen)

    def do_check(self, *words: str) -> None:
        """What `check` is asked from here on."""
        self._checked = words

    # ---- what must be seen

    def do_bound(self, uplinks: str, in_switch: str = "") -> None:
        """The uplinks of VM ports by number, `-`: none; on the switch the same, or others."""
        bound = self.bindings(self.chosen)
        _same(self._numbers(bound.get(name) for name in self._vm_ports()), uplinks)
        names = {port.ofport: port.name for port in self.switch.ports.values()}
        used = {
            name: names.get(self.switch.uplink_of(ofport) or 0)
            for name, ofport in self._vm_ports().items()
            if tables.Group.BINDING.id_of(ofport) in self.switch.groups
        }
        if used or in_switch:
            _same(self._numbers(used.get(n) for n in self._vm_ports()), in_switch or uplinks)

    def do_would(self, uplinks: str) -> None:
        """Where VM ports would be in enforce mode."""
        _same(self._numbers(port.planned_uplink for port in self.status.ports), uplinks)

    def do_carries(self, *counts: str) -> None:
        """How many VM ports are bound to uplinks, as `eth1=3`."""
        bound = [*self.bindings(self.chosen).values()]
        _same({name: str(bound.count(name)) for name in _pairs(counts)}, _pairs(counts))

    def do_order(self, name: str, uplinks: str) -> None:
        """The uplinks to which the switch fails over by itself, the first one first."""
        group = self.switch.groups[tables.Group.BINDING.id_of(self.named(name))]
        _same("".join(str(b.watch_port) for b in group.buckets if b.watch_port), uplinks)

    def do_moves(self, *counts: str) -> None:
        """How many moves were made for which reason, all of them."""
        _same({reason: str(number) for reason, number in moves(self).items()}, _pairs(counts))

    def do_planned(self, *counts: str) -> None:
        """How many moves were planned for which reason, all of them."""
        planned = self.status.moves_planned.items()
        _same({reason: str(number) for reason, number in planned if number}, _pairs(counts))

    def do_broken(self, *rules: str) -> None:
        """Which rules are broken, as `vnet0.pin`, all of them."""
        _same({f"{r['port']}.{r['rule']}" for r in shown(self)["rules_broken"]}, {*rules})

    def do_keys(self, name: str, *keys: str) -> None:
        """All keys of ours of the bridge or an interface."""
        row = self.rows[self.chosen]
        ids = {row.name: row.external_ids} | {i.name: i.external_ids for i in row.interfaces}
        found = {k.removeprefix(PREFIX): v for k, v in ids[name].items() if k.startswith(PREFIX)}
        _same(found, _pairs(keys))

    def do_column(self, name: str, value: str) -> None:
        """A column of the bridge."""
        _same(str(getattr(self.rows[self.chosen], name)), value)

    def do_row_as_noted(self) -> None:
        """The records of the bridge and its ports."""
        _same(self.rows[self.chosen], self._row)

    def do_unconfirmed(self, *changes: str) -> None:
        """The changes that wait to be confirmed."""
        shown = json.loads(done(self.ask("show", "--json"))).get("unconfirmed", [])
        _same([one["change"] for one in shown], [*changes])

    def do_flags(self, *names: str) -> None:
        """The ports with the flag no-flood."""
        _same({self.switch.ports[ofport].name for ofport in self.switch.no_flood}, {*names})

    def do_why(self, event: str, *text: str) -> None:
        """What the history has of the events of a kind, with `; ` between them."""
        _matches("; ".join(entry["why"] for entry in entries(self, event)), text)

    def do_kept(self, *rules: str) -> None:
        """The rules that the bridge keeps for VMs, all of them."""
        ids, start = self.rows[self.chosen].external_ids, f"{PREFIX}vm-"
        _same(
            {k.removeprefix(start): v for k, v in ids.items() if k.startswith(start)}, _pairs(rules)
        )

    def do_errors(self, *text: str) -> None:
        """The only error of the configuration, or that there is none."""
        _matches("\n".join(self.errors()), text)

    def do_told(self, *text: str) -> None:
        """The answer to the last command."""
        _matches(done(self.replies[self.asked]), text)

    def do_refused(self, *text: str) -> None:
        """Why the last command was refused."""
        _matches(refusal(self.replies[self.asked]), text)

    def do_unanswered(self) -> None:
        assert self.asked not in self.replies

    def do_reported(self, level: str, *text: str) -> None:
        """Something that was reported, or with no text that nothing was."""
        found = reports(self, level)
        wanted = re.compile(pattern(" ".join(text)))
        assert any(map(wanted.fullmatch, found)) if text else not found, found

    def do_warned(self, *text: str) -> None:
        """The only warning, or that there is none."""
        _matches("; ".join(reports(self, "warning")), text)

    def do_explains(self, name: str, *facts: str) -> None:
        """What `explain` has for programs."""
        found = explained(self, name)
        _same({key: _word(found.get(key)) for key in _pairs(facts)}, _pairs(facts))

    def do_shows(self, name: str, *facts: str) -> None:
        """What `show` has for programs of a bridge, an uplink or a VM port."""
        found = shown(self, self.chosen)
        shows = (found, *found["uplinks"], *found["ports"])
        (one,) = (one for one in shows if one["name"] == name)
        _same({key: _word(one.get(key)) for key in _pairs(facts)}, _pairs(facts))

    def do_metric(self, *sample: str) -> None:
        """A metric with its labels, and its value."""
        assert f"ovslbt_{' '.join(sample)}" in self.metrics().splitlines()

    def do_says(self, name: str, topic: str, *text: str) -> None:
        """What `explain` has for people, by topic: `why-there`, `to-change`."""
        _matches(explained(self, name)["said"][topic.replace("-", " ")], text)

    def do_finds(self, *checks: str) -> None:
        """What `check` finds besides notes, all of it."""
        _same({one["check"] for one in self._findings() if one["severity"] != "note"}, {*checks})

    def do_finding(self, check: str, *text: str) -> None:
        """What `check` says of one thing, a note or more."""
        (found,) = (one["text"] for one in self._findings() if one["check"] == check)
        _matches(found, text)

    def do_no_finding(self, check: str) -> None:
        assert check not in {one["check"] for one in self._findings()}

    def do_unchanged(self) -> None:
        """No bundle was sent to the switch."""
        assert not self.commands(Apply)

    def do_unwritten(self) -> None:
        """Nothing was written to the database."""
        assert not self.commands(Write)

    def do_nothing(self) -> None:
        """The engine has asked for nothing."""
        assert not self.log

    def do_by_one(self, *uplinks: str) -> None:
        """The uplink by which alone the bridge forwards now, then the others; or that it does not."""
        by = self.forwards_by.get(self.chosen)
        _same((by.uplink, *by.others) if by else (), uplinks)

    def do_installed(self) -> None:
        """The switch has what it should have."""
        assert self.switch.installed == desired(self)

    def do_empty(self) -> None:
        """The switch has nothing of ours."""
        assert self.switch.installed == EMPTY

    def do_let_go(self) -> None:
        """No bridge is looked after any more."""
        assert not self.engine.fleet.bridges and not self.dialled

    def do_announced(self, *names: str) -> None:
        """The VM ports for which learning packets were sent."""
        ports = self.switch.ports
        _same({ports[ofport].name for _, ofport in self.frames()}, {*names})

    def do_packets(self, number: str) -> None:
        """How many learning packets were sent."""
        _same(str(len(self.frames())), number)

    def do_heard(self, uplink: str, *names: str) -> None:
        """The VM ports that hear broadcasts by an uplink while all are up."""
        index, groups = self.named(uplink) - 1, self.switch.groups
        first = {
            name: groups[tables.delivery_group_id(ofport, index)].buckets[0]
            for name, ofport in self._vm_ports().items()
        }
        _same({name for name, bucket in first.items() if bucket.actions}, {*names})

    def do_sent(self, kinds: str, *order: str) -> None:
        """All commands of these kinds, as `Apply/SetPortFlags`, in their order."""
        sent = (type(command).__name__ for _, command in self.log)
        _same([kind for kind in sent if kind in kinds.split("/")], [*order])

    def do_recorded(self, *events: str) -> None:
        """What the history has of these events, each time."""
        _same([entry["event"] for entry in entries(self, *events)], [*events])

    def do_released(self) -> None:
        """Nothing of ours is left on the switch, and no bridge is looked after."""
        self.do_empty()
        self.do_let_go()

    def _vm_ports(self) -> Mapping[str, int]:
        interfaces = self.rows[self.chosen].interfaces
        return {i.name: i.ofport or 0 for i in interfaces if i.name.startswith("vnet")}

    @staticmethod
    def _numbers(uplinks: Iterable[str | None]) -> str:
        return "".join(uplink.removeprefix("eth") if uplink else "-" for uplink in uplinks)

    def _findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(done(self.ask("check", *self._checked, "--json")))[
            "findings"
        ]
        return found


def _pairs(words: Iterable[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def _word(value: object) -> str:
    return str(value).replace(" ", "")


def _same(found: object, wanted: object) -> None:
    assert found == wanted, f"found {found}, expected {wanted}"


def _matches(found: str, words: Iterable[str]) -> None:
    """A text in one line, whatever its line breaks are."""
    found = " ".join(found.split())
    assert re.fullmatch(pattern(" ".join(words)), found), f"found {found}"


def tell(text: str) -> Story:
    return Story(text).tell()
