"""Ports of a bridge that tunnels of Open vSwitch are sent by: what operators are told of them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from controller.api.engine_commands import AnnounceEndpoints, SendFrame
from controller.dataplane.frames import advertisement, garp, rarp
from controller.features.off_home import INTERVAL_S
from controller.load.loads import Loads
from controller.teaming import buckets
from controller.teaming.buckets import hashed_by
from controller.teaming.splits import may_split
from controller.text.wording import endpoint_of
from policies.model import Load
from policies.presets import PRESETS
from tests.unit.controller.engine.test_scenarios import BY_ADDRESS, OF_THE_HOST, TUNNEL
from tests.unit.controller.story import Story

OWN_MAC = "02:00:00:00:00:01"
# What peers are told of the own address of vnet0.
OWN = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
PEERS = [IPv6Address("2001:db8::2"), IPv6Address("2001:db8::3")]


class EndpointStory(Story):
    """With steps about vnet0, which stands for an internal port of the host that tunnels are sent by."""

    @property
    def off_home(self) -> dict[int, str]:
        """Its off-home address for each uplink."""
        (endpoint,) = buckets.endpoints(self.bridge.config)
        return {int(uplink): mac for uplink, mac in endpoint.off_home_macs}

    def announced(self) -> dict[str, list[float]]:
        """When each off-home address was announced, to 0.1 s."""
        found: dict[str, list[float]] = {}
        for at_s, command in self.log:
            if isinstance(command, SendFrame):
                source = command.frame[6:12].hex(":")
                if source in self.off_home.values():
                    assert (command.frame, command.ofport) == (rarp(source), 10)
                    found.setdefault(source, []).append(round(at_s - self._watched_s, 1))
        return found

    def do_watch(self) -> None:
        """Times count from here."""
        super().do_watch()
        self._watched_s = self.now_s

    def do_spread(self, *names: str) -> None:
        """The VM ports that the switch spreads over buckets."""
        split, ports = self.bridge.placing.split, self.bridge.config.vm_ports
        found = [p.name for p in ports if hashed_by(p, split) is not None]
        assert found == [*names], found

    def do_may_split(self, *names: str) -> None:
        ports = self.bridge.config.vm_ports
        assert [p.name for p in ports if may_split(p, on_a_lag=False)] == [*names]

    def do_announced_for(self, uplink: str, *times: str) -> None:
        """The off-home address for this uplink was announced then, and no other one."""
        found = {mac: [*map(str, at_s)] for mac, at_s in self.announced().items()}
        assert found == ({self.off_home[self.named(uplink)]: [*times]} if times else {}), found

    def do_each_announced(self) -> None:
        """Each off-home address once."""
        found = {mac: len(at_s) for mac, at_s in self.announced().items()}
        assert found == dict.fromkeys(self.off_home.values(), 1), found

    def do_own(self, *times: str) -> None:
        """When peers were told its own address."""
        told = [f"{at_s - self._watched_s:.1f}" for at_s, c in self.log if c == OWN]
        assert told == [*times], told

    def do_own_times(self, number: str) -> None:
        assert self.commands(SendFrame).count(OWN) == int(number)

    def do_peers_told(self, times: str) -> None:
        """How often each peer of an IPv6 endpoint was told for itself."""
        own = IPv6Address("2001:db8::1")
        frames = [SendFrame("br0", 10, advertisement(OWN_MAC, own, peer)) for peer in PEERS]
        assert [self.commands(SendFrame).count(f) for f in frames] == [int(times)] * len(PEERS)

    def do_told_at_detach(self, is_told: str) -> None:
        wanted = [AnnounceEndpoints("br0")] if is_told == "yes" else []
        assert self.commands(AnnounceEndpoints) == wanted

    def do_at_rest(self) -> None:
        assert self.bridge.at_rest


ALL = "vnet0 vnet1 vnet2 vnet3"
MAC = f"vnet0@mac={OWN_MAC}"
NOT_DONE, WHOLE = "shows br0 not_done=[]", "dynamic does not spread vnet0,…"
# An endpoint in userspace that has off-home addresses, a second after its start.
TEAM = f"failback-delay-s=5 :in_userspace=True {MAC} | {BY_ADDRESS} | {OF_THE_HOST} | run 1"
OVERLAY = f"bond policy=dynamic {TEAM}"
HOME_CHANGES = "own 0.0 1.0 3.0 15.0"
IPV6 = f"""bond policy=dynamic :in_userspace=True {MAC} | {TUNNEL.replace("vms=1", "vms=2")},vnet0,{PEERS[0]}
    vnet1-br-int@kind=geneve vnet1-br-int@tunnel=,vnet0,{PEERS[1]} | addresses vnet0=2001:db8::1
    | run 5 | peers-told 0"""
STORIES = {
    **{
        f"spread as others: {policy}, {teaming}, in userspace: {userspace}": f"""bond policy={policy}
        teaming={teaming} :in_userspace={userspace} {MAC} | {BY_ADDRESS} | {OF_THE_HOST}
        | spread {ALL} | {NOT_DONE}"""
        for userspace in (True, False)
        for policy, teaming in (
            ("dynamic", "switch-independent"),
            ("address-hash", "switch-independent"),
            ("dynamic", "static"),
            ("source-mac", "switch-independent"),
        )
    },
    **{
        f"adaptive with several, in userspace: {userspace}": f"""bond policy=adaptive {MAC}
        vnet1@mac={OWN_MAC} :in_userspace={userspace} | {BY_ADDRESS} | {OF_THE_HOST}
        | may-split {ALL} | {NOT_DONE} | addresses vnet0=192.0.2.1 vnet1=192.0.2.2
        | ovn 192.0.2.1 192.0.2.2 | may-split {may}"""
        for userspace, may in ((True, "vnet2 vnet3"), (False, ALL))
    },
    # Its own address, to which answers would have to be given, is not known.
    **{
        f"without off-home addresses, in userspace: {userspace}": f"""bond policy=dynamic
        :in_userspace={userspace} | {BY_ADDRESS} | spread {ALL} | {NOT_DONE} | {OF_THE_HOST}
        | spread {spread} | {then} | addresses | spread {ALL} | {NOT_DONE}"""
        for userspace, spread, then in (
            (True, "vnet1 vnet2 vnet3", f"bound 1212 | ask show br0 | told …{WHOLE}"),
            (False, ALL, NOT_DONE),
        )
    },
    **{
        f"connections are told apart by {used}: {team}": f"""bond policy=dynamic {team} {MAC}
        | {BY_ADDRESS} | run 5 | ask show br0 | told …connections are hashed by multipath: …
        | {OF_THE_HOST} | run 5 | ask show br0 | told …connections are hashed by {used}: {why} | {then}"""
        for team, used, why, then in (
            (":in_userspace=True", "dp_hash", "…tunnels of vnet0…", NOT_DONE),
            (":in_userspace=True :hw_offload=True", "dp_hash", "…tunnels of vnet0…", NOT_DONE),
            (":in_userspace=False", "multipath", "…", NOT_DONE),
            (
                *(":in_userspace=True connection-hash=multipath", "multipath", "…"),
                "ask show br0 | told …only by peer,…",
            ),
        )
    },
    "announced when they change uplinks, and at intervals": f"""{OVERLAY} | run 10 | watch | down eth2
        | run 4 | announced-for eth2 0.0 1.0 3.0 | watch | up eth2 | run 9
        | announced-for eth2 5.0 6.0 8.0 | watch | run {INTERVAL_S} | each-announced""",
    # Peers may have the off-home address of its home, from which nothing is sent.
    "the own address, if it has another home": f"""{OVERLAY} | bound 1212 | watch | down eth2 | run 25
        | up eth2 | run 25 | own | watch | down eth1 | run 25 | {HOME_CHANGES} | up eth1 | run 5
        | watch | run 20 | {HOME_CHANGES}""",
    # Its home changes, and again after the failback delay: before the first change's last announcement.
    "the last announcement follows none within the time that peers cache flows": f"""{OVERLAY} | watch
        | down eth1 | run 2 | up eth1 | run 40 | own 0.0 1.0 3.0 7.0 8.0 10.0 22.0""",
    # Or when a LAG ends the off-home addresses, of which they may have heard one last. A drain would not
    # wait for the last one, which is for peers that have cached the others.
    **{
        f"the own address, once it is spread no more: {ends}": f"""{OVERLAY} | run 5 | own-times 0
        | set {ends} | run 5 | own-times 3 | at-rest | run 7 | own-times 3 | run 4 | own-times 4
        | told-at-detach no | {then}"""
        for ends, then in (
            # Peers may not have heard it.
            ("policy=load-based", f"watch | run {INTERVAL_S} | each-announced"),
            ("teaming=static", "watch"),
        )
    },
    # The service that has spread something has died. A detach without it is made by another one.
    "a detach": f"{OVERLAY} | do detach br0 | own-times 1 | told-at-detach yes",
    "a detach by a service that has spread nothing itself": f"""bond policy=load-based {TEAM} | watch
        | run {2 * INTERVAL_S} | announced-for eth1 | do detach br0 | own-times 1
        | told-at-detach yes""",
    "a detach without endpoints": "bond | run 1 | do detach br0 | told-at-detach no",
    # Open vSwitch passes over neighbour advertisements to all nodes.
    "peers of IPv6, spread no more": f"{IPV6} | set policy=load-based | run 5 | peers-told 3",
    "peers of IPv6, a detach": f"{IPV6} | do detach br0 | peers-told 1",
}


@pytest.mark.parametrize("story", STORIES)
def test_endpoint(story: str) -> None:
    EndpointStory(STORIES[story]).tell()


def test_the_tunnels_of_several_bridges_are_named() -> None:
    found = endpoint_of(("geneve", "ip6gre"), ("br-a", "br-b"))
    assert found == "br-a, br-b's Geneve, ip6gre endpoint"


def test_off_home_addresses_are_its_own_and_the_same_after_a_restart() -> None:
    here = EndpointStory(OVERLAY).tell()
    macs = here.off_home
    ours = buckets.off_home_macs(here.bridge.config, here.bridge.placing.split)
    assert len({OWN_MAC, *macs.values(), *ours.values()}) == 1 + 2 * len(macs)
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs.values()), "local, and not multicast"
    here.restart_service()
    assert here.off_home == macs
    here.do_remove_bridge("br-int")
    assert not list(buckets.endpoints(here.bridge.config))


@pytest.mark.parametrize("policy", ["load-based", "adaptive"])
@pytest.mark.parametrize("in_userspace", [True, False])
def test_the_load_of_an_endpoint_is_what_flows_count_where_its_port_counts_no_tunnels(
    monkeypatch: pytest.MonkeyPatch, policy: str, in_userspace: bool
) -> None:
    here = EndpointStory(
        f"""bond policy={policy} poll-interval-ms=500 :in_userspace={in_userspace} | {BY_ADDRESS}
        | {OF_THE_HOST} | load vnet0 4e7 | run 8"""
    ).tell()
    # The counters of the userspace datapath's ports leave tunnels out.
    port_load = Loads.port
    monkeypatch.setattr(
        Loads,
        "port",
        lambda self, ofport, *over: Load() if ofport == 10 else port_load(self, ofport, *over),
    )
    monkeypatch.setattr(Loads, "live_unit", lambda *_: Load())
    expected_bps = pytest.approx(40e6 if in_userspace else 0.0, rel=0.1)
    assert here.port_status().load.tx_bps == expected_bps
    if PRESETS[policy].at_once:
        loaded = here.bridge.placing.team_view().loaded(None)
        (unit,) = (unit for unit in loaded if unit.name == "vnet0")
        assert unit.load.tx_bps == expected_bps
