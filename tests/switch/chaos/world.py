"""A host on a real switch to which chaos happens: each event is carried out on a bed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from controller.bridge.reconcile import NEW_VM_AUDIT_S
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
    run,
)
from tests.switch.chaos import model
from tests.switch.chaos.model import Event, State
from tests.switch.service import Service
from tests.switch.test_liveness import heals, in_earnest, swallow
from tests.switch.test_reconnect import flows_of, groups_of
from tests.switch.waiting import wait_until
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
BFD_PERIOD_MS = 100
FLAP_S = 0.05
BOUND_WITHIN_S = 60.0
SAME_AGAIN_WITHIN_S = 60.0
# Put where garbage was.
DEFAULTS = {
    "policy": "originating-port",
    "threshold": "75",
    "window-s": "30",
    "poll-interval-ms": "1000",
    "failback-delay-s": "1",
    "mode": "enforce",
}
FIRST = {"policy": "originating-port", "failback-delay-s": "1"}


def spec_of(seed: int) -> BedSpec:
    """The bed of a seed."""
    return SPECS[seed % len(SPECS)]


def first_state(seed: int) -> State:
    """Each team with BFD and without, by turns; where it negotiates LACP, that watches it."""
    spec = spec_of(seed)
    return State.first(
        spec.uplinks,
        spec.vm_vlans,
        lag=spec.is_lag,
        negotiated=spec.team == LACP,
        on_bond=spec.on_bond,
        watched=spec.team != LACP and seed // len(SPECS) % 2 == 1,
    )


class World:
    """A bed, the service on it, and the state that events have left them in."""

    def __init__(self, bed: Bed, service: Service, first: State) -> None:
        self.bed = bed
        self.service = service
        self.state = first
        self._vms = {f"v{i}": vm for i, vm in enumerate(bed.vms)}
        self._uplinks = {f"u{i}": uplink for i, uplink in enumerate(bed.uplinks)}
        self._withdrawn: dict[str, contextlib.AbstractContextManager[None]] = {}
        # The Bridge's last good values; None: none was written.
        self._good: dict[str, str | None] = {**dict.fromkeys(DEFAULTS), **FIRST}
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
    def in_force(self) -> dict[str, str | None]:
        """What holds instead of the Bridge's bad values."""
        return {key: self._good[key] for key in self.state.garbage & self._good.keys()}

    def _forgets(self) -> None:
        """What was good once is known to the service that saw it only."""
        for key in self.state.garbage:
            self._good.pop(key, None)

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
        method: Callable[..., None] = getattr(self, "_" + event.kind.replace("-", "_"))
        before, self.state = self.state, model.after(self.state, event)
        try:
            method(*event.args)
        except BaseException:
            self.state = before
            raise
        finally:
            self.bed.vms = [vm for name, vm in self.here.items() if name]

    # ---- uplinks -----------------------------------------------------------------------

    def _cable_down(self, uplink: str) -> None:
        self.bed.pull_cable(self.uplink(uplink))

    def _cable_up(self, uplink: str) -> None:
        self.bed.plug_cable(self.uplink(uplink))

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
        swallow(self.bed, self.uplink(uplink))

    def _lit(self, uplink: str) -> None:
        heals(self.bed, self.uplink(uplink))

    def _drain(self, uplink: str) -> None:
        self.service.do("drain", self.uplink(uplink).name)

    def _undrain(self, uplink: str) -> None:
        self.service.do("undrain", self.uplink(uplink).name)

    def _role(self, uplink: str, role: str) -> None:
        self.service.do("set", "interface", self.uplink(uplink).name, f"role={role}")

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
        self.bed.unplug(replace(new, port=old))
        for words in (["down"], ["name", new.port]):
            run("ip", "link", "set", old, *words)
        run("ip", "link", "set", new.port, "up")
        self.bed.plug_in(new)
        self._speaks(vm, frames.broadcast)

    def _vm_retagged(self, vm: str, vlan: str) -> None:
        port = self.vm(vm).port
        if int(vlan):
            self.bed.ovs.vsctl("set", "port", port, f"tag={vlan}")
        else:
            self.bed.ovs.vsctl("clear", "port", port, "tag")
        self._speaks(vm, frames.broadcast)

    def _vm_migrates_out(self, vm: str) -> None:
        self.bed.unplug(self.vm(vm))
        if self.state.service is model.Service.DEAD:
            # The service may have announced it a moment before it died. Until the switch has
            # forgotten that, whoever says otherwise upstream is taken for the reflection.
            time.sleep(LOCK_TIMEOUT_S)
        host, vlan = self.bed.hosts[0], self.state.vms[vm].vlan
        self.bed.send(host.point, frames.rarp(self.vm(vm).mac, vlan, 0))

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
        self.service.kill()
        self.left = self.installed()

    def _service_started(self) -> None:
        self._forgets()
        self.service.start()

    def _service_restarted(self, how: str) -> None:
        """What is installed is what is desired, so a service that starts changes nothing.

        Values that were good once are in force before it only.
        """
        flows, groups = self.installed()
        if how == "SIGTERM":
            assert self.service.terminate() == 0, "the service did not end in order"
        else:
            self.service.kill()
        self._forgets()
        self.service.start()
        wait_until(lambda: self.service.show_json(self.bed.bridge)["connected"], "connected again")
        # Nor is it known then where a VM belongs that is elsewhere now.
        if not self.state.garbage and max(map(len, self.homes.values())) < 2:
            wait_until(
                lambda: groups_of(self.bed) == groups, "groups as before", SAME_AGAIN_WITHIN_S
            )
            wait_until(lambda: flows_of(self.bed) == flows, "flows as before", SAME_AGAIN_WITHIN_S)

    def _service_paused(self, seconds: str) -> None:
        os.kill(self.service.pid, signal.SIGSTOP)
        try:
            time.sleep(int(seconds))
        finally:
            os.kill(self.service.pid, signal.SIGCONT)

    # ---- the switch --------------------------------------------------------------------

    def _switch_restarted(self) -> None:
        # Addresses come back as they were read last; on a bond with those that NORMAL has heard. A
        # VM that is newer and silent from then on may be lost until it speaks.
        time.sleep(1.5 * NEW_VM_AUDIT_S)
        self.bed.restart_switch()

    def _database_restarted(self) -> None:
        self.bed.ovs.stop("ovsdb-server")
        self.bed.ovs.start_database()

    # ---- what operators do -------------------------------------------------------------

    def _set_bridge(self, key: str, value: str) -> None:
        if self.state.service is model.Service.DEAD:
            self._write(key, value)
        else:
            self.service.do("set", "bridge", self.bed.bridge, f"{key}={value}")
        self._good[key] = value

    def _observe(self) -> None:
        self._set_bridge("mode", "observe")

    def _enforce(self) -> None:
        self._set_bridge("mode", "enforce")

    def _garbage(self, key: str, word: str) -> None:
        value = model.garbage_value(key, word)
        self._write(key, value)

    def _garbage_cleared(self, key: str) -> None:
        self._write(key, DEFAULTS[key])
        self._good[key] = DEFAULTS[key]

    def _write(self, key: str, value: str) -> None:
        """As `ovs-vsctl` does it, which checks nothing."""
        quoted = '"' + value.replace('"', '\\"') + '"'
        self.bed.ovs.vsctl("set", "bridge", self.bed.bridge, f"external_ids:ovs-lbt-{key}={quoted}")

    def _refused(self, *words: str) -> None:
        names = {name: uplink.name for name, uplink in self._uplinks.items()}
        names |= {name: self.vm(name).port for name in self._vms} | {"BRIDGE": self.bed.bridge}
        done = self.service.command(*(names.get(word, word) for word in words))
        assert done.returncode == 1, f"{words}: exit {done.returncode} -> 1: {done.stdout}"
        assert "->" in done.stderr, f"{words}: {done.stderr!r} -> what was found -> expected"

    def _move(self, vm: str, uplink: str) -> None:
        """Not before the failback delay of an uplink that has just returned is over."""
        words = ("move", self.vm(vm).port, self.uplink(uplink).name)

        def answer() -> subprocess.CompletedProcess[str] | None:
            done = self.service.command(*words)
            return None if "failback delay" in done.stderr else done

        done = wait_until(answer, f"{uplink} has returned", BOUND_WITHIN_S)
        assert done and done.returncode == 0, f"ovs-lbt {' '.join(words)}: {done}"

    def _pin(self, vm: str, uplink: str) -> None:
        self.service.do("pin", self.vm(vm).port, self.uplink(uplink).name)

    def _unpin(self, vm: str) -> None:
        self.service.do("unpin", self.vm(vm).port)

    def _allow(self, vm: str, uplink: str) -> None:
        name = self.uplink(uplink).name
        self.service.do("set", "interface", self.vm(vm).port, f"allow={name}")

    def _allow_all(self, vm: str) -> None:
        self.service.do("set", "interface", self.vm(vm).port, "allow=")

    def _vm_policy(self, vm: str, policy: str) -> None:
        self.service.do("set", "interface", self.vm(vm).port, f"policy={policy}")


@contextlib.contextmanager
def built(seed: int, tor: Upstream) -> Iterator[World]:
    """A world of its own for a seed, attached: its switch and its service may be stopped."""
    with PrivateOvs(prefix="ovs-lbt-chaos-") as ovs:
        service = Service(ovs)
        try:
            first = first_state(seed)
            with Bed(ovs, tor, spec_of(seed)) as bed:
                bed.set("bridge", bed.bridge, failback_delay_s=FIRST["failback-delay-s"])
                service.start()
                service.attach(bed, "--policy", FIRST["policy"])
                if first.watched and not first.negotiated:
                    _begin_bfd(bed)
                with contextlib.closing(World(bed, service, first)) as world:
                    yield world
        finally:
            service.kill()


def _begin_bfd(bed: Bed) -> None:
    """BFD watches all uplinks, from both ends; upstream first."""
    words = ["bfd:enable=true", f"bfd:min_rx={BFD_PERIOD_MS}", f"bfd:min_tx={BFD_PERIOD_MS}"]
    for uplink in bed.uplinks:
        bed.tor.ovs.vsctl("set", "interface", uplink.upstream_end.interface, *words)
        bed.ovs.vsctl("set", "interface", uplink.name, *words)
    wait_until(lambda: in_earnest(bed), f"BFD's messages come each {BFD_PERIOD_MS} ms")
