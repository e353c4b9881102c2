"""A bridge's life in any order: whatever happens, bindings, switch and counts agree."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.engine_commands import Report
from controller.dataplane import specs, tables
from tests.unit.controller.story import Story
from tests.unit.examples import examples

OFPORTS = {"eth1": 1, "eth2": 2, "eth3": 3}
TEAM = "uplinks=3 vms=12 window-s=3 failback-delay-s=5"
# Every delay of the engine's is over by then, and every VM port has returned.
QUIET_S = 20.0
MOVED = re.compile(r"br0: (\S+): (\S+) -> (\S+) \(\w+\)$")
# VM ports are named by a number of any size, as they come and go.
STEPS = (
    *(f"link {uplink} {state}" for uplink in OFPORTS for state in ("up", "down")),
    *(f"role {u} {r}" for u in OFPORTS for r in ("active", "standby", "drained", "unused")),
    *(f"ask {command} {uplink}" for uplink in OFPORTS for command in ("drain", "undrain")),
    *(f"ask {command} VM {uplink}" for uplink in OFPORTS for command in ("move", "pin")),
    *("ask unpin VM", "newcomer", "leaver VM", "connection", "connection", "refuse bundle no"),
    *(f"ask set interface VM {rule}" for rule in ("affinity=x", "affinity=", "exclude=true")),
    *(f"ask set interface VM anti-affinity={name}" for name in ("y", "z", "")),
    *(f"ask set interface VM prefer={uplinks}" for uplinks in ("eth2", "!eth1", "")),
    *(f"ask set bridge br0 policy={p}" for p in ("load-based", "originating-port", "explicit")),
    *(f"load VM {bps}" for bps in ("0", "3e8", "9e8")),
    *("answers-late", "both-ways", "run 0.01", "run 0.5", "run 3", "settle", "settle"),
)


class Life(Story):
    """Operators, links, VMs and switches do what they like; `settle` lets time pass."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.connected, self.made, self.replayed = True, 12, 0
        self.at: dict[str, str] = {}

    def do_link(self, uplink: str, state: str) -> None:
        up, ofport = state == "up", OFPORTS[uplink]
        if self.connected:
            self.set_link(ofport, up)
        else:
            self.switch.ports[ofport] = replace(self.switch.ports[ofport], up=up)

    def do_role(self, uplink: str, role: str) -> None:
        """By hand; one uplink that may be used is left."""
        if role != "unused" or any(r != "unused" for n, r in self.roles.items() if n != uplink):
            self.do_set(f"{uplink}.role={role}")

    def do_newcomer(self) -> None:
        if self.connected:
            self.do_add(f"vnet{self.made}", str(10 + self.made))
            self.made += 1

    def do_leaver(self, name: str) -> None:
        if self.connected and len(self._vm_ports()) > 1:
            self.do_del(name)

    def do_connection(self) -> None:
        self.connected = not self.connected
        if self.connected:
            self.connect()
        else:
            self.disconnect()

    def do_answers_late(self) -> None:
        """The switch keeps its answers back from here on, until it gives them all."""
        if self.switch.holds_answers:
            self.answer_held()
        elif self.connected:
            self.switch.holds_answers = True

    def do_both_ways(self) -> None:
        """Observe for a while, and enforce again."""
        if not self.connected:
            return
        self.do_settle()
        before = self.bindings()
        self.ask("set", "bridge", "br0", "mode=observe")
        self.run_for(5)
        self.check_moves()
        placing = self.bridge.placing
        assert self.bindings() == before or self.bridge.on_normal or placing.counts.planned
        self.ask("set", "bridge", "br0", "mode=enforce")
        self.run_for(1)
        self.replayed, self.at = len(self.log), dict(self.bindings())

    def do_settle(self) -> None:
        """Left alone, everything comes to rest where it should be."""
        if not self.connected:
            return
        self.do_accept()
        self.answer_held()
        self.do_loads()
        self.run_for(QUIET_S)
        self.do_installed()
        assert self.bridge.at_rest
        best = self.best_uplinks()
        for name, uplink in self.bindings().items():
            assert not best or uplink in best, f"{name} is on {uplink}, {best} would do"
        self.check_moves()
        assert self.at == self.bindings(), "moves told and bindings differ"
        counts = self.bridge.placing.counts
        made = sum(counts.applied.values()) + sum(counts.refused.values())
        assert self.bridge.observing or made <= sum(counts.planned.values())
        assert self.replies.keys() == set(range(1, self.asked + 1))

    def check(self) -> None:
        """What always holds: the engine rests, and VM ports leave by the team if they can."""
        self.run_for(0)
        assert self.engine.deadline_s() > self.now_s
        for ofport in self._vm_ports().values():
            group = self.switch.groups.get(tables.Group.BINDING.id_of(ofport))
            for bucket in (b for b in (group.buckets if group else ()) if b.watch_group is None):
                assert bucket.watch_port in OFPORTS.values()
                assert bucket.actions == (specs.Output(bucket.watch_port or 0),)
        # In the switch, whatever the service knows by now.
        if not self.connected or not self.bridge.installation.ready(self.now_s):
            return
        allowed = {OFPORTS[n] for n, role in self.roles.items() if role != "unused"}
        live = {ofport for ofport in allowed if self.switch.ports[ofport].up}
        for name, uplink in self.bindings().items():
            used = self.switch.uplink_of(10 + int(name.removeprefix("vnet")))
            assert not live or used is not None, f"{name} has no way out, {live} are up"
            if self.switch.ports[OFPORTS[uplink]].up:
                assert used == OFPORTS[uplink], f"{name} is bound to {uplink}, not {used}"

    @property
    def roles(self) -> dict[str, str]:
        interfaces = (i for i in self.rows["br0"].interfaces if i.name in OFPORTS)
        return {i.name: i.external_ids.get("ovs-lbt-role", "active") for i in interfaces}

    def best_uplinks(self) -> set[str]:
        """Those that are up and of the best role among them; empty where none may be used."""
        up = {n: r for n, r in self.roles.items() if self.switch.ports[OFPORTS[n]].up}
        for role in ("active", "standby", "drained"):
            if best := {name for name, r in up.items() if r == role}:
                return best
        return set()

    def check_moves(self) -> None:
        """Each move told begins where the last one of the VM port ended."""
        for _, command in self.log[self.replayed :]:
            told = MOVED.match(command.text) if isinstance(command, Report) else None
            if told and told[1] in self._vm_ports():
                assert self.at.get(told[1], told[2]) == told[2], command
                self.at[told[1]] = told[3]
        self.replayed = len(self.log)
        self.at = {name: self.at.get(name, uplink) for name, uplink in self.bindings().items()}


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    st.sampled_from(["bond", "plain"]),
    st.sampled_from(["load-based", "originating-port", "explicit"]),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=30),
)
def test_bindings_switch_and_counts_agree_whatever_happens(
    kind: str, policy: str, steps: list[tuple[str, int]]
) -> None:
    life = Life(f"{kind} policy={policy} {TEAM}").tell()
    life.at = dict(life.bindings())
    for step, number in steps:
        vms = [*life._vm_ports()]
        life.carry_out(step.replace("VM", vms[number % len(vms)]))
        life.check()
    if not life.connected:
        life.do_connection()
    life.do_settle()
