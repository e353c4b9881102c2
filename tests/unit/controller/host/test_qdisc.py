"""What is done to uplinks' devices, where no switch could refuse it."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.engine_commands import Shape
from controller.dataplane import htb
from controller.dataplane.htb import DEFAULT_CLASS, Found, Host, Leaf, Shaper
from controller.host import qdisc
from controller.host.qdisc import Qdiscs
from controller.text.wording import Refused

WANTED = Shaper(10**8, False, (Leaf(DEFAULT_CLASS, 50, 8000, 10**8),), (), queues=8)


@pytest.mark.parametrize("leads", [True, False])
def test_only_who_leads_changes_how_a_device_queues(
    monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    run: list[tuple[str, ...]] = []

    def tc(*words: str, **_: Any) -> str:
        run.append(words)
        return ""

    monkeypatch.setattr(qdisc, "run", tc)
    monkeypatch.setattr(qdisc, "read", lambda _device: Found())
    monkeypatch.setattr(qdisc, "_mtu_bytes", lambda _device: Host().mtu_bytes)
    monkeypatch.setattr(htb, "is_complete", lambda *_: True)
    qdiscs = Qdiscs(lambda _: None, beside_the_switch=True, confirmed=lambda: leads)
    (device,) = qdiscs.carry_out(Shape("br0", (("eth1", WANTED),))).devices
    assert (device.error, bool(run)) == (
        (None, True) if leads else ("another service leads", False)
    )


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("tc qdisc show dev eth1: not installed", htb.UNREAD),
        ('Cannot find device "eth1"', Found()),
    ],
)
def test_a_device_that_cannot_be_read_is_not_taken_for_one_without_queues(
    monkeypatch: pytest.MonkeyPatch, error: str, found: Found
) -> None:
    def refuses(*_: str, **__: Any) -> str:
        raise Refused(error)

    monkeypatch.setattr(qdisc, "run", refuses)
    qdiscs = Qdiscs(lambda _: None, beside_the_switch=True)
    (device,) = qdiscs.carry_out(Shape("br0", (("eth1", None),))).devices
    assert (device.found, device.error) == (found, error)
