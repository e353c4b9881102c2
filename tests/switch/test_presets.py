"""Every policy in every teaming mode that it works in: where do frames leave and arrive?

Where a policy's formula is published, the test computes it; where the hash is Open vSwitch's
own, the switch is asked (`ofproto/trace`), and its answer is held against what the policy
promises: what belongs together stays together, and the rest is spread.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

import pytest

from tests.ip_hash import ip_hash
from tests.switch import frames, judging
from tests.switch.bed import (
    LACP,
    PLAIN,
    STATIC_LAG,
    Bed,
    BedSpec,
    Shot,
    Station,
    Uplink,
    on_beds,
)
from tests.switch.sendings import (
    REPORT,
    Landing,
    Sending,
    connections,
    cut_up,
    fire,
    others,
    own_ips,
    udp,
    vlan_of,
)
from tests.switch.service import Service
from tests.switch.trace import Tracer
from tests.switch.waiting import wait_until

VM_VLANS = (None, None, None, None, 10, 10, 20, 20)
STATIC = BedSpec(STATIC_LAG, 3, VM_VLANS)
NEGOTIATED = BedSpec(LACP, 2, VM_VLANS)

# What is placed, and may be spread: VM ports, ...
BY_PORT_NUMBER = ("originating-port", "load-based", "set-port")
BY_PORT = (*BY_PORT_NUMBER, "explicit")
# ... source addresses, pairs of IP addresses, or connections.
BY_MAC = ("source-mac", "slb")
BY_IP_PAIR = ("ip-hash",)
BY_CONNECTION = ("address-hash", "dynamic", "set")
# Where they work.
INDEPENDENT_ONLY = {"set", "set-port"}
ON_A_LAG = [
    p for p in (*BY_PORT, *BY_MAC, *BY_IP_PAIR, *BY_CONNECTION) if p not in INDEPENDENT_ONLY
]
WITHOUT_A_LAG = [*BY_PORT, *BY_MAC, *BY_CONNECTION]
# A fair hash gives an uplink more than the mean and five standard deviations of a binomial
# distribution once in millions of tries; here each try is the same.
DEVIATIONS_MAX = 5
OUTSIDER, REFLECTED = "02:ee:00:00:00:01", "reflected broadcast of"
SETTLES_WITHIN_S = 60.0
# Cached flows are a second old at worst, but for a busy switch.
FOLLOWS_WITHIN_S = 60.0
LOCKED_S = 1.0
_new_macs = itertools.count(0x1000)


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """The bed, attached in its teaming mode."""
    # With dp_hash, ofproto/trace cannot say by which uplink a connection leaves.
    bed.set("bridge", bed.bridge, failback_delay_s=0, connection_hash="multipath")
    with session_service.attached(bed, "--policy", "originating-port"):
        yield bed


@on_beds(BedSpec(PLAIN, 3, VM_VLANS))
@pytest.mark.parametrize("preset", WITHOUT_A_LAG)
def test_without_a_lag(team: Bed, service: Service, preset: str) -> None:
    frames_leave_and_arrive_as_the_policy_says(team, service, preset)


@judging.in_bench
@on_beds(STATIC, NEGOTIATED)
@pytest.mark.parametrize("preset", ON_A_LAG)
def test_on_a_lag(team: Bed, service: Service, preset: str) -> None:
    frames_leave_and_arrive_as_the_policy_says(team, service, preset)


def frames_leave_and_arrive_as_the_policy_says(bed: Bed, service: Service, preset: str) -> None:
    # `load-based` leaves VM ports where it finds them.
    choose(bed, service, "originating-port")
    choose(bed, service, preset)
    introduce_hosts(bed)
    with bed.listening(), Case(bed, service, preset) as case:
        usual = case.check()
        case.check_newcomers()
        for uplink in failing(bed, preset):
            with bed.cable_pulled(uplink):
                case.check(usual, uplink)
            assert case.check(usual) == usual, f"not as before {uplink} failed"


def failing(bed: Bed, preset: str) -> Sequence[Uplink]:
    """One uplink, another one for each policy; each of them in the bench."""
    if judging.benching:
        return bed.uplinks
    presets = sorted({*WITHOUT_A_LAG, *ON_A_LAG})
    return [bed.uplinks[presets.index(preset) % len(bed.uplinks)]]


def choose(bed: Bed, service: Service, policy: str) -> None:
    service.ask("set", "bridge", bed.bridge, f"policy={policy}")
    wait_until(lambda: service.show_json(bed.bridge)["policy"] == policy, f"policy {policy}")


class Case:
    """One policy on one bed, and what was seen of it."""

    def __init__(self, bed: Bed, service: Service, preset: str) -> None:
        self.bed = bed
        self.service = service
        self.preset = preset
        self.connections = connections(bed, many_macs=preset in BY_MAC)
        self.others = [*others(bed), *cut_up(bed)]
        self.names = [u["name"] for u in service.show_json(bed.bridge)["uplinks"]]
        self.ofports = {s: bed.ofport(s.port) for s in bed.stations}
        self.homes: Mapping[str, str] = {}
        # The source address that each uplink's frames off home have.
        self.rewritten: dict[str, str] = {}

    def __enter__(self) -> Case:
        self._tracer = Tracer(self.bed.ovs, self.bed.bridge)
        return self

    def __exit__(self, *_: object) -> None:
        self._tracer.close()

    @property
    def switch_independent(self) -> bool:
        return not self.bed.spec.is_lag

    @property
    def rewrites(self) -> bool:
        """Whether frames that leave by another uplink than home get another source address."""
        return self.switch_independent and self.preset in BY_CONNECTION

    def check(
        self, usual: Mapping[str, str] | None = None, down: Uplink | None = None
    ) -> dict[str, str]:
        """Wait until frames leave as expected, then look at everything there is to see.

        That is as they `usual`ly leave, but for those of an uplink that is `down`. Returns the
        uplink of each sending, by its name.
        """
        live = [name for name in self.names if down is None or name != down.name]
        wrong: list[str] = ["not tried"]

        def settled() -> bool:
            homes = self.service.bindings(self.bed)
            if not set(homes.values()) <= set(live) or not negotiated(self.bed, len(live)):
                return False
            expected = self.expected(self.connections, homes, live)
            landings = fire(self.bed, self.connections)
            wrong[:] = self.astray(self.connections, landings, expected, homes)
            if usual is not None and down is None:
                usually = [usual[str(sending)] for sending in self.connections]
                wrong.extend(["not as usual yet"] * (expected != usually or homes != self.homes))
            return not wrong

        try:
            wait_until(settled, "frames leave as expected", SETTLES_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}; last: {story(wrong)}") from late
        homes = self.service.bindings(self.bed)
        if usual is None:
            self.homes = homes
        # What else is cached may be older than the way of connections.
        self.bed.revalidated()
        # Connections twice: what belongs together stays together.
        sendings = [*self.connections, *self.others, *reversed(self.connections)]
        expected = self.expected(sendings, homes, live)
        landings = fire(self.bed, sendings)
        wrong = [
            *self.astray(sendings, landings, expected, homes),
            *self.parted(sendings, landings),
            *self.spread(landings[: len(self.connections)], live),
        ]
        assert not wrong, story(wrong)
        self.check_inbound(homes, live)
        if self.rewrites:
            wait_until(lambda: self.comes_home(homes), "what is for VMs comes by their uplinks")
        landed = {str(s): landing.left[0][0] for s, landing in zip(sendings, landings, strict=True)}
        if usual and down:
            stayed = {name: by for name, by in usual.items() if by != down.name}
            moved = {name: (by, landed[name]) for name, by in stayed.items() if landed[name] != by}
            assert not moved, f"moved without need: {moved}"
            self.check_scatter(usual, landed, down)
        return landed

    def check_newcomers(self) -> None:
        """An address leaves by one uplink from its first frame on, whatever that is."""
        sendings = list(newcomers(self.bed))
        landings = fire(self.bed, sendings)
        wrong = list(self.parted(sendings, landings))
        for sending, landing in zip(sendings, landings, strict=True):
            if len(landing.left) != 1 or (sending.station.point.name, 0) in landing.heard:
                wrong.append(f"first words: {sending} from {sending.source}: {landing}")
        assert not wrong, story(wrong)

    # ---- what a policy promises -----------------------------------------------------------

    def expected(
        self, sendings: Sequence[Sending], homes: Mapping[str, str], live: Sequence[str]
    ) -> list[str]:
        """The uplink that each sending leaves by."""
        return [self._expected(sending, homes, live) for sending in sendings]

    def _expected(self, sending: Sending, homes: Mapping[str, str], live: Sequence[str]) -> str:
        station = sending.station
        home = homes[station.port]
        if self.preset in BY_PORT:
            placed = self.names[0]
            if self.preset in BY_PORT_NUMBER:
                placed = self.names[self.ofports[station] % len(self.names)]
            return placed if placed in live else home
        if self.preset in BY_IP_PAIR:
            if sending.ips is None:
                return home
            source, destination = map(ip_address, sending.ips)
            placed = self.names[ip_hash(source, destination, len(self.names))]
            return placed if placed in live else self.traced(sending)
        hears_here = sending.name == REPORT or self.preset in BY_CONNECTION
        if self.switch_independent and hears_here and not sending.hashed_alone:
            return home
        return self.traced(sending)

    def traced(self, sending: Sending) -> str:
        """The uplink by which the switch says that a frame would leave; "" if by none."""
        outputs = self._tracer.outputs(self.ofports[sending.station], sending.frame())
        return " and ".join(name for name in outputs if name in self.names)

    def astray(
        self,
        sendings: Sequence[Sending],
        landings: Sequence[Landing],
        expected: Sequence[str],
        homes: Mapping[str, str],
    ) -> Iterator[str]:
        """Whatever did not go once where it should, as what it should be."""
        for sending, landing, uplink in zip(sendings, landings, expected, strict=True):
            source, off_home = sending.source, uplink != homes[sending.station.port]
            if (self.rewrites and off_home) or self._is_elsewhere(sending):
                seen = [mac for by, mac, _ in landing.left if by == uplink]
                source = self.rewritten.get(uplink) or next(iter(seen), "an address of ours")
                if seen:
                    self.rewritten[uplink] = source
            if landing.left != ((uplink, source, sending.vlan),):
                home = "off home" if off_home else "home"
                left = f"left by {landing.left}, expected {uplink} ({home}) from {source}"
                yield f"{sending}, VLAN {sending.vlan}: {left}"
            neighbours = self._neighbours(sending) if sending.floods else ()
            if landing.heard != neighbours:
                yield f"{sending}: heard by {landing.heard}, expected {neighbours}"

    def _is_elsewhere(self, sending: Sending) -> bool:
        """Whether it leaves by its sender's home, though its address is used elsewhere."""
        return self.switch_independent and self.preset in BY_MAC and sending.name == REPORT

    def _neighbours(self, sending: Sending) -> tuple[tuple[str, int], ...]:
        vlan = sending.vlan
        others = (s for s in self.bed.stations if s != sending.station and s.hears(vlan))
        return tuple(sorted((str(s), s.sends(vlan)) for s in others))

    def parted(self, sendings: Sequence[Sending], landings: Sequence[Landing]) -> Iterator[str]:
        """Connections that left by more than one uplink.

        And addresses, if that matters to the policy, or to switches that know of no team.
        """
        of_macs = self.preset in BY_MAC or self.switch_independent
        ways: dict[str, set[str]] = defaultdict(set)
        for sending, landing in zip(sendings, landings, strict=True):
            for uplink, source, _ in landing.left:
                ways[f"{sending.station}: {sending.connection}"].add(uplink)
                if of_macs:
                    ways[source].add(uplink)
        for unit, used in ways.items():
            if len(used) > 1:
                yield f"{unit} left by {sorted(used)}"

    def spread(self, landings: Sequence[Landing], live: Sequence[str]) -> Iterator[str]:
        """Hashes that leave an uplink out, or are blind to what they should see."""
        if self.preset in BY_PORT:
            return
        used = Counter(by for landing in landings for by, _, _ in landing.left)
        count = len(landings)
        # While one uplink is down, its part may fall to another as a whole.
        parts = len(self.names)
        share = (1 if len(live) == parts else 2) / parts
        most = count * share + DEVIATIONS_MAX * math.sqrt(count * share * (1 - share))
        if set(used) != set(live) or max(used.values()) > most:
            yield f"{count} flows are spread as {dict(used)}, none to have more than {most:.0f}"
        if self.preset in BY_CONNECTION and len(live) > 1:
            yield from self._blind(landings)

    def _blind(self, landings: Sequence[Landing]) -> Iterator[str]:
        """By address, and by port, there must be flows that differ in nothing else and part."""
        by_port: dict[object, set[str]] = defaultdict(set)
        by_address: dict[object, set[str]] = defaultdict(set)
        for sending, landing in zip(self.connections, landings, strict=True):
            assert sending.ips is not None
            uplinks = {by for by, _, _ in landing.left}
            port = sending.name.split(" to ")[0].rpartition(":")[2]
            by_port[sending.ips] |= uplinks
            by_address[port, sending.ips[1]] |= uplinks
        if all(len(uplinks) == 1 for uplinks in by_port.values()):
            yield "no two flows between the same addresses were parted"
        if all(len(uplinks) == 1 for uplinks in by_address.values()):
            yield "no two flows of the same ports were parted"

    def check_scatter(
        self, usual: Mapping[str, str], landed: Mapping[str, str], down: Uplink
    ) -> None:
        """What a failed uplink carried goes to all others, if it was more than one unit."""
        if self.preset in (*BY_PORT, *BY_IP_PAIR):
            return
        heirs = {landed[name] for name, by in usual.items() if by == down.name}
        live = {name for name in self.names if name != down.name}
        assert heirs == live, f"what {down} carried went to {heirs} only"

    # ---- what comes from outside ----------------------------------------------------------

    def check_inbound(self, homes: Mapping[str, str], live: Sequence[str]) -> None:
        """Frames from the network are delivered once, and none goes back to it.

        After a failure the upstream switch may go on sending by the dead link what its flow cache
        sends there, for a while after it has heard the VM by another: what is lost is tried again.
        """
        deadline_s = time.monotonic() + FOLLOWS_WITHIN_S
        while True:
            wrong, lost = self.inbound(homes, live)
            assert not wrong, story(wrong)
            if not lost:
                return
            assert time.monotonic() < deadline_s, story(lost)

    def inbound(self, homes: Mapping[str, str], live: Sequence[str]) -> tuple[list[str], list[str]]:
        """Frames from the network of which copies came out that should not have, and others of
        which some are missing, or which were sent too late.
        """
        expected = dict(self._from_outside(homes, live))
        reflected = [shot for shot in expected if shot.story.startswith(REFLECTED)]
        heard_at = [self.bed.fire_and_hear([s for s in expected if s not in reflected])]
        # On a LAG, what a VM has not flooded within the last second is not a reflection. Frames that cached
        # flows carry teach the switch nothing before the next revalidation.
        self.bed.ovs.run("ovs-appctl", "revalidator/purge")
        began_s = time.monotonic()
        self.bed.introduce()
        heard_at.append(self.bed.fire_and_hear(reflected))
        too_late = reflected if time.monotonic() - began_s > LOCKED_S else []
        ids = {shot.frame_id: shot for shot in expected}
        seen: dict[int, Counter[tuple[str, int]]] = {number: Counter() for number in ids}
        came_by: dict[int, list[str]] = defaultdict(list)
        for point, all_heard in itertools.chain(*(heard.items() for heard in heard_at)):
            for heard in all_heard:
                if heard.frame_id not in ids:
                    continue
                if not heard.outgoing:
                    seen[heard.frame_id][point, heard.vlan] += 1
                elif point in self.bed.ends:
                    came_by[heard.frame_id].append(self.bed.ends[point])
        wrong: list[str] = []
        lost: list[str] = []
        for shot, where in expected.items():
            out = seen[shot.frame_id]
            if out != where:
                text = f"{shot.story}, VLAN {shot.vlan}: {dict(out)}, expected {dict(where)}"
                again = out < where or shot in too_late
                (lost if again else wrong).append(f"{text}, by {came_by[shot.frame_id]}")
        return wrong, lost

    def comes_home(self, homes: Mapping[str, str]) -> bool:
        """Whether the upstream switch sends what is for a VM by the VM's own uplink."""
        host = self.bed.hosts[0]
        shots = {vm: unicast(self.bed, host, vm) for vm in self.bed.vms}
        heard_at = self.bed.fire_and_hear(list(shots.values()))
        ways = {
            (uplink.name, heard.frame_id)
            for uplink in self.bed.uplinks
            for heard in heard_at[str(uplink.upstream_end)]
            if heard.outgoing
        }
        ids = {shot.frame_id for shot in shots.values()}
        wanted = {(homes[vm.port], shot.frame_id) for vm, shot in shots.items()}
        return {way for way in ways if way[1] in ids} == wanted

    def _from_outside(
        self, homes: Mapping[str, str], live: Sequence[str]
    ) -> Iterator[tuple[Shot, Counter[tuple[str, int]]]]:
        bed, host = self.bed, self.bed.hosts[0]
        for vlan in (0, *bed.vlans):
            everybody = delivered(bed.stations, vlan)
            for kind, build in frames.FLOODED.items():
                yield bed.shot(host.point, build, host.mac, vlan, vlan, kind), everybody
        for vm in bed.vms:
            yield unicast(bed, host, vm), delivered([vm], vlan_of(bed, vm))
        for uplink in bed.uplinks:
            if uplink.name not in live:
                continue
            end, vlan = uplink.upstream_end, bed.vlans[0]
            here = [
                s
                for s in bed.stations
                if not self.switch_independent or homes[s.port] == uplink.name
            ]
            for kind, build in frames.FLOODED.items():
                yield bed.shot(end, build, OUTSIDER, vlan, vlan, kind), delivered(here, vlan)
            for vm in bed.vms:
                own, story = vlan_of(bed, vm), f"{REFLECTED} {vm}"
                yield bed.shot(end, frames.broadcast, vm.mac, own, own, story), Counter()
            for mac in self.rewritten.values():
                story = f"our own broadcast from {mac}"
                yield bed.shot(end, frames.broadcast, mac, vlan, vlan, story), Counter()


def negotiated(bed: Bed, links: int) -> bool:
    """Whether the switches at both ends use so many links of their LACP bond."""
    if bed.spec.team != LACP:
        return True
    switches = (bed.ovs, bed.tor.ovs)
    shown = [s.run("ovs-appctl", "-t", "ovs-vswitchd", "lacp/show", bed.bond) for s in switches]
    return all(text.count("current attached") == links for text in shown)


def introduce_hosts(bed: Bed) -> None:
    """The upstream switch knows its hosts in every VLAN."""
    for host in bed.hosts:
        for vlan in (0, *bed.vlans):
            bed.send(host.point, frames.broadcast(host.mac, vlan, 0))


def newcomers(bed: Bed) -> Iterator[Sending]:
    """First words from addresses that nobody has seen before: all that floods, and a datagram."""
    for vm in bed.vms:
        for _ in range(2):
            number = next(_new_macs)
            mac = f"{vm.mac[:9]}{number >> 8:02x}:{number & 255:02x}{vm.mac[14:]}"
            vlan = vlan_of(bed, vm)
            for kind in ("broadcast", "unknown unicast", "ARP request", "multicast"):
                build = functools.partial(frames.FLOODED[kind], mac)
                yield Sending(kind, vm, mac, vlan, f"{kind} from {mac}", build)
            ips = own_ips(bed.vms.index(vm))[0], "198.51.100.1"
            yield udp(bed, vm, ips, 10001, mac)


def unicast(bed: Bed, host: Station, vm: Station) -> Shot:
    """A datagram of a host to a VM that both switches know."""

    def build(source: str, tag: int, frame_id: int) -> bytes:
        return frames.udp(source, vm.mac, vlan=tag, frame_id=frame_id)

    vlan = vlan_of(bed, vm)
    return bed.shot(host.point, build, host.mac, vlan, vlan, f"unicast to {vm}")


def delivered(stations: Sequence[Station], vlan: int) -> Counter[tuple[str, int]]:
    """One copy at each of the stations that are in the VLAN."""
    return Counter((str(s), s.sends(vlan)) for s in stations if s.hears(vlan))


def story(wrong: Sequence[str]) -> str:
    return f"{len(wrong)} frames went wrong:\n" + "\n".join(wrong[:40])
