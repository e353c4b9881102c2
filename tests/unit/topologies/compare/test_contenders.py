"""Contenders: their names and bridge forms, their selection, and the shifts in a bond's log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.presets import PRESETS
from topologies.compare import contenders
from topologies.layouts import LAYOUTS
from topologies.loads import pace
from topologies.network.private_ovs import PrivateOvs
from topologies.network.switches import (
    BalanceSlbServer,
    BondedServer,
    LacpServer,
    PlainUplinksServer,
    ServerBridge,
    SplitServer,
)


def test_every_preset_is_a_contender_with_a_default_teaming() -> None:
    assert contenders.OURS.keys() == PRESETS.keys()
    assert {contenders.by_name(name).name for name in contenders.OURS} == PRESETS.keys()
    assert contenders.by_name("ip-hash/lacp").name == "ip-hash"


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
        (["balance-slb"], None, r"--policy balance-slb -> originating-port \| "),
        (["manual"], None, "--policy manual -> "),
        (["oracle"], None, "--policy oracle -> "),
        (None, ["dynamic"], r"--against dynamic -> manual \| .* \| none"),
        (["ecmp"], None, r"contender: ecmp -> manual \| active-backup \| "),
        (["dynamic/mlag"], None, r"teaming: mlag -> switch-independent \| lacp"),
        (["dynamic/"], None, "teaming:  -> "),
        (["balance-slb+path-check"], None, r"contender: balance-slb\+path-check -> "),
        (["dynamic/lacp+path-check"], None, "path checks with lacp -> switch-independent"),
    ],
)
def test_unknown_names_and_peers_as_policies_are_rejected(
    policies: list[str] | None, peers: list[str] | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        contenders.select(USUAL, policies, peers)


def test_oracle_sends_each_flow_by_the_uplink_that_its_port_names(tmp_path: Path) -> None:
    server = cast(ServerBridge, SimpleNamespace(name="server", uplinks=["up1", "up2", "up3"]))
    ovs = Mock()
    numbers = {"up1": "4", "up2": "5", "up3": "6"}
    ovs.vsctl.side_effect = lambda *words: numbers[words[2]]
    teams = contenders.Teams(ovs, [server], {}, pace.QUICK, tmp_path)
    contenders.by_name("oracle").take_over(teams, contextlib.ExitStack())
    said = [" ".join(one.args) for one in ovs.run.call_args_list]
    groups = [one for one in said if "add-group" in one]
    flows = [one for one in said if "add-flow" in one]
    assert len(groups) == len(flows) == 3
    for number, order in enumerate(("4 5 6", "5 6 4", "6 4 5")):
        buckets = ",".join(f"bucket=watch_port:{one},output:{one}" for one in order.split())
        assert groups[number].endswith(
            f" server group_id={number + 1},type=fast_failover,{buckets}"
        )
        assert f"tcp,tp_src=7300,tp_dst={number}/0x3,actions=group:{number + 1}" in flows[number]


def test_path_checks_tell_when_they_found_the_first_fault(tmp_path: Path) -> None:
    contender = contenders.Ours("load-based", path_check=True)
    contender._ovs = cast(PrivateOvs, SimpleNamespace(rundir=tmp_path))
    contender._checked_at = 1000.0
    assert contender.figures() == {}, "no history"
    lines = [("move", 1001.0), ("path-fault", 1004.5), ("path-fault", 1002.5)]
    history = tmp_path / contenders.HISTORY
    history.write_text(f'{{"event": "{lines[0][0]}", "at": {lines[0][1]}}}\n')
    assert contender.figures() == {}, "no fault"
    history.write_text("".join(f'{{"event": "{what}", "at": {at}}}\n' for what, at in lines))
    assert contender.figures() == {"fault_found_s": 2.5}


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
