"""Marks that are kept up to date are those that a reading of everything gives."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace

from controller.config.kept_keys import UPLINK_KEYS_COPY
from controller.config.marks import Marks
from controller.config.rows import BridgeRow, Ovn, PortRow
from tests.unit.rows import marked, ours, patch, port, tunnel

OWN = {"br0": ("10.0.0.1", "2001:db8::1"), "br1": ("10.0.0.2", "2001:db8::2")}
NO_ADDRESSES: Mapping[str, tuple[str, ...]] = {}
STORED = json.dumps({"eth0": ("an earlier record", ours(role="standby"))})


def a_port(chance: random.Random, number: int, bridges: int) -> PortRow:
    match chance.randrange(5):
        case 0:
            # Its peer may be on any bridge, on this one, or on none.
            return patch(f"p{number}", f"p{chance.randrange(4 * bridges)}")
        case 1:
            return tunnel(f"t{number}", local_ip=f"10.0.0.{chance.randrange(4)}")
        case 2:
            own, peer = chance.randrange(4), chance.randrange(3)
            ends = {"local_ip": f"2001:db8::{own}", "remote_ip": f"2001:db8::a:{peer}"}
            return tunnel(f"t{number}", **ends)
        case _:
            mac = f"02:00:00:00:00:{chance.randrange(16):02x}"
            return port(f"v{number}", 9, {"attached-mac": mac, "iface-id": f"i-{number}"})


def a_bridge(chance: random.Random, number: int, bridges: int) -> BridgeRow:
    name = f"br{number}"
    numbers = [n for n in range(4 * bridges) if n % bridges == number and chance.random() < 0.7]
    ports = (port(name, 65534), *(a_port(chance, n, bridges) for n in numbers))
    ids = ours(policy="load-based") if chance.random() < 0.6 else {}
    return BridgeRow(name, ports, external_ids=ids)


def test_they_are_those_of_a_reading_of_everything() -> None:
    assert sum(map(followed_at_random, range(12))), "no record was ever marked"


def followed_at_random(seed: int) -> int:
    """Compare after each of some random changes, and return how many records had marks."""
    chance, bridges = random.Random(seed), 5
    marks, rows, had_marks = Marks(), dict[str, BridgeRow](), 0
    ovn: Ovn | None = None
    addresses = NO_ADDRESSES
    for _ in range(60):
        number = chance.randrange(bridges)
        match chance.randrange(8):
            case 0:
                rows.pop(f"br{number}", None)
            case 1:
                ovn = chance.choice([None, Ovn(("10.0.0.2",))])
            case 2:
                addresses = chance.choice([NO_ADDRESSES, OWN])
            case _:
                rows[f"br{number}"] = a_bridge(chance, number, bridges)
        rows = dict(sorted(rows.items()))
        marks.mark(rows.values(), ovn, addresses)
        expected = marked(rows.values(), ovn, addresses)
        assert list(marks.rows.items()) == list(expected.rows.items())
        assert marks.endpoints == expected.endpoints
        had_marks += sum(row != rows[name] for name, row in marks.rows.items())
    return had_marks


def test_what_does_not_change_stays_the_same_object() -> None:
    vm = port("vnet0", 9, {"attached-mac": "02:00:00:00:00:01", "iface-id": "i-1"})
    rows = [
        BridgeRow("br0", (patch("to-int", "to-ex"),), external_ids=ours(policy="load-based")),
        BridgeRow("br1", (patch("to-1", "nowhere"),), external_ids=ours(policy="load-based")),
        BridgeRow("br-int", (patch("to-ex", "to-int"), vm)),
        BridgeRow("br2", (port("eth0", 1),), external_ids={UPLINK_KEYS_COPY: STORED}),
    ]
    marks = Marks()
    marks.mark(rows, None, NO_ADDRESSES)
    before = dict(marks.rows)
    assert before["br0"] is not rows[0]
    assert before["br2"].ports[0].interfaces[0].external_ids == ours(role="standby")
    rows[2] = replace(rows[2], ports=rows[2].ports[:1])
    marks.mark(rows, None, NO_ADDRESSES)
    assert marks.rows["br0"] == rows[0], "no VM is behind it any more"
    assert all(marks.rows[name] is before[name] for name in ("br1", "br2"))
