"""Contenders: their names and bridge forms, their selection, and the shifts in a bond's log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.presets import PRESETS
from topologies.compare import contenders
from topologies.layouts import LAYOUTS
from topologies.network.switches import (
    BalanceSlbServer,
    BondedServer,
    LacpServer,
    PlainUplinksServer,
    SplitServer,
)


def test_every_preset_is_a_contender_with_a_default_teaming() -> None:
    assert contenders.OURS.keys() == PRESETS.keys()
    assert {contenders.by_name(name).name for name in contenders.OURS} == PRESETS.keys()
    assert contenders.by_name("ip-hash/lacp").name == "ip-hash"


def test_suffix_sets_the_connection_hash() -> None:
    found = contenders.by_name("dynamic/lacp+multipath")
    assert isinstance(found, contenders.Ours)
    assert found.settings == {"connection-hash": "multipath"}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("manual", SplitServer),
        ("active-backup", BondedServer),
        ("balance-slb/1s", BalanceSlbServer),
        ("balance-tcp", LacpServer),
        ("oracle", LacpServer),
        ("dynamic", PlainUplinksServer),
        ("dynamic/lacp", LacpServer),
        ("address-hash", LacpServer),
        ("address-hash/switch-independent+path-check", PlainUplinksServer),
        ("dynamic/lacp+multipath", LacpServer),
    ],
)
def test_contender_has_its_name_and_bridge_form(name: str, form: type) -> None:
    contender = contenders.by_name(name)
    assert contender.name == name
    assert contender.server_class is form


USUAL = ("manual", "load-based", "dynamic", "dynamic/lacp", "active-backup", "balance-slb")


@given(
    st.none() | st.lists(st.sampled_from([*contenders.OURS, "dynamic/lacp", "slb/lacp"])),
    st.none()
    | st.lists(st.sampled_from(["manual", "oracle", *contenders.BONDS, contenders.NO_PEERS])),
)
def test_selection_has_each_selected_contender_once_and_no_other(
    policies: list[str] | None, peers: list[str] | None
) -> None:
    found = contenders.select(USUAL, policies, peers)
    assert len(set(found)) == len(found)
    ours = {name for name in found if isinstance(contenders.by_name(name), contenders.Ours)}
    usual = {name for name in USUAL if isinstance(contenders.by_name(name), contenders.Ours)}
    assert ours == (usual if policies is None else {*policies})
    assert set(found) - ours == (
        set(USUAL) - usual if peers is None else {*peers} - {contenders.NO_PEERS}
    )
    kept = [name for name in found if name in USUAL]
    assert kept == sorted(kept, key=USUAL.index)


@pytest.mark.parametrize(
    ("policies", "peers", "problem"),
    [
        (["balance-slb"], None, r"--policy .* balance-slb; expected originating-port \| "),
        (["manual"], None, "--policy .* manual; expected "),
        (["oracle"], None, "--policy .* oracle; expected "),
        (None, ["dynamic"], r"--against .* dynamic; expected manual \| .* \| none"),
        (["ecmp"], None, r"contender ecmp .*; expected manual \| active-backup \| "),
        (["dynamic/mlag"], None, r"teaming mlag .*; expected switch-independent \| lacp"),
        (["dynamic/"], None, "teaming  .*; expected "),
        (["balance-slb+path-check"], None, r"contender balance-slb\+path-check .*; expected "),
        (["dynamic+md5"], None, r"suffix \+md5 .*; expected \+path-check \| \+multipath \| "),
        (["dynamic/lacp+path-check"], None, "lacp; path checks require switch-independent"),
    ],
)
def test_unknown_names_and_peers_as_policies_are_rejected(
    policies: list[str] | None, peers: list[str] | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        contenders.select(USUAL, policies, peers)


@pytest.mark.parametrize(
    ("name", "layout", "problem"),
    [
        ("balance-slb", "quad_gbe_team", "both servers' teams must agree on a cable"),
        ("dynamic", "quad_gbe_team", "both servers' teams must agree on a cable"),
        ("dynamic/lacp", "quad_gbe_team", ""),
        ("active-backup", "quad_gbe_team", ""),
        ("manual", "quad_gbe_team", ""),
        ("balance-tcp", "two_switches", "a LAG must end at one switch"),
        ("address-hash", "two_switches", "a LAG must end at one switch"),
        ("oracle", "two_switches", "a LAG must end at one switch"),
        ("balance-slb", "two_switches", ""),
        ("dynamic", "two_switches", ""),
        ("balance-tcp", "set_vs_lbfo", ""),
    ],
)
def test_unsupported_team_has_a_reason(name: str, layout: str, problem: str) -> None:
    found = contenders.unsupported_reason(LAYOUTS[layout](), contenders.by_name(name))
    assert found.endswith(problem) and bool(found) == bool(problem)


# The format of ovs-vswitchd 3.1.
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


def test_shifts_are_counted_per_bond() -> None:
    assert contenders.shifts(LOG, "lbt-server-team") == 2
    assert contenders.shifts(LOG, "lbt-upstream-server") == 1
    assert contenders.shifts("", "lbt-server-team") == 0
