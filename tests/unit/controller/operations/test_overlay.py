"""What attach says about the ports by which a host sends its tunnels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, Endpoint
from controller.operations.advice import of_endpoints as advice
from tests.said import says
from tests.unit.rows import host, with_interface

TEP = Endpoint(("192.0.2.1",), ("geneve",), ("br-int",))
SUBJECT = "tunnel endpoint vnet0 (geneve on br-int, from 192.0.2.1): "


def of(row: BridgeRow, *names: str, in_userspace: bool = False) -> list[str]:
    marked = replace(row, in_userspace=in_userspace).with_interfaces(
        lambda one: replace(one, endpoint=TEP if one.name in names else None)
    )
    return list(advice(read_bridge(marked)))


ADAPTIVE = ("load-based", ": ovs-lbt set interface vnet0 policy=adaptive, or ")
SPREADS = ("adaptive spreads", "source ports")


@pytest.mark.parametrize(
    ("row", "in_userspace", "parts"),
    [
        pytest.param(host(), False, ADAPTIVE, id="a whole endpoint"),
        pytest.param(host(), True, ADAPTIVE, id="a whole endpoint of the userspace datapath"),
        pytest.param(host(teaming="static"), True, ADAPTIVE, id="a LAG"),
        pytest.param(host("adaptive"), False, SPREADS, id="splits it"),
        pytest.param(
            host("adaptive"), True, ("adaptive", "; set up several"), id="must not split it"
        ),
        pytest.param(
            host("adaptive", teaming="static", connection_hash="multipath"),
            True,
            ("multipath", ": ovs-lbt set bridge br0 connection-hash=dp_hash"),
            id="cannot split it",
        ),
        pytest.param(host("adaptive", teaming="static"), True, SPREADS, id="splits it by dp_hash"),
        pytest.param(
            with_interface(host("adaptive"), "vnet0", pin="eth1"),
            False,
            ("adaptive", "; set up several"),
            id="pinned",
        ),
    ],
)
def test_the_only_endpoint(row: BridgeRow, in_userspace: bool, parts: tuple[str, ...]) -> None:
    (said,) = of(row, "vnet0", in_userspace=in_userspace)
    assert says(said, SUBJECT, *parts)


def test_several_endpoints() -> None:
    (said,) = of(host(), "vnet2", "vnet0")
    assert said.startswith("tunnel endpoints vnet0, vnet2: ")


@pytest.mark.parametrize(
    ("row", "in_userspace", "warned"),
    [
        (host("dynamic"), True, True),
        (host("dynamic"), False, False),
        (host("dynamic", teaming="static"), True, False),
        (host("adaptive"), True, False),
    ],
)
def test_several_endpoints_that_are_always_spread_receive_where_peers_want(
    row: BridgeRow, in_userspace: bool, warned: bool
) -> None:
    with_macs = row.with_interfaces(lambda one: replace(one, mac="02:00:00:00:00:01"))
    (said,) = of(with_macs, "vnet0", "vnet2", in_userspace=in_userspace)
    assert ("dynamic spreads sent traffic" in said) is warned
    assert ("; set policy=adaptive or load-based" in said) is warned


def test_a_bridge_without_endpoints() -> None:
    assert of(host()) == []
