"""CPU time per bit: the contenders, how a pipeline stops learning, and figures of what was counted."""

from __future__ import annotations

from typing import Any

import pytest

from topologies.compare.contenders import Ours
from topologies.measure.cpu_per_bit import BASE, STOPPED, Varied, contender, table, without_learning


def run(name: str, repetition: int, main_s: float) -> dict[str, Any]:
    return {
        "contender": name,
        "repetition": repetition,
        "loads": {
            "udp": {
                "span_s": 20.0,
                "delivered_bits": 2e9,
                "cpu_s": {"ovs-lbt": 1.0},
                "switch": {
                    "cpu_s": {"main": main_s, "handler": 1.0},
                    "sleeps": 100,
                    "packets": {"packets received": 4000.0, "miss with success upcall": 2.0},
                },
                "cached_flows": 8,
            }
        },
    }


RUNS = [run(BASE, 1, 9.0), run("ours", 1, 10.0), run(BASE, 2, 19.0), run("ours", 2, 21.0)]


def test_the_table_has_medians_and_ranges_and_ratios_of_the_same_repetition() -> None:
    head, _, base, ours = table(RUNS).splitlines()
    assert head.startswith("|load|contender|n|Mbit/s|switch, ms/Gbit|")
    assert ours.startswith("|udp|ours|2|100|8250 (5500 to 11000)|")
    assert "|200|" in ours, "packets/s"
    assert (base.split("|")[-2], ours.split("|")[-2]) == ("1", "1.09 (1.09 to 1.1)")


LEARNS = (
    " cookie=0x1, duration=0.645s, table=1, n_packets=5, n_bytes=300, priority=10,reg0=0x1"
    " actions=set_field:0x1->reg8,learn(table=20,hard_timeout=300,delete_learned,cookie=0x6c03,"
    "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_NX_REG0[0..15]->NXM_NX_REG3[0..15]),"
    "learn(table=21,result_dst=NXM_NX_REG8[0],load:0x1->NXM_NX_REG4[0]),goto_table:3"
)
LEARNED = (
    " cookie=0x6c03, duration=0.563s, table=20, n_packets=0, n_bytes=0, hard_timeout=300, "
    "reg2=0,dl_dst=52:54:00:00:00:01 actions=load:0x1->NXM_NX_REG3[0..15]"
)
OTHER = " cookie=0x1, duration=1s, table=3, n_packets=0, n_bytes=0, priority=10 actions=drop"


def test_a_pipeline_that_learns_no_more_keeps_what_it_has_learned() -> None:
    assert without_learning(["OFPST_FLOW reply (OF1.3) (xid=0x2):", LEARNS, LEARNED, OTHER]) == [
        "table=20,reg2=0,dl_dst=52:54:00:00:00:01,actions=load:0x1->NXM_NX_REG3[0..15]",
        "table=1,priority=10,reg0=0x1,actions=set_field:0x1->reg8,goto_table:3",
    ]


def test_contenders_by_name() -> None:
    assert isinstance(contender("dynamic/lacp"), Ours)
    varied = contender(f"dynamic, {STOPPED}")
    assert isinstance(varied, Varied)
    assert varied.name == f"dynamic, {STOPPED}"
    assert varied.observe().bindings == {}
    with pytest.raises(ValueError, match="left out: uplinks -> "):
        contender("dynamic, uplinks")
