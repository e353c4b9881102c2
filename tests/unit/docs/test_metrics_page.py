"""docs/metrics.md against what the service exports, and how much that is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from controller.api.status import BridgeStatus
from policies.model import Reason
from tests.unit.controller.metrics.test_exporter import ETH1, VNET0
from tests.unit.dashboards.exported import BR0, families

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) ?\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
UNITS = {"bytes": "bytes", "bytes_per_second": "bytes/s", "ratio": "ratio", "seconds": "s"}


def listed() -> dict[str, tuple[str, list[str]]]:
    """Type and labels of each metric, as the page has them."""
    return {name: (kind, labels.split(", ")) for name, kind, labels, *_ in _rows()}


def exported() -> dict[str, tuple[str, list[str]]]:
    found = {}
    for family in families(BR0):
        kept = [s for s in family.samples if not s.name.endswith(("_created", "_bucket"))]
        labels = {label for sample in kept for label in sample.labels}
        name = family.name.removeprefix("ovslbt_")
        full = f"{name}_total" if family.type == "counter" else name
        found[full] = (family.type, sorted(labels))
    return found


def _rows() -> list[tuple[str, str, str, str, str]]:
    return [
        (name, kind, labels.strip(), unit, meaning)
        for name, kind, labels, unit, meaning in ROW.findall(PAGE.read_text())
    ]


def test_the_page_lists_every_metric_with_its_type_and_labels_and_no_other() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(_rows()) == len(listed())
    by_name = {
        name: (kind, sorted(filter(None, labels))) for name, (kind, labels) in listed().items()
    }
    assert by_name == exported()


def test_units_are_those_that_the_names_end_in() -> None:
    for name, _, _, unit, _ in _rows():
        ending = next((e for e in UNITS if name.removesuffix("_total").endswith(e)), None)
        if ending is not None:
            expected = "s since the epoch" if name.endswith("timestamp_seconds") else UNITS[ending]
            assert unit == expected, name


def test_the_page_lists_every_reason_of_a_move() -> None:
    found = re.search(r"^Reasons of moves: ([\w, ]+)\.$", PAGE.read_text(), re.MULTILINE)
    assert found
    assert found[1].split(", ") == [reason.value for reason in Reason]


def with_uplinks(count: int) -> BridgeStatus:
    """On which probes lose nothing."""
    well = replace(ETH1, path_faults=())
    return replace(BR0, uplinks=tuple(replace(well, name=f"eth{n}") for n in range(count)))


def with_ports(count: int) -> BridgeStatus:
    return replace(BR0, ports=tuple(replace(VNET0, name=f"vnet{n}") for n in range(count)))


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
    assert series(bare, replace(bare, name="br1")) - series(bare) == bridge
    assert series(bare) == service + bridge
    assert series(BR0) == service + bridge + uplink + port + len(ETH1.path_faults)


def _steps(of: Callable[[int], BridgeStatus]) -> list[int]:
    counts = [series(of(count)) for count in range(41)]
    return [after - before for before, after in itertools.pairwise(counts)]
