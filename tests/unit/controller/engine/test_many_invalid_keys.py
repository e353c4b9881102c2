"""Thousands of invalid keys, as whoever writes the database can set them, keep no other bridge waiting."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.unit.fake_switch import world
from tests.unit.rows import host

FEW, MANY = 1250, 5000
# Linear work takes 4 times as long; each key compared with each other one takes 16 times as long.
AT_MOST_TIMES = 9.0
TRIES = 3


def test_the_time_for_invalid_keys_is_linear_in_their_number() -> None:
    least_s = {keys: min(_taken_s(keys) for _ in range(TRIES)) for keys in (FEW, MANY)}
    assert least_s[MANY] < AT_MOST_TIMES * least_s[FEW]


def _taken_s(number: int) -> float:
    """The processor time of two changes of a row with so many invalid keys."""
    row = host("originating-port", plain=True)
    here = world(row).start()
    keys = {f"ovs-lbt-x{key}": "1" for key in range(number)}
    bad = row.with_interfaces(lambda i: replace(i, external_ids=keys) if i.name == "vnet0" else i)
    begun_s = time.process_time()
    here.write(bad)
    here.write(replace(bad, flood_vlans=(7,)))
    taken_s = time.process_time() - begun_s
    assert len(here.bridge.config.errors) == number
    return taken_s
