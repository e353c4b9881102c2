"""Thousands of invalid keys, as whoever writes the database can set them, keep no other bridge waiting."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.unit.fake_switch import world
from tests.unit.rows import ours, plain_uplinks

KEYS = 5000
# Of the processor. Each key compared with each other one takes many times as long.
AT_MOST_S = 1.0


def test_thousands_of_invalid_keys_take_a_moment() -> None:
    ids = ours(policy="originating-port", uplinks="eth1,eth2")
    row = replace(plain_uplinks("secure"), external_ids=ids)
    here = world(row).start()
    keys = {f"ovs-lbt-x{number}": "1" for number in range(KEYS)}
    bad = row.with_interfaces(lambda i: replace(i, external_ids=keys) if i.name == "vnet0" else i)
    begun_s = time.process_time()
    here.write(bad)
    here.write(replace(bad, flood_vlans=(7,)))
    took_s = time.process_time() - begun_s
    assert len(here.engine.fleet.bridges["br0"].config.errors) == KEYS
    assert took_s < AT_MOST_S
