"""What tells peers of a bridge's tunnel endpoints where these are, after the bridge was given back."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from controller import announce_endpoints
from controller.api.events import AddressesRead, DatabaseRead
from controller.dataplane.frames import garp
from controller.features.off_home import OWN_AFTER_S
from controller.host import addresses
from controller.text.wording import Refused
from tests.goldens.adapter import row_of
from tests.unit.controller.engine.test_endpoints import OWN_MAC

RESTART = "ovs-ofctl: br0: connection refused"


class Clock:
    """Time that passes only while somebody sleeps; and what is sent when."""

    def __init__(self, refused: int = 0) -> None:
        self.now_s = 0.0
        self.sent: list[tuple[float, tuple[str, ...]]] = []
        self._refused = refused

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, for_s: float) -> None:
        self.now_s += for_s

    def run(self, *command: str) -> str:
        self.sent.append((self.now_s, command))
        if len(self.sent) <= self._refused:
            raise Refused(RESTART)
        return ""


def announced(monkeypatch: pytest.MonkeyPatch, clock: Clock, bridge: str = "br0") -> Clock:
    """The bridge was detached, and its integration bridge has a tunnel from vnet0."""
    tunnel = ("vms=1", "vnet0-br-int@kind=geneve", "vnet0-br-int@tunnel=192.0.2.1")
    rows = (
        row_of(("bond", "unattached", f"vnet0@mac={OWN_MAC}")),
        row_of(("plain", "unattached", "uplinks=0", *tunnel), "br-int"),
    )
    monkeypatch.setattr(announce_endpoints, "read", lambda _remote: DatabaseRead(rows))
    devices = AddressesRead({"vnet0": ("192.0.2.1",)})
    monkeypatch.setattr(addresses, "read_addresses", lambda: devices)
    monkeypatch.setattr(announce_endpoints, "time", clock)
    monkeypatch.setattr(announce_endpoints, "run", clock.run)
    announce_endpoints.announce("unix:db.sock", {bridge})
    return clock


def test_the_last_announcement_comes_when_peers_have_forgotten_the_ones_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = announced(monkeypatch, Clock())
    assert [at_s for at_s, _ in clock.sent] == list(OWN_AFTER_S)
    assert OWN_AFTER_S[-1] - OWN_AFTER_S[-2] > 10.0
    frame = garp(OWN_MAC, IPv4Address("192.0.2.1")).hex()
    expected = f'in_port="vnet0", packet={frame}, actions=TABLE'
    assert {command[-2:] for _, command in clock.sent} == {("br0", expected)}


def test_a_switch_that_restarts_meanwhile_gets_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(announced(monkeypatch, Clock(refused=2)).sent) == len(OWN_AFTER_S)


def test_a_switch_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="connection refused"):
        announced(monkeypatch, Clock(refused=9))


def test_a_bridge_without_endpoints_has_none_to_announce(monkeypatch: pytest.MonkeyPatch) -> None:
    assert announced(monkeypatch, Clock(), bridge="br-int").sent == []


def test_addresses_that_cannot_be_read_are_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the command `plan --endpoints`, too."""

    def refused() -> AddressesRead:
        raise OSError("no netlink here")

    monkeypatch.setattr(addresses, "read_addresses", refused)
    with pytest.raises(Refused, match=r"addresses of this host cannot be read.*: no netlink here"):
        announce_endpoints.marked(DatabaseRead(()))
