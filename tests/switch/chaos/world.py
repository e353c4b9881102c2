"""A host on a real switch to which chaos happens: each event is carried out on a bed."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus

from controller.bridge.bridge import NEW_VM_AUDIT_S
from controller.dataplane.tables import LOCK_TIMEOUT_S
from tests.switch import frames
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    LACP,
    PLAIN,
    STATIC_LAG,
    Bed,
    BedSpec,
    Station,
    Uplink,
    Upstream,
    learning_at_once,
    run,
)
from tests.switch.chaos import model
from tests.switch.chaos.losses import Moment
from tests.switch.chaos.model import Event, State
from tests.switch.service import Service, launcher_with
from tests.switch.test_liveness import begin_bfd, heals, in_earnest, swallow
from tests.switch.test_reconnect import flows_of, groups_of
from tests.switch.test_standby import leads, stands_by
from tests.switch.waiting import stopped, wait_until
from topologies.network.private_ovs import PrivateOvs

VM_VLANS = (None, None, 10, 10, 20)
# By the seed, one after another.
SPECS = (
    BedSpec(PLAIN, 3, VM_VLANS),
    BedSpec(BALANCE_SLB, 2, VM_VLANS),
    BedSpec(LACP, 2, VM_VLANS),
    BedSpec(ACTIVE_BACKUP, 2, VM_VLANS),
    BedSpec(STATIC_LAG, 2, VM_VLANS),
)
FLAP_S = 0.05
BOUND_WITHIN_S = 60.0
SAME_AGAIN_WITHIN_S = 60.0
FIRST = {"policy": "originating-port", "failback-delay-s": "1"}
FIRST_ADAPTIVE = {"policy": "adaptive", "failback-delay-s": "1"}
# Told to the service and not enforced: what is lost then is lost by a split, not in a queue.
UPLINK_MBPS = 2
# A split VM port is merged when it has been mergeable for that long, however often it was split.
MERGES_SOON = launcher_with("controller.teaming.splits", MERGE_AFTER_S=1.5, REMEMBERED_S=0.1)
# After these, the service reads addresses that it did not know.
SHOWS_NEW_ADDRESSES = frozenset(
    {
        *("vm-starts", "vm-renamed", "vm-retagged", "vm-migrates-in", "observe", "enforce"),
        *("service-started", "service-restarted", "service-paused"),
        *("leader-killed", "leader-paused", "switch-restarted", "database-restarted"),
    }
)
# Events that are one command of an operator, on what they happen to.
COMMANDS = {
    "drain": "drain {}",
    "undrain": "undrain {}",
    "role": "set interface {} role={}",
    "pin": "pin {} {}",
    "unpin": "unpin {}",
    "allow": "set interface {} allow={}",
    "allow-all": "set interface {} allow=",
    "vm-policy": "set interface {} policy={}",
}
# How long a VM stays split under load.
SPLIT_FOR_S = 1.0
# A fault that is planted loses so many frames.
SABOTAGED_FRAMES = 50


@dataclass(frozen=True, slots=True)
class Extras:
    """What a world has more than the seed says: `adaptive` splits VMs; a second service.

    `sabotage`: events of that kind lose frames.
    """

    adaptive: bool = False
    standby: bool = False
    sabotage: str = ""


def spec_of(seed: int) -> BedSpec:
    """The bed of a seed."""
    return SPECS[seed % len(SPECS)]


def first_state(seed: int, extras: Extras = Extras()) -> State:
    """Each team with BFD and without, by turns; where it negotiates LACP, that watches it."""
    spec = spec_of(seed)
    return State(
        {f"u{i}": model.UplinkState() for i in range(spec.uplinks)},
        {f"v{i}": model.VmState(vlan or 0) for i, vlan in enumerate(spec.vm_vlans)},
        lag=spec.is_lag,
        negotiated=spec.team == LACP,
        on_bond=spec.on_bond,
        watched=spec.team == LACP or seed // len(SPECS) % 2 == 1,
        adaptive=extras.adaptive,
        standby=extras.standby,
    )


class World:
    """A bed, the service on it, and the state that events have left them in."""

    def __init__(
        self, bed: Bed, service: Service, first: State, other: Service | None, sabotage: str
    ) -> None:
        self.bed = bed
        # The one that leads; and the one that stands by, if there is one.
        self.service = service
        self.other = other
        self.sabotage = sabotage
        # What the last event has left no way to, and since when.
        self.moments: list[Moment] = []
        # Whether the last event darkened a link whose BFD still sent once a second.
        self.slow_bfd = False
        # Has a VM send more than an uplink carries, in a block.
        self.load: Callable[[str], contextlib.AbstractContextManager[None]] | None = None
        self.state = first
        # When a VM's port appeared, or the service, which reads its address a while later.
        self._came_s = time.monotonic()
        self._vms = {f"v{i}": vm for i, vm in enumerate(bed.vms)}
        self._uplinks = {f"u{i}": uplink for i, uplink in enumerate(bed.uplinks)}
        self._withdrawn: dict[str, contextlib.AbstractContextManager[None]] = {}
        self.left: tuple[set[str], dict[int, str]] = set(), {}

    def close(self) -> None:
        """Take back what would outlive the bed's own end."""
        for uplink in list(self._withdrawn):
            self._lacp_in(uplink)

    def uplink(self, name: str) -> Uplink:
        return self._uplinks[name]

    def vm(self, name: str) -> Station:
        """As it is now, or was when it was here."""
        vm, state = self._vms[name], self.state.vms[name]
        port = vm.port + ("x" if state.renamed else "")
        return replace(vm, port=port, vlan=state.vlan or None)

    @property
    def here(self) -> dict[str | None, Station]:
        """The stations on the bridge: VMs by their names, and the host itself."""
        here: dict[str | None, Station] = {
            name: self.vm(name) for name, vm in self.state.vms.items() if vm.here
        }
        return here | {None: self.bed.local}

    @property
    def away(self) -> dict[str, Station]:
        """The VMs that another host has."""
        return {name: self.vm(name) for name, vm in self.state.vms.items() if vm.elsewhere}

    @property
    def homes(self) -> dict[str, list[str]]:
        """By VM port, the uplinks that may be its home though they serve it not."""
        names, exits = self._uplinks, self.state.exits
        return {
            station.port: [names[u].name for u in sorted(names) if u not in exits(who)]
            for who, station in self.here.items()
        }

    def installed(self) -> tuple[set[str], dict[int, str]]:
        """Flows and groups that are there to stay."""
        return flows_of(self.bed), groups_of(self.bed)

    def carry_out(self, event: Event) -> None:
        """Let it happen; the state is then the one behind it.

        Raises:
            AssertionError: it did not go as it must.
        """
        before, self.state = self.state, model.after(self.state, event)
        self.begin(before)
        try:
            if command := COMMANDS.get(event.kind):
                self.service.do(*command.format(*map(self._named, event.args)).split())
            else:
                method: Callable[..., None] = getattr(self, "_" + event.kind.replace("-", "_"))
                method(*event.args)
            if self.state.watched:
                self._see_links()
            if event.kind in SHOWS_NEW_ADDRESSES:
                self._came_s = time.monotonic()
            if event.kind == self.sabotage:
                self.lose_frames()
            if self.other and self.state.service is model.Service.ALIVE:
                self._see_who_leads()
        except BaseException:
            self.state = before
            raise
        finally:
            self.bed.vms = [vm for name, vm in self.here.items() if name]

    def begin(self, before: State) -> None:
        """What happens from here on happens to this state."""
        self.moments = [Moment(0.0, before)]
        self.slow_bfd = False

    def _leaves(self, state: State | None) -> None:
        self.moments.append(Moment(time.time(), state))

    def _plugged(self, uplink: str, plugged: bool) -> None:
        """Roles and rules are those before and after; only links change in between."""
        now = self.moments[-1].state
        assert now, "the switch runs"
        changed = replace(now.uplinks[uplink], plugged=plugged)
        self._leaves(replace(now, uplinks={**now.uplinks, uplink: changed}))

    def _see_links(self) -> None:
        """Wait until BFD or LACP has found at both ends of each link what was done to it.

        What is lost until then is lost by this event, and not by the next one.
        """
        carry = {
            end
            for name, uplink in self.state.uplinks.items()
            for end in (self.uplink(name).name, self.uplink(name).upstream_end.interface)
            if uplink.up
        }
        wait_until(lambda: self._live_ends() == carry, "both ends of each link know its state")

    def _live_ends(self) -> set[str]:
        """The ends of links at which BFD or LACP says that the link carries frames."""
        bed, uplinks = self.bed, self._uplinks.values()
        if self.state.negotiated:
            # A port that has only one member left is no bond, but negotiates.
            shown = "".join(_told(ovs, "lacp/show", bed.bond) for ovs in (bed.ovs, bed.tor.ovs))
            members = re.findall(
                r"^(?:member|slave): (\S+):.*((?:\n[ \t].+|\n)*)", shown, re.MULTILINE
            )
            return {name for name, said in members if "may_enable: true" in said}
        sides = [(bed.ovs, u.name) for u in uplinks]
        sides += [(bed.tor.ovs, u.upstream_end.interface) for u in uplinks]
        return {name for ovs, name in sides if "Forwarding: true" in _told(ovs, "bfd/show", name)}

    def lose_frames(self, count: int = SABOTAGED_FRAMES) -> None:
        """Plant a fault: the switch upstream drops that many frames that VMs send to a host.

        It is not the bridge under test, so that nothing there is out of order but the count.
        """
        switch, upstream = self.bed.tor.ovs, self.bed.upstream
        host = self.bed.hosts[0]
        match = f"table=0,priority=65535,dl_dst={host.mac}"
        ofctl = ["ovs-ofctl", "-O", "OpenFlow13"]
        switch.run(*ofctl, "add-flow", upstream, f"{match},actions=drop")
        here = sum(vm.here for vm in self.state.vms.values())

        def dropped() -> bool:
            shown = switch.run(*ofctl, "dump-flows", upstream, f"dl_dst={host.mac}")
            return sum(map(int, re.findall(r"n_packets=(\d+)", shown))) >= count * max(1, here)

        try:
            wait_until(dropped, f"{count} frames of each VM are dropped")
        finally:
            switch.run(*ofctl, "--strict", "del-flows", upstream, match)

    # ---- uplinks -----------------------------------------------------------------------

    def _cable_down(self, uplink: str) -> None:
        self._plugged(uplink, False)
        self.bed.pull_cable(self.uplink(uplink))

    def _cable_up(self, uplink: str) -> None:
        self.bed.plug_cable(self.uplink(uplink))
        self._plugged(uplink, True)

    def _flap(self, uplink: str, times: str) -> None:
        for _ in range(int(times)):
            self._cable_down(uplink)
            time.sleep(FLAP_S)
            self._cable_up(uplink)
            time.sleep(FLAP_S)

    def _storm(self, times: str) -> None:
        for number in range(int(times)):
            for uplink in self._uplinks:
                self._cable_down(uplink)
                time.sleep(FLAP_S * (number % 2))
            for uplink in reversed(self._uplinks):
                self._cable_up(uplink)
                time.sleep(FLAP_S * (number % 3))

    def _lacp_out(self, uplink: str) -> None:
        self._withdrawn[uplink] = self.bed.lacp_withdrawn(self.uplink(uplink))
        self._withdrawn[uplink].__enter__()

    def _lacp_in(self, uplink: str) -> None:
        self._withdrawn.pop(uplink).__exit__(None, None, None)

    def _dark(self, uplink: str) -> None:
        link = self.uplink(uplink)
        self.slow_bfd = not self.state.negotiated and not in_earnest(self.bed, [link])
        swallow(self.bed, link)

    def _lit(self, uplink: str) -> None:
        heals(self.bed, self.uplink(uplink))

    # ---- VMs ---------------------------------------------------------------------------

    def _vm_stops(self, vm: str) -> None:
        self.bed.unplug(self.vm(vm))

    def _vm_starts(self, vm: str) -> None:
        self.bed.plug_in(self.vm(vm))
        self._speaks(vm, frames.broadcast)

    def _vm_renamed(self, vm: str) -> None:
        new = self.vm(vm)
        original = self._vms[vm].port
        old = original if new.port != original else original + "x"
        before = self.moments[-1].state
        assert before, "the switch runs"
        gone = replace(before.vms[vm], here=False)
        self._leaves(replace(before, vms={**before.vms, vm: gone}))
        self.bed.unplug(replace(new, port=old))
        for words in (["down"], ["name", new.port]):
            run("ip", "link", "set", old, *words)
        run("ip", "link", "set", new.port, "up")
        self.bed.plug_in(new)
        self._leaves(self.state)
        self._speaks(vm, frames.broadcast)

    def _vm_retagged(self, vm: str, vlan: str) -> None:
        tag = vlan if int(vlan) else "[]"
        self.bed.ovs.vsctl("set", "port", self.vm(vm).port, f"tag={tag}")
        self._speaks(vm, frames.broadcast)

    def _vm_migrates_out(self, vm: str) -> None:
        self.bed.unplug(self.vm(vm))
        if self.state.service is model.Service.DEAD:
            # The service may have announced it a moment before it died. Until the switch has
            # forgotten that, whoever says otherwise upstream is taken for the reflection.
            self._is_forgotten(self.vm(vm).mac)
        host, vlan = self.bed.hosts[0], self.state.vms[vm].vlan
        self.bed.send(host.point, frames.rarp(self.vm(vm).mac, vlan, 0))

    def _is_forgotten(self, mac: str) -> None:
        end_s = time.monotonic() + LOCK_TIMEOUT_S
        brief = re.compile(rf"_timeout={LOCK_TIMEOUT_S},.*dl_src={mac}")
        while time.monotonic() < end_s and brief.search(self.bed.ofctl("dump-flows")):
            time.sleep(0.1)

    def _vm_migrates_in(self, vm: str) -> None:
        self.bed.plug_in(self.vm(vm))
        self._speaks(vm, frames.rarp)

    def _speaks(self, vm: str, build: frames.Builder) -> None:
        """As soon as the bridge forwards it."""
        station = self.vm(vm)
        if self.state.exits(vm):
            wait_until(
                lambda: self.service.bindings(self.bed).get(station.port),
                f"{vm}'s port {station.port} is bound",
                BOUND_WITHIN_S,
            )
        self.bed.revalidated()
        self.bed.send(station.point, build(station.mac, 0, 0))

    # ---- the service -------------------------------------------------------------------

    def _service_killed(self) -> None:
        for service in filter(None, (self.service, self.other)):
            service.kill()
        self.left = self.installed()

    def _service_started(self) -> None:
        for service in filter(None, (self.service, self.other)):
            service.start()

    def _service_restarted(self, how: str) -> None:
        """What is installed is what is desired, so a service that starts changes nothing."""
        flows, groups = self.installed()
        if how == "SIGTERM":
            assert self.service.terminate() == 0, "the service did not end in order"
        else:
            self.service.kill()
        self.service.start()
        wait_until(lambda: self.service.show_json(self.bed.bridge)["connected"], "connected again")
        # It is not known then where a VM belongs that is elsewhere now.
        if max(map(len, self.homes.values())) < 2:
            wait_until(
                lambda: groups_of(self.bed) == groups, "groups as before", SAME_AGAIN_WITHIN_S
            )
            wait_until(lambda: flows_of(self.bed) == flows, "flows as before", SAME_AGAIN_WITHIN_S)

    def _service_paused(self, seconds: str) -> None:
        with stopped(self.service.pid):
            time.sleep(int(seconds))

    def _leader_killed(self) -> None:
        """The other takes over, and the one that was killed stands by from then on."""
        killed = self.service
        killed.kill()
        self._is_followed()
        killed.start()

    _leader_paused = _service_paused

    def _is_followed(self) -> None:
        assert self.other, "nobody stands by"
        other = self.other
        wait_until(lambda: _leads(other), f"{other.name} leads", BOUND_WITHIN_S)
        self.service, self.other = other, self.service
        wait_until(
            lambda: self.service.show_json(self.bed.bridge)["connected"],
            f"{other.name} is connected",
            BOUND_WITHIN_S,
        )

    def _see_who_leads(self) -> None:
        """One leads, and the other has seen it."""

        def settled() -> bool:
            assert self.other
            pair = self.service, self.other
            for one, two in (pair, pair[::-1]):
                named = stands_by(two).startswith(f"{one.name}@")
                if _leads(one) and not _leads(two) and named:
                    self.service, self.other = one, two
                    return True
            return False

        wait_until(settled, "one service leads, the other stands by", BOUND_WITHIN_S)

    def _hot(self, vm: str) -> None:
        """It sends more than an uplink carries, is split, and merged when its load ends."""
        assert self.load, "nobody sends"
        with self.load(vm):
            wait_until(lambda: self._is_split(vm), f"{vm} is split", BOUND_WITHIN_S)
            time.sleep(SPLIT_FOR_S)
        wait_until(lambda: not self._is_split(vm), f"{vm} is merged", BOUND_WITHIN_S)

    def _is_split(self, vm: str) -> bool:
        if self.other and not _leads(self.service):
            # On a busy machine, the one that stands by may take over without being made to.
            self._see_who_leads()
        return bool(self.service.port(self.bed, self.vm(vm)).get("split"))

    # ---- the switch --------------------------------------------------------------------

    def _switch_restarted(self) -> None:
        # Addresses come back as they were read last; on a bond with those that NORMAL has heard. A
        # VM that is newer and silent from then on may be lost until it speaks.
        time.sleep(max(0.0, self._came_s + 1.5 * NEW_VM_AUDIT_S - time.monotonic()))
        self._leaves(None)
        self.bed.restart_switch()
        self._leaves(self.state)

    def _database_restarted(self) -> None:
        # With a userspace datapath, ovs-vswitchd forwards nothing until it has its database again.
        self._leaves(None)
        self.bed.restart_database()
        self._leaves(self.state)

    # ---- what operators do -------------------------------------------------------------

    def _set_bridge(self, key: str, value: str) -> None:
        if self.state.service is model.Service.DEAD:
            self.bed.set("bridge", self.bed.bridge, **{key: value})
        else:
            self.service.do("set", "bridge", self.bed.bridge, f"{key}={value}")

    def _observe(self) -> None:
        self._set_bridge("mode", "observe")

    def _enforce(self) -> None:
        self._set_bridge("mode", "enforce")

    def _named(self, word: str) -> str:
        """What an uplink or a VM is called on the switch; another word as it is."""
        if word in self._uplinks:
            return self.uplink(word).name
        return self.vm(word).port if word in self._vms else word

    def _move(self, vm: str, uplink: str) -> None:
        """Not before the failback delay of an uplink that has just returned is over."""
        words = ("move", self._named(vm), self._named(uplink))

        def answer() -> subprocess.CompletedProcess[str] | None:
            done = self.service.command(*words)
            return None if "failback delay" in done.stderr else done

        done = wait_until(answer, f"{uplink} has returned", BOUND_WITHIN_S)
        assert done and done.returncode == 0, f"ovs-lbt {' '.join(words)}: {done}"


@contextlib.contextmanager
def built(seed: int, tor: Upstream, extras: Extras = Extras()) -> Iterator[World]:
    """A world of its own for a seed, attached: its switch and its service may be stopped."""
    with PrivateOvs(prefix="ovs-lbt-chaos-") as ovs:
        service = Service(ovs)
        other = Service(ovs, "ovs-lbt-b") if extras.standby else None
        both = [one for one in (service, other) if one]
        if extras.adaptive:
            for one in both:
                one.launcher = MERGES_SOON
        try:
            first = first_state(seed, extras)
            with learning_at_once(tor.ovs), Bed(ovs, tor, spec_of(seed)) as bed:
                begins = FIRST_ADAPTIVE if extras.adaptive else FIRST
                bed.set("bridge", bed.bridge, failback_delay_s=begins["failback-delay-s"])
                for uplink in bed.uplinks if extras.adaptive else ():
                    bed.set("interface", uplink.name, capacity_mbps=UPLINK_MBPS)
                service.start()
                service.attach(bed, "--policy", begins["policy"])
                if other:
                    other.start()
                    wait_until(lambda: service.name in stands_by(other), "the other stands by")
                if first.watched and not first.negotiated:
                    begin_bfd(bed)
                made = World(bed, service, first, other, extras.sabotage)
                with contextlib.closing(made) as world:
                    yield world
        finally:
            for one in both:
                one.kill()


def _leads(service: Service) -> bool:
    """Whether it says that it leads. On a busy machine it may not say so in time."""
    try:
        return leads(service)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return False


def _told(ovs: PrivateOvs, *command: str) -> str:
    return ovs.run("ovs-appctl", "-t", "ovs-vswitchd", *command)
