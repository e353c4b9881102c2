"""Every command that a message or a runbook proposes, run in the state in which it is proposed.

What was asked is asked again: it proposes this no more, `check` finds no more than before, and what was
delivered still is, once. Which commands there are, tests/advice.py finds; that each has a state here,
tests/unit/docs/test_advice.py sees to.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from controller.api.commands import REQUESTS
from controller.host.control import UNANSWERED
from controller.operations.operator import LOST
from controller.text.wording import OUR_LOG
from tests.advice import Advice
from tests.documents import ROOT
from tests.switch import datapath, frames
from tests.switch.bed import BALANCE_SLB, LACP, PLAIN, Bed, BedSpec, Shot, Uplink, Upstream, run
from tests.switch.path_faults import blocked, faults, probes
from tests.switch.service import Service
from tests.switch.systemd import Machine
from tests.switch.test_invalid_teams import (
    listed_and_renamed,
    new_cable,
    renamed_and_added,
    renamed_member,
    renamed_uplink,
    second_bond,
    shrunk,
)
from tests.switch.test_lost_keys import KEYS
from tests.switch.waiting import HANG_S, wait_until

# What one is told: the exit status, and all that is printed.
Told = tuple[int, str]
Asked = Callable[[], Told]
# By where and what was sent: how many copies came out at each station, and upstream.
Delivered = Mapping[tuple[str, str], Counter[str]]
ON_PLAIN, ON_BOND, ON_LACP = (BedSpec(team, 2, (None, None)) for team in (PLAIN, BALANCE_SLB, LACP))
ON_THREE = BedSpec(PLAIN, 3, (None, None))
UPSTREAM, NONE = "upstream", Counter[str]()
# Names that a shell reads otherwise if a command does not quote them.
TO_QUOTE = "$&"
# More than `check` takes for chance.
BROADCASTS = 12
PROMETHEUS = shlex.quote(str(ROOT / "dashboards/provisioning"))
ADDRESSES, REMOTE = ("198.18.0.1", "198.18.0.2"), "198.18.0.9"
OPENFLOW_13, HELLO, ECHO_REQUEST, ECHO_REPLY, BARRIER_REQUEST = 4, 0, 2, 3, 20
UNITS = r"systemctl (start|restart) (openvswitch-switch|ovs-lbt)"


@dataclass(frozen=True, slots=True)
class Case:
    """A command that is proposed now.

    `asked`: proposes it, and does so no more behind it. `command`: None if it is what `asked` proposes;
    else a runbook proposes it. `fills`: what stands for placeholders. `behind`: words before it, if it
    is not the first. `shows`: a part of what it prints, if it only looks. `solved`: what is true
    afterwards, if `asked` does not tell. `more`: the findings that `check` can only make behind it.
    """

    asked: Asked
    fills: Mapping[str, str] = field(default_factory=dict)
    behind: str = ""
    shows: str | None = None
    solved: Callable[[], object] | None = None
    more: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """A state, and what is proposed in it: a case for each, in this order."""

    spec: BedSpec
    proposed: tuple[str, ...]
    cases: Callable[[Stage], Generator[Case]]


STATES: dict[str, State] = {}


def state(spec: BedSpec, *proposed: str) -> Callable[[Callable[[Stage], Generator[Case]]], None]:
    """Register a function that makes a state and yields its cases."""

    def register(cases: Callable[[Stage], Generator[Case]]) -> None:
        STATES[cases.__name__] = State(spec, proposed, cases)

    return register


class Stage:
    """A bed, and the service that these tests may stop."""

    def __init__(self, own: Service, tor: Upstream, bed: Bed) -> None:
        self.own, self.tor = own, tor
        # Where systemd runs, and its commands do.
        self.within: list[str] = []
        self.use(bed)

    def use(self, bed: Bed) -> None:
        """Look at this bed from now on."""
        self.bed = bed
        if bed.spec.in_names:
            # ovs-ofctl speaks only OpenFlow 1.0 unless it is told otherwise.
            bed.ovs.vsctl("set", "bridge", bed.bridge, "protocols=OpenFlow13")
        self.br, self.vm = bed.bridge, bed.vms[0].port
        self.first, self.second = (uplink.name for uplink in bed.uplinks[:2])
        # What stands in runbooks for these.
        self.names = {
            "br0": self.br,
            "eth1": self.first,
            "eth2": self.second,
            "vnet0": self.vm,
            "BOND": bed.bond,
            "BRIDGE": self.br,
            "vnet3": self.vm,
            "9476": str(self.own.metrics_port),
        }

    def asks(self, *words: str) -> Asked:
        """Ask `ovs-lbt WORDS…`: the service itself, if it alone answers that."""
        alone = words[0] in REQUESTS and words[0] not in ("attach", "check", "detach", "history")

        def ask() -> Told:
            if not alone or not self.own.alive:
                return told(self.own.command(*words))
            try:
                return 0, self.own.ask(*words)
            except ValueError as refused:
                return 1, str(refused)

        return ask

    @property
    def checks(self) -> Asked:
        return self.asks("check", self.br)

    @property
    def nothing(self) -> Asked:
        """For runbooks, which propose without being asked."""
        return says("")

    def vsctl(self, *words: str) -> str:
        return self.bed.ovs.vsctl(*words)

    def shell(self, command: str) -> Told:
        """Type a command. Of systemd's units, this Open vSwitch and this service stand for theirs."""
        if self.within:
            within = [*self.within, "bash", "-c", command]
            return told(subprocess.run(within, capture_output=True, text=True, timeout=HANG_S))
        if unit := re.fullmatch(UNITS, command):
            self.unit(*unit.groups())
            return 0, ""
        if command.startswith("ovs-lbt run"):
            self.own.start()
            return 0, ""
        path = f"{self.own.executable.parent}:{os.environ['PATH']}"
        return told(
            subprocess.run(
                ["bash", "-c", command],
                env={**self.own.ovs.env, "PATH": path},
                cwd=self.own.ovs.rundir,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=HANG_S,
            )
        )

    def unit(self, verb: str, name: str) -> None:
        if name == "ovs-lbt":
            if verb == "restart":
                self.own.terminate()
            self.own.start()
            return
        if verb == "restart":
            self.bed.ovs.stop("ovs-vswitchd")
        self.bed.ovs.start_switch()
        self.bed.local_is_new()

    def rule(self, key: str) -> str | None:
        """A rule of the first VM."""
        settings = json.loads(self.own.ask("get", "interface", self.vm, "--json"))["settings"]
        found: str | None = next(one["value"] for one in settings if one["key"] == key)
        return found

    def other(self) -> str:
        """The uplink that the first VM does not use."""
        return (
            self.second if self.own.port(self.bed, self.vm)["uplink"] == self.first else self.first
        )

    def findings(self) -> int:
        """How many problems `check` finds; none while nobody answers."""
        with contextlib.suppress(ValueError, OSError):
            found = json.loads(self.own.ask("check", self.br, "--json"))["findings"]
            return sum(finding["severity"] != "note" for finding in found)
        return 0

    @contextlib.contextmanager
    def attached(self, *options: str) -> Iterator[None]:
        """The bridge is attached in this block, and as it was behind it."""
        self.own.start()
        self.bed.set("bridge", self.br, failback_delay_s=0)
        if self.bed.spec.on_bond:
            self.bed.introduce_to_normal()
        try:
            self.own.attach(self.bed, *(options or ("--policy", "originating-port")))
            yield
        finally:
            self.own.start()
            self.own.command("detach", self.br, "--purge")
        assert "ovs-lbt" not in self.vsctl("get", "bridge", self.br, "external_ids")


def says(text: str) -> Asked:
    """What says this."""
    return lambda: (0, text)


def told(done: subprocess.CompletedProcess[str]) -> Told:
    return done.returncode, done.stdout + done.stderr


def delivered(bed: Bed) -> Delivered:
    """Where broadcasts of all come out, and by whom frames to each VM and to the host are received."""
    everywhere = {*map(str, bed.stations), UPSTREAM}
    shots = dict[tuple[str, str], tuple[Shot, set[str]]]()
    if not (bed.ovs.rundir / "ovs-vswitchd.pid").exists():
        return {}
    for sender in (*bed.vms, *bed.hosts):
        place = UPSTREAM if sender in bed.hosts else str(sender)
        shots[place, f"{sender}'s broadcast"] = bed.frame_of(sender), everywhere
        for receiver in (*bed.vms, *bed.hosts):
            if sender != receiver and not {sender, receiver} <= {*bed.hosts}:
                shot = bed.frame_of(sender, frames.to(receiver.mac))
                # Others hear it, too, while a switch does not know where the receiver is.
                at = {UPSTREAM if receiver in bed.hosts else str(receiver)}
                shots[place, f"{sender} to {receiver}"] = shot, at
    copies = bed.fire([shot for shot, _ in shots.values()])
    return {
        sent: Counter(
            place
            for point in copies[shot.frame_id].points
            if (place := UPSTREAM if point.startswith(UPSTREAM) else point) in counted
        )
        for sent, (shot, counted) in shots.items()
    }


def is_kept(before: Delivered, after: Delivered) -> bool:
    """Whether all arrives that arrived before, and nothing more often than that or once.

    A sender need not hear its own frame again, as it does in a loop.
    """
    return all(
        before.get(sent, NONE).keys() - {sent[0]} <= at.keys()
        and all(count <= max(1, before.get(sent, NONE)[point]) for point, count in at.items())
        for sent, at in after.items()
    )


# ---- unknown names ------------------------------------------------------------------------


@state(
    ON_PLAIN,
    "api/requests.refuse_unknown: ovs-lbt set --help",
    "api/requests.refuse_unknown: ovs-lbt set --help",
    "cli/arguments.parser: ovs-lbt COMMAND --help",
    "host/journal._unknown: ovs-lbt show",
    "host/journal._unknown: ovs-lbt history",
    "operations/get.answer: ovs-lbt get {} {}",
    "operations/named._listed: ovs-lbt show {}",
    "operations/named._unknown_interface: ovs-lbt show",
    "operations/named.uplink: ovs-lbt show {}",
    "operations/named.address: ovs-lbt explain {}",
    "operations/named.row: ovs-vsctl list-br",
    "support_bundle.main: ovs-vsctl list-br",
    "host/journal._unknown: ovs-lbt history",
    "rescue.rescue: ovs-vsctl list-br",
    "reversal.waiting: ovs-vsctl list-br",
)
def unknown_names(at: Stage) -> Generator[Case]:
    with at.attached():
        at.own.do("move", at.vm, at.other())
        yield Case(at.asks("set", "bridge", at.br, "thresold=60"), shows="threshold")
        yield Case(at.asks("set", "bridge", at.br, "threshold"), shows="threshold")
        yield Case(at.asks("--help"), {"COMMAND": "check"}, shows="ovs-lbt check")
        yield Case(at.asks("history", "nobr"), shows=at.br)
        yield Case(at.asks("history", "--port", "novm"), shows=at.vm)
        yield Case(at.asks("get", "bridge", at.br, "thresold"), shows="threshold")
        yield Case(at.asks("pin", at.first, at.second), shows=at.vm)
        yield Case(at.asks("explain", "novm"), shows=at.vm)
        yield Case(at.asks("pin", at.vm, "nouplink"), shows=at.second)
        yield Case(at.asks("explain", f"{at.vm}/02:00:00:00:00:99"), shows=at.vm)
        yield Case(at.asks("check", "nobr"), shows=at.br)
        yield Case(at.asks("support-bundle", "nobr"), shows=at.br)
        at.own.kill()
        yield Case(at.asks("history", "nobr"), shows=at.vm)
        yield Case(at.asks("rescue", "nobr"), shows=at.br)
        yield Case(at.asks("rollback", "nobr"), shows=at.br)


@state(ON_PLAIN, "config/membership._absent: ovs-vsctl list-ifaces {bridge}")
def unknown_uplinks(at: Stage) -> Generator[Case]:
    at.own.start()
    yield Case(
        at.asks("attach", at.br, "--uplink", at.first, "--uplink", "nouplink"), shows=at.second
    )


@state(
    ON_PLAIN,
    "operations/named.home_of_rules: ovs-vsctl set bridge BRIDGE {key}",
)
def a_vm_on_another_host(at: Stage) -> Generator[Case]:
    vm = "9a3f1c2e-0000-4000-8000-000000000001/02:00:00:00:00:99"
    at.own.start()
    yield Case(
        at.asks("set", "interface", vm, f"prefer={at.first}"),
        {"-KEY": "-prefer", "VALUE": at.first},
        solved=lambda: f"{vm}-prefer" in at.vsctl("get", "bridge", at.br, "external_ids"),
    )
    at.vsctl("clear", "bridge", at.br, "external_ids")


# ---- nothing attached, no service, no switch -----------------------------------------------


@state(
    ON_BOND,
    "operations/findings: ovs-lbt check BRIDGE",
    "text/show_view: ovs-lbt attach BRIDGE",
    "operations/operator._settings: ovs-lbt detach {}",
    "config/membership.to_attach: ovs-lbt attach {}{uplinks}",
)
def nothing_attached(at: Stage) -> Generator[Case]:
    at.own.start()
    at.bed.introduce_to_normal()
    yield Case(at.asks("check"), shows="can be attached")
    yield Case(at.asks("show"))
    yield Case(
        at.asks("set", "bridge", at.br, "policy="),
        solved=lambda: "not attached" in at.asks("show", at.br)()[1],
    )
    at.bed.introduce_to_normal()
    yield Case(at.asks("show", at.br))
    at.own.do("detach", at.br, "--purge")


@state(ON_PLAIN, "config/membership.to_attach: ovs-lbt attach {}{uplinks}")
def plain_uplinks_not_attached(at: Stage) -> Generator[Case]:
    at.own.start()
    asked = at.asks("show", at.br)
    given = {"--uplink IF --uplink IF": "--uplink eth1 --uplink eth2"}
    yield Case(asked, given)
    at.own.do("detach", at.br, "--purge")


@state(
    ON_BOND,
    "host/client._nobody: ovs-lbt run",
    "cli/bonds.from_bond: ovs-lbt run",
    "OvsLbtServiceDown: systemctl start ovs-lbt",
    "host/client._nobody: ovs-lbt run --name {}",
    "cli/without_service.detach: ovs-lbt -t {} detach {join}",
    "OvsLbtServiceDown: ovs-lbt detach br0",
)
def no_service(at: Stage) -> Generator[Case]:
    with at.attached():
        at.own.kill()
        yield Case(at.asks("show", at.br))
        at.own.kill()
        yield Case(at.asks("attach", at.br, "--from-bond", "bond9"))
        at.own.kill()
        yield Case(at.nothing, solved=lambda: at.own.command("show").returncode == 0)
        at.own.kill()
        own = at.own
        try:
            at.own = Service(own.ovs, "ovs-lbt-b")
            yield Case(at.asks("show", at.br))
            at.own.wait_ready(at.bed)
            yield Case(
                lambda: told(own.command("detach", at.br)),
                solved=lambda: "not attached" in at.asks("show", at.br)()[1],
            )
            at.own.attach(at.bed)
        finally:
            at.own.kill()
            at.own = own
        yield Case(
            at.nothing,
            solved=lambda: "policy" not in at.vsctl("get", "bridge", at.br, "external_ids"),
        )


@state(
    ON_BOND,
    "text/wording: systemctl start openvswitch-switch",
    "OvsLbtBridgeDisconnected: systemctl restart openvswitch-switch",
    "OvsLbtDecisionsStopped: systemctl restart ovs-lbt",
    "OvsLbtNoLeader: systemctl restart ovs-lbt",
)
def a_switch_or_a_service_that_hangs(at: Stage) -> Generator[Case]:
    with at.attached():
        at.bed.ovs.stop("ovs-vswitchd")
        yield Case(at.checks)
        for _ in range(3):
            yield Case(at.nothing, solved=lambda: at.own.show_json(at.br)["connected"])
            at.own.wait_ready(at.bed)


# ---- a bridge that is attached -------------------------------------------------------------


@state(
    ON_PLAIN,
    "operations/operator._move: ovs-lbt unpin {}",
    "operations/explain._outlook: ovs-lbt unpin {}",
    "OvsLbtUplinkSaturated: ovs-lbt unpin vnet0",
    "operations/explain._outlook: ovs-lbt set interface {} exclude=false",
    "OvsLbtUplinkSaturated: ovs-lbt set interface vnet0 exclude=false",
    "operations/explain._outlook: ovs-lbt move {} UPLINK",
    "operations/attach.attach: ovs-lbt set bridge {} {wanted}",
    "operations/named.moving_bridge: ovs-lbt set bridge {} mode=enforce",
    "operations/plans: ovs-lbt plan",
    "operations/plans.apply: ovs-lbt plan {}",
    "operations/check._state: ovs-vsctl add bridge {} protocols {SPOKEN}",
    "OvsLbtBridgeDisconnected: ovs-vsctl add bridge br0 protocols OpenFlow13",
    "operations/confirmations.follow_database: ovs-vsctl remove bridge {} external_ids {UNCONFIRMED}",
)
def settings_in_the_way(at: Stage) -> Generator[Case]:
    with at.attached("--policy", "originating-port"):
        for asked in (at.asks("move", at.vm, at.second), at.asks("explain", at.vm)):
            at.own.do("pin", at.vm, at.first)
            yield Case(asked)
        at.own.do("pin", at.vm, at.first)
        yield Case(at.nothing, solved=lambda: at.rule("pin") is None)
        at.own.do("set", "interface", at.vm, "exclude=true")
        yield Case(at.asks("explain", at.vm))
        at.own.do("set", "interface", at.vm, "exclude=true")
        yield Case(at.nothing, solved=lambda: at.rule("exclude") == "false")
        other = at.other()
        yield Case(
            at.asks("explain", at.vm),
            {"UPLINK": shlex.quote(other)},
            solved=lambda: at.own.port(at.bed, at.vm)["uplink"] == other,
        )
        yield Case(
            at.asks("attach", at.br, "--policy", "slb"),
            solved=lambda: at.own.show_json(at.br)["policy"] == "slb",
        )
        at.own.do("set", "bridge", at.br, "mode=observe")
        yield Case(at.asks("move", at.vm, at.other()))
        yield Case(at.asks("apply", at.br), shows="nothing to move")
        yield Case(at.asks("apply", at.br, "--plan", "01234567"), shows="nothing to move")
        for asked in (at.checks, at.nothing):
            at.vsctl("set", "bridge", at.br, "protocols=OpenFlow10")
            wait_until(lambda: not at.own.show_json(at.br)["connected"], "it is cut off")
            yield Case(asked, solved=lambda: at.own.show_json(at.br)["connected"])
            at.vsctl("clear", "bridge", at.br, "protocols")
        at.bed.set("bridge", at.br, unconfirmed="nonsense")
        ids = ("get", "bridge", at.br, "external_ids")
        yield Case(
            lambda: (0, at.own.log_tail()), solved=lambda: "unconfirmed" not in at.vsctl(*ids)
        )


@state(
    ON_PLAIN,
    "operations/unconfirmed.waiting: ovs-lbt confirm {}",
    "text/show_view.waiting: ovs-lbt confirm {}",
    "operations/unconfirmed.refuse_waiting: ovs-lbt confirm {}",
    "operations/unconfirmed.refuse_waiting: ovs-lbt rollback {}",
    "operations/dry_run.written: ovs-lbt confirm {}",
)
def a_change_to_confirm(at: Stage) -> Generator[Case]:
    trial, once = ("set", "bridge", at.br, "threshold=60"), ("--rollback-after", "300")

    def confirmed() -> bool:
        return "rolled back" not in at.own.ask("show")

    def refused() -> Told:
        return at.asks(*trial, "--dry-run", *once)()

    def tried() -> Told:
        said = refused()
        at.own.do(*trial, *once)
        return said

    with at.attached():
        yield Case(at.asks(*trial, *once), solved=confirmed)
        at.own.do("set", "bridge", at.br, "threshold=70", *once)
        yield Case(at.asks("show"))
        for behind in ("first run ", "or "):
            at.own.do("set", "bridge", at.br, "threshold=70", *once)
            yield Case(refused, behind=behind)
        yield Case(tried, solved=confirmed)


@state(
    ON_PLAIN,
    "config/controllers.refusal: ovs-vsctl add bridge {} protocols {SPOKEN}",
    "config/membership: ovs-vsctl set interface {} external_ids:{PREFIX}role=active",
    "operations/findings.ignored_flags: ovs-ofctl mod-port {} {} flood",
    "operations/detach._staying: ovs-lbt detach {} --purge",
    "operations/detach._fail_mode_back: ovs-vsctl del-fail-mode {}",
)
def before_attach(at: Stage) -> Generator[Case]:
    vsctl, attach = at.vsctl, at.asks("attach", at.br, *at.bed.uplink_options)
    at.own.start()
    vsctl("set", "bridge", at.br, "protocols=OpenFlow10")
    yield Case(attach)
    at.own.do("detach", at.br)
    vsctl("clear", "bridge", at.br, "protocols")
    vsctl("set", "interface", at.first, "external_ids:iface-id=a-vm")
    yield Case(attach)
    at.own.do("detach", at.br, "--purge")
    vsctl("remove", "interface", at.first, "external_ids", "iface-id")
    at.bed.ovs.run("ovs-ofctl", "-O", "OpenFlow10", "mod-port", at.br, at.vm, "no-flood")
    with at.attached():
        yield Case(at.checks)
        at.own.do("set", "interface", at.first, "capacity-mbps=100")
        ids = ("get", "interface", at.first, "external_ids")
        yield Case(at.asks("detach", at.br), solved=lambda: "capacity" not in vsctl(*ids))
    with at.attached():
        at.bed.set("bridge", at.br, before="nonsense")
        at.bed.pull_cable(at.bed.uplinks[1])
        yield Case(at.asks("detach", at.br), solved=lambda: not at.bed.fail_mode())
        vsctl("set-fail-mode", at.br, "secure")
        at.bed.plug_cable(at.bed.uplinks[1])


@state(ON_BOND, "operations/detach._forget: tc qdisc del dev UPLINK root")
def queues_that_stay(at: Stage) -> Generator[Case]:
    """A unit that somebody wrote leaves the service no right to change queues."""

    def queued() -> int:
        return run("tc", "qdisc", "show").count("qdisc htb")

    with at.attached():
        at.own.do("set", "interface", at.vm, "shares=100")
        wait_until(lambda: queued() == 2, "uplinks have queues")
        at.own.kill()
        at.own.launcher = ["setpriv", "--bounding-set", "-net_admin"]
        try:
            at.own.start()
            at.own.wait_ready(at.bed)
            both = "eth1 root; tc qdisc del dev eth2 root"
            yield Case(at.asks("detach", at.br), {"UPLINK root": both}, solved=lambda: not queued())
        finally:
            at.own.kill()
            at.own.launcher = []
            at.vsctl("clear", "interface", at.vm, "external_ids")


@state(ON_BOND, "operations/check._others: ovs-vsctl del-controller {}")
def another_controller(at: Stage) -> Generator[Case]:
    with at.attached(), answering_controller() as target:
        own_way = ("--", "set", "controller", at.br, "connection-mode=out-of-band")
        at.vsctl("set-controller", at.br, target, *own_way)
        at.own.wait_ready(at.bed)
        yield Case(at.checks)


@contextlib.contextmanager
def answering_controller() -> Iterator[str]:
    """A program that controls nothing, but answers; its target."""
    head = struct.Struct("!BBHI")

    def answers(switch: socket.socket) -> None:
        switch.sendall(head.pack(OPENFLOW_13, HELLO, head.size, 0))
        # Open vSwitch takes only one that has sent more than a greeting for a controller.
        switch.sendall(head.pack(OPENFLOW_13, BARRIER_REQUEST, head.size, 1))
        with switch.makefile("rb") as said:
            while first := said.read(head.size):
                _, kind, length, number = head.unpack(first)
                rest = said.read(length - head.size)
                if kind == ECHO_REQUEST:
                    switch.sendall(head.pack(OPENFLOW_13, ECHO_REPLY, length, number) + rest)

    def serve() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as switch:
            answers(switch)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp:127.0.0.1:{listener.getsockname()[1]}"


@state(
    ON_BOND,
    "operations/advice.dropped: ovs-vsctl set interface {} external_ids:{FORGES}=accept",
    "operations/advice.of_patch_ports: ovs-lbt set bridge {} patch-unit={BY_ADDRESS}",
    "operations/advice.of_patch_ports: ovs-lbt set bridge {} patch-unit={BY_ADDRESS}",
)
def vms_with_more_addresses(at: Stage) -> Generator[Case]:
    bed, attach = at.bed, at.asks("attach", at.br)
    at.own.start()
    bed.introduce_to_normal()
    at.vsctl("set", "interface", at.vm, 'external_ids:attached-mac="02:00:00:00:00:77"')
    yield Case(attach)
    at.own.do("detach", at.br, "--purge")
    at.vsctl("clear", "interface", at.vm, "external_ids")
    with bed.integration_bridge(2):
        key = at.asks("get", "bridge", at.br, "patch-unit")
        for unit in ("", "source-mac"):
            if unit:
                bed.set("interface", bed.patch, unit=unit)
            yield Case(attach, solved=lambda: key()[1].strip() == "source-mac")
            at.own.do("detach", at.br, "--purge")


@contextlib.contextmanager
def tunnel(bed: Bed, detach: Callable[[], object]) -> Iterator[tuple[str, str, str]]:
    """An integration bridge with a tunnel from the first of two internal ports of the bed's bridge.

    `detach`: undoes an attach when the block ends.
    """
    inner, first, second, name = (f"{bed.prefix}{end}" for end in ("in", "t1", "t2", "g1"))
    made = ["add-br", inner, "--", "set", "bridge", inner, datapath.SETTING]
    for port in (first, second):
        made += ["--", "add-port", bed.bridge, port, "--", "set", "interface", port]
        made += ["type=internal"]
    made += ["--", "add-port", inner, name, "--", "set", "interface", name, "type=geneve"]
    bed.ovs.vsctl(*made, f"options:local_ip={ADDRESSES[0]}", f"options:remote_ip={REMOTE}")
    for port, address in zip((first, second), ADDRESSES, strict=True):
        run("ip", "addr", "add", f"{address}/24", "dev", port)
        run("ip", "link", "set", port, "up")
    try:
        yield inner, first, second
    finally:
        for key in ("ovn-encap-ip", "ovn-encap-type", "ovn-bridge"):
            bed.ovs.vsctl("remove", "open_vswitch", ".", "external_ids", key)
        detach()
        ports = [word for port in (first, second) for word in ("--", "del-port", port)]
        bed.ovs.vsctl("del-br", inner, *ports)


@state(
    BedSpec(PLAIN, 2, (None,), (None,)),
    "operations/advice._alone: ovs-lbt set interface {} policy=adaptive",
    "operations/advice._alone: ovs-lbt set bridge {} connection-hash=dp_hash",
    "operations/advice.of_endpoints: ovs-lbt plan --endpoints",
)
def tunnel_endpoints(at: Stage) -> Generator[Case]:
    bed = at.bed
    at.vsctl("clear", "bridge", at.br, "protocols")

    def attaching(*options: str) -> Asked:
        return at.asks("attach", at.br, *bed.uplink_options, *options)

    at.own.start()
    with tunnel(bed, lambda: at.own.do("detach", at.br, "--purge")) as (inner, port, _):
        check = at.asks("check", at.br, *bed.uplink_options)
        wait_until(lambda: ADDRESSES[0] in check()[1], "the service knows the device's address")
        yield Case(
            attaching("--policy", "originating-port"),
            solved=lambda: at.own.port(bed, port).get("policy") == "adaptive",
        )
        at.own.do("detach", at.br, "--purge")
        bed.set("bridge", at.br, connection_hash="multipath")
        yield Case(
            attaching("--policy", "dynamic"),
            solved=lambda: at.own.show_json(at.br)["connection_hash"]["used"] == "dp_hash",
        )
        at.own.do("detach", at.br, "--purge")
        ids = [f"ovn-encap-ip={','.join(ADDRESSES)}".replace(",", "\\,"), "ovn-encap-type=geneve"]
        ids += [f"ovn-bridge={inner}"]
        at.vsctl("set", "open_vswitch", ".", *(f"external_ids:{one}" for one in ids))
        yield Case(attaching("--policy", "load-based"), shows=ADDRESSES[1])


@state(
    ON_PLAIN,
    "openflow/side_connection.__init__: ovs-vsctl add bridge {} protocols OpenFlow10 OpenFlow13 OpenFlow15",
)
def a_version_that_the_bridge_does_not_allow(at: Stage) -> Generator[Case]:
    with at.attached("--policy", "dynamic"):
        at.vsctl("set", "bridge", at.br, "protocols=OpenFlow13")
        at.own.do("set", "bridge", at.br, "connection-hash=dp_hash")
        yield Case(
            at.asks("show", at.br),
            solved=lambda: at.own.show_json(at.br)["connection_hash"]["used"] == "dp_hash",
        )


@state(
    ON_BOND,
    "text/wording.keys_again: ovs-lbt attach {}",
    "operations/check._without_keys: ovs-lbt attach {}",
    "OvsLbtConfigurationError: ovs-lbt attach br0",
    "text/wording.keys_again: ovs-lbt detach {}",
    "OvsLbtConfigurationError: ovs-lbt set bridge br0 KEY=VALUE",
    "OvsLbtConfigurationError: ovs-lbt unset bridge br0 KEY",
)
def keys_that_vanish_or_are_invalid(at: Stage) -> Generator[Case]:
    grace = "external_ids:ovs-lbt-key-loss-grace-s"
    at.vsctl("set", "Open_vSwitch", ".", f"{grace}=0.5")
    behinds = ("again: ", "manage the bridge again: ", "", "attach: ")
    with at.attached():
        try:
            for behind in behinds:
                at.vsctl("remove", "bridge", at.br, "external_ids", *KEYS)
                wait_until(lambda: "disappeared" in at.checks()[1], "the loss is found")
                if behind:
                    yield Case(at.checks, behind=behind)
                else:
                    yield Case(at.nothing, solved=lambda: "disappeared" not in at.checks()[1])
            at.own.attach(at.bed)
        finally:
            at.vsctl("remove", "Open_vSwitch", ".", "external_ids", grace.partition(":")[2])
        for fills in ({"KEY=VALUE": "threshold=80"}, {"KEY": "threshold"}):
            at.bed.set("bridge", at.br, threshold="much")
            wait_until(lambda: at.own.show_json(at.br)["config_errors"], "it is found")
            yield Case(
                at.nothing, fills, solved=lambda: not at.own.show_json(at.br)["config_errors"]
            )


# ---- what runbooks set ---------------------------------------------------------------------


@state(
    ON_PLAIN,
    "OvsLbtUplinkDown: ovs-lbt drain eth1",
    "OvsLbtUplinkDown: ovs-lbt undrain eth1",
    "OvsLbtLinkFlapping: ovs-lbt drain eth1",
    "OvsLbtLinkFlapping: ovs-lbt undrain eth1",
    "OvsLbtBridgeDark: ovs-lbt undrain UPLINK",
    "OvsLbtLinkFlapping: ovs-lbt set bridge br0 failback-delay-s=600",
    "OvsLbtUplinkSaturated: ovs-lbt set bridge br0 policy=load-based",
    "OvsLbtUplinkSaturated: ovs-lbt set interface vnet0 policy=dynamic",
    "OvsLbtUplinkSaturated: ovs-lbt set interface eth1 capacity-mbps=10000",
    "OvsLbtImbalance: ovs-lbt move vnet0 UPLINK",
    "OvsLbtImbalance: ovs-lbt set bridge br0 threshold=50",
    "OvsLbtImbalance: ovs-lbt set bridge br0 policy=dynamic",
    "OvsLbtPortMovesTooOften: ovs-lbt set bridge br0 window-s=120",
    "OvsLbtPortMovesTooOften: ovs-lbt pin vnet0 UPLINK",
    "OvsLbtPortMovesTooOften: ovs-lbt set interface vnet0 exclude=true",
    "OvsLbtMoveBudgetExhausted: ovs-lbt move vnet0 eth2",
    "OvsLbtMoveBudgetExhausted: ovs-lbt pin vnet0 eth1",
    "OvsLbtMoveBudgetExhausted: ovs-lbt set interface vnet0 policy=dynamic",
)
def settings_of_runbooks(at: Stage) -> Generator[Case]:
    """What a runbook expects of its command. What follows from it is told in tests of policies and roles."""

    def setting(table: str, record: str, key: str, value: str) -> Case:
        asked = at.asks("get", table, record, key)
        return Case(at.nothing, {"UPLINK": "eth2"}, solved=lambda: asked()[1].strip() == value)

    def bridge(key: str, value: str) -> Case:
        return setting("bridge", at.br, key, value)

    def rule(key: str, value: str) -> Case:
        return Case(at.nothing, {"UPLINK": "eth2"}, solved=lambda: at.rule(key) == value)

    def is_at(uplink: str) -> Case:
        moved = lambda: at.own.port(at.bed, at.vm)["uplink"] == uplink  # noqa: E731
        return Case(at.nothing, {"UPLINK": shlex.quote(uplink)}, solved=moved)

    def has_role(role: str) -> Case:
        def has() -> bool:
            return bool(at.own.uplink(at.bed, at.bed.uplinks[0])["role"] == role)

        # One uplink alone is a finding.
        return Case(at.nothing, {"UPLINK": "eth1"}, solved=has, more=1)

    with at.attached():
        for role in ("drained", "active") * 2:
            yield has_role(role)
        at.own.do("drain", at.first)
        yield has_role("active")
        yield bridge("failback-delay-s", "600")
        at.own.move(at.bed.vms[0], at.bed.uplinks[0])
        yield bridge("policy", "load-based")
        yield rule("policy", "dynamic")
        at.own.do("set", "interface", at.vm, "policy=")
        yield setting("interface", at.first, "capacity-mbps", "10000")
        yield is_at(at.second)
        yield bridge("threshold", "50")
        yield bridge("policy", "dynamic")
        yield bridge("window-s", "120")
        yield rule("pin", at.second)
        yield rule("exclude", "true")
        at.own.do("unpin", at.vm)
        at.own.move(at.bed.vms[0], at.bed.uplinks[0])
        yield is_at(at.second)
        yield rule("pin", at.first)
        yield rule("policy", "dynamic")


# ---- uplinks -------------------------------------------------------------------------------


@state(ON_LACP, "OvsLbtBridgeDark: ovs-vsctl set port BOND other_config:lacp-fallback-ab=true")
def no_lacp_upstream(at: Stage) -> Generator[Case]:
    with at.attached():
        with at.bed.lacp_unknown_upstream():
            wait_until(lambda: "no active or standby" in at.checks()[1], "it is dark")
            yield Case(at.nothing, solved=lambda: "no active or standby" not in at.checks()[1])
            at.vsctl("remove", "port", at.bed.bond, "other_config", "lacp-fallback-ab")
        wait_until(at.bed.lacp_is_negotiated, "LACP is negotiated again")


@state(
    ON_PLAIN,
    "operations/upstream._set_teaming: ovs-lbt set bridge {} teaming={teaming}",
    "OvsLbtInboundNotFollowing: ovs-lbt set bridge br0 teaming=static",
)
def teams_unlike_upstream(at: Stage) -> Generator[Case]:
    """The second is proposed for a LAG upstream, which this one becomes."""
    bed = at.bed

    def broadcast() -> Told:
        bed.fire([bed.frame_of(vm) for vm in bed.vms])
        return at.checks()

    with at.attached("--teaming", "static"):
        yield Case(broadcast)
        bed.tor.ovs.vsctl(
            *(w for u in bed.uplinks for w in ("--", "del-port", u.upstream_end.interface))
        )
        bed._make_static_lag([uplink.upstream_end.interface for uplink in bed.uplinks])
        wait_until(lambda: at.own.all_up(bed), "the links are up")
        bed.introduce()
        yield Case(at.nothing, solved=lambda: at.own.show_json(at.br)["teaming"] == "static")
        bed.tor.ovs.vsctl("del-br", bed.lag)
        for uplink in bed.uplinks:
            bed.tor.ovs.vsctl("add-port", bed.upstream, uplink.upstream_end.interface)


@state(
    ON_PLAIN,
    "OvsLbtPathFault: ovs-lbt set bridge br0 path-check-targets=192.0.2.1",
    "OvsLbtPathFault: ovs-lbt drain eth1",
)
def paths_that_fail(at: Stage) -> Generator[Case]:
    bed = at.bed
    host = bed.hosts[0]
    with at.attached():
        run("ip", "addr", "add", f"{host.ip}/16", "dev", "eth0", netns=str(host.point.netns))
        at.own.do("set", "bridge", at.br, "path-check=on")
        wait_until(lambda: probes(bed) > 2 * len(bed.uplinks), "probes arrive")
        with blocked(bed, bed.uplinks[0], "receive", "forward"):
            wait_until(lambda: faults(at.own, bed), "a fault is found")
            decided = lambda: any(one[2] for one in faults(at.own, bed))  # noqa: E731
            yield Case(at.nothing, {"192.0.2.1": host.ip}, solved=decided, more=1)
            yield Case(at.nothing, solved=lambda: "drained" in at.checks()[1])
        run("ip", "addr", "flush", "dev", "eth0", netns=str(host.point.netns))


@state(
    ON_PLAIN,
    "OvsLbtRuleBroken: ovs-lbt set interface vnet0 allow=eth1,eth2",
    "OvsLbtRuleBroken: ovs-lbt set interface vnet0 anti-affinity=",
    "OvsLbtRuleBroken: ovs-lbt move vnet0 UPLINK",
)
def broken_rules(at: Stage) -> Generator[Case]:
    bed, (first, second) = at.bed, at.bed.uplinks

    def kept() -> bool:
        return "rule broken" not in at.checks()[1]

    def broken() -> None:
        wait_until(lambda: not kept(), "a rule is broken")

    with at.attached("--policy", "load-based"):
        at.own.do("set", "interface", at.vm, f"allow={first}")
        with bed.cable_pulled(first):
            broken()
            yield Case(at.nothing, solved=kept)
        at.own.do("set", "interface", at.vm, "allow=")
        for port in (at.vm, bed.vms[1].port):
            at.own.do("set", "interface", port, "anti-affinity=set")
        at.own.move(bed.vms[1], second)
        at.own.move(bed.vms[0], second)
        broken()
        yield Case(at.nothing, solved=kept)
        at.own.do("set", "interface", at.vm, "anti-affinity=set")
        wait_until(kept, "the policy has moved one")
        before, after = at.own.port(bed, at.vm)["uplink"], at.other()
        at.own.ask("move", at.vm, after)
        broken()
        yield Case(at.nothing, {"UPLINK": shlex.quote(before)}, solved=kept)


@state(
    ON_PLAIN,
    "operations/operator._check: ovs-lbt check {}",
    "operations/advice.of_dropped: ovs-lbt set interface {} forged-transmits=accept",
    "OvsLbtFramesDropped: ovs-lbt set interface vnet0 forged-transmits=accept",
)
def frames_that_are_dropped(at: Stage) -> Generator[Case]:
    bed, vm = at.bed, at.bed.vms[0]
    forged = "02:00:00:00:00:77"

    def dropping() -> Told:
        bed.fire([bed.frame_of(vm, source=forged) for _ in range(BROADCASTS)])
        return at.checks()

    def arrives() -> bool:
        return bool(bed.comes_out(bed.frame_of(vm, source=forged)))

    at.vsctl("set", "interface", at.vm, f'external_ids:attached-mac="{vm.mac}"')
    with at.attached():
        yield Case(at.asks("check", at.br, *bed.uplink_options), shows=at.br)
        yield Case(dropping, solved=arrives)
        at.own.do("set", "interface", at.vm, "forged-transmits=")
        wait_until(lambda: not arrives(), "such frames are dropped again")
        yield Case(at.nothing, solved=arrives)
    at.vsctl("clear", "interface", at.vm, "external_ids")


def vxlan_uplink(bed: Bed) -> None:
    """One more uplink: VXLAN, whose devices have no speed, over a cable of its own."""
    name, end = f"{bed.prefix}u8", bed._upstream_end(8)
    cable, other = f"{bed.prefix}c8", f"{bed.prefix}d8"
    addresses = ("192.0.2.1", "192.0.2.2")
    run("ip", "link", "add", cable, "type", "veth", "peer", other, "netns", bed.tor.netns)
    bed._links += [(name, None), (end.interface, bed.tor.netns), (cable, None)]
    for at, device, below, (own, peer) in (
        ([], name, cable, addresses),
        (["-n", bed.tor.netns], end.interface, other, addresses[::-1]),
    ):
        lines = f"addr add {own}/30 dev {below}\nlink set {below} up\n"
        lines += f"link add {device} type vxlan id 8 local {own} remote {peer} dstport 4789\n"
        run("ip", *at, "-batch", "-", stdin=f"{lines}link set {device} up\n")
    for device in (name, cable):
        bed._silence(device)
    bed.uplinks.append(Uplink(name, end))
    bed.tor.ovs.vsctl("add-port", bed.upstream, end.interface)
    bed.ovs.vsctl("add-port", bed.bridge, name)


@state(ON_PLAIN, "text/show_view.guessed: ovs-lbt set interface {} capacity-mbps=MBPS")
def an_uplink_of_unknown_speed(at: Stage) -> Generator[Case]:
    with other_bed(at, ON_PLAIN) as bed:
        vxlan_uplink(bed)
        with at.attached():
            yield Case(at.asks("show", at.br), {"MBPS": "1000"})
            assert "guess" not in at.checks()[1]


@state(
    ON_PLAIN,
    "text/wording.no_device: ovs-vsctl get interface {} error",
    "OvsLbtUplinkDown: ovs-vsctl get interface eth1 error",
)
def an_uplink_without_a_device(at: Stage) -> Generator[Case]:
    def remove(bed: Bed) -> None:
        name = bed.uplinks[0].name
        run("ip", "link", "del", name)
        bed.ovs.vsctl("del-port", bed.bridge, name)
        with contextlib.suppress(RuntimeError):
            bed.ovs.vsctl("add-port", bed.bridge, name)

    with changed(at, ON_PLAIN, remove):
        shows = f"could not open network device {at.first}"
        yield Case(at.checks, shows=shows)
        yield Case(at.nothing, shows=shows)


# ---- what somebody looks at ---------------------------------------------------------------

LOOKS = {
    "OvsLbtUplinkDown: ovs-appctl bfd/show eth1": "Forwarding",
    "OvsLbtBridgeDark: ip -br link": "UP",
    "OvsLbtBridgeDark: ovs-appctl lacp/show BOND": "current attached",
    "OvsLbtBridgeDark: ovs-lbt show br0": "connected",
    "OvsLbtBridgeDisconnected: ovs-appctl -T 5 -t ovs-vswitchd version": "Open vSwitch",
    "OvsLbtDecisionsStopped: ovs-ofctl -O OpenFlow13 dump-ports br0": "rx pkts",
    "OvsLbtFault: ovs-lbt show": "connected",
    "OvsLbtImbalance: ovs-lbt explain vnet0": "where",
    "OvsLbtLinkFlapping: ethtool -S eth1": "statistics",
    "OvsLbtLinkFlapping: ovs-lbt history br0": "->",
    "OvsLbtMovesRefused: ovs-appctl -t ovs-vswitchd vlog/set ofproto:dbg": "",
    "OvsLbtMovesRefused: ovs-ofctl -O OpenFlow13 dump-groups br0": "group_id=1811939",
    "OvsLbtPathFault: ovs-lbt check br0": "no problems found",
    "OvsLbtPathFault: ovs-lbt explain vnet3": "where",
    "OvsLbtPortMovesTooOften: ovs-lbt history --port vnet0": "->",
    "OvsLbtRuleBroken: ovs-lbt history br0 --port vnet0": "->",
    "OvsLbtServiceDown: curl -s http://127.0.0.1:9476/metrics | head": "ovslbt_",
    "OvsLbtServiceDown: ss -ltnp": "LISTEN",
    "OvsLbtUplinkDown: ethtool eth1": "Link detected: yes",
    "OvsLbtServiceAbsent: promtool check config /etc/prometheus/prometheus.yml": "SUCCESS",
    "OvsLbtUplinkDown: ovs-lbt support-bundle": "tar.gz",
    "OvsLbtUplinkDown: ovs-appctl rstp/show BRIDGE": "Root ID",
}


@state(
    ON_LACP,
    "host/control: ovs-lbt show",
    "operations/operator: ovs-lbt show",
    "cli/top/__init__.main: ovs-lbt top --once",
    *LOOKS,
)
def looked_at(at: Stage) -> Generator[Case]:
    with at.attached():
        for text in (UNANSWERED, LOST):
            yield Case(says(text), shows=at.vm)
        yield Case(at.asks("top"), shows=at.first)
        at.own.do("move", at.vm, at.other())
        at.vsctl("set", "interface", at.first, "bfd:enable=true")
        for looks, shows in LOOKS.items():
            at.vsctl("set", "bridge", at.br, f"rstp_enable={'rstp' in looks}".lower())
            yield Case(at.nothing, {"/etc/prometheus": PROMETHEUS}, shows=shows)
            at.vsctl("clear", "interface", at.first, "bfd")
            wait_until(lambda: at.own.all_up(at.bed), "both uplinks work")
        at.vsctl("set", "bridge", at.br, "rstp_enable=false")
        at.bed.ovs.run("ovs-appctl", "vlog/set", "ofproto:info")


# ---- other teams, on a bed of their own ---------------------------------------------------


@contextlib.contextmanager
def other_bed(at: Stage, spec: BedSpec) -> Iterator[Bed]:
    """Another bed is looked at in this block."""
    before = at.bed
    with Bed(at.own.ovs, at.tor, replace(spec, in_names=before.spec.in_names)) as bed:
        at.use(bed)
        try:
            yield bed
        finally:
            at.use(before)


@contextlib.contextmanager
def changed(at: Stage, spec: BedSpec, change: Callable[[Bed], object]) -> Iterator[Asked]:
    """Another bed is attached, and then changed; what `show` says of it."""
    with other_bed(at, spec) as bed, at.attached():
        change(bed)
        bed.introduce()
        yield at.asks("show", at.br)


def third_card(bed: Bed) -> None:
    name = new_cable(bed, 7, bed.upstream)
    bed.uplinks.append(Uplink(name, bed._upstream_end(7)))
    bed.ovs.vsctl("add-port", bed.bridge, name)


def unlisted(bed: Bed) -> None:
    names = ",".join(uplink.name for uplink in bed.uplinks[:2])
    bed.ovs.vsctl("set", "bridge", bed.bridge, f'external_ids:ovs-lbt-uplinks="{names}"')


def vm_named_like_an_uplink(bed: Bed) -> None:
    name = f"{bed.prefix}u9"
    run("ip", "link", "add", name, "type", "veth", "peer", f"{bed.prefix}w9")
    bed._links.append((name, None))
    for link in (name, f"{bed.prefix}w9"):
        bed._silence(link)
        run("ip", "link", "set", link, "up")
    bed.ovs.vsctl("add-port", bed.bridge, name)


@state(
    ON_PLAIN,
    "config/membership._strangers: ovs-vsctl {_del_port}",
    "config/membership.team: ovs-vsctl {added}",
    *["config/membership.replacing: ovs-vsctl {join}"] * 4,
    "config/membership._strangers: ovs-vsctl {_into}",
    "operations/named._unknown_interface: ovs-lbt check {}",
    "config/membership._strangers: ovs-vsctl {_del_port}",
    "config/membership: ovs-vsctl set interface {} external_ids:{PREFIX}unit=port",
    "config/membership._plain: ovs-vsctl {_del_port}",
)
def invalid_teams(at: Stage) -> Generator[Case]:
    with changed(at, ON_BOND, second_bond) as shown:
        yield Case(shown, behind="remove it: ")
    with changed(at, ON_BOND, shrunk) as shown:
        yield Case(shown, behind="add another: ")
    with changed(at, ON_BOND, renamed_member) as shown:
        yield Case(shown, behind=f"{at.second}: ")
    with changed(at, ON_PLAIN, renamed_uplink) as shown:
        yield Case(shown, behind=f"{at.second}: ")
    for change in (renamed_and_added, listed_and_renamed):
        with changed(at, ON_BOND, change):
            yield Case(at.checks, behind="if it was renamed: ", solved=lambda: not at.findings())
    with changed(at, ON_BOND, third_card) as shown:
        yield Case(shown, behind=f"add it to {at.bed.bond}: ")
    for spec in (ON_BOND, ON_PLAIN):
        with changed(at, spec, third_card) as shown:
            if spec == ON_BOND:
                name = f"{at.bed.prefix}u7"
                yield Case(at.asks("explain", name), shows=name)
            else:
                yield Case(shown, behind="or remove it: ")
    with changed(at, ON_BOND, vm_named_like_an_uplink) as shown:
        yield Case(shown)
    with changed(at, ON_THREE, unlisted) as shown:
        yield Case(shown, behind="or remove it: ")


# ---- a machine that hangs, and one with systemd -------------------------------------------


@state(
    ON_BOND,
    "host/control: journalctl -u ovs-lbt",
    "text/wording: journalctl -u ovs-lbt",
    "OvsLbtDecisionsStopped: journalctl -u ovs-lbt",
    "OvsLbtFault: journalctl -u ovs-lbt -g 'a bug in ovs-lbt'",
    "OvsLbtServiceDown: journalctl -u ovs-lbt -e",
    "OvsLbtServiceRestarting: journalctl -u ovs-lbt -g 'ERROR|CRITICAL|watchdog|oom'",
    "OvsLbtLinkFlapping: journalctl -k | grep eth1",
    "OvsLbtUplinkDown: journalctl -k | grep eth1",
    "OvsLbtServiceDown: systemctl status ovs-lbt",
    "OvsLbtNoLeader: systemctl status ovs-lbt",
    "OvsLbtServiceRestarting: systemctl show ovs-lbt -p NRestarts",
    "OvsLbtBridgeDisconnected: systemctl status openvswitch-switch",
)
def a_host_with_systemd(at: Stage) -> Generator[Case]:
    """The units have programs that do nothing; what matters is that the commands name them right."""
    with Machine(at.own.ovs) as machine:
        for unit in ("ovs-lbt", "openvswitch-switch"):
            program = "/bin/sh -c 'echo a bug in ovs-lbt, an ERROR; exec sleep infinity'"
            text = f"[Service]\nExecStart={program}\n"
            machine.path(f"/etc/systemd/system/{unit}.service").write_text(text)
        machine.do("systemctl", "daemon-reload")
        machine.do("systemctl", "start", "ovs-lbt", "openvswitch-switch")
        wait_until(lambda: "ERROR" in machine.do("journalctl", "-u", "ovs-lbt"), "it is in the log")
        at.within = machine.within
        for text in (UNANSWERED, OUR_LOG):
            yield Case(says(text), shows="a bug in ovs-lbt")
        for shows in (*["a bug in ovs-lbt"] * 4, "", "", "active (running)", "active (running)"):
            yield Case(at.nothing, shows=shows)
        yield Case(at.nothing, shows="NRestarts=0")
        yield Case(at.nothing, shows="active (running)")


@pytest.mark.parametrize(
    ("bed", "name"),
    [
        pytest.param(replace(one.spec, in_names=part), name, id=name + "-to-quote" * bool(part))
        for part in ("", TO_QUOTE)
        for name, one in STATES.items()
    ],
    indirect=["bed"],
)
def test_what_is_proposed_is_run_where_it_is_proposed(
    own: Service, tor: Upstream, bed: Bed, name: str
) -> None:
    stage, asked = Stage(own, tor, bed), STATES[name]
    with contextlib.closing(asked.cases(stage)) as cases:
        for one in asked.proposed:
            place, _, command = one.partition(": ")
            case = next(cases, None)
            assert case, f"no case for {one}"
            follow(stage, case, Advice(place, command))
        assert next(cases, None) is None, "a case without a command"


def follow(stage: Stage, case: Case, advice: Advice) -> None:
    """Run one command as it is proposed, and look at what comes of it."""
    command = proposal(stage, case, advice)
    if case.shows is not None:
        status, text = stage.shell(command)
        # `check` finds what it was run for.
        assert status <= 1 and case.shows in text, f"{command}: {status}\n{text}"
        return
    before, found = delivered(stage.bed), stage.findings()
    status, text = stage.shell(command)
    assert status == 0, f"{command}: {text}"
    if case.solved is not None:
        wait_until(case.solved, f"{command} has an effect")
    else:
        wait_until(lambda: is_over(case, advice), f"{command} ends what proposed it")
    wait_until(lambda: stage.findings() <= found + case.more, f"{command} makes no new finding")

    def kept() -> bool:
        stage.bed.settled()
        return is_kept(before, delivered(stage.bed))

    try:
        wait_until(kept, f"{command} loses and doubles nothing", interval_s=0.3)
    except AssertionError as late:
        late.add_note(f"before: {before}\nafter: {delivered(stage.bed)}")
        raise


def is_over(case: Case, advice: Advice) -> bool:
    return advice.found_in(case.asked()[1], case.behind) is None


def proposal(stage: Stage, case: Case, advice: Advice) -> str:
    """The command as it would be typed: found in what is said, with names for what it leaves open."""
    command: str | None = advice.command
    if not advice.in_runbook:
        texts = list[str]()

        def found() -> str | None:
            texts[:] = [case.asked()[1]]
            return advice.found_in(texts[0], case.behind)

        try:
            command = wait_until(found, f"{advice} is proposed", interval_s=0.2)
        except AssertionError as late:
            late.add_note(texts[0])
            raise
    assert command is not None
    for blank, filled in case.fills.items():
        command = command.replace(blank, filled)
    pattern = rf"(?<![\w-])({'|'.join(map(re.escape, stage.names))})(?![\w-])"
    return re.sub(pattern, lambda one: shlex.quote(stage.names[one[0]]), command)
