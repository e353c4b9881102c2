"""What a switch prints of its counters, as numbers."""

from __future__ import annotations

from topologies.measure.cpu_loads import SwitchCounters, difference, events, main_thread

STATISTICS = """\
pmd thread numa_id 0 core_id 1:
  packets received: 7
main thread:
  packets received: 1000
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 0
  simple match hits: 3
  emc hits: 900 (90.0%)
  megaflow hits: 80
  avg. subtable lookups per megaflow hit: 1.50
  miss with success upcall: 20
  avg. packets per output batch: 1.10
"""
COVERAGE = """\
Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=d58ae554:
bridge_reconfigure         0.0/sec     0.000/sec        0.0000/sec   total: 3
poll_create_node         812.6/sec   311.050/sec       13.0133/sec   total: 46848
12 events never hit
"""


def test_packets_of_the_main_thread() -> None:
    counted = main_thread(STATISTICS)
    assert counted["packets received"] == 1000
    assert counted["emc hits"] == 900
    assert counted["subtable lookups"] == 120
    assert not any(name.startswith("avg") for name in counted)
    assert main_thread("") == {"subtable lookups": 0.0}


def test_events() -> None:
    assert events(COVERAGE) == {"bridge_reconfigure": 3, "poll_create_node": 46848}


def test_what_was_counted_between_two_looks() -> None:
    before = SwitchCounters({"main": 1.0}, 10, {"packets received": 5.0}, {"a": 1, "b": 2})
    after = SwitchCounters(
        {"main": 3.0, "handler": 0.5}, 25, {"packets received": 9.0}, {"a": 1, "b": 5, "c": 1}
    )
    found = difference(before, after)
    assert found == SwitchCounters(
        {"main": 2.0, "handler": 0.5}, 15, {"packets received": 4.0}, {"b": 3, "c": 1}
    )
