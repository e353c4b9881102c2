"""Every key of ours in the database: what it means, and what a bad value does (nothing)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_KEYS
from controller.config.kinds import CheckedHost
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow, PortRow
from controller.config.values import BridgeConfig, VmPortConfig
from controller.config.vlans import TRUNK, access, port_vlans
from controller.text.wording import one_line
from policies.model import OFPORT_LOCAL, OfPort, Role
from tests.goldens.adapter import changed, row_of
from tests.said import pattern
from tests.unit.rows import bond, bridge, interface, ours, port

ETH1, ETH2 = interface("eth1", 1), interface("eth2", 2)


# What errors call the value "".
NOTHING = "an empty value"


def on_a_bond(ids: Mapping[str, str] | None = None, *vm_ports: PortRow) -> BridgeRow:
    """Bridge br0 with a bond of eth1 and eth2."""
    return bridge(bond(ETH1, ETH2), *vm_ports, ids={**ours(policy="load-based"), **(ids or {})})


def keyed(key: str, value: str) -> dict[str, str]:
    return {PREFIX + key: value}


def the_port(config: BridgeConfig) -> VmPortConfig:
    (vm_port,) = config.vm_ports
    return vm_port


def uplink_names(config: BridgeConfig) -> list[str]:
    return [uplink.name for uplink in config.uplinks]


def messages(config: BridgeConfig) -> list[str]:
    return [str(error) for error in config.errors]


# ---- the bridge's keys -----------------------------------------------------------------

# Where an operator may write a key, what is read of it, its default, a good value and what that means.
Read = Callable[[BridgeConfig], object]
GOOD: dict[str, tuple[str, Read, object, str, object]] = {
    "policy": ("Bridge br0", attrgetter("policy"), "load-based", "explicit", "explicit"),
    "teaming": ("Bridge br0", attrgetter("teaming"), "switch-independent", "static", "static"),
    "mode": ("Bridge br0", attrgetter("mode"), "enforce", "observe", "observe"),
    "threshold": ("Bridge br0", attrgetter("threshold_ratio"), 0.75, "60", 0.6),
    "window-s": ("Bridge br0", attrgetter("window_s"), 30.0, "5", 5.0),
    "poll-interval-ms": ("Bridge br0", attrgetter("poll_interval_s"), 1.0, "250", 0.25),
    "failback-delay-s": ("Bridge br0", attrgetter("failback_delay_s"), 45.0, "0", 0.0),
    "connection-hash": ("Bridge br0", attrgetter("connection_hash"), "multipath", "auto", "auto"),
    "patch-unit": ("Bridge br0", attrgetter("patch_unit"), "port", "source-mac", "source-mac"),
    "path-check": ("Bridge br0", attrgetter("path_check"), False, "on", True),
    "path-check-targets": (
        *("Bridge br0", attrgetter("path_check_targets"), (), "192.0.2.1,2001:db8::1%20"),
        (CheckedHost("192.0.2.1", 0), CheckedHost("2001:db8::1", 20)),
    ),
    "uplinks": ("Bridge br0", uplink_names, ["eth1", "eth2"], "eth2,eth1", ["eth2", "eth1"]),
    "capacity-mbps": ("Interface eth1", lambda c: c.uplinks[0].capacity_bps, None, "2500", 2.5e9),
    "role": ("Interface eth1", lambda c: c.uplinks[0].role, Role.ACTIVE, "standby", Role.STANDBY),
    "pin": ("Interface vnet0", lambda c: the_port(c).rules.pin, None, "eth2", "eth2"),
    "exclude": ("Interface vnet0", lambda c: the_port(c).excluded, False, "on", True),
    "shares": ("Interface vnet0", lambda c: the_port(c).shares, None, "50", 50),
}
# None of them is a number as people write it in a setting.
NOT_NUMBERS = (
    *("", " ", "nan", "inf", "-inf", "-1", "+60", "fast", "7e400", "0x10", "60%", "30s", "1G"),
    *("٧٥", "７５", "1_0", " 75", "7,5", "60\n", "9" * 41),
)
BAD: dict[str, tuple[str, ...]] = {
    "policy": ("", "Load-Based", "round-robin"),
    "teaming": ("", "LACP", "bond"),
    "mode": ("", "dry-run", "Enforce"),
    "threshold": ("9.9", "100.1", "75%", *NOT_NUMBERS),
    "window-s": ("0", "0.9", "86401", *NOT_NUMBERS),
    "poll-interval-ms": ("99", "60001", "1s", *NOT_NUMBERS),
    "failback-delay-s": ("86401", *NOT_NUMBERS),
    "connection-hash": ("", "dp-hash", "AUTO"),
    "patch-unit": ("", "mac", "Port"),
    "path-check": ("", "yes", "On"),
    "path-check-targets": ("", "router", "192.0.2.1%0", "192.0.2.1%4095", "224.0.0.1", "0.0.0.0"),
    "uplinks": ("", "eth1", "eth1,", "eth1,eth1", ",", "eth1 eth2"),
    "capacity-mbps": ("0", "1e9", *NOT_NUMBERS),
    "role": ("backup",),
    "pin": ("eth7", "vnet0", "eth1,eth2", ""),
    "exclude": ("", "yes", "1", "True"),
    "shares": ("5.5", "0", "101", *NOT_NUMBERS),
}


EXPECTED = {key: of.takes.expected for key, of in (UPLINK_KEYS | VM_KEYS | BRIDGE_KEYS).items()}
EXPECTED["pin"] = "one of eth1, eth2"


def with_key(key: str, text: str | None, last: BridgeConfig | None = None) -> BridgeConfig:
    """What is read of a bridge with this key, where the table says."""
    record = GOOD[key][0].split()[1]
    ids = {record: keyed(key, text)} if text is not None else {}
    eth1, vnet0 = interface("eth1", 1, ids.get("eth1")), port("vnet0", 10, ids.get("vnet0"))
    of_bridge = {**ours(policy="load-based"), **ids.get("br0", {})}
    return read_bridge(bridge(bond(eth1, ETH2), vnet0, ids=of_bridge), last)


def test_these_tables_name_every_key_of_a_bridge() -> None:
    written_by_us = {"no-flood-before", "before", "team", "unconfirmed", "uplink-keys"}
    of_bridge = {key for key, (record, *_) in GOOD.items() if record == "Bridge br0"}
    assert of_bridge | written_by_us == BRIDGE_KEYS.keys()
    assert BAD.keys() == GOOD.keys()


@pytest.mark.parametrize("key", GOOD)
def test_good_value_is_read_and_a_missing_one_means_the_default(key: str) -> None:
    _, found, default, text, meaning = GOOD[key]
    config = with_key(key, text)
    assert (found(config), config.errors) == (meaning, ())
    for last in (None, config):
        assert found(with_key(key, None, last)) == default


@pytest.mark.parametrize(("key", "text"), [(k, v) for k in GOOD for v in BAD[k]])
def test_bad_value_is_reported_and_the_last_good_one_stays(key: str, text: str) -> None:
    record, found, default, good, meaning = GOOD[key]
    never_good = with_key(key, text)
    assert found(never_good) == default
    shown = one_line(text if text == text.strip() else f"'{text}'") or NOTHING
    problem = f"{shown} is invalid; expected {EXPECTED[key]}"
    assert messages(never_good) == [f"{record} ovs-lbt-{key}: {problem}"]

    still = with_key(key, text, with_key(key, good))
    and_still = with_key(key, text, still)
    assert found(still) == found(and_still) == meaning
    assert messages(and_still) == messages(never_good)
    assert with_key(key, good, and_still).errors == ()


def test_keys_of_others_and_what_attach_notes_for_detach_are_no_errors() -> None:
    keys = {"threshold": "x", "lbt-mode": "y", **ours(before='{"fail_mode": null}')}
    assert read_bridge(on_a_bond(keys)).errors == ()


# ---- uplinks ---------------------------------------------------------------------------


def test_two_bonds_leave_the_choice_to_the_operator() -> None:
    other = PortRow("bond1", (interface("eth3", 3), interface("eth4", 4)))
    row = bridge(bond(ETH1, ETH2), other)
    assert read_bridge(row).uplinks == ()
    chosen = replace(row, external_ids=ours(policy="explicit", uplinks="eth3,eth4"))
    assert uplink_names(read_bridge(chosen)) == ["eth3", "eth4"]


# ---- VM ports --------------------------------------------------------------------------


def test_every_port_that_is_no_uplink_is_a_vm_port_local_included() -> None:
    config = read_bridge(on_a_bond({}, port("vnet0", 10, tag=7), port("br0", OFPORT_LOCAL)))
    assert [(p.name, p.ofport, p.vlans) for p in config.vm_ports] == [
        ("br0", OFPORT_LOCAL, TRUNK),
        ("vnet0", 10, access(7)),
    ]


WORDS = st.sampled_from(
    (None, "access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel", "new")
)


@given(
    st.lists(
        st.tuples(WORDS, st.none() | st.integers(0, 4095), st.lists(st.integers(0, 4095))),
        min_size=3,
        max_size=3,
    )
)
def test_whatever_vlans_the_database_names_there_is_a_configuration(
    records: list[tuple[str | None, int | None, list[int]]],
) -> None:
    """Trunks may overlap, repeat, and stand beside a tag that makes them void."""
    names = (("eth1", 1), ("eth2", 2), ("vnet0", 10))
    ports = [
        port(name, number, tag=tag, vlan_mode=mode, trunks=tuple(trunks))
        for (name, number), (mode, tag, trunks) in zip(names, records, strict=True)
    ]
    config = read_bridge(bridge(*ports, ids=ours(policy="explicit", uplinks="eth1,eth2")))
    told = the_port(config)
    assert told.allowed is None or told.allowed < {"eth1", "eth2"}
    assert bool(config.errors) is (told.allowed == frozenset())


# ---- what is read besides, and told ------------------------------------------------------

MAC1, MAC2 = "52:54:00:00:00:01", "52:54:00:00:00:02"
WEB_1_RULES = "vm-web-1-pin=eth2 vm-web-1-exclude=true"
# VLAN 10 is carried by both uplinks, VLAN 20 by eth2 only.
BY_VLAN = "plain eth1:trunks=(10,) eth2:trunks=(10,20)"
BOND_VLANS = str(port_vlans(None, None, (10,))).replace(" ", "")
PORT = VmPortConfig("vnet0", OfPort(10), "vnet0", "load-based", "port")
WITHOUT_KEYS = str(PORT).replace(" ", "")
MACS = "bond 'vnet0!attached-mac"
# A bridge in words (tests/goldens/adapter.py), what is read of it, and its error if it has one.
ROWS = {
    "a bad value spoils no other": """bond threshold=lots window-s=7 mode=observe
        -> threshold_ratio=0.75 window_s=7.0 mode=observe -> …threshold…""",
    "a key that does not exist is named with those that do": """bond treshold=80
        -> -> Bridge br0 ovs-lbt-treshold: …unknown…; …ovs-lbt-threshold…""",
    "plain uplinks are named in failover order": """plain | 'uplinks=eth2, eth1'
        -> uplinks=eth2,eth1 on_bond=False""",
    "without a bond and without uplinks there is nothing to team": """plain unattached
        -> uplinks= -> Bridge br0 ovs-lbt-uplinks: no uplinks…exactly one bond…two or more…""",
    **{
        f"the switch gave no number but {n}": f"""bond uplinks=3 vms=1 eth3@ofport={n} vnet0@ofport={n}
            -> uplinks=eth1,eth2 vm_ports="""
        for n in (None, -1, 0, 0xFF00)
    },
    "a link has a speed besides the capacity that it is given": """bond eth1.capacity-mbps=2500
        eth1@link_speed_bps=25e9 -> eth1.capacity_bps=2500000000.0 eth1.link_speed_bps=25000000000.0""",
    "a port's QoS is its capacity": """plain eth1:qos_max_rate_bps=4e9
        -> eth1.capacity_bps=4000000000.0 eth2.capacity_bps=None""",
    "the key is stronger than QoS": """plain eth1:qos_max_rate_bps=4e9 eth1.capacity-mbps=1000
        -> eth1.capacity_bps=1000000000.0""",
    "a rate of zero says nothing": "plain eth1:qos_max_rate_bps=0.0 -> eth1.capacity_bps=None",
    "the members of a bond carry what the bond does": f"""bond bond0:trunks=(10,)
        -> eth1.vlans={BOND_VLANS} eth2.vlans={BOND_VLANS}""",
    "a VLAN that all uplinks carry": f"{BY_VLAN} vnet0:tag=10 -> vnet0.allowed=None",
    "a VLAN of one uplink": f"{BY_VLAN} vnet0:tag=20 -> vnet0.allowed=eth2",
    "a VLAN of no uplink": f"""{BY_VLAN} vnet0:tag=30 -> vnet0.allowed=
        -> Port vnet0 tag: no uplink carries VLAN 30; choose a VLAN that an uplink carries""",
    "VLANs of no uplink": f"""{BY_VLAN} vnet0:trunks=(30,40) -> vnet0.allowed=
        -> Port vnet0 trunks: no uplink carries VLAN 30,40; …""",
    "a pin to an uplink without the port's VLAN is not taken": f"""{BY_VLAN} vnet0:tag=20 vnet0.pin=eth1
        -> vnet0.rules.pin=None -> Interface vnet0 ovs-lbt-pin: eth1 is invalid; expected one of eth2""",
    "a VM port without keys": f"bond -> vnet0={WITHOUT_KEYS}",
    "a VM port with every key": f"""bond vnet0.pin=eth2 vnet0.exclude=true vnet0.binding=eth1
        vnet0!attached-mac={MAC1} -> vnet0.rules.pin=eth2 vnet0.excluded=True vnet0.binding=eth1
        vnet0.attached_macs={MAC1} vnet0.forges=False""",
    **{
        f"a rule for a VM may be kept on the bridge: {identity}": f"""bond vnet0!{identity}=web-1
            {WEB_1_RULES} -> vnet0.rules.pin=eth2 vnet0.excluded=True"""
        for identity in ("vm-id", "vm-uuid", "iface-id")
    },
    "an interface's own rules win, also when they say off": f"""bond vnet0!vm-id=web-1 {WEB_1_RULES}
        vnet0.pin=eth1 vnet0.exclude=off -> vnet0.rules.pin=eth1 vnet0.excluded=False""",
    "a rule for a VM that is away": "bond vm-db-pin=eth1 ->",
    "a bad rule on the bridge is named once where it stands": """bond vnet0!vm-id=web vnet1!vm-id=web
        vm-web-exclude=sure ->
        -> Bridge br0 ovs-lbt-vm-web-exclude: sure is invalid; expected one of on, off, true, false""",
    "and so is a bad pin": """bond vnet0!vm-id=web vnet1!vm-id=web vm-web-pin=eth7
        -> -> Bridge br0 ovs-lbt-vm-web-pin: eth7 is invalid; expected one of eth1, eth2""",
    "an unknown rule for a VM": """bond vnet0!vm-id=web vm-web-pni=eth1
        -> -> Bridge br0 ovs-lbt-vm-web-pni: …""",
    "a key in the wrong place": """bond vnet0.capacity-mbps=100
        -> -> Interface vnet0 ovs-lbt-capacity-mbps: …""",
    "a patch port": "bond vnet0@kind=patch -> vnet0.unit=port",
    "units of patch ports": "bond vnet0@kind=patch patch-unit=source-mac -> vnet0.unit=source-mac",
    "a patch port's own unit": """bond vnet0@kind=patch vnet0.unit=port patch-unit=source-mac
        -> vnet0.unit=port""",
    "a unit of a patch port alone": "bond vnet0@kind=patch vnet0.unit=source-mac -> vnet0.unit=source-mac",
    "an internal port is no patch port": """bond vnet0@kind=internal patch-unit=source-mac
        -> vnet0.unit=port""",
    **{
        f"moves that nobody can have made: {moved}": f"""bond vnet0.moved={moved} -> vnet0.moved=
            -> Interface vnet0 ovs-lbt-moved: {moved} is invalid; …only the service…"""
        for moved in ("1:9999", "nan:1", "inf:1", "-1:1", "1:-1")
    },
    # Whose addresses a VM may send from.
    "no address is named": "bond -> vnet0.attached_macs= vnet0.forges=True",
    "an address": f"{MACS}=52:54:00:00:00:0A' -> vnet0.attached_macs=52:54:00:00:00:0a vnet0.forges=False",
    "two addresses": f"{MACS}={MAC2}, {MAC1}' -> vnet0.attached_macs={MAC1},{MAC2} vnet0.forges=False",
    "an address twice": f"{MACS}={MAC2} {MAC2}' -> vnet0.attached_macs={MAC2} vnet0.forges=False",
    **{
        f"an address, and {keys}": f"{MACS}={MAC1}' {keys} -> vnet0.attached_macs={MAC1} vnet0.forges={forges}"
        for keys, forges in {
            "vnet0.unit=source-mac": True,
            "vnet0.forged-transmits=accept": True,
            "vnet0.unit=source-mac vnet0.forged-transmits=reject": False,
        }.items()
    },
    "to reject what cannot be told": """bond vnet0.forged-transmits=reject -> vnet0.forges=True
        -> Interface vnet0 ovs-lbt-forged-transmits: reject …; set attached-mac…""",
    **{
        f"an address that is a group's or none: {text}": f"""{MACS}={text}'
            -> vnet0.attached_macs= vnet0.forges=True -> Interface vnet0 attached-mac: {text} is invalid;
            expected unicast MAC addresses, in the form xx:xx:xx:xx:xx:xx"""
        for text in ("01:00:5e:00:00:01", f"{MAC1},ff:ff:ff:ff:ff:ff", "52:54")
    },
}


def value(config: BridgeConfig, what: str) -> str:
    """What is read of the bridge, or as `NAME.WHAT` of a port; the names of `uplinks` and `vm_ports`."""
    name, _, attribute = what.partition(".")
    ports: dict[str, Any] = {p.name: p for p in config.uplinks}
    ports |= {p.name: p for p in config.vm_ports}
    found = ports.get(name) or getattr(config, what)
    if attribute:
        found = attrgetter(attribute)(found)
    if isinstance(found, tuple | frozenset):
        found = ",".join(str(getattr(one, "name", one)) for one in found)
    return f"{what}={str(found).replace(' ', '')}"


@pytest.mark.parametrize("row", ROWS)
def test_what_is_read_and_told(row: str) -> None:
    words, facts, *errors = (part.strip() for part in ROWS[row].split("->"))
    first, _, then = words.partition(" | ")
    config = read_bridge(changed(row_of(shlex.split(first)), shlex.split(then)))
    expected = facts.split()
    assert [value(config, fact.partition("=")[0]) for fact in expected] == expected
    told = " ".join(" ".join(errors).split())
    assert re.fullmatch(pattern(told), "\n".join(messages(config)))


def test_the_hosts_own_address_is_its_own() -> None:
    config = read_bridge(on_a_bond({}, port("br0", OFPORT_LOCAL, mac="02:00:00:00:00:AB")))
    assert config.vm_ports[0].attached_macs == ("02:00:00:00:00:ab",)
    assert config.vm_ports[0].forges


def test_what_is_wrong_is_told_in_one_short_line() -> None:
    config = read_bridge(on_a_bond(keyed("window-s", "1\n\x1b[2J" + "9" * 5000)))
    (told,) = messages(config)
    assert told.startswith(r"Bridge br0 ovs-lbt-window-s: 1\n\x1b[2J999")
    expected = "a number of seconds from 1 to 86400; 4096 characters at most"
    assert told.endswith(f"… (5006 characters) is invalid; expected {expected}")


@pytest.mark.parametrize("value", ["true", "True", "yes"])
def test_other_config_is_true_in_upper_case_as_well(value: str) -> None:
    found = {"lacp-fallback-ab": value, "forward-bpdu": value}
    lag = replace(bond(ETH1, ETH2, lacp="active"), other_config=found)
    config = read_bridge(replace(bridge(lag), other_config=found))
    assert {config.falls_back, config.forwards_bpdu} == {value != "yes"}
