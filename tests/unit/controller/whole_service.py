"""The whole service in virtual time: hosts with several bridges, and what happens to them by a seed.

Loads change, links fail, switches and the service restart, answers are late, VMs come and go, and operators
change settings. Frames of VMs and of hosts in the network go through the flows of each bridge, and through a
switch above it that learns.

    python -m tests.unit.controller.whole_service --seeds 1000 --minutes 10
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType

from controller.api.engine_commands import Command, Report, SendFrame
from controller.config.rows import PREFIX, BridgeRow, PortRow
from controller.dataplane.tables import OFPP_NORMAL, VLAN_PRESENT
from policies.model import Reason
from tests.switch import frames
from tests.unit.controller.story import Story
from tests.unit.fake_switch import FIRST_VM_PORT
from tests.unit.simulator import as_number, fields_of

KINDS = ("bond", "plain", "lacp", "static")
POLICIES = ("load-based", "adaptive", "originating-port", "source-mac", "explicit")
# The kinds of steps of a seed. What changes nothing, or is refused, is one, too.
STEPS = (
    (*(f"load VM {bps}" for bps in ("0", "1e8", "3e8", "6e8", "9e8")), "wave VM 9e8 7"),
    ("wave VM 6e8 40", "spread VM 8", "spread VM 40", "run 20", "run 60"),
    ("link UPLINK down", "link UPLINK up"),
    tuple(f"role UPLINK {role}" for role in ("active", "active", "standby", "drained")),
    ("ask drain UPLINK", "ask undrain UPLINK", "ask undrain UPLINK"),
    ("ask move VM UPLINK", "ask pin VM UPLINK", "ask unpin VM", "ask unpin VM"),
    ("newcomer", "leaver VM", "migrate VM", "return", "tag VM 20", "tag VM 0"),
    ("gone", "back", "back", "hold", "answer", "answer", "switch", "service", "spoil"),
    ("refuse bundle no", "refuse flags no", "refuse write no", "accept", "accept"),
    tuple(f"ask set bridge BRIDGE policy={policy}" for policy in POLICIES),
    tuple(f"ask set bridge BRIDGE {key}" for key in ("threshold=50", "window-s=3", "window-s=30")),
    ("ask set bridge BRIDGE mode=observe", *("ask set bridge BRIDGE mode=enforce",) * 3),
    tuple(f"ask set interface VM affinity={name}" for name in ("x", "", "")),
    tuple(f"ask set interface VM anti-affinity={name}" for name in ("y", "", "")),
)
ROLES = ("active", "standby", "drained")
HOST = 0
OUTSIDER = "02:ee:00:00:00:01"
FLOODED = (
    frames.broadcast,
    frames.multicast,
    frames.arp_request,
    frames.gratuitous_arp,
    frames.rarp,
    frames.unsolicited_advertisement,
)
# Time for what is delayed: failback, announcements, repairs, locks.
QUIET_S = 30.0
# Under `adaptive`, a unit is not moved because of load if it has moved so often within that time.
MOVES_MAX, MOVES_WITHIN_S = 4, 180.0
MOVED = re.compile(r"(\S+): (\S+): (\S+) -> (\S+) \((\w+)\)$")
# What the service keeps of a bridge with a few VMs, in objects of Python. Samples of the buckets of a hash
# are up to 34,000 of them (256 buckets, 33 samples each), for as long as a hash is used.
OBJECTS_MAX = 60_000
Frame = Mapping[str, int]


@dataclass
class Network:
    """The switch above a bridge. It learns, and behind it is a host."""

    is_lag: bool
    chosen: random.Random
    # The port behind which an address of a VLAN is.
    ports: dict[tuple[int, int], int] = field(default_factory=dict)
    # The addresses and VLANs of VMs that have moved to the host behind it.
    migrated: list[tuple[str, int]] = field(default_factory=list)

    def receive(self, port: int, sent: Frame, live: Sequence[int]) -> list[int]:
        """The ports to which a frame goes that came by a port: uplinks, or the host's."""
        self.ports[sent["eth_src"], sent["vlan_vid"]] = port
        known = self.ports.get((sent["eth_dst"], sent["vlan_vid"]))
        to = [HOST, *live] if known is None else [known]
        if not self.is_lag:
            return [one for one in to if one != port and (one == HOST or one in live)]
        if port != HOST:
            return [HOST] * (HOST in to)
        return [self.chosen.choice(live)] if live and to != [HOST] else []

    def link_down(self, port: int) -> None:
        self.ports = {address: at for address, at in self.ports.items() if at != port}


class Service(Story):
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.chosen_by = random.Random(seed)
        teams = [self._some_team() for _ in range(self.chosen_by.randint(1, 3))]
        self.networks: dict[str, Network] = {}
        self.moved: dict[tuple[str, str], deque[float]] = {}
        # Where reports say that VM ports are, by bridge; only of bridges that enforce since they were at rest.
        self.reported: dict[str, dict[str, str]] = {}
        super().__init__(" + ".join(teams))
        self.told = [f"seed {seed}: {' + '.join(teams)}"]
        self.made = 20
        self.away: set[str] = set()
        for number, name in enumerate(self.switches):
            is_lag = teams[number].split()[0] in ("lacp", "static")
            self.networks[name] = Network(is_lag, self.chosen_by)

    def _some_team(self) -> str:
        one = self.chosen_by
        return (
            f"{one.choice(KINDS)} policy={one.choice(POLICIES)} uplinks={one.randint(2, 4)}"
            f" vms={one.randint(2, 6)} failback-delay-s={one.choice((0, 5, 20))}"
        )

    def add_switch(self, row: BridgeRow) -> None:
        super().add_switch(row)
        self.switches[row.name].learned = ()

    # ---- what happens

    def live(self, minutes: float) -> None:
        """All of it, with a look at random frames after each step.

        Raises:
            AssertionError: what must hold does not; notes name the seed and the steps.
        """
        try:
            self.start()
            self.run_for(QUIET_S)
            while self.now_s < minutes * 60:
                for _ in range(self.chosen_by.randint(5, 25)):
                    self.chosen = self.chosen_by.choice([*self.switches])
                    self.step(self.chosen_by.choice(self.chosen_by.choice(STEPS)))
                    self.run_for(self.chosen_by.expovariate(1 / 2))
                    self.some_frames()
                self.come_to_rest()
        except Exception as error:
            for line in self.told[:1] + self.told[1:][-25:]:
                error.add_note(line)
            raise

    def step(self, step: str) -> None:
        """Carry out a step, if it is one for the bridge as it is."""
        one, row = self.chosen_by, self.rows[self.chosen]
        uplinks = [i.name for i in row.interfaces if i.name.startswith("eth")]
        vms = [*self._vm_ports()]
        filled = step.replace("UPLINK", one.choice(uplinks)).replace("VM", one.choice(vms))
        filled = filled.replace("BRIDGE", self.chosen)
        word = filled.split()[0]
        changes = ("gone", "newcomer", "leaver", "migrate", "return", "switch", "hold", "tag")
        if word in changes and self.is_away:
            return
        if word in ("leaver", "migrate") and len(vms) == 1:
            return
        self.told.append(f"{self.now_s:.1f} {self.chosen} {filled}")
        if "mode=" in filled:
            self.reported.pop(self.chosen, None)
        self.carry_out(filled)
        self.check_ways()

    @property
    def is_away(self) -> bool:
        """Whether the switch is not connected."""
        return self.chosen in self.away

    def do_link(self, name: str, state: str) -> None:
        ofport, up = self.named(name), state == "up"
        if not up:
            self.networks[self.chosen].link_down(ofport)
        if self.is_away:
            self.switch.ports[ofport] = replace(self.switch.ports[ofport], up=up)
        else:
            self.set_link(ofport, up, self.chosen)

    def do_newcomer(self) -> None:
        self._add(FIRST_VM_PORT + self.made + 1)

    def _add(self, vm: int) -> str:
        self.made += 1
        name = f"vnet{self.made}" + ("" if self.chosen == "br0" else f"-{self.chosen}")
        self.do_add(name, str(vm))
        return name

    def do_leaver(self, name: str) -> None:
        self.do_del(name)

    def do_migrate(self, name: str) -> None:
        """The VM moves to the host in the network, which announces it."""
        vm = self.named(name)
        moved = address(vm), self.vlan(vm)
        self.do_del(name)
        self.networks[self.chosen].migrated.append(moved)
        self.travel(HOST, frames.rarp, moved[1], moved[0])

    def do_return(self) -> None:
        """A VM returns from the network to a new port, and announces itself."""
        if migrated := self.networks[self.chosen].migrated:
            mac, vlan = migrated.pop()
            vm = int(mac[-2:], 16)
            name = self._add(vm)
            if vlan:
                self.do_set(f"{name}:tag={vlan}")
            if not self.travel(vm, frames.rarp, vlan):
                # The switch has no flows for it yet.
                self._forget(vm)

    def do_tag(self, name: str, vlan: str) -> None:
        """The VM has another VLAN, in which the network may have known it where it was long ago."""
        self._forget(self.named(name))
        self.do_set(f"{name}:tag={vlan}")

    def _forget(self, vm: int) -> None:
        network, mac = self.networks[self.chosen], as_number("eth_src", address(vm))
        network.ports = {of: at for of, at in network.ports.items() if of[0] != mac}

    def do_gone(self) -> None:
        self.away.add(self.chosen)
        super().do_gone()

    def do_back(self) -> None:
        if self.is_away:
            self.away.remove(self.chosen)
            super().do_back()

    def do_switch(self) -> None:
        """The switch restarts. Nobody can announce a VM that is silent then."""
        self.networks[self.chosen].ports.clear()
        self.disconnect(self.chosen)
        self.switch.restart()
        self.connect(self.chosen)

    def do_service(self) -> None:
        """The service restarts."""
        for switch in self.switches.values():
            switch.held.clear()
            switch.holds_answers = False
        # It has written the times of moves where the policy limits them.
        kept = {name for name, row in self.rows.items() if _is_adaptive(row)}
        self.moved = {unit: times for unit, times in self.moved.items() if unit[0] in kept}
        self.reported.clear()
        self.restart_service()
        self.away.clear()

    def do_role(self, name: str, role: str) -> None:
        """One uplink at least stays active."""
        names = (i.name for i in self.rows[self.chosen].interfaces if i.name.startswith("eth"))
        if any(self._role(other) == "active" for other in names if other != name):
            self.do_set(f"{name}.role={role}")

    def come_to_rest(self) -> None:
        """All links are up, and some time later each frame arrives once where it should."""
        for name in self.switches:
            self.chosen = name
            self.do_accept()
            self.do_back()
            self.do_answer()
            for uplink in [n for n, port in self.switch.ports.items() if not port.up]:
                self.do_link(self.switch.ports[uplink].name, "up")
        self.told.append(f"{self.now_s:.1f} rest")
        self.run_for(QUIET_S)
        for name in self.switches:
            self.chosen = name
            bridge = self.engine.fleet.bridges[name]
            assert self.switch.installed == bridge.installation.desired(), f"{name} lacks flows"
            self.check_rest()
            self.check_upstream()
            vms = self._vm_ports()
            for vm in vms.values():
                self.broadcast(vm, settled=True)
            for vlan in {self.vlan(vm) for vm in vms.values()}:
                self.broadcast(HOST, vlan, settled=True)
            self.check_migrated()
            for vm in vms.values():
                self.unicast(HOST, vm, settled=True)
                self.unicast(vm, HOST, settled=True)
                self.unicast(vm, self.chosen_by.choice([*vms.values()]), settled=True)
        self.log.clear()
        objects = size_of(self.engine)
        assert objects < OBJECTS_MAX * len(self.switches), f"the engine has {objects} objects"

    def check_migrated(self) -> None:
        """VMs that have moved to the network are there for each VM of their VLAN, and the other way."""
        for mac, vlan in self.networks[self.chosen].migrated:
            heard = self.travel(HOST, frames.broadcast, vlan, mac)
            self.judge(f"broadcast of {mac}", heard, self.hearing(vlan), settled=True)
            for vm in self._vm_ports().values():
                if self.vlan(vm) == vlan:
                    heard = self.travel(vm, frames.to(mac), vlan)
                    self.judge(f"unicast of {vm} to {mac}", heard, {HOST}, settled=True)

    def check_ways(self) -> None:
        """VM ports leave by their uplinks if these are up, or else by others that are, whatever the service knows."""
        bridge = self.engine.fleet.bridges[self.chosen]
        late = self.is_away or self.switch.holds_answers
        if late or bridge.on_normal or not bridge.installation.ready(self.now_s):
            return
        if not self.switch.flows:
            # NORMAL forwards until the first bundle is carried out.
            return
        up = {port.name: number for number, port in self.switch.ports.items() if port.up}
        vms = self._vm_ports()
        for name, uplink in self.bindings(self.chosen).items():
            if name in vms and self.switch.hash_of(vms[name]) is None:
                used = self.switch.uplink_of(vms[name])
                assert used == up.get(uplink, used), f"{name} is bound to {uplink}, not {used}"
                assert used or not any(n.startswith("eth") for n in up), f"{name} has no way out"

    def check_rest(self) -> None:
        """VM ports are on uplinks of the best role, where reports say, and each command is answered."""
        bridge, vms = self.engine.fleet.bridges[self.chosen], self._vm_ports()
        assert bridge.at_rest and self.replies.keys() == {*range(1, self.asked + 1)}
        if bridge.observing:
            return
        bound = {n: uplink for n, uplink in self.bindings(self.chosen).items() if n in vms}
        roles = {i.name: self._role(i.name) for i in self.rows[self.chosen].interfaces}
        best = min((roles[n] for n in roles if n not in vms), key=ROLES.index)
        pinned = [
            i.name for i in self.rows[self.chosen].interfaces if f"{PREFIX}pin" in i.external_ids
        ]
        for name, uplink in bound.items():
            assert name in pinned or roles[uplink] == best, (
                f"{name} is on {uplink}, {best} would do"
            )
        reported = self.reported.get(self.chosen, {})
        wrong = {n: at for n, at in reported.items() if bound.get(n, at) != at}
        assert not wrong, f"reports say {wrong}, and VM ports are on {bound}"
        self.reported[self.chosen] = bound

    def _role(self, name: str) -> str:
        (ids,) = (i.external_ids for i in self.rows[self.chosen].interfaces if i.name == name)
        return ids.get(f"{PREFIX}role", "active")

    def check_upstream(self) -> None:
        """The network sends to each VM by the uplink by which the VM sends."""
        network = self.networks[self.chosen]
        if network.is_lag or self.engine.fleet.bridges[self.chosen].on_normal:
            return
        for name, vm in self._vm_ports().items():
            if self.switch.hash_of(vm) is not None:
                continue
            known, uplink = self._known_at(vm), self.switch.uplink_of(vm)
            assert known in (None, uplink), f"{name} sends by {uplink}, and is known at {known}"

    def _known_at(self, end: int) -> int | None:
        """The port at which the network has learned the address of a VM, or of the host."""
        vlan = 0 if end == HOST else self.vlan(end)
        tag = VLAN_PRESENT | vlan if vlan else 0
        return self.networks[self.chosen].ports.get((as_number("eth_src", address(end)), tag))

    # ---- frames

    def some_frames(self) -> None:
        if self.engine.fleet.bridges[self.chosen].on_normal:
            # By which uplink NORMAL sends is not known here.
            self.networks[self.chosen].ports.clear()
        vms = [*self._vm_ports().values()]
        ends = [HOST, *vms]
        for _ in range(2):
            sender = self.chosen_by.choice(ends)
            vlan = self.vlan(self.chosen_by.choice(vms))
            self.broadcast(sender, vlan)
            self.unicast(sender, self.chosen_by.choice(ends))

    def vlan(self, ofport: int) -> int:
        """The VLAN in which a VM sends."""
        return self._port(ofport).tag or 0

    def hearing(self, vlan: int) -> set[int]:
        """The VM ports of a VLAN. A port without a tag is a trunk of all VLANs."""
        vms = self._vm_ports().values()
        return {vm for vm in vms if self._port(vm).tag in (None, vlan)}

    def _port(self, ofport: int) -> PortRow:
        name = self.switch.ports[ofport].name
        (port,) = (port for port in self.rows[self.chosen].ports if port.name == name)
        return port

    def broadcast(self, sender: int, vlan: int = 0, settled: bool = False) -> None:
        vlan = vlan if sender == HOST else self.vlan(sender)
        heard = self.travel(sender, self.chosen_by.choice(FLOODED), vlan)
        to = {HOST, *self.hearing(vlan)} - {sender}
        self.judge(f"broadcast of {sender} in {vlan}", heard, to, settled)

    def unicast(self, sender: int, to: int, settled: bool = False) -> None:
        """A frame within a VLAN. Where its address is not known, others may hear it, too."""
        vms = {vm: self.vlan(vm) for vm in self._vm_ports().values()}
        vlan = vms.get(to, vms.get(sender, 0))
        if sender == to or vms.get(sender, vlan) != vlan:
            return
        is_known = self._known_at(to) is not None
        heard = self.travel(sender, frames.to(address(to)), vlan)
        everyone = {HOST, *self.hearing(vlan)} - {sender}
        if heard and sender == HOST and not is_known and not self.networks[self.chosen].is_lag:
            # The network floods it down every uplink: as with a bond, a copy arrives by each of them.
            heard = Counter(heard.keys())
        self.judge(f"unicast of {sender} to {to}", heard, {to} if settled else everyone, settled)

    def judge(self, what: str, heard: Counter[int] | None, to: set[int], settled: bool) -> None:
        """A frame arrives at most once, nowhere else, and once where it should when all is at rest."""
        if heard is None:
            return
        what = f"{self.now_s:.1f} {self.chosen} {what}"
        if not self.engine.fleet.bridges[self.chosen].installation.has_all:
            # The switch may have the VLANs as they were.
            to = to | {*self._vm_ports().values()}
        assert not heard.keys() - to, f"{what} was heard at {heard.keys() - to}"
        assert not heard or max(heard.values()) == 1, f"{what} was heard twice: {heard}"
        assert not settled or heard.keys() == to, f"{what} was not heard at {to - heard.keys()}"

    def travel(
        self, sender: int, build: frames.Builder, vlan: int, source: str = ""
    ) -> Counter[int] | None:
        """How often each VM port and the host gets a frame; None where NORMAL has a part in it."""
        sent = fields_of(build(source or address(sender), vlan if sender == HOST else 0, 0))
        heard: Counter[int] = Counter()
        if sender == HOST:
            coming = deque(self._through_network(HOST, sent, heard))
        else:
            coming = deque([(sender, sent)])
        if not self.switch.flows:
            return None
        while coming:
            ofport, now = coming.popleft()
            for copy in self.switch.receive(ofport, now):
                if copy.port == OFPP_NORMAL:
                    return None
                if copy.port >= FIRST_VM_PORT:
                    heard[copy.port] += 1
                    continue
                assert ofport >= FIRST_VM_PORT, f"{self.now_s} {self.chosen}: a frame goes back"
                coming += self._through_network(copy.port, copy.frame, heard)
        return heard

    def _through_network(
        self, port: int, sent: Frame, heard: Counter[int]
    ) -> Iterator[tuple[int, Frame]]:
        live = [n for n, one in self.switch.ports.items() if n < FIRST_VM_PORT and one.up]
        for to in self.networks[self.chosen].receive(port, sent, live):
            if to == HOST:
                heard[HOST] += 1
            else:
                yield to, sent

    # ---- what the service does

    def _carry_out(self, command: Command) -> None:
        super()._carry_out(command)
        if isinstance(command, SendFrame) and command.ofport in self.switches[command.bridge].ports:
            before, self.chosen = self.chosen, command.bridge
            sent = fields_of(command.frame)
            for copy in self.switch.receive(command.ofport, sent):
                if copy.port < FIRST_VM_PORT:
                    for _ in self._through_network(copy.port, copy.frame, Counter()):
                        pass
            self.chosen = before
        if isinstance(command, Report) and (told := MOVED.match(command.text)):
            self._count_move(told[1], told[2], Reason(told[5]))
            if (reported := self.reported.get(told[1], {})).get(told[2]):
                assert reported[told[2]] == told[3], command
                reported[told[2]] = told[4]

    def _count_move(self, bridge: str, unit: str, why: Reason) -> None:
        moved = self.moved.setdefault((bridge, unit), deque(maxlen=MOVES_MAX))
        within_s = self.now_s - moved[0] if len(moved) == MOVES_MAX else math.inf
        moved.append(self.now_s)
        if why.by_load and _is_adaptive(self.rows[bridge]):
            assert within_s >= MOVES_WITHIN_S, f"{bridge} {unit}: a fifth move in {within_s} s"


def _is_adaptive(row: BridgeRow) -> bool:
    return row.external_ids.get(f"{PREFIX}policy") == "adaptive"


def address(end: int) -> str:
    """The address of a VM, by its port, or of the host."""
    return OUTSIDER if end == HOST else f"52:54:00:00:00:{end:02x}"


def size_of(root: object) -> int:
    """How many objects something has, and what it refers to."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        for one in gc.get_referents(waiting.pop()):
            if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
                seen[id(one)] = one
                waiting.append(one)
    return len(seen)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=10, metavar="N")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args(words)
    failed, began_s = [], time.monotonic()
    for seed in range(options.first, options.first + options.seeds):
        try:
            Service(seed).live(options.minutes)
        except Exception as error:
            failed.append(seed)
            notes = "\n  ".join([f"{type(error).__name__}: {error}", *error.__notes__])
            print(f"seed {seed} failed: {notes}", flush=True)
    spent_s = time.monotonic() - began_s
    print(
        f"{options.seeds} seeds of {options.minutes:g} minutes in {spent_s:.0f} s, failed: {failed}"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
