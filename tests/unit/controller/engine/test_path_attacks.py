"""Path checks of a whole bridge while another host forges, replays and floods frames."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.api.engine_commands import DeliverFrame, SendFrame
from controller.api.events import FrameHeard
from controller.dataplane import frames
from controller.dataplane.path_probes import ETH_PROBE
from controller.dataplane.tables import OFPP_CONTROLLER, Kind, cookie_kind
from controller.teaming.foreign_frames import MOST_HEARD, SEEN_S
from controller.teaming.own_addresses import probe_macs
from policies.model import OfPort
from tests.unit.fake_switch import World, done, reports, world
from tests.unit.rows import bridge, ours, port

UPLINKS = {1: "eth1", 2: "eth2", 3: "eth3"}
VM = 10
FOUND_WITHIN_S = 3.0
KEY_LOSS_GRACE_S = 31.0
# Where a tagged probe has the number of its round.
ROUND = slice(32, 36)
BROADCAST = "ff:ff:ff:ff:ff:ff"
VLAN, OTHER_VLAN = 20, 30
# How many frames for the service wait in the switch and its socket; others are lost.
QUEUE_FRAMES = 377
# What a message of OpenFlow has room for, besides what it says of the frame.
MESSAGE_BYTES = 65_450


class Network:
    """A bridge with three uplinks, and the network between them, which floods or knows addresses."""

    def __init__(self) -> None:
        self.world: World = world(
            bridge(
                *(port(name, number) for number, name in UPLINKS.items()),
                port("vnet0", VM, tag=VLAN),
                ids=ours(policy="originating-port", uplinks="eth1,eth2,eth3", path_check="on"),
                fail_mode="secure",
            )
        )
        # Which uplinks neither send nor receive; whose address another host has stolen; the VLAN
        # that tagged frames arrive in.
        self.cut_off: set[int] = set()
        self.stolen: set[int] = set()
        self.tag = VLAN
        self.sent: list[bytes] = []
        # How many frames the service reads every 0.05 s.
        self.reads_frames = 10_000
        self._queue: deque[FrameHeard] = deque()
        self._taken = 0
        self.world.start()

    @property
    def macs(self) -> dict[OfPort, str]:
        return probe_macs(self.world.bridge.config)

    def run_for(self, seconds: float, every: Callable[[], None] = lambda: None) -> None:
        """Let time pass; `every`: what another host does every 0.05 s."""
        for _ in range(round(seconds / 0.05)):
            self.world.run_for(0.05)
            self.carry()
            every()
            for _ in range(min(self.reads_frames, len(self._queue))):
                self.world.say(self._queue.popleft())

    def carry(self) -> None:
        """Bring the frames that were sent since the last time to where they go."""
        log, self._taken = self.world.log[self._taken :], len(self.world.log)
        for _, command in log:
            if isinstance(command, SendFrame) and command.ofport == OFPP_CONTROLLER:
                self.hear(OFPP_CONTROLLER, command.frame)
            if isinstance(command, DeliverFrame) and command.ofport in UPLINKS:
                self.sent.append(command.frame)
                if command.ofport not in self.cut_off:
                    self.deliver(command.frame, command.ofport)

    def deliver(self, frame: bytes, sender: int = 0) -> None:
        """A frame comes from an uplink, or from another host (0)."""
        to = frame[:6].hex(":")
        owners = {mac: number for number, mac in self.macs.items()}
        if frame[12:14] == frames.ETH_VLAN.to_bytes(2, "big"):
            frame = frame[:14] + self.tag.to_bytes(2, "big") + frame[16:]
        for uplink in {*UPLINKS} - self.cut_off - {sender}:
            if to not in owners or owners[to] == uplink not in self.stolen:
                self.hear(uplink, frame)

    def hear(self, uplink: int, frame: bytes) -> None:
        """The switch passes a frame to the service, unless a flow drops it or its queue is full."""
        own = frame[:6].hex(":") in self.macs.values()
        kind = Kind.PROBE if own else Kind.AROUND_PROBES
        passed = uplink == OFPP_CONTROLLER or (uplink, kind) in self.given()
        if passed and len(self._queue) < QUEUE_FRAMES:
            self._queue.append(FrameHeard("br0", uplink, frame))

    def forged(self, owner: int, to: str = BROADCAST) -> bytes:
        mac = frames.octets(self.macs[OfPort(owner)])
        return frames.frame(frames.octets(to), mac, 0, ETH_PROBE, bytes(46))

    def faults(self) -> set[str]:
        status = self.world.engine.fleet.status("br0")[0]
        return {one.uplink.name for one in status.uplinks if one.path_faults}

    def hindered(self) -> set[tuple[str, str, tuple[str, ...]]]:
        status = self.world.engine.fleet.status("br0")[0]
        return {(h.uplink, h.kind, h.seen_on) for u in status.uplinks for h in u.path_hindered}

    def given(self) -> set[tuple[object, Kind | None]]:
        """By which ports the switch gives the service frames of path checks."""
        kinds = Kind.PROBE, Kind.AROUND_PROBES
        flows = self.world.switch.flows.values()
        of = ((dict(flow.match).get("in_port"), cookie_kind(flow.cookie)) for flow in flows)
        return {(where, kind) for where, kind in of if kind in kinds}


@pytest.fixture
def network() -> Network:
    made = Network()
    made.run_for(3.0)
    assert not made.faults() and not made.hindered()
    counts = made.world.bridge.paths.counts
    assert counts["judged"] > 3 and counts["arrived"] == 6 * counts["judged"]
    return made


def test_an_uplink_that_is_cut_off_is_found(network: Network) -> None:
    network.cut_off = {2}
    network.run_for(FOUND_WITHIN_S)
    assert network.faults() == {"eth2"}


def test_a_stolen_address_is_reported_with_the_uplinks_it_was_seen_on(network: Network) -> None:
    network.stolen = {3}
    bindings = network.world.bindings()
    network.run_for(10.0, lambda: network.deliver(network.forged(3)))
    assert network.hindered() == {("eth3", "address", ("eth1", "eth2", "eth3"))}
    assert not network.faults() and network.world.bindings() == bindings
    (report,) = (text for text in reports(network.world, "warning") if "sends from" in text)
    assert network.macs[OfPort(3)] in report and "eth1, eth2, eth3" in report
    assert report in done(network.world.ask("check", "br0"))
    network.stolen = set()
    network.run_for(5.0)
    assert not network.hindered() and not network.faults()


def test_a_stolen_address_is_reported_if_its_thief_is_not_seen(network: Network) -> None:
    network.stolen = {3}
    network.run_for(10.0)
    assert network.hindered() == {("eth3", "address", ())} and not network.faults()
    network.cut_off = {3}
    network.run_for(FOUND_WITHIN_S)
    assert network.faults() == {"eth3"}, "it is found all the same"


@pytest.mark.slow
def test_a_flood_stops_what_floods_and_is_tried_again_each_round(network: Network) -> None:
    def flood() -> None:
        for _ in range(100):
            network.deliver(network.forged(1, network.macs[OfPort(2)]))

    before = network.given()
    network.run_for(5.0, flood)
    assert network.hindered() >= {("eth2", "flooded", ())} and not network.faults()
    assert before - network.given() <= {(2, Kind.PROBE)}, "what others get is taken"
    tries = [c for at_s, c in network.world.applied() if at_s > 3.0]
    assert 8 <= len(tries) <= 24
    network.run_for(1.0)
    assert network.given() == before
    network.cut_off = {2}
    network.run_for(FOUND_WITHIN_S)
    assert network.faults() == {"eth2"}
    assert not any(kind == "flooded" for _, kind, _ in network.hindered())


def test_a_flood_that_overflows_the_queue_of_the_switch_is_reported_and_causes_no_fault(
    network: Network,
) -> None:
    """On a busy machine, the service reads few frames. Probes and proofs of rounds are lost with the others."""
    bindings, network.reads_frames = network.world.bindings(), 8

    def flood() -> None:
        for to in [*network.macs.values()] * 20:
            network.deliver(network.forged(1, to))

    network.run_for(5.0, flood)
    for _ in range(30):
        network.run_for(0.5, flood)
        flooded = {uplink for uplink, kind, _ in network.hindered() if kind == "flooded"}
        assert flooded == {*UPLINKS.values()}
        assert not network.faults()
    assert network.world.bindings() == bindings
    # What waits in the queue is read first.
    network.run_for(8.0)
    assert not network.hindered()
    network.cut_off = {2}
    network.run_for(FOUND_WITHIN_S)
    assert network.faults() == {"eth2"}


def test_a_flood_with_pauses_of_a_second_stays_reported(network: Network) -> None:
    reported = ("eth2", "flooded", ())
    for _ in range(3):
        for _ in range(MOST_HEARD + 1):
            network.deliver(network.forged(1, network.macs[OfPort(2)]))
        for _ in range(4):
            network.run_for(0.5)
            assert reported in network.hindered()
    network.run_for(SEEN_S + 1.0)
    assert not network.hindered()


def test_an_uplink_that_is_cut_off_is_found_while_others_are_flooded(network: Network) -> None:
    network.cut_off = {2}

    def flood() -> None:
        for _ in range(MOST_HEARD // 5):
            for to in network.macs.values():
                network.deliver(network.forged(1, to))

    network.run_for(FOUND_WITHIN_S, flood)
    assert network.faults() == {"eth2"}


def test_captured_probes_make_no_uplink_good(network: Network) -> None:
    network.stolen = {2}
    network.run_for(3.0)
    network.stolen, network.cut_off = set(), {2}
    captured = itertools.cycle(list(network.sent))

    def replay() -> None:
        """One by one, and to each uplink."""
        frame = next(captured)
        for uplink in UPLINKS:
            network.hear(uplink, frame)

    network.run_for(FOUND_WITHIN_S, replay)
    assert network.faults() == {"eth2"}
    network.run_for(6.0, replay)
    assert network.faults() == {"eth2"}


def test_probes_of_an_earlier_life_of_the_bridge_prove_nothing(network: Network) -> None:
    """The rounds of each life begin with the first one."""
    captured, bridges = network.sent, network.world.engine.fleet.bridges
    row, life = network.world.rows["br0"], bridges["br0"]
    network.world.write(replace(row, external_ids={}))
    network.world.run_for(KEY_LOSS_GRACE_S)
    assert "br0" not in bridges
    network.world.write(row)
    assert bridges["br0"] is not life
    network.cut_off, network.sent = {2}, []
    network.run_for(0.1)
    assert network.sent

    def replay() -> None:
        """What has the number of the round that was sent last."""
        for frame in captured:
            if frame[ROUND] == network.sent[-1][ROUND]:
                for uplink in UPLINKS:
                    network.hear(uplink, frame)

    network.run_for(FOUND_WITHIN_S, replay)
    assert network.faults() == {"eth2"}


def test_probes_that_come_in_another_vlan_prove_nothing(network: Network) -> None:
    network.tag = OTHER_VLAN
    network.run_for(FOUND_WITHIN_S)
    assert network.faults() == {*UPLINKS.values()}


@pytest.mark.parametrize("mtu", [-1, 65_535, 4_000_000_000, 2**62])
def test_an_mtu_that_no_message_holds_stops_no_checks(network: Network, mtu: int) -> None:
    """A database that others can write may have any."""
    row = network.world.rows["br0"]
    network.world.write(row.with_interfaces(lambda i: replace(i, mtu=mtu)))
    network.sent.clear()
    network.run_for(FOUND_WITHIN_S)
    assert not network.world.failures and not network.faults()
    assert network.sent and max(map(len, network.sent)) < MESSAGE_BYTES
    network.cut_off = {2}
    network.run_for(FOUND_WITHIN_S)
    assert network.faults() == {"eth2"}
