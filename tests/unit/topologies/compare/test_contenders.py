"""Contenders by name: which form the server's bridge has, and what a bond's log says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.presets import PRESETS
from topologies import two_switches
from topologies.compare import contenders, pace
from topologies.layouts import LAYOUTS
from topologies.network.switches import (
    BalanceSlbServer,
    BondedServer,
    LacpServer,
    PlainUplinksServer,
    SplitServer,
)


def test_every_preset_is_a_contender_with_a_usual_teaming() -> None:
    assert contenders.OURS.keys() == PRESETS.keys()


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("manual", SplitServer),
        ("active-backup", BondedServer),
        ("balance-slb", BalanceSlbServer),
        ("balance-slb/1s", BalanceSlbServer),
        ("balance-tcp", LacpServer),
        ("load-based", PlainUplinksServer),
        ("dynamic", PlainUplinksServer),
        ("dynamic/lacp", LacpServer),
        ("address-hash", LacpServer),
        ("address-hash/switch-independent", PlainUplinksServer),
    ],
)
def test_a_contender_has_its_name_and_its_form(name: str, form: type) -> None:
    contender = contenders.by_name(name)
    assert contender.name == name
    assert contender.server_class is form


def test_what_is_usual_needs_no_saying() -> None:
    assert contenders.by_name("ip-hash/lacp").name == "ip-hash"
    assert {contenders.by_name(name).name for name in contenders.OURS} == set(contenders.OURS)


USUAL = ("manual", "load-based", "dynamic", "dynamic/lacp", "active-backup", "balance-slb")


@pytest.mark.parametrize(
    ("policies", "peers", "expected"),
    [
        (None, None, list(USUAL)),
        (["load-based"], None, ["manual", "load-based", "active-backup", "balance-slb"]),
        (None, ["manual"], ["manual", "load-based", "dynamic", "dynamic/lacp"]),
        (None, ["none"], ["load-based", "dynamic", "dynamic/lacp"]),
        (["dynamic/lacp"], ["none"], ["dynamic/lacp"]),
        # The usual order, whatever was said first; who is not usual comes last.
        (["dynamic", "load-based"], ["balance-slb", "manual"], None),
        (["set"], ["balance-tcp", "manual"], ["manual", "balance-tcp", "set"]),
        (["dynamic/switch-independent"], ["none"], ["dynamic"]),
        (["set", "set"], ["none", "manual", "manual"], ["manual", "set"]),
    ],
)
def test_who_takes_part_is_chosen(
    policies: list[str] | None, peers: list[str] | None, expected: list[str] | None
) -> None:
    ordered = ["manual", "load-based", "dynamic", "balance-slb"]
    assert contenders.chosen(USUAL, policies, peers) == (expected or ordered)


@given(
    st.none() | st.lists(st.sampled_from([*contenders.OURS, "dynamic/lacp", "slb/lacp"])),
    st.none() | st.lists(st.sampled_from(["manual", *contenders.BONDS, contenders.NOBODY])),
)
def test_everybody_chosen_takes_part_once_and_nobody_else(
    policies: list[str] | None, peers: list[str] | None
) -> None:
    found = contenders.chosen(USUAL, policies, peers)
    assert len(set(found)) == len(found)
    ours = {name for name in found if isinstance(contenders.by_name(name), contenders.Ours)}
    usual = {name for name in USUAL if isinstance(contenders.by_name(name), contenders.Ours)}
    assert ours == (usual if policies is None else {*policies})
    assert set(found) - ours == (
        set(USUAL) - usual if peers is None else {*peers} - {contenders.NOBODY}
    )
    kept = [name for name in found if name in USUAL]
    assert kept == sorted(kept, key=USUAL.index)


def test_policies_are_ours_and_peers_are_not() -> None:
    with pytest.raises(ValueError, match=r"--policy balance-slb -> originating-port \| "):
        contenders.chosen(USUAL, ["balance-slb"], None)
    with pytest.raises(ValueError, match=r"--policy manual -> "):
        contenders.chosen(USUAL, ["manual"], None)
    with pytest.raises(ValueError, match=r"--against dynamic -> manual \| .* \| none"):
        contenders.chosen(USUAL, None, ["dynamic"])
    with pytest.raises(ValueError, match="contender: ecmp -> "):
        contenders.chosen(USUAL, ["ecmp"], None)
    with pytest.raises(ValueError, match="--against bond0 -> "):
        contenders.chosen(USUAL, None, ["bond0"])


BACK_TO_BACK = "without a switch between them, both servers' teams must agree on a cable"
TWO_SWITCHES = "a LAG must end at one switch"


@pytest.mark.parametrize(
    ("name", "layout", "problem"),
    [
        ("balance-slb", "quad_gbe_team", BACK_TO_BACK),
        ("load-based", "quad_gbe_team", BACK_TO_BACK),
        ("dynamic", "quad_gbe_team", BACK_TO_BACK),
        ("dynamic/lacp", "quad_gbe_team", ""),
        ("balance-tcp", "quad_gbe_team", ""),
        ("active-backup", "quad_gbe_team", ""),
        ("manual", "quad_gbe_team", ""),
        ("balance-tcp", "two_switches", TWO_SWITCHES),
        ("address-hash", "two_switches", TWO_SWITCHES),
        ("balance-slb", "two_switches", ""),
        ("dynamic", "two_switches", ""),
        ("balance-tcp", "set_vs_lbfo", ""),
        ("load-based", "set_vs_lbfo", ""),
        ("address-hash", "mixed_speed", ""),
    ],
)
def test_a_team_that_cannot_work_in_a_layout_is_told_apart(
    name: str, layout: str, problem: str
) -> None:
    assert contenders.unfit(LAYOUTS[layout](), contenders.by_name(name)) == problem


def test_uplinks_that_all_end_at_one_of_two_switches_can_be_a_lag() -> None:
    layout = two_switches.layout(uplinks=1)
    assert contenders.unfit(layout, contenders.by_name("balance-tcp")) == ""


def test_unknown_contenders_are_refused() -> None:
    with pytest.raises(ValueError, match=r"contender: bond0 -> manual \| active-backup \| "):
        contenders.by_name("bond0")
    with pytest.raises(ValueError, match=r"teaming: mlag -> switch-independent \| lacp"):
        contenders.by_name("dynamic/mlag")
    with pytest.raises(ValueError, match="teaming:  -> "):
        contenders.by_name("dynamic/")


@pytest.mark.parametrize(
    ("chosen", "interval_ms"),
    [
        (pace.FAITHFUL, 10_000),
        (pace.ACCELERATED, 1000),
        (pace.QUICK, 1000),
        (pace.in_real_time(pace.QUICK), 10_000),
    ],
)
def test_a_bond_rebalances_as_much_oftener_as_everything_is_faster(
    chosen: pace.Pace, interval_ms: int
) -> None:
    assert contenders.rebalance_interval_ms(chosen) == interval_ms


# As ovs-vswitchd 3.1 writes it.
LOG = """\
2026-11-21T17:54:09.581Z|00053|bond|INFO|member lbt-up2: enabled
2026-11-21T17:54:09.582Z|00055|bond|INFO|bond lbt-server-team: active member is now lbt-up2
2026-11-21T17:54:17.240Z|00071|bond|INFO|bond lbt-server-team: shift 1167kB of load \
(with hash 49) from lbt-up1 to lbt-up2 (now carrying 3500kB and 3496kB load, respectively)
2026-11-21T17:54:18.240Z|00072|bond|INFO|bond lbt-server-team: shift 12kB of load \
(with hash 4) from lbt-up1 to lbt-up2 (now carrying 3500kB and 3496kB load, respectively)
2026-11-21T17:54:18.241Z|00073|bond|INFO|bond lbt-upstream-server: shift 2kB of load \
(with hash 4) from lbt-sw-up1 to lbt-sw-up2 (now carrying 3kB and 3kB load, respectively)
"""


def test_shifts_of_one_bond_are_counted() -> None:
    assert contenders.shifts(LOG, "lbt-server-team") == 2
    assert contenders.shifts(LOG, "lbt-upstream-server") == 1
    assert contenders.shifts("", "lbt-server-team") == 0
