"""Representors are recognized by the kernel's name of their port."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from controller.host import devices


@pytest.mark.parametrize(
    ("phys_port_name", "found"),
    [
        ("p0", False),
        ("p1s2", False),
        ("pf0", True),
        ("pf0vf0", True),
        ("pf1vf127", True),
        ("pf0sf88", True),
        ("c1pf0vf3", True),
        ("0", None),
        ("", None),
        ("lan1", None),
        ("pf0vf", None),
    ],
)
def test_a_port_is_told_by_its_name(
    tmp_path: Path, phys_port_name: str, found: bool | None
) -> None:
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "phys_port_name").write_text(f"{phys_port_name}\n")
    assert devices.is_representor("eth0", tmp_path) is found


@pytest.mark.parametrize("device", ["eth9", "", "..", "../eth0", "/etc", "x\0y"])
def test_what_is_no_device_stands_for_nothing(tmp_path: Path, device: str) -> None:
    assert devices.is_representor(device, tmp_path) is None


def test_the_loopback_device_of_this_host_is_no_switchdev_port_and_takes_no_flows_of_tc() -> None:
    assert devices.is_representor("lo") is None
    assert devices.offloads("lo", "any") is False


@pytest.mark.parametrize(
    ("device", "driver"),
    [
        ("lo", None),
        ("lo", "bonding"),
        ("lo", "802.1Q VLAN Support"),
        ("none-such", "veth"),
        ("", "a"),
    ],
)
def test_whether_others_take_them_is_not_known(device: str, driver: str | None) -> None:
    assert devices.offloads(device, driver) is None


@pytest.mark.parametrize(
    ("available", "active", "found"), [(0, 0, False), (1, 0, True), (0, 1, True), (1, 1, True)]
)
def test_one_that_is_switched_off_may_be_switched_on(
    monkeypatch: pytest.MonkeyPatch, available: int, active: int, found: bool
) -> None:
    """The second block of features has tc's."""

    def answered(_device: str, request: bytes, _more_bytes: int) -> bytes:
        blocks = struct.pack("=8I", 0xFFFFFFFF, 0, 0, 0, available << 17, 0, active << 17, 0)
        return request + blocks

    monkeypatch.setattr(devices, "_feature", lambda: 49)
    monkeypatch.setattr(devices, "_asked", answered)
    assert devices.offloads("eth0", "a") is found
