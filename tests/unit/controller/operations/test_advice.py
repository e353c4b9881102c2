"""What attach says about tunnel endpoints, patch ports, integration bridges, and Open vSwitch's release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, Endpoint, InterfaceRow, Ovn, PortRow
from controller.operations import advice
from tests.said import says
from tests.unit.rows import host, interface, ours, patch, with_ids, with_interface

# ---- patch ports and integration bridges ------------------------------------------------

OVN = Ovn(("192.0.2.1",), mapped=("br-ex",))
REMEDY = "ovs-lbt set bridge br0 patch-unit=source-mac"


def said(policy: str = "load-based", by_bridge: bool = False, **keys: str) -> str:
    row = with_ids(host(policy), **({"patch_unit": "source-mac"} if by_bridge else {}))
    row = replace(row, ports=(*row.ports, patch("to-int", "to-ex", **keys)))
    inner = BridgeRow("br-int", (patch("to-ex", "to-int"),))
    return "\n".join(advice.of_patch_ports(read_bridge(row), {"br0": row, "br-int": inner}))


def test_ovns_own_bridge_is_refused_and_the_right_one_is_named() -> None:
    row = BridgeRow("br-int")
    assert says(
        advice.refusal(row, OVN) or "", "bridge br-int is OVN's integration", "; ", ": br-ex"
    )
    assert says(
        advice.refusal(row, replace(OVN, mapped=())) or "",
        "bridge br-int is OVN's integration",
        "; ",
    )


@pytest.mark.parametrize(
    ("name", "ovn"), [("br-ex", OVN), ("br-int", None), ("br-int", replace(OVN, bridge="br-ovn"))]
)
def test_other_bridges_are_not_ovns(name: str, ovn: Ovn | None) -> None:
    assert advice.refusal(BridgeRow(name), ovn) is None


def test_a_key_of_the_port_is_told_to_be_lost_with_the_port() -> None:
    found = said(unit="source-mac")
    assert says(found, "patch port to-int to br-int: ", "unit=source-mac", "lost", f": {REMEDY}")


@pytest.mark.parametrize(
    ("policy", "by_bridge", "keys"),
    [
        pytest.param("load-based", True, {}, id="by the bridge's key"),
        pytest.param("load-based", True, {"unit": "source-mac"}, id="by both keys"),
        pytest.param("slb", False, {}, id="the policy tells addresses apart"),
        pytest.param("load-based", False, {"pin": "eth1"}, id="a rule keeps it together"),
    ],
)
def test_nothing_is_said_of_what_is_as_it_should_be(
    policy: str, by_bridge: bool, keys: dict[str, str]
) -> None:
    assert said(policy, by_bridge, **keys) == ""


PEERS: dict[str, tuple[InterfaceRow, dict[str, str], list[str]]] = {
    "attached": (interface("eth7", 7), {"uplinks": "eth6, eth7"}, ["eth7"]),
    "a network card": (interface("eth7", 7, driver="ixgbe"), {}, ["eth7"]),
    "a representor": (interface("eth7", 7, driver="mlx5e_rep", represents=True), {}, []),
    "a VM": (interface("vnet7", 7), {}, []),
}


@pytest.mark.parametrize("peer", PEERS)
def test_a_patch_port_to_a_bridge_with_uplinks_is_reported(peer: str) -> None:
    there, keys, uplinks = PEERS[peer]
    row = replace(host(), ports=(*host().ports, patch("to-ex", "to-int")))
    other = BridgeRow(
        "br-ex", (patch("to-int", "to-ex"), PortRow(there.name, (there,))), None, ours(**keys)
    )
    found = "".join(advice.of_joined_bridges(read_bridge(row), {"br0": row, "br-ex": other}))
    assert says(found, "patch port to-ex ", "br-ex, ", *uplinks) if uplinks else found == ""


def test_a_patch_port_whose_peer_is_not_known_is_named_alone() -> None:
    row = host()
    row = replace(row, ports=(*row.ports, patch("to-int", "nothing")))
    (line,) = advice.of_patch_ports(read_bridge(row), {"br0": row})
    assert line.startswith("patch port to-int: load-based ")


# ---- tunnel endpoints -------------------------------------------------------------------

TEP = Endpoint(("192.0.2.1",), ("geneve",), ("br-int",))
SUBJECT = "tunnel endpoint vnet0 (geneve on br-int, from 192.0.2.1): "


def of(row: BridgeRow, *names: str, in_userspace: bool = False) -> list[str]:
    marked = replace(row, in_userspace=in_userspace).with_interfaces(
        lambda one: replace(one, endpoint=TEP if one.name in names else None)
    )
    return list(advice.of_endpoints(read_bridge(marked)))


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


# ---- releases ---------------------------------------------------------------------------

TESTED = [".".join(map(str, release)) for release in advice.RUN_ON]


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("3.1.0", (3, 1)),
        ("3.1.0-dev", (3, 1)),
        ("v3.1", (3, 1)),
        (" 2.17.9-149.el8fdp", (2, 17)),
        ("10.20.1+git5f2c", (10, 20)),
        (None, None),
        ("", None),
        ("3", None),
        ("vendor 3.1.0", None),
        ("３.１.０", None),
        ("3.99999", None),
        ("-3.1", None),
    ],
)
def test_a_release_is_told_from_what_vendors_write(
    version: str | None, release: tuple[int, int] | None
) -> None:
    assert advice.release_of(version) == release


NOT_TESTED = f"has not been tested; tested releases are {', '.join(TESTED)}"
TOO_OLD = "cannot limit the number of flows that a learn action adds; upgrade to 2.8 or later"


@pytest.mark.parametrize(
    ("version", "why_not", "warning"),
    [
        *((one, "", "") for one in (None, *TESTED, *(f"{one}.7-vendor" for one in TESTED))),
        *((one, "", NOT_TESTED) for one in ("2.8.0", "2.17.9", "3.0.1", "99.0", "3.10.0")),
        *((one, TOO_OLD, NOT_TESTED) for one in ("2.7.3", "2.7.90-dev", "1.12.0")),
    ],
)
def test_a_release_is_refused_or_warned_of(version: str | None, why_not: str, warning: str) -> None:
    said = (advice.release_refusal(version), advice.release_warning(version))
    texts = [text and f"Open vSwitch {version} {text}" for text in (why_not, warning)]
    assert [text or "" for text in said] == texts


def test_what_cannot_be_told_is_warned_of_in_one_short_line() -> None:
    assert advice.release_refusal("x\ny") is None
    assert str(advice.release_warning("x\ny")).startswith("Open vSwitch x\\ny has ")
    assert len(str(advice.release_warning("x" * 5000))) < 300
