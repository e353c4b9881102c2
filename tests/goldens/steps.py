"""Scenarios in words: a team, then steps, one a line of `scenarios`."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.goldens.adapter import Here, changed, row_of


class Played(Here):
    """One scenario. Each step is a method, here or in `adapter`; its words are the arguments."""

    def __init__(self, text: str) -> None:
        teams, *self.steps = [part.strip() for part in text.split("|")]
        super().__init__(
            [row_of(team.split(), f"br{n}") for n, team in enumerate(teams.split(" + "))]
        )

    def play(self) -> list[str]:
        self.start()
        for step in self.steps:
            self.lines.append(f"# {step}")
            word, *words = step.split()
            found: Callable[..., object] = getattr(self, f"do_{word.replace('-', '_')}")
            try:
                found(*words)
            except StopIteration:
                self.lines.append("  no such port")
        return self.lines

    def number(self, name: str) -> int:
        return int(name) if name.isdigit() else self.named(name)

    def named(self, name: str) -> int:
        return next(n for n, port in self.switch.ports.items() if port.name == name)

    # ---- time, traffic and links

    def do_run(self, seconds: str) -> None:
        self.run_for(float(seconds))

    def do_on(self, bridge: str) -> None:
        self.chosen = bridge

    def do_load(self, name: str, bps: str, more_bps_per_s: str = "0") -> None:
        level, slope, since_s = float(bps), float(more_bps_per_s), self.now_s
        self.switch.offered_bps[self.number(name)] = lambda at_s: level + slope * (at_s - since_s)

    def do_wave(self, name: str, bps: str, period_s: str) -> None:
        top, period = float(bps), float(period_s)
        self.switch.offered_bps[self.number(name)] = lambda at_s: (
            top if math.floor(at_s / period) % 2 else top / 8
        )

    def do_spread(self, name: str, buckets: str) -> None:
        shares = [1 / 2 ** (n + 1) for n in range(int(buckets))]
        self.switch.connections[self.number(name)] = {
            n * 37 % 256: share / sum(shares) for n, share in enumerate(shares)
        }

    def do_late(self, seconds: str) -> None:
        self.switch.late_s = float(seconds)

    def do_behind(self, name: str, mac: str, vlan: str, bps: str) -> None:
        place, level = (self.number(name), mac, int(vlan)), float(bps)
        self.switch.behind_bps[place] = lambda _: level
        self.switch.learned = (*self.switch.learned, place)

    def do_inbound(self, name: str, bps: str, uplink: str) -> None:
        level = float(bps)
        self.switch.inbound_bps[self.number(name)] = lambda _: level
        self.switch.comes_by[self.number(name)] = self.number(uplink)

    def do_learn(self, name: str, mac: str, vlan: str) -> None:
        self.switch.learned = (*self.switch.learned, (self.number(name), mac, int(vlan)))

    def do_unlearn(self) -> None:
        self.switch.learned = ()

    def do_elsewhere(self, mac: str, vlan: str) -> None:
        self.switch.elsewhere = (*self.switch.elsewhere, (mac, int(vlan)))

    def do_from_normal(self, ofport: str, mac: str) -> None:
        self.switch.from_normal = ((int(ofport), mac, None),)

    def do_down(self, name: str) -> None:
        self.set_link(self.number(name), False, self.chosen)

    def do_up(self, name: str, bps: str | None = None) -> None:
        speed_bps = float(bps) if bps else None
        self.set_link(self.number(name), True, self.chosen, speed_bps)

    def do_silent(self, name: str) -> None:
        self.set_link(self.number(name), False, self.chosen, silent=True)

    def do_cut(self, *numbers: str) -> None:
        self.cut = set(map(int, numbers))

    def do_targets(self, answer: str) -> None:
        self.answers_targets = answer == "yes"

    # ---- ports and records

    def do_del(self, name: str) -> None:
        self.switch.offered_bps.pop(self.named(name), None)
        self.remove_port(name, self.chosen)

    def do_set(self, *words: str) -> None:
        self.write(changed(self.rows[self.chosen], words))

    def do_other(self, name: str, *words: str) -> None:
        """Another bridge appears, or is changed."""
        row = row_of(words, name)
        if name not in self.switches:
            self.add_switch(row)
        self.write(row)

    def do_remove_bridge(self, name: str) -> None:
        del self.rows[name]
        self.say(self.read())

    def do_lose_keys(self) -> None:
        self.kept = self.rows[self.chosen]
        self.write(self.kept.without_our_keys())

    def do_find_keys(self) -> None:
        self.write(self.kept)

    def do_grace(self, seconds: str) -> None:
        self.key_loss_grace_s = seconds
        self.say(self.read())

    def do_version(self, version: str) -> None:
        self.ovs_version = version
        self.say(self.read())

    # ---- what the switch, the database and the service do

    def do_gone(self) -> None:
        self.disconnect(self.chosen)

    def do_back(self) -> None:
        self.connect(self.chosen)

    def do_forget(self) -> None:
        """The switch has restarted, with nothing installed."""
        self.disconnect(self.chosen)
        self.switch.flows.clear()
        self.switch.groups.clear()
        self.connect(self.chosen)

    def do_hold(self) -> None:
        self.switch.holds_answers = True

    def do_answer(self) -> None:
        self.answer_held(self.chosen)

    def do_refuse(self, what: str, error: str = "no") -> None:
        match what:
            case "bundle":
                self.switch.refuse_next = error
            case "flags":
                self.switch.refuse_flags = error
            case "select":
                self.switch.refuse_select = error
            case "write":
                self.refuse_writes = error
            case "one":
                self.refuse_one = error
            case "encoding":
                self.cannot_encode = lambda _: True

    def do_accept(self) -> None:
        self.switch.refuse_next = self.switch.refuse_flags = self.switch.refuse_select = None
        self.refuse_writes = self.refuse_one = None
        self.cannot_encode = lambda _: False

    def do_drops(self, name: str, minor: str, count: str) -> None:
        self.drops[name] = {int(minor): int(count)}

    def do_restart(self) -> None:
        self.restart_service()

    # ---- what operators do

    def do_ask(self, *words: str) -> None:
        self.ask(*words)
