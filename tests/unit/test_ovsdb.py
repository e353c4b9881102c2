"""Records of the database, as the library has them, to values of ours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from controller import ovsdb


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("1000000", 1e6),
        ("", None),
        ("fast", None),
        ("-1", None),
        ("²", None),
        ("٣", None),
        ("9" * 400, None),
    ],
)
def test_a_rate_that_is_no_number_is_none(text: str, rate_bps: float | None) -> None:
    qos = SimpleNamespace(other_config={"max-rate": text})
    row = SimpleNamespace(
        name="eth1",
        interfaces=[],
        qos=[qos],
        tag=[],
        lacp=[],
        bond_mode=[],
        vlan_mode=[],
        trunks=[],
        protected=False,
        bond_active_slave=[],
        other_config={},
    )
    assert ovsdb._port(row).qos_max_rate_bps == rate_bps
