"""Every key of ours in the database: what it means, and what a bad value does (nothing)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter

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
from policies.model import OFPORT_LOCAL, Role
from tests.said import says
from tests.unit.rows import bond, bridge, interface, ours, port, two_uplinks

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


EXPECTED = {key: of.expected for key, of in (UPLINK_KEYS | VM_KEYS | BRIDGE_KEYS).items()}
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
    assert of_bridge | written_by_us | {"uplinks"} == BRIDGE_KEYS.keys()
    assert BAD.keys() == GOOD.keys() | {"uplinks"}


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
    problem = f"{one_line(text) or NOTHING} is invalid; expected {EXPECTED[key]}"
    assert messages(never_good) == [f"{record} ovs-lbt-{key}: {problem}"]

    still = with_key(key, text, with_key(key, good))
    and_still = with_key(key, text, still)
    assert found(still) == found(and_still) == meaning
    assert messages(and_still) == messages(never_good)
    assert with_key(key, good, and_still).errors == ()


def test_a_bad_value_spoils_no_other() -> None:
    config = read_bridge(on_a_bond(ours(threshold="lots", window_s="7", mode="observe")))
    assert (config.threshold_ratio, config.window_s, config.mode) == (0.75, 7, "observe")


def test_a_key_that_does_not_exist_is_named_with_those_that_do() -> None:
    (error,) = read_bridge(on_a_bond(ours(treshold="80"))).errors
    assert (error.record, error.key) == ("Bridge br0", "ovs-lbt-treshold")
    assert "unknown" in error.problem and "ovs-lbt-threshold" in error.remedy


def test_keys_of_others_and_what_attach_notes_for_detach_are_no_errors() -> None:
    keys = {"threshold": "x", "lbt-mode": "y", **ours(before='{"fail_mode": null}')}
    assert read_bridge(on_a_bond(keys)).errors == ()


# ---- uplinks ---------------------------------------------------------------------------


def uplink_names(config: BridgeConfig) -> list[str]:
    return [uplink.name for uplink in config.uplinks]


def test_plain_uplinks_are_named_in_failover_order() -> None:
    row = bridge(*two_uplinks(), ids=ours(policy="explicit", uplinks="eth2, eth1"))
    config = read_bridge(row)
    assert uplink_names(config) == ["eth2", "eth1"]
    assert not config.on_bond


def test_without_a_bond_and_without_uplinks_there_is_nothing_to_team() -> None:
    config = read_bridge(bridge(*two_uplinks()))
    assert config.uplinks == ()
    (error,) = messages(config)
    assert says(error, "Bridge br0 ovs-lbt-uplinks: no uplinks", "exactly one bond", "two or more")


def test_two_bonds_leave_the_choice_to_the_operator() -> None:
    other = PortRow("bond1", (interface("eth3", 3), interface("eth4", 4)))
    row = bridge(bond(ETH1, ETH2), other)
    assert read_bridge(row).uplinks == ()
    chosen = replace(row, external_ids=ours(policy="explicit", uplinks="eth3,eth4"))
    assert uplink_names(read_bridge(chosen)) == ["eth3", "eth4"]


@pytest.mark.parametrize("text", BAD["uplinks"])
def test_a_bad_list_of_uplinks_keeps_the_last_good_one(text: str) -> None:
    good = read_bridge(on_a_bond(ours(uplinks="eth2,eth1")))
    config = read_bridge(on_a_bond(ours(uplinks=text)), good)
    assert uplink_names(config) == ["eth2", "eth1"]
    expected = "2 to 64 interface names, comma-separated"
    assert messages(config) == [
        f"Bridge br0 ovs-lbt-uplinks: {text or NOTHING} is invalid; expected {expected}"
    ]


@pytest.mark.parametrize("ofport", [None, -1, 0, 0xFF00])
def test_an_interface_the_switch_gave_no_number_is_left_out(ofport: int | None) -> None:
    row = bridge(bond(ETH1, ETH2, interface("eth3", ofport)), port("vnet0", ofport))
    assert uplink_names(read_bridge(row)) == ["eth1", "eth2"]
    assert read_bridge(row).vm_ports == ()


def test_a_link_has_a_speed_besides_the_capacity_that_it_is_given() -> None:
    eth1 = interface("eth1", 1, ours(capacity_mbps="2500"), link_speed_bps=25e9)
    told = read_bridge(bridge(bond(eth1, ETH2))).uplinks[0]
    assert (told.capacity_bps, told.link_speed_bps) == (2.5e9, 25e9)


@pytest.mark.parametrize(
    ("rate_bps", "keys", "capacity_bps"),
    [(4e9, {}, 4e9), (4e9, {"capacity_mbps": "1000"}, 1e9), (0.0, {}, None)],
    ids=["of the port's QoS", "the key is stronger", "a rate of zero says nothing"],
)
def test_the_capacity_of_an_uplink(
    rate_bps: float, keys: dict[str, str], capacity_bps: float | None
) -> None:
    limited = replace(port("eth1", 1, ours(**keys)), qos_max_rate_bps=rate_bps)
    config = read_bridge(bridge(limited, port("eth2", 2), ids=ours(uplinks="eth1,eth2")))
    assert [uplink.capacity_bps for uplink in config.uplinks] == [capacity_bps, None]


# ---- VM ports --------------------------------------------------------------------------


def vm_port(
    ids: Mapping[str, str], on_bridge: Mapping[str, str] | None = None
) -> tuple[VmPortConfig, BridgeConfig]:
    config = read_bridge(on_a_bond(on_bridge, port("vnet0", 10, ids)))
    return the_port(config), config


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


def restricted(*vm_ports: PortRow) -> BridgeConfig:
    """VLAN 10 is carried by both uplinks, VLAN 20 by eth2 only."""
    eth1, eth2 = port("eth1", 1, trunks=(10,)), port("eth2", 2, trunks=(10, 20))
    ids = ours(policy="explicit", uplinks="eth1,eth2")
    return read_bridge(bridge(eth1, eth2, *vm_ports, ids=ids))


def test_a_vm_port_is_told_the_uplinks_that_carry_its_vlan_or_that_none_does() -> None:
    assert the_port(restricted(port("vnet0", 10, tag=10))).allowed is None
    assert the_port(restricted(port("vnet0", 10, tag=20))).allowed == frozenset({"eth2"})
    config = restricted(port("vnet0", 10, tag=30))
    assert the_port(config).allowed == frozenset()
    assert messages(config) == [
        "Port vnet0 tag: no uplink carries VLAN 30; choose a VLAN that an uplink carries"
    ]
    config = restricted(port("vnet0", 10, trunks=(30, 40)))
    (error,) = messages(config)
    assert says(error, "Port vnet0 trunks: no uplink carries VLAN 30,40; ")


def test_a_pin_to_an_uplink_without_the_ports_vlan_is_not_taken() -> None:
    config = restricted(port("vnet0", 10, ours(pin="eth1"), tag=20))
    assert the_port(config).rules.pin is None
    assert messages(config) == [
        "Interface vnet0 ovs-lbt-pin: eth1 is invalid; expected one of eth2"
    ]


def test_the_members_of_a_bond_carry_what_the_bond_does() -> None:
    members = (interface("eth1", 1), interface("eth2", 2))
    config = read_bridge(bridge(PortRow("bond0", members, trunks=(10,))))
    assert [uplink.vlans for uplink in config.uplinks] == [port_vlans(None, None, (10,))] * 2


def test_a_vm_port_without_keys() -> None:
    plain, config = vm_port({})
    assert plain == VmPortConfig("vnet0", plain.ofport, "vnet0", "load-based", "port")
    assert config.errors == ()


def test_a_vm_port_with_every_key() -> None:
    ids = ours(pin="eth2", exclude="true", binding="eth1") | {"attached-mac": "52:54:00:00:00:01"}
    told, config = vm_port(ids)
    assert (told.rules.pin, told.excluded, told.binding) == ("eth2", True, "eth1")
    assert (told.attached_macs, told.forges) == (("52:54:00:00:00:01",), False)
    assert config.errors == ()


@pytest.mark.parametrize("identity", ["vm-id", "vm-uuid", "iface-id"])
def test_a_rule_for_a_vm_may_be_kept_on_the_bridge(identity: str) -> None:
    rules = keyed("vm-web-1-pin", "eth2") | keyed("vm-web-1-exclude", "true")
    told, config = vm_port({identity: "web-1"}, rules)
    assert (told.rules.pin, told.excluded) == ("eth2", True)
    assert config.errors == ()


def test_an_interfaces_own_rules_win_also_when_they_say_off() -> None:
    own = {"vm-id": "web", **ours(pin="eth1", exclude="off")}
    told, _ = vm_port(own, keyed("vm-web-pin", "eth2") | keyed("vm-web-exclude", "true"))
    assert (told.rules.pin, told.excluded) == ("eth1", False)


@pytest.mark.parametrize(
    ("kind", "by_bridge", "own", "unit"),
    [
        ("patch", None, None, "port"),
        ("patch", "source-mac", None, "source-mac"),
        ("patch", "source-mac", "port", "port"),
        ("patch", None, "source-mac", "source-mac"),
        ("internal", "source-mac", None, "port"),
    ],
)
def test_the_unit_of_patch_ports_may_be_set_on_the_bridge(
    kind: str, by_bridge: str | None, own: str | None, unit: str
) -> None:
    keys = ours(policy="load-based", **({"patch_unit": by_bridge} if by_bridge else {}))
    made = port("p", 10, ours(unit=own) if own else {}, kind=kind)
    assert the_port(read_bridge(on_a_bond(keys, made))).unit == unit


def test_a_rule_for_a_vm_that_is_away_is_no_error() -> None:
    assert vm_port({}, keyed("vm-db-pin", "eth1"))[1].errors == ()


def test_a_bad_rule_on_the_bridge_is_named_once_where_it_stands() -> None:
    ports = (port("vnet0", 10, {"vm-id": "web"}), port("vnet1", 11, {"vm-id": "web"}))
    for rule, bad, expected in (
        ("exclude", "sure", "one of on, off, true, false"),
        ("pin", "eth7", "one of eth1, eth2"),
    ):
        config = read_bridge(on_a_bond(keyed(f"vm-web-{rule}", bad), *ports))
        told = f"Bridge br0 ovs-lbt-vm-web-{rule}: {bad} is invalid; expected {expected}"
        assert messages(config) == [told]


@pytest.mark.parametrize(
    ("ids", "on_bridge", "record", "key"),
    [
        ({"vm-id": "web"}, keyed("vm-web-pni", "eth1"), "Bridge br0", "vm-web-pni"),
        (ours(capacity_mbps="100"), {}, "Interface vnet0", "capacity-mbps"),
    ],
    ids=["an unknown rule for a VM", "a key in the wrong place"],
)
def test_a_key_that_means_nothing_is_named(
    ids: dict[str, str], on_bridge: dict[str, str], record: str, key: str
) -> None:
    (error,) = vm_port(ids, on_bridge)[1].errors
    assert (error.record, error.key) == (record, PREFIX + key)


# ---- whatever stands there -------------------------------------------------------------


def settings(*keys: str) -> st.SearchStrategy[dict[str, str]]:
    known = st.sampled_from([PREFIX + key for key in keys] + ["vm-id", "iface-id", "attached-mac"])
    values = st.text() | st.floats().map(str) | st.sampled_from(("eth1", "eth1,eth2", "true"))
    return st.dictionaries(known | st.text().map(PREFIX.__add__), values)


ROWS = st.builds(
    lambda ids, uplink_ids, vm_ids: bridge(
        bond(interface("eth1", 1, uplink_ids), ETH2), port("vnet0", 10, vm_ids), ids=ids
    ),
    settings(*BRIDGE_KEYS, "vm-web-pin", "vm-eth1-pin"),
    settings(*UPLINK_KEYS),
    settings(*VM_KEYS),
)


@pytest.mark.slow
@given(before=ROWS, after=ROWS)
def test_no_text_is_too_strange(before: BridgeRow, after: BridgeRow) -> None:
    config = read_bridge(after, read_bridge(before))
    assert 0.1 <= config.threshold_ratio <= 1
    assert 1 <= config.window_s <= 86400
    assert 0.1 <= config.poll_interval_s <= 60
    assert 0 <= config.failback_delay_s <= 86400
    assert all(u.capacity_bps is None or u.capacity_bps > 0 for u in config.uplinks)
    assert all(p.rules.pin in (None, "eth1", "eth2") for p in config.vm_ports)
    assert all("; " in line for line in messages(config))


OF_VM_PORTS: tuple[dict[str, str], ...] = (
    {},
    {"vm-id": "web"},
    {"vm-id": "web", **ours(pin="eth2")},
    ours(policy="slb"),
    ours(policy="none", pin="eth7"),
    ours(reserve_mbps="5", limit_mbps="3"),
)
OF_BRIDGES: tuple[dict[str, str], ...] = (
    {},
    keyed("vm-web-pin", "eth1"),
    keyed("vm-web-pin", "eth7"),
    keyed("teaming", "static"),
)
CHANGING = st.builds(
    lambda uplink, vm_ports, userspace, *ids: replace(
        bridge(
            port("eth1", 1, trunks=uplink),
            port("eth2", 2),
            *(port(f"vnet{n}", 10 + n, of, tag=10) for n, of in enumerate(vm_ports)),
            ids={**ours(policy="load-based", uplinks="eth1,eth2"), **ids[0], **ids[1]},
        ),
        in_userspace=userspace,
    ),
    st.sampled_from([(), (10,), (20,)]),
    st.lists(st.sampled_from(OF_VM_PORTS), max_size=3),
    st.booleans(),
    st.sampled_from(OF_BRIDGES),
    st.sampled_from([{}, ours(policy="adaptive"), ours(policy="ip-hash")]),
)


@given(rows=st.lists(CHANGING, min_size=2, max_size=6))
def test_reading_only_vm_ports_that_have_changed_is_reading_all_of_them(
    rows: list[BridgeRow],
) -> None:
    last = every = None
    for row in rows:
        last = read_bridge(row, last)
        every = read_bridge(row, every and replace(every, read=None))
        assert last == every and last.settings == every.settings


@pytest.mark.parametrize("moved", ["1:9999", "nan:1", "inf:1", "-1:1", "1:-1"])
def test_moves_that_nobody_can_have_made_are_none(moved: str) -> None:
    config = read_bridge(on_a_bond({}, port("vnet0", 10, ours(moved=moved))))
    (error,) = messages(config)
    assert says(error, f"Interface vnet0 ovs-lbt-moved: {moved} is invalid; ", "only the service")
    assert config.vm_ports[0].moved == ()


MAC1, MAC2 = "52:54:00:00:00:01", "52:54:00:00:00:02"


@pytest.mark.parametrize(
    ("attached", "keys", "macs", "forges"),
    [
        ("", {}, (), True),
        ("52:54:00:00:00:0A", {}, ("52:54:00:00:00:0a",), False),
        (f"{MAC2}, {MAC1}", {}, (MAC1, MAC2), False),
        (f"{MAC2} {MAC2}", {}, (MAC2,), False),
        (MAC1, {"unit": "source-mac"}, (MAC1,), True),
        (MAC1, {"forged_transmits": "accept"}, (MAC1,), True),
        (MAC1, {"unit": "source-mac", "forged_transmits": "reject"}, (MAC1,), False),
    ],
)
def test_whose_addresses_a_vm_may_send_from(
    attached: str, keys: dict[str, str], macs: tuple[str, ...], forges: bool
) -> None:
    told, config = vm_port(ours(**keys) | {"attached-mac": attached})
    assert (told.attached_macs, told.forges, config.errors) == (macs, forges, ())


def test_to_reject_what_cannot_be_told_is_named() -> None:
    told, config = vm_port(ours(forged_transmits="reject"))
    assert told.forges
    (error,) = messages(config)
    assert says(error, "Interface vnet0 ovs-lbt-forged-transmits: reject ", "; set attached-mac")


def test_the_hosts_own_address_is_its_own() -> None:
    config = read_bridge(on_a_bond({}, port("br0", OFPORT_LOCAL, mac="02:00:00:00:00:AB")))
    assert config.vm_ports[0].attached_macs == ("02:00:00:00:00:ab",)
    assert config.vm_ports[0].forges


@pytest.mark.parametrize("text", ["01:00:5e:00:00:01", f"{MAC1},ff:ff:ff:ff:ff:ff", "52:54"])
def test_an_address_that_is_a_groups_or_none_is_named_and_not_used(text: str) -> None:
    told, config = vm_port({"attached-mac": text})
    assert (told.attached_macs, told.forges) == ((), True)
    assert messages(config) == [
        f"Interface vnet0 attached-mac: {text} is invalid;"
        " expected unicast MAC addresses, in the form xx:xx:xx:xx:xx:xx"
    ]


def test_what_is_wrong_is_told_in_one_short_line() -> None:
    config = read_bridge(on_a_bond(keyed("window-s", "1\n\x1b[2J" + "9" * 5000)))
    (told,) = messages(config)
    assert told.startswith(r"Bridge br0 ovs-lbt-window-s: 1\n\x1b[2J999")
    expected = "a number of seconds from 1 to 86400; 4096 characters at most"
    assert told.endswith(f"… (5006 characters) is invalid; expected {expected}")
