"""Where VM ports go when an uplink fails: in order, and scattered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policies import failover
from policies.model import OfPort, Role, Uplink

UPLINKS = tuple(Uplink(f"eth{i}", OfPort(i), 1e9) for i in (1, 2, 3, 4))
VMS = [f"vnet{i}" for i in range(4000)]


def names(uplinks: object) -> list[str]:
    return [uplink.name for uplink in uplinks]  # type: ignore[attr-defined]


# ---- the order of one VM port ----------------------------------------------------------


@given(
    home=st.sampled_from(names(UPLINKS)),
    allowed=st.frozensets(st.sampled_from(names(UPLINKS))),
    backup=st.sampled_from((failover.as_configured, failover.scattered)),
)
def test_an_order_is_that_of_all_without_those_that_are_not_allowed(
    home: str, allowed: frozenset[str], backup: failover.BackupOrder
) -> None:
    of_all = names(failover.order("vm", home, UPLINKS, backup))
    left = names(failover.order("vm", home, UPLINKS, backup, allowed))
    assert left == [name for name in of_all if name in allowed]


def test_an_uplink_that_carries_nothing_is_put_last_and_the_rest_keep_their_order() -> None:
    eth2_down = tuple(replace(u, usable=u.name != "eth2") for u in UPLINKS)
    assert names(failover.usable_first(eth2_down)) == ["eth1", "eth3", "eth4", "eth2"]
    all_down = tuple(replace(u, usable=False) for u in UPLINKS)
    assert failover.usable_first(all_down) == all_down


# ---- many VM ports ---------------------------------------------------------------------


def test_scattered_orders_are_always_the_same_whatever_the_order_of_the_uplinks() -> None:
    before = names(failover.scattered("vnet7", UPLINKS))
    assert names(failover.scattered("vnet7", UPLINKS)) == before
    assert names(failover.scattered("vnet7", tuple(reversed(UPLINKS)))) == before
    assert before == ["eth3", "eth2", "eth1", "eth4"], "the same in every process, for ever"


def test_a_name_may_be_any_text() -> None:
    assert set(names(failover.scattered("\ud800", UPLINKS))) == set(names(UPLINKS))


def test_the_vm_ports_of_a_dead_uplink_scatter_over_all_that_are_left() -> None:
    refuges = Counter(failover.scattered(vm, UPLINKS[1:])[0].name for vm in VMS)
    assert set(refuges) == {"eth2", "eth3", "eth4"}
    assert all(0.30 < count / len(VMS) < 0.37 for count in refuges.values())


def test_the_vm_ports_of_a_dead_uplink_scatter_by_capacity() -> None:
    uplinks = (replace(UPLINKS[0], capacity_bps=4e9), *UPLINKS[1:])
    refuges = Counter(failover.scattered(vm, uplinks)[0].name for vm in VMS)
    assert 0.54 < refuges["eth1"] / len(VMS) < 0.60, "4 of 7 Gbit/s"
    assert all(0.12 < refuges[name] / len(VMS) < 0.17 for name in ("eth2", "eth3", "eth4"))


@given(
    unit=st.text(),
    capacities_bps=st.lists(st.floats(1e6, 1e12), min_size=1, max_size=8),
    data=st.data(),
)
def test_taking_one_uplink_away_leaves_the_order_of_the_others(
    unit: str, capacities_bps: list[float], data: st.DataObject
) -> None:
    uplinks = [Uplink(f"eth{i}", OfPort(i + 1), c) for i, c in enumerate(capacities_bps)]
    gone = data.draw(st.sampled_from(uplinks))
    expected = [u for u in failover.scattered(unit, uplinks) if u is not gone]
    assert failover.scattered(unit, [u for u in uplinks if u is not gone]) == expected


@given(
    unit=st.text(),
    roles=st.lists(st.sampled_from(Role), min_size=1, max_size=8),
    backup=st.sampled_from((failover.as_configured, failover.scattered)),
    data=st.data(),
)
def test_an_order_goes_by_role_then_home_then_backup_and_has_no_unused_uplink(
    unit: str, roles: list[Role], backup: failover.BackupOrder, data: st.DataObject
) -> None:
    uplinks = [Uplink(f"eth{i}", OfPort(i + 1), 1e9, role) for i, role in enumerate(roles)]
    home = data.draw(st.sampled_from(uplinks))
    ranks = [Role.ACTIVE, Role.STANDBY, Role.DRAINED]
    serving = [uplink for uplink in backup(unit, uplinks) if uplink.role in ranks]
    expected = sorted(serving, key=lambda u: (ranks.index(u.role), u is not home))
    assert list(failover.order(unit, home.name, uplinks, backup)) == expected
