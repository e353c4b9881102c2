"""Addresses behind one VM port as units of their own: placed, moved, followed, remembered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import ModuleType

import pytest

from controller.api.engine_commands import Apply, ReadLearned, Record, Renew, SendFrame
from controller.api.history import Entry, Happened, Moved, Query, as_line, read
from controller.dataplane import tables
from controller.features.announcer import LEARNED_INTERVAL_S
from controller.teaming import address_units
from controller.teaming.address_units import PER_PORT_MAX
from tests.unit.controller.engine.told import explained
from tests.unit.controller.story import Story
from tests.unit.fake_switch import world
from tests.unit.rows import VMS, host, with_interface

PATCH = 10  # the number of vnet0


def mac(number: int) -> str:
    return f"52:54:00:00:{number >> 8:02x}:{number & 0xFF:02x}"


def those(numbers: str) -> list[str]:
    """Addresses by numbers, as `0-7`."""
    first, _, last = numbers.partition("-")
    return [mac(number) for number in range(int(first), int(last or first) + 1)]


class AddressStory(Story):
    """With steps about the addresses behind vnet0, which are known by numbers."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.switch.learned, self.switch.offered_bps = (), {}

    def do_speak(self, numbers: str, vlan: str = "0") -> None:
        """The switch has learned these addresses, and no others of their VLAN."""
        others = (known for known in self.switch.learned if known[2] != int(vlan))
        spoken = tuple((PATCH, one, int(vlan)) for one in those(numbers))
        self.switch.learned = (*others, *spoken)

    def do_send(self, numbers: str, bps: str) -> None:
        level = float(bps)
        self.switch.behind_bps |= {(PATCH, one, 0): lambda _: level for one in those(numbers)}

    def do_note_slots(self) -> None:
        self._slots = self.switch.slots()

    def do_ways(self, uplinks: str, first: str = "0", vlan: str = "0") -> None:
        """The uplinks of addresses on the switch, from this number on."""
        wanted = [int(uplink) for uplink in uplinks]
        macs = those(f"{first}-{int(first) + len(wanted) - 1}")
        found = [self.switch.uplink_of_address(PATCH, one, int(vlan)) for one in macs]
        assert found == wanted, found

    def do_slots(self, numbers: str = "", kept: str = "") -> None:
        """The addresses that have a slot in VLAN 0; `kept`: those that have the noted one."""
        slots = self.switch.slots()
        macs = those(numbers) if numbers else []
        assert {key[1] for key in slots} == {*macs}, slots
        for one in macs if kept else ():
            slot = slots[PATCH, one, 0]
            if one in those(kept):
                assert slot == self._slots[PATCH, one, 0]
            else:
                assert slot not in self._slots.values()

    def do_units(self, *counts: str) -> None:
        """How many addresses are on uplinks, if they are units."""
        units = self.port_status().units
        assert [f"{name}={n}" for name, n in (units or {}).items()] == [*counts], units

    def do_announces(self, *numbers: str) -> None:
        """The addresses that learning packets were sent for, each as often as `NUMBER=TIMES` says."""
        found = Counter(c.frame[6:12].hex(":") for c in self.commands(SendFrame))
        wanted = dict(one.partition("=")[::2] for one in numbers)
        macs = {one: times for key, times in wanted.items() for one in those(key)}
        assert found.keys() == macs.keys(), found
        assert all(not times or found[one] == int(times) for one, times in macs.items()), found

    def do_restarts(self) -> None:
        """The service, which moves nothing."""
        installed, slots = self.switch.installed, self.switch.slots()
        self.restart_service().connect().run_for(5)
        assert (self.switch.installed, self.switch.slots()) == (installed, slots)
        self.do_moves()
        assert not self.commands(Apply) and not self.frames()

    def do_carry(self, *mbps: str) -> None:
        """What units are judged by over five seconds, as `NAME=MBPS`."""
        loads = {u.name: u.load.tx_bps for u in self.bridge.placing.team_view().loaded(5.0)}
        for name, wanted in (one.rsplit("=", 1) for one in mbps):
            assert loads[name] == pytest.approx(float(wanted) * 1e6, rel=0.02), loads

    def do_promised(self, *mbps: str) -> None:
        """What is reserved on each uplink."""
        uplinks = self.bridge.placing.uplinks()
        assert [f"{u.name}={u.reserved_bps / 1e6:g}" for u in uplinks] == [*mbps]

    def do_optimality(self, ratio: str) -> None:
        assert self.status.optimality_ratio == pytest.approx(float(ratio), rel=0.02)

    def do_busiest(self, number: str, uplink: str, of: str) -> None:
        """The first one that `explain` has for programs, of so many."""
        first, *others = explained(self)["addresses"]
        assert (first["mac"], first["uplink"]) == (mac(int(number)), uplink)
        assert 1 + len(others) == int(of)

    def do_recorded_vm(self, unit: str, vm: str) -> None:
        (entry,) = [c.entry for _, c in self.log if isinstance(c, Record)]
        assert [(move.unit, move.vm) for move in entry.moves] == [(unit, vm)]


UNITS = "failback-delay-s=5 vnet0.unit=source-mac"
BOND = f"bond vms=2 {UNITS}"
SPOKEN = "speak 0-7 | run 3"
NESTED = f"{BOND} | {SPOKEN}"
READ = f"run {LEARNED_INTERVAL_S + 0.5}"
WEB, ODD, LAST = f"vnet0/{mac(0)}", f"vnet0/{mac(1)}", f"vnet0/{mac(7)}"
# The first VM behind vnet0, a patch port, has a name. The last address is in two VLANs.
WITH_VMS = f"""{BOND} vnet0@kind=patch vnet0@peer=vnet0-br-int | other br-int plain unattached
    uplinks=0 vms=2 vnet0-br-int@kind=patch vnet0-br-int@peer=vnet0 vnet1-br-int!iface-id=web
    vnet1-br-int!attached-mac={mac(0)} | {SPOKEN} | speak 7 7 | run 3 | watch"""
BUSY = "do move vnet0 eth1 | watch | send 0-3 2.2e8"
REFUSED = {
    f"move {LAST} eth1": f"…is in several VLANs; use one of {LAST}, {LAST}%7…",
    "move vnet0/02:00:00:00:00:99 eth1": "…99 is not known; to list known addresses: ovs-lbt"
    " explain vnet0",
    f"pin {ODD} eth1": f"…address {ODD} belongs to no known VM; …",
    f"explain vnet9/{mac(1)}": f"no interface of an attached bridge is named vnet9/{mac(1)}; …",
}
STORIES = {
    **{
        f"placed by numbers of their own: {policy}": f"""{BOND} policy={policy} | {SPOKEN}
        | ways 12121212 | bound 12 | units eth1=4 eth2=4 | moves | ask show
        | told …vnet0: 8 addresses, eth1 4, eth2 4… | shows vnet0 units={{'eth1':4,'eth2':4}}
        | shows vnet1 units=None"""
        for policy in ("load-based", "originating-port", "set-port")
    },
    **{
        f"not parted again by {policy}": f"{BOND} policy={policy} | {SPOKEN} | slots | units"
        for policy in ("source-mac", "slb", "dynamic")
    },
    **{
        f"one unit again with {rule}": f"""{NESTED} | do set interface vnet0 {rule} | run 3 | slots
        | units | broken | ways {"2" * 8 if "eth2" in rule else "1" * 8}"""
        for rule in ("pin=eth2", "allow=eth2", "prefer=eth2", "affinity=db", "anti-affinity=web")
    },
    # 600 of 1000 Mbit/s are promised, once.
    "the reservation is the port's": f"""{NESTED} | do set interface vnet0 reserve-mbps=600 | run 3
        | ways 12121212 | promised eth1=600 eth2=0""",
    "announced if it leaves otherwise than before": f"""{NESTED} | announces 1 3 5 7 | run 5
        | watch | speak 0-9 | run 8 | announces 9=3""",
    "announced by the home when one unit again": f"""{NESTED} | run 5 | watch | set vnet0.unit=
        | run 5 | slots | ways 11111111 | announces 0-7""",
    "behind another port": f"""{NESTED} | run 5 | note-slots | watch | speak 1-7
        | learn vnet1 {mac(0)} 0 | {READ} | slots 1-7 1-7 | ways 12121212 | units eth1=3 eth2=4
        | announces | unlearn | speak 0-7 | {READ} | slots 0-7 1-7""",
    "announces itself outside": f"""{NESTED} | run 5 | note-slots | speak 1-7
        | elsewhere {mac(0)} 0 | {READ} | slots 1-7 1-7""",
    **{
        f"eth{fails} fails": f"""{NESTED} | run 5 | watch | down eth{fails} | run 1
        | ways {str(3 - fails) * 8} | announces {own} | up eth{fails} | run 8 | ways 12121212
        | announces {own}"""
        for fails, own in ((1, "0 2 4 6"), (2, "1 3 5 7"))
    },
    "a service that restarts": f"""{NESTED} | run 5 | do move vnet0 eth2 | run 5 | ways 22222222
        | restarts | units eth1=0 eth2=8""",
    "a service that restarts while an uplink is down": f"""{NESTED} | run 5 | do move vnet0 eth2
        | run 5 | down eth2 | run 1 | restarts | up eth2 | run 10 | ways 22222222""",
    "a switch that restarts": f"{NESTED} | run 15 | forget | run 5 | ways 12121212 | slots 0-7",
    "a move takes the home and all": f"""{NESTED} | do move vnet0 eth2 | bound 22 | ways 22222222
        | moves manual=5 | reported info br0: {WEB}: eth1 -> eth2 (manual)""",
    **{
        f"one address moves: {name}": f"""{WITH_VMS} | do move {name} eth2 | ways 22121212
        | bound 12 | moves manual=1"""
        for name in (WEB, f"vnet0/{mac(0).upper()}%0")
    },
    "the name of its VM": f"""{WITH_VMS} | do move {WEB} eth2 | recorded-vm {WEB} web
        | ask explain {WEB} | told {WEB} (web) on br0, load-based … | ask explain web
        | told {WEB} (web) on br0, load-based … | ask explain vnet0 --json
        | told …"mac": "{mac(0)}", "vm": "web"…""",
    **{
        f"refused: {words}": f"{WITH_VMS} | ask {words} | refused {why}"
        for words, why in REFUSED.items()
    },
    "pinned for its VM": f"""{WITH_VMS} | ask pin {WEB} eth2 | run 2 | kept web-pin=eth2
        | ways 22121212 | moves pin=1 | ask move {WEB} eth1
        | refused port {WEB} is pinned to eth2; to remove the pin: ovs-lbt unpin {WEB}
        | ask unpin {WEB} | run 2 | kept | do move {WEB} eth1 | ways 12121212""",
    # It could not be announced, and upstream switches may still send by its old uplink.
    "a silent one is moved by nobody": f"""{WITH_VMS} | speak 1-7 | run 3 | ask move {WEB} eth2
        | refused the switch has no entry for address {WEB}; send a frame from the VM (for example
        a ping), and try again | ask pin {WEB} eth2 | run 3 | ways 12121212 | speak 0-7 | run 3
        | ways 22121212""",
    "a drain": f"""{NESTED} | ask drain eth2 | run 5 | ways 11111111
        | told eth2: idle, 1 VM port and 4 addresses moved""",
    # 880 Mbit/s on eth1: one of four moves; what is left on either is below the threshold.
    "balanced as ports are": f"""{BOND} window-s=5 | {SPOKEN} | {BUSY} | run 30 | ways 2111 | bound 12
        | moves manual=4 threshold=1 | announces 0 1 3 5 7
        | optimality 1.5""",
    "what the home carries itself": f"""{BOND} window-s=5 | {SPOKEN} | send 0 2e8 | send 99 5e7
        | run 10 | carry vnet0=50 {WEB}=200""",
    "a VLAN that one uplink carries": f"""plain vms=1 vnet0.unit=source-mac vnet0:trunks=(7,8)
        eth2:trunks=(7,) | speak 0-7 7 | speak 0-7 8 | run 3 | ways 11111111 0 8
        | ask explain vnet0/{mac(0)}%7 | told …""",
    "a LAG needs no announcement": f"""static vms=2 {UNITS} | {SPOKEN} | run 5 | ways 12121212
        | announces""",
    "gathered before a bond is given back": f"""backup vms=2 {UNITS} vnet0.binding=eth2 | speak 0-7
        | run 5 | ask move vnet1 eth2 | run 2 | ways 12121212 | set mode=observe | run 0.5
        | ways 22222222 | run 5 | empty | units eth1=0 eth2=0""",
    "a policy that places anew": f"""{BOND} policy=explicit | {SPOKEN} | run 3 | ways 11111111
        | set policy=originating-port | run 5 | ways 12121212""",
    "a bundle that is refused": f"""{NESTED} | run 5 | refuse bundle no | ask move vnet0 eth2
        | refused …refused… | run 5 | ways 12121212""",
    "a plan": f"""{BOND} | {SPOKEN} | {BUSY} | run 12 | ask plan | told …{WEB}… | ask apply
        | told …{WEB}: eth1 -> eth2 (threshold)… | ways 2111""",
    "the busiest in explain": f"""{NESTED} | send 3 7e7 | run 40 | ask explain vnet0
        | told …8 addresses, eth1 4, eth2 4. The busiest…: {mac(3)} on eth2 70.00, 0.00;…
        | busiest 3 eth2 8 | explains vnet1 addresses=None""",
    "planned on observed plain uplinks": f"""plain vms=2 {UNITS} window-s=5 mode=observe | {SPOKEN}
        | send 0 2e8 | send 2 2e8 | send 4 2e8 | send 6 2e8 | run 30 | ways 12121212
        | planned threshold=1 | moves""",
    "the unit of a VM, kept on the bridge": """bond vms=1 vnet0!iface-id=web vm-web-unit=source-mac
        | units eth1=0 eth2=0""",
}


@pytest.mark.parametrize("story", STORIES)
def test_addresses(story: str) -> None:
    AddressStory(STORIES[story]).tell()


@pytest.mark.slow
def test_a_silent_address_keeps_its_uplink_for_as_long_as_others_may_remember_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would be told that a silent one moves."""
    monkeypatch.setattr(address_units, "SILENT_S", 400.0)
    AddressStory(
        f"""{NESTED} | run 5 | speak 2-7 | watch | run 390 | ways 12121212 | do move vnet0 eth2
        | run 5 | ways 12222222 | announces 2 4 6 | speak 1-7 | run 20 | slots 1-7"""
    ).tell()


@pytest.mark.parametrize(
    ("module", "limit", "per_port", "last"),
    [
        pytest.param(
            address_units, "PER_PORT_MAX", PER_PORT_MAX, PER_PORT_MAX + 43, id="of a port"
        ),
        pytest.param(tables, "SLOTS", 4, 7, id="of the bridge's slots"),
    ],
)
def test_what_is_beyond_a_limit_leaves_by_the_home(
    module: ModuleType, limit: str, per_port: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, per_port)
    first, beyond = last + 1 - per_port, last + 1 - per_port
    AddressStory(
        f"""{BOND} | speak 0-{last} | run 3 | slots 0-{per_port - 1} | ways {"1" * beyond} {per_port}
        | speak {first}-{last} | run 3 | slots {first}-{last}"""
    ).tell()


def test_learned_addresses_are_read_often_only_where_they_are_units() -> None:
    for row, least, most in (
        (host(vms=VMS[:1]), 0, 3),
        (with_interface(host(vms=VMS[:1]), "vnet0", unit="source-mac"), 9, 15),
    ):
        here = world(row).start().run_for(20)
        assert least <= len(here.commands(ReadLearned)) <= most


def test_an_address_behind_a_port_is_never_kept_alive() -> None:
    """Whether a VM behind it is silent or gone, nobody knows."""
    here = AddressStory(f"{BOND} | speak 0 | run 303").tell()
    assert not here.commands(Renew)


@pytest.mark.parametrize(
    ("asked", "found"), [("vnet0", True), (WEB, True), ("vnet", False), ("", False)]
)
def test_the_history_of_a_port_has_its_addresses(asked: str, found: bool) -> None:
    entry = Entry(Happened.MOVED, 1.0, "br0", "why", (Moved(WEB, "eth1", "eth2", "manual"),))
    line = read(as_line(replace(entry), 0.0))
    assert line is not None
    assert Query(port=asked).matches(line) is found
