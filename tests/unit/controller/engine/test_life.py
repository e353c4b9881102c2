"""A bridge's life in any order: whatever happens, bindings, switch and counts agree."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.api.engine_commands import Report
from controller.dataplane import specs, tables
from tests.unit.examples import examples
from tests.unit.fake_switch import World, world
from tests.unit.rows import bond, bridge, interface, ours, port

UPLINKS = ("eth1", "eth2", "eth3")
OFPORTS = {name: int(name.removeprefix("eth")) for name in UPLINKS}
ROLES = ("active", "standby", "drained", "unused")
FAILBACK_DELAY_S = 5
# Every delay of the engine's is over by then, and every VM port has returned.
QUIET_S = 20.0
MOVED = re.compile(r"br0: (\S+): (\S+) -> (\S+) \(\w+\)$")


class Life(RuleBasedStateMachine):
    """Operators, links, VMs and switches do what they like; `settle` lets time pass."""

    here: World

    @initialize(
        policy=st.sampled_from(["load-based", "originating-port", "explicit"]),
        on_bond=st.booleans(),
    )
    def start(self, policy: str, on_bond: bool) -> None:
        members = [interface(name, ofport) for name, ofport in OFPORTS.items()]
        team = [bond(*members)] if on_bond else [port(m.name, OFPORTS[m.name]) for m in members]
        vms = [port(f"vnet{i}", 10 + i) for i in range(12)]
        ids = ours(
            policy=policy,
            uplinks=",".join(UPLINKS),
            window_s="3",
            failback_delay_s=str(FAILBACK_DELAY_S),
        )
        self.here = world(bridge(*team, *vms, ids=ids))
        self.switch = self.here.switch
        self.connected = True
        self.made = 12
        self.replayed = 0
        self.here.start()
        self.at: dict[str, str] = dict(self.here.bindings())

    # ---- what happens ------------------------------------------------------------------

    @rule(uplink=st.sampled_from(UPLINKS), up=st.booleans())
    def link(self, uplink: str, up: bool) -> None:
        ofport = OFPORTS[uplink]
        if self.connected:
            self.here.set_link(ofport, up)
        else:
            self.switch.ports[ofport] = replace(self.switch.ports[ofport], up=up)

    @rule(uplink=st.sampled_from(UPLINKS), role=st.sampled_from(ROLES))
    def set_role(self, uplink: str, role: str) -> None:
        """By hand; one uplink that may be used is left."""
        if role != "unused" or any(r != "unused" for n, r in self.roles.items() if n != uplink):
            keys = ours(role=role)
            self.here.write(
                self.here.rows["br0"].with_interfaces(
                    lambda i: (
                        replace(i, external_ids={**i.external_ids, **keys})
                        if i.name == uplink
                        else i
                    )
                )
            )

    @rule(command=st.sampled_from(["drain", "undrain"]), uplink=st.sampled_from(UPLINKS))
    def drain(self, command: str, uplink: str) -> None:
        self.here.ask(command, uplink)

    @rule(
        command=st.sampled_from(["move", "pin"]),
        number=st.integers(0, 30),
        uplink=st.sampled_from(UPLINKS),
    )
    def place(self, command: str, number: int, uplink: str) -> None:
        self.here.ask(command, self.vm(number), uplink)

    @rule(number=st.integers(0, 30))
    def unpin(self, number: int) -> None:
        self.here.ask("unpin", self.vm(number))

    @rule(
        number=st.integers(0, 30),
        assignment=st.sampled_from(
            [
                *("affinity=x", "affinity=", "anti-affinity=y", "anti-affinity=z"),
                *("anti-affinity=", "prefer=eth2", "prefer=!eth1", "prefer=", "exclude=true"),
            ]
        ),
    )
    def give_rule(self, number: int, assignment: str) -> None:
        self.here.ask("set", "interface", self.vm(number), assignment)

    @precondition(lambda self: self.connected)
    @rule()
    def add_vm_port(self) -> None:
        self.here.add_port(port(f"vnet{self.made}", 10 + self.made))
        self.made += 1

    @precondition(lambda self: self.connected and len(self.vms) > 1)
    @rule(number=st.integers(0, 30))
    def remove_vm_port(self, number: int) -> None:
        self.here.remove_port(self.vm(number))

    @rule(policy=st.sampled_from(["load-based", "originating-port", "explicit"]))
    def set_policy(self, policy: str) -> None:
        self.here.ask("set", "bridge", "br0", f"policy={policy}")

    @rule(number=st.integers(0, 30), rate_bps=st.sampled_from([0.0, 3e9, 9e9]))
    def offer(self, number: int, rate_bps: float) -> None:
        ofport = 10 + int(self.vm(number).removeprefix("vnet"))
        self.switch.offered_bps[ofport] = lambda _: rate_bps

    @precondition(lambda self: self.connected)
    @rule()
    def lose_connection(self) -> None:
        self.here.disconnect()
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def reconnect(self) -> None:
        self.here.connect()
        self.connected = True

    @rule()
    def refuse(self) -> None:
        """The next bundle, whichever it is."""
        self.switch.refuse_next = "no"

    @precondition(lambda self: self.connected)
    @rule()
    def answer_late(self) -> None:
        """The switch keeps its answers back from here on, until it gives them all."""
        if self.switch.holds_answers:
            self.here.answer_held()
        else:
            self.switch.holds_answers = True

    @precondition(lambda self: self.connected)
    @rule()
    def look_both_ways(self) -> None:
        """Observe for a while, and enforce again."""
        self.settle()
        here = self.here
        before = here.bindings()
        here.ask("set", "bridge", "br0", "mode=observe")
        here.run_for(5)
        self.check_moves()
        assert (
            here.bindings() == before or self.engine.on_normal or self.engine.placing.counts.planned
        )
        here.ask("set", "bridge", "br0", "mode=enforce")
        here.run_for(1)
        self.replayed, self.at = len(here.log), dict(here.bindings())

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.here.run_for(seconds)

    @precondition(lambda self: self.connected)
    @rule()
    def settle(self) -> None:
        """Left alone, everything comes to rest where it should be."""
        self.switch.refuse_next = None
        self.here.answer_held()
        for ofport in self.switch.offered_bps:
            self.switch.offered_bps[ofport] = lambda _: 0.0
        self.here.run_for(QUIET_S)
        assert self.switch.installed == self.engine.installation.desired()
        assert self.engine.at_rest
        best = self.best_uplinks()
        for name, uplink in self.here.bindings().items():
            assert not best or uplink in best, f"{name} is on {uplink}, {best} would do"
        self.check_moves()
        assert self.at == self.here.bindings(), "moves told and bindings differ"
        counts = self.engine.placing.counts
        made = sum(counts.applied.values()) + sum(counts.refused.values())
        assert self.engine.observing or made <= sum(counts.planned.values())
        assert self.here.replies.keys() == set(range(1, self.here.asked + 1))

    # ---- what always holds ---------------------------------------------------------------

    @invariant()
    def the_engine_is_not_busy_with_nothing(self) -> None:
        self.here.run_for(0)
        assert self.here.engine.deadline_s() > self.here.now_s

    @invariant()
    def no_group_leads_out_of_the_team(self) -> None:
        team = set(OFPORTS.values())
        for name in self.vms:
            ofport = 10 + int(name.removeprefix("vnet"))
            group = self.switch.groups.get(tables.Group.BINDING.id_of(ofport))
            buckets = [b for b in group.buckets if b.watch_group is None] if group else []
            for bucket in buckets:
                assert bucket.watch_port in team
                assert bucket.actions == (specs.Output(bucket.watch_port),)

    @invariant()
    def every_vm_port_has_a_way_out_if_there_is_one(self) -> None:
        """In the switch, whatever the service knows by now."""
        if not self.connected or not self.engine.installation.ready(self.here.now_s):
            return
        allowed = {OFPORTS[n] for n, role in self.roles.items() if role != "unused"}
        live = {ofport for ofport in allowed if self.switch.ports[ofport].up}
        for name, uplink in self.here.bindings().items():
            used = self.switch.uplink_of(10 + int(name.removeprefix("vnet")))
            assert not live or used is not None, f"{name} has no way out, {live} are up"
            if self.switch.ports[OFPORTS[uplink]].up:
                assert used == OFPORTS[uplink], f"{name} is bound to {uplink}, not {used}"

    # ---- what it takes -------------------------------------------------------------------

    @property
    def engine(self):  # type: ignore[no-untyped-def]
        return self.here.bridge

    @property
    def vms(self) -> list[str]:
        return [p.name for p in self.here.rows["br0"].ports if p.name.startswith("vnet")]

    @property
    def roles(self) -> dict[str, str]:
        return {
            i.name: i.external_ids.get("ovs-lbt-role", "active")
            for p in self.here.rows["br0"].ports
            for i in p.interfaces
            if i.name in OFPORTS
        }

    def vm(self, number: int) -> str:
        return self.vms[number % len(self.vms)]

    def best_uplinks(self) -> set[str]:
        """Those that are up and of the best role among them; empty where none may be used."""
        up = {n: r for n, r in self.roles.items() if self.switch.ports[OFPORTS[n]].up}
        for role in ("active", "standby", "drained"):
            if best := {name for name, r in up.items() if r == role}:
                return best
        return set()

    def check_moves(self) -> None:
        """Each move told begins where the last one of the VM port ended."""
        for _, command in self.here.log[self.replayed :]:
            told = MOVED.match(command.text) if isinstance(command, Report) else None
            if told and told[1] in self.vms:
                assert self.at.get(told[1], told[2]) == told[2], command
                self.at[told[1]] = told[3]
        self.replayed = len(self.here.log)
        bound = self.here.bindings()
        self.at = {n: self.at.get(n, uplink) for n, uplink in bound.items()}

    def teardown(self) -> None:
        if not hasattr(self, "here"):
            return
        if not self.connected:
            self.reconnect()
        self.settle()


TestLife = pytest.mark.slow(Life.TestCase)
TestLife.settings = settings(max_examples=examples(40), stateful_step_count=30)
