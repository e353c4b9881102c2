"""Contenders by name: which form the server's bridge has, and what a bond's log says."""

from __future__ import annotations

import pytest

from topologies import contenders, pace
from topologies.switches import (
    BalanceSlbServer,
    BondedServer,
    LacpServer,
    PlainUplinksServer,
    SplitServer,
)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("manual", SplitServer),
        ("active-backup", BondedServer),
        ("balance-slb", BalanceSlbServer),
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


def test_the_published_comparison_is_as_it_was() -> None:
    names = [one.name for one in contenders.all_contenders()]
    assert names == ["manual", "originating-port", "load-based"]


def test_unknown_contenders_are_refused() -> None:
    with pytest.raises(ValueError, match=r"contender: bond0 -> manual \| active-backup \| "):
        contenders.by_name("bond0")
    with pytest.raises(ValueError, match=r"teaming: mlag -> switch-independent \| lacp"):
        contenders.by_name("dynamic/mlag")
    with pytest.raises(ValueError, match="teaming:  -> "):
        contenders.by_name("dynamic/")


@pytest.mark.parametrize(
    ("chosen", "interval_ms"),
    [(pace.FAITHFUL, 10_000), (pace.ACCELERATED, 1000), (pace.QUICK, 1000)],
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
