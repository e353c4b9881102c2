"""docs/metrics.md against what the service exports, and how much that is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from controller.api.status import BridgeStatus
from controller.metrics.exporter import HELP, OBSERVED, PREFIX
from tests.unit.controller.metrics.test_exporter import ETH1, VNET0
from tests.unit.dashboards.exported import BR0, families

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_every_family_has_a_help_text_and_no_other() -> None:
    names = {family.name.removeprefix(PREFIX) for family in families(BR0)}
    assert names == {f"{n}_seconds" if n in OBSERVED else n for n in HELP}


def test_a_help_text_is_made_of_sentences() -> None:
    assert all(text[0].isupper() or text[0].isdigit() for text in HELP.values())
    assert all(text.endswith(".") for text in HELP.values())


def with_uplinks(count: int) -> BridgeStatus:
    """On which probes lose nothing."""
    names = [f"eth{number}" for number in range(count)]
    uplinks = [replace(ETH1.uplink, name=name) for name in names]
    return replace(BR0, uplinks=tuple(replace(ETH1, uplink=u, path_faults=()) for u in uplinks))


def with_ports(count: int) -> BridgeStatus:
    ports = [replace(VNET0.port, name=f"vnet{number}") for number in range(count)]
    return replace(BR0, ports=tuple(replace(VNET0, port=port) for port in ports))


def series(*bridges: BridgeStatus) -> int:
    return sum(len(family.samples) for family in families(*bridges))


def test_series_grow_by_as_many_with_each_port_uplink_and_bridge_as_the_page_says() -> None:
    """Never by ports times uplinks."""
    text = PAGE.read_text()
    found = re.search(r"(\d+) \+ (\d+) B \+ (\d+) U \+ (\d+) P", text)
    assert found, "no formula of the number of series"
    service, bridge, uplink, port = map(int, found.groups())
    assert _steps(with_ports) == [port] * 40
    assert _steps(with_uplinks) == [uplink] * 40
    bare = replace(BR0, uplinks=(), ports=())
    other = replace(bare, config=replace(BR0.config, name="br1"))
    assert series(bare, other) - series(bare) == bridge
    assert series(bare) == service + bridge
    assert series(BR0) == service + bridge + uplink + port + len(ETH1.path_faults)


def _steps(of: Callable[[int], BridgeStatus]) -> list[int]:
    counts = [series(of(count)) for count in range(41)]
    return [after - before for before, after in itertools.pairwise(counts)]
