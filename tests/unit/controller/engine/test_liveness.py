"""What watches a link beyond carrier: it is said which of them hears no answer, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow
from tests.unit.controller.engine.told import entries, shown
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import host, with_lacp


def watched(row: BridgeRow, *uplinks: str, bfd: bool = True, cfm: bool = False) -> BridgeRow:
    """The same bridge with BFD, CFM or both on these uplinks."""
    return row.with_interfaces(lambda i: replace(i, bfd=bfd, cfm=cfm) if i.name in uplinks else i)


def started() -> World:
    return world(watched(host("originating-port", failback_delay_s="5"), "eth1")).start()


def uplink(here: World, name: str = "eth1") -> dict[str, Any]:
    return next(one for one in shown(here)["uplinks"] if one["name"] == name)


def told(here: World) -> list[str]:
    return [entry["why"] for entry in entries(here, "link-down", "link-up")]


@pytest.mark.parametrize(
    ("row", "by"),
    [
        (host(), ()),
        (watched(host(), "eth1"), ("BFD",)),
        (watched(host(), "eth1", bfd=False, cfm=True), ("CFM",)),
        (with_lacp(host(), falls_back=False), ("LACP",)),
        (watched(with_lacp(host(), falls_back=False), "eth1"), ("LACP", "BFD")),
    ],
)
def test_what_watches_an_uplink_is_what_the_database_says(
    row: BridgeRow, by: tuple[str, ...]
) -> None:
    assert read_bridge(row).uplinks[0].watched_by == by


def test_an_uplink_without_an_answer_is_left_and_it_is_said_why() -> None:
    here = started().run_until(10)
    here.set_link(1, up=False, silent=True).run_for(1)
    assert set(here.bindings().values()) == {"eth2"}
    assert uplink(here)["up"] is False and uplink(here)["silent"] == ["BFD"]
    assert "no answer" in done(here.ask("show"))
    assert "no answer (BFD)" in done(here.ask("explain", "vnet0"))
    assert told(here) == ["no BFD response on eth1"]
    here.set_link(1, up=True).run_for(20)
    assert set(here.bindings().values()) == {"eth1", "eth2"}
    assert "silent" not in uplink(here)
    assert told(here)[1:] == ["the link of eth1 went up"]
    assert here.status.uplinks[0].link_changes == 2


def test_a_link_that_goes_after_its_answer_is_told_as_such_and_counted_once() -> None:
    """Open vSwitch says first that the port is no longer live, and then that it has no link."""
    here = started().run_until(10)
    here.set_link(1, up=False, silent=True).set_link(1, up=False)
    assert told(here) == ["no BFD response on eth1", "the link of eth1 went down"]
    assert "silent" not in uplink(here) and uplink(here)["up"] is False
    # It returns as it went: the link first.
    here.set_link(1, up=False, silent=True)
    assert uplink(here)["silent"] == ["BFD"]
    here.set_link(1, up=True)
    assert told(here)[2:] == ["the link of eth1 went up"]
    assert here.status.uplinks[0].link_changes == 2


def test_an_uplink_that_nothing_watches_is_down_without_its_link() -> None:
    here = started().run_until(10)
    here.set_link(2, up=False, silent=True).set_link(2, up=False)
    assert "silent" not in uplink(here, "eth2")
    assert told(here) == ["the link of eth2 went down"]
