"""What attach says about integration bridges, and patch ports that lead to one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, InterfaceRow, Ovn, PortRow
from controller.operations.advice import of_patch_ports as advice
from controller.operations.advice import refusal
from tests.said import says
from tests.unit.rows import host, ours, with_ids

OVN = Ovn(("192.0.2.1",), mapped=("br-ex",))
REMEDY = "ovs-lbt set bridge br0 patch-unit=source-mac"


def patch(name: str, peer: str, **keys: str) -> PortRow:
    made = InterfaceRow(name, 20, external_ids=ours(**keys), kind="patch", peer=peer)
    return PortRow(name, (made,))


def said(policy: str = "load-based", by_bridge: bool = False, **keys: str) -> str:
    row = with_ids(host(policy), **({"patch_unit": "source-mac"} if by_bridge else {}))
    row = replace(row, ports=(*row.ports, patch("to-int", "to-ex", **keys)))
    inner = BridgeRow("br-int", (patch("to-ex", "to-int"),))
    return "\n".join(advice(read_bridge(row), {"br0": row, "br-int": inner}))


def test_ovns_own_bridge_is_refused_and_the_right_one_is_named() -> None:
    row = BridgeRow("br-int")
    assert says(refusal(row, OVN) or "", "bridge br-int is OVN's integration", "; ", ": br-ex")
    assert says(
        refusal(row, replace(OVN, mapped=())) or "", "bridge br-int is OVN's integration", "; "
    )


@pytest.mark.parametrize(
    ("name", "ovn"), [("br-ex", OVN), ("br-int", None), ("br-int", replace(OVN, bridge="br-ovn"))]
)
def test_other_bridges_are_not_ovns(name: str, ovn: Ovn | None) -> None:
    assert refusal(BridgeRow(name), ovn) is None


def test_a_patch_port_as_one_vm_port_is_named() -> None:
    assert says(said(), "patch port to-int to br-int: ", "load-based", f": {REMEDY}")


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


def test_a_patch_port_whose_peer_is_not_known_is_named_alone() -> None:
    row = host()
    row = replace(row, ports=(*row.ports, patch("to-int", "nothing")))
    (line,) = advice(read_bridge(row), {"br0": row})
    assert line.startswith("patch port to-int: load-based ")
